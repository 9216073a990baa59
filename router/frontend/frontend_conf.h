/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the frontend: one table for flags, environment, bounds and --help
 * (names and defaults: router.md §6.1, wire.md §11.1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/conf.h"
#include "router/discovery/etcd_client.h"
#include "router/frontend/admission.h"
#include "router/frontend/histogram_range.h"
#include "router/frontend/tracking.h"
#include "router/sched/route_conf.h"
#include "router/sync/kv_events.h"
#include "router/token/template.h"
#include "router/wire/plane_client.h"

enum event_plane { EVENT_PLANE_NATS, EVENT_PLANE_ZMQ };
enum discovery { DISCOVERY_KUBERNETES, DISCOVERY_FILE, DISCOVERY_MEM, DISCOVERY_ETCD };

enum { FRONTEND_IDLE_WORDS = 6, FRONTEND_IDLE_FLAGS = 6 };

/* Routes whose path an operator may choose. What is below a path goes with it. */
enum frontend_path {
    PATH_CHAT,
    PATH_COMPLETIONS,
    PATH_EMBEDDINGS,
    PATH_RESPONSES,
    PATH_MESSAGES,
    PATH_MODELS,
    PATH_HEALTH,
    PATH_LIVE,
    PATH_METRICS,
    FRONTEND_PATHS
};

struct frontend_conf {
    char *http_host;
    uint64_t http_port;
    char *ns, *ns_prefix;
    int store_kv;          /* enum discovery */
    int discovery_backend; /* enum discovery_backend_word; wins over store_kv */
    char *file_kv;
    struct etcd_conf etcd;
    uint64_t discovery_keep_ms, discovery_keep_down_ms, discovery_mismatch_ms;
    int request_plane; /* enum plane_kind; each worker's record says which is its own */
    int event_plane;   /* enum event_plane */
    char *zmq_brokers;
    bool zmq_find_brokers;
    char *engine_urls;    /* engine_spec texts between spaces */
    char *engine_api_key; /* secret */
    char *model_root, *model_name, *model_path;
    char *hf_home, *hf_hub_cache, *hf_endpoint, *hf_token;
    bool hf_offline;
    uint64_t model_file_mb, model_cache_mb;
    int template_style; /* enum template_style */
    int answer_style;   /* enum answer_style */
    char *metrics_prefix;
    struct histogram_range histograms[FRONTEND_HISTOGRAMS];
    uint64_t kv_block_size;
    bool tokenizer_cache;
    uint64_t tokenizer_cache_bytes;
    struct route_conf route;
    char *mooncake_events; /* NULL: as workers' cards say */
    struct admission_options queue;
    struct tracking_options tracking;
    int overload_status; /* enum overload_word */
    bool replica_sync, reset_states, enforce_disagg, serve_indexer, use_remote_indexer;
    uint64_t remote_indexer_ms;
    uint64_t min_initial_workers;
    char *prefill_selector, *decode_selector; /* instances of the policy file; may be NULL */
    char *bypass_json;                        /* read into route.bypass */
    uint64_t snapshot_threshold, stream_max_age_ms;
    char *index_folder; /* NULL = the index is not kept */
    uint64_t index_period_ms;
    uint64_t decision_records, record_mb;
    char *record_file;
    uint64_t body_limit_mb, connections_max, requests_max;
    char *paths[FRONTEND_PATHS]; /* each begins with a slash */
    bool no_admin_api;
    uint64_t drain_ms;
    char *nats_server, *nats_user, *nats_password, *nats_token, *nats_nkey, *nats_credentials;
    char *nats_tls_ca, *nats_tls_cert, *nats_tls_key;
    bool nats_tls_unverified;
    struct plane_tls_conf plane_tls;
    int response_plane; /* enum response_plane */
    char *pod_name, *pod_uid, *pod_namespace, *pod_ip, *tcp_rpc_host;
    char *home_host; /* where workers call; NULL = anywhere, at pod_ip or tcp_rpc_host */
    uint64_t home_port;
    uint64_t connect_ms, ack_ms, nats_ack_ms, http_ack_ms, call_home_ms, first_token_ms, gap_ms;
    uint64_t pool_max;
    uint64_t migration_limit, migration_tokens_max; /* of the latter, 0 = no limit */
    uint64_t inhibit_ms;
    char *routing_config_map, *routing_file;
    char *log_filter;
    /* Options of the reference that mean nothing here; named at the start. */
    char *idle_words[FRONTEND_IDLE_WORDS];
    bool idle_flags[FRONTEND_IDLE_FLAGS];
    struct {
        bool console, kserve;
        int chat_processor; /* 0 = our own */
    } absent;               /* here, and asked for in vain */
    bool log_jsonl, otel;
    bool anthropic, strip_preamble, dispatch_calls, dispatch_thoughts;
    bool no_nvext, reads_loosely, tells_usage;
    uint64_t keep_alive_ms;
    int reasoning_field;                      /* enum reasoning_field */
    char *tls_cert, *tls_key, *tls_client_ca; /* NULL: plain HTTP */
};

enum overload_word { OVERLOAD_503, OVERLOAD_529 };

extern const struct conf_spec FRONTEND_CONF_SPEC;

/* conf_load() and what takes more than a table; free with conf_done() in every case. */
MUST_CHECK int frontend_conf_load(struct frontend_conf *ret, int argc, char *const *argv,
                                  const char *(*env)(const char *name), struct err *e);

/* Whose index counts, and what fits it: of the load, or of what loads the same fields in another way. */
/* -EINVAL when prompts are to be predicted by a simulator. */
MUST_CHECK int frontend_conf_check_load_model(const struct frontend_conf *c, struct err *e);
MUST_CHECK int frontend_conf_settle_index(struct frontend_conf *c, struct err *e);

/* Which store to use: DYN_DISCOVERY_BACKEND in either generation's words, else --store-kv. */
enum discovery frontend_conf_discovery(const struct frontend_conf *c);
/* How workers are reached. Borrows @c. */
struct plane_client_conf frontend_conf_plane(const struct frontend_conf *c, const char *program);
/* Where events come from; the caller adds loop, plane and metrics. Borrows @c. */
struct kv_events_conf frontend_conf_events(const struct frontend_conf *c, const char *program);
/* Whether a variable belongs to the live routing configuration. */
bool frontend_conf_is_routing(struct str env_name);
/* Names the given options that have no effect here, separated by spaces; empty when there is none. */
void frontend_conf_put_idle(const struct frontend_conf *c, struct buf *out);
