/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the requests of one frontend share: loop, request plane, models, configuration, metrics.
 *
 * Owned by frontend.c; one loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/metric.h"
#include "lib/base/strmap.h"
#include "lib/net/loop.h"
#include "router/frontend/spans.h"
#include "router/wire/optional.h"
#include "router/frontend/admission.h"
#include "router/frontend/histogram_range.h"
#include "router/frontend/model.h"
#include "router/kv/tracking_hash.h"
#include "router/sched/route_conf.h"
#include "router/wire/plane_client.h"

/* Metric families of wire.md §10 and router.md §7; series are looked up by model when used. */
struct serving_metrics {
    struct metric_registry *registry;
    struct metric_family *requests, *inflight, *queued, *duration, *input_tokens, *output_tokens;
    struct metric_family *started, *active; /* 1.6.1's beside the first two */
    struct metric_family *cached_tokens, *output_total, *ttft, *itl;
    struct metric *disconnected;
    struct metric *reuse_hits, *reuse_misses; /* prompts that began like a recent one, or did not */
    struct metric_family *reuse_ids, *fresh_ids, *reuse_bytes; /* {model} */
    struct metric_family *card_gauges[6];
    /* ours */
    struct metric_family *decisions;  /* {model,mode} */
    struct metric_family *retries;    /* {model,reason} */
    struct metric_family *migrations; /* {model,migration_type}: the reference's name for them */
    struct metric_family *migration_seconds;   /* {model,migration_type,outcome}: likewise */
    struct metric_family *migrations_too_long; /* {model}: likewise */
    struct metric_family *prefills;            /* {model,path,reason} */
    struct metric_family *prefill_seconds;
    struct metric_family *overloads;         /* {model,reason} */
    struct metric_family *session_evictions; /* {model} */
    struct admission_metrics admission;
    struct metric_family *programs;    /* {model, state} */
    struct metric_family *loads;       /* {model,outcome} */
    struct metric_family *model_files; /* {model,kind} */
    struct metric *cache_evictions, *cache_bytes;
    struct metric *conf_generation, *conf_changes, *conf_errors;
};

struct explain;
struct http_client;
struct router_metrics;

struct serving {
    struct loop *loop;
    struct plane_client *plane;
    struct http_client *engines; /* to plain OpenAI servers */
    uint64_t engine_connect_ms;
    struct strmap *models;   /* set -> struct model */
    struct strmap *by_name;  /* name -> the first of its sets, linked by next_set; not for clients'
                                requests: serving_pick_model() */
    struct strmap *prefills; /* set -> struct pool of workers that prefill */
    struct route_conf route; /* in force */
    struct admission_rules *admission; /* in force; owned by frontend.c */
    struct tracking_key *tracking;     /* in force; owned by frontend.c; NULL = public identities */
    int overload_status;               /* for requests that there is no room for: 503 or 529 */
    struct serving_metrics metrics;
    struct explain *explain;
    uint64_t migration_limit, migration_tokens_max; /* the latter 0 = no limit */
    bool enforce_disagg;                            /* no answer without a prefill worker */
    struct router_metrics *router;
    uint64_t router_id;                         /* names this router among its replicas */
    size_t requests_max, n_requests;            /* in flight; more are refused with 503 */
    uint64_t set_turn;                          /* of serving_pick_model() */
    bool dispatches_calls, dispatches_thoughts; /* in events of their own, too */
    bool anthropic;         /* /v1/messages is served, and models as clients of it list them */
    bool strips_preamble;   /* of it: messages_read.h */
    bool unsteered;         /* clients choose no workers: neither nvext nor headers say which */
    bool reads_loosely;     /* keys of chats and completions that nobody knows are passed over */
    bool tells_usage;       /* in streams of both, whether it is asked for or not */
    uint64_t keep_alive_ms; /* event_stream_keep_alive() of streams */
    struct tracer tracer;
    bool stopping;
};

/* @prefix "dynamo_frontend"; @ranges: in order of enum frontend_histogram. */
void serving_metrics_init(struct serving_metrics *m, const char *prefix,
                          const struct histogram_range *ranges);
void serving_metrics_done(struct serving_metrics *m);
/* Gauges from the card: model_context_length and its kin. */
void serving_metrics_card(struct serving_metrics *m, const struct model *model);
/* A prompt of @n_ids was tokenized. */
void serving_metrics_reuse(struct serving_metrics *m, const struct model *model,
                           struct prompt_reuse reuse, size_t n_ids);
/* The model has been loaded, or could not be. */
void serving_metrics_load(struct serving_metrics *m, const struct model *model);
/* NULL when no model of that name is known. */
struct model *serving_find_model(const struct serving *s, struct str name);
/*
 * For a request: of several sets the one that holds @worker, else the one that @session's hash names,
 * else in turn, as often as a set has workers. Ready ones first.
 */
struct model *serving_pick_model(struct serving *s, struct str name, struct opt_u64 worker,
                                 struct str session);
/*
 * What bookings call the blocks of a prompt, when that is a secret (`tracking`): at most n_tokens /
 * block size to @ret. False: nothing is written, they go by their sequence hashes.
 */
bool serving_track(const struct serving *s, const struct model *m, struct str salt,
                   const uint32_t *tokens, size_t n_tokens, uint64_t *ret);
/* After a change of `models`. */
void serving_link_sets(struct serving *s);
/* Those who prefill for it; NULL when there is none. */
struct pool *serving_find_prefill(const struct serving *s, const struct model *m);
