/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dynamo-mocker is told: the names of `python -m dynamo.mocker` and of Dynamo's environment
 * (wire.md §6.6, 11.3; router.md §8.5), and a few of ours that the help text names.
 *
 * Reads the file of --extra-engine-args; else pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"

enum mocker_discovery { MOCKER_FILE, MOCKER_KUBERNETES };

struct mocker_conf {
    /* As given; strings are owned. */
    char *model_path, *model_name, *endpoint_text, *extra_engine_args;
    uint64_t n_blocks, block_size, max_num_seqs, max_num_batched_tokens, dp_size, n_workers;
    uint64_t startup_ms, context_length, migration_limit, seed, waiting_max;
    bool prefix_caching, chunked_prefill, local_indexer, kv_events;
    double watermark, speedup_ratio, eos_probability;
    int decode_timing; /* enum decode_timing */
    char *tool_call_parser, *reasoning_parser;
    char *store_kv, *discovery_backend, *request_plane, *event_plane;
    char *ns_env, *file_kv, *nats_server;
    char *nats_user, *nats_password, *nats_token, *nats_credentials;
    char *system_port_text, *system_host, *tcp_host;
    uint64_t tcp_port, tcp_message_max, tcp_pool_size, grace_ms;
    char *pod_name, *pod_uid, *pod_namespace;
    char *kubeconfig, *kube_host, *kube_port;
    char *log_filter;
    bool log_jsonl;
    /* Asked for, but not ours: refused. */
    bool is_prefill, is_decode;
    char *profile_data, *bootstrap_ports;
    /* Derived. */
    char *ns, *component, *endpoint;
    enum mocker_discovery discovery;
    bool has_events; /* over NATS */
    int system_port; /* -1 = none */
};

extern const struct conf_spec MOCKER_SPEC;

/*
 * 0, CONF_HELP, CONF_VERSION, or -errno with what is wrong. Free with mocker_conf_done() in every
 * case.
 */
MUST_CHECK int mocker_conf_load(struct mocker_conf *ret, int argc, char *const *argv,
                                const char *(*env)(const char *name), struct err *e);
void mocker_conf_done(struct mocker_conf *c);
DEFINE_CLEANUP_EMBEDDED(struct mocker_conf, mocker_conf_done)
