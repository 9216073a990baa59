/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the frontend: one table for flags, environment, bounds and --help
 * (names and defaults: router.md §6.1, wire.md §11.1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/conf.h"
#include "router/sched/route_conf.h"

enum discovery { DISCOVERY_KUBERNETES, DISCOVERY_FILE, DISCOVERY_MEM, DISCOVERY_ETCD };

struct frontend_conf {
    char *http_host;
    uint64_t http_port;
    char *ns;
    int store_kv;          /* enum discovery */
    int discovery_backend; /* enum discovery_backend_word; wins over store_kv */
    char *file_kv;
    char *request_plane, *event_plane;
    char *model_root, *model_name, *model_path;
    char *metrics_prefix;
    uint64_t kv_block_size;
    struct route_conf route;
    bool replica_sync, reset_states, enforce_disagg;
    uint64_t snapshot_threshold;
    uint64_t body_limit_mb, connections_max, requests_max;
    uint64_t drain_ms;
    char *nats_server, *nats_user, *nats_password, *nats_token, *nats_credentials;
    char *pod_name, *pod_uid, *pod_namespace, *pod_ip, *tcp_rpc_host;
    uint64_t connect_ms, ack_ms, call_home_ms, first_token_ms;
    uint64_t pool_max;
    char *routing_config_map, *routing_file;
    char *log_filter;
    bool log_jsonl;
};

extern const struct conf_spec FRONTEND_CONF_SPEC;

/* Which store to use: DYN_DISCOVERY_BACKEND in either generation's words, else --store-kv. */
enum discovery frontend_conf_discovery(const struct frontend_conf *c);
/* Whether a variable belongs to the live routing configuration. */
bool frontend_conf_is_routing(struct str env_name);
