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
#include "router/discovery/etcd_client.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/service/system_options.h"
#include "router/wire/plane_tls.h"

enum mocker_discovery { MOCKER_FILE, MOCKER_KUBERNETES, MOCKER_ETCD, MOCKER_NOWHERE };
enum mocker_publish_as { MOCKER_TO_COMPONENT, MOCKER_TO_ENDPOINT };
enum mocker_role { MOCKER_AGGREGATED, MOCKER_PREFILL, MOCKER_DECODE };
enum { MOCKER_WORKERS_MAX = 256 };

struct mocker_conf {
    /* As given; strings are owned. */
    char *model_path, *model_name, *endpoint_text, *extra_engine_args;
    char *hf_home, *hf_hub_cache, *hf_endpoint, *hf_token;
    bool hf_offline, self_host_metadata;
    uint64_t model_cache_mb;
    uint64_t n_blocks, block_size, max_num_seqs, max_num_batched_tokens, dp_size, n_workers;
    uint64_t startup_ms, context_length, migration_limit, seed, waiting_max;
    bool prefix_caching, chunked_prefill, local_indexer, kv_events;
    double watermark, speedup_ratio, eos_probability;
    int decode_timing; /* enum decode_timing */
    int publish_as;    /* enum mocker_publish_as */
    char *tool_call_parser, *reasoning_parser;
    char *store_kv, *discovery_backend, *event_plane, *zmq_brokers;
    bool zmq_find_brokers;
    int request_plane; /* enum plane_kind */
    char *http_rpc_host, *http_rpc_root;
    uint64_t http_rpc_port;
    uint64_t stream_max_age_ms;
    char *ns_env, *file_kv, *nats_server;
    struct etcd_conf etcd;
    char *nats_user, *nats_password, *nats_token, *nats_nkey, *nats_credentials;
    char *nats_tls_ca, *nats_tls_cert, *nats_tls_key;
    bool nats_tls_unverified;
    struct plane_tls_conf plane_tls;
    int response_plane; /* enum response_plane */
    struct system_options system;
    char *tcp_host;
    uint64_t tcp_port, tcp_message_max, tcp_pool_size, tcp_queue_size, grace_ms;
    uint64_t request_limit, request_queue_limit; /* the former not 0: both instead of those two */
    char *pod_name, *pod_uid, *pod_namespace;
    char *container; /* which publishes for itself, if it is of_container */
    int of_container;
    char *kubeconfig, *kube_host, *kube_port;
    char *log_filter;
    bool log_jsonl;
    int role; /* enum mocker_role, of either generation's flags */
    bool is_prefill, is_decode;
    char *bootstrap_ports_text, *engine_ports_text, *engine_replay_ports_text;
    char *profile_data; /* asked for, but not ours: refused */
    /* Derived. */
    char *ns, *component, *endpoint;
    char *hub_cache; /* NULL = none */
    enum mocker_discovery discovery;
    bool has_events, events_on_zmq;
    size_t plane_running_max, plane_waiting_max; /* requests */
    uint64_t openai_port; /* not 0: a plain OpenAI server, without the Dynamo runtime */
    uint16_t bootstrap_ports[MOCKER_WORKERS_MAX]; /* of each worker; 0 = a free one */
    size_t n_bootstrap_ports;
    uint16_t engine_ports[MOCKER_WORKERS_MAX], engine_replay_ports[MOCKER_WORKERS_MAX];
    size_t n_engine_ports, n_engine_replay_ports; /* 0 = no engine events */
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
