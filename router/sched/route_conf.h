/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing configuration: one immutable value, swapped as a whole when it changes (router.md §6.1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

#include "router/sched/bypass.h"
#include "router/sched/programs.h"

enum route_mode {
    ROUTE_ROUND_ROBIN,
    ROUTE_RANDOM,
    ROUTE_POWER_OF_TWO,
    ROUTE_LEAST_LOADED,
    ROUTE_DEVICE_AWARE,
    ROUTE_DIRECT,
    ROUTE_KV
};

/* What mode kv chooses by. */
enum route_policy {
    ROUTE_POLICY_DYNAMO,
    ROUTE_POLICY_DYNAMO_1,
    ROUTE_POLICY_MARGINAL,
    ROUTE_POLICY_TWO_TIER,
    ROUTE_POLICY_THUNDERAGENT
};

/* What ends a prediction, without events. */
enum approx_policy { APPROX_TTL, APPROX_LRU };
/* Whether a session waits for its worker, or goes elsewhere when that is busy. */
enum affinity_mode { AFFINITY_HARD, AFFINITY_SOFT };
/* Whether a router beside this one keeps the index (--use-remote-indexer), and what it goes by. */
enum route_remote { ROUTE_REMOTE_NOT, ROUTE_REMOTE_EVENTS, ROUTE_REMOTE_WRITES };
/* Where a cache that all workers share is. */
enum shared_cache_type { SHARED_CACHE_NONE, SHARED_CACHE_HICACHE };

/* In the order of the enums, NULL-ended: for the configuration table. */
extern const char *const ROUTE_MODE_WORDS[],
    *const ROUTE_POLICY_WORDS[], *const APPROX_POLICY_WORDS[], *const AFFINITY_MODE_WORDS[];
/* Policies that can be shadows: every one but direct, which makes no choice. */
extern const char *const ROUTE_SHADOW_WORDS[];

/* When policy two-tier goes by load, and when by caches (policy_two_tier.c). */
struct two_tier_conf {
    double cache_threshold;         /* share of the prompt that the best must hold more of */
    uint64_t balance_abs_threshold; /* requests between the most and the least loaded */
    double balance_rel_threshold;   /* and the quotient of the two */
};

#define TWO_TIER_DEFAULTS                                                                          \
    {                                                                                              \
        0.5, 32, 1.1                                                                               \
    } /* of the reference */

/* What workers are for; those that compute and answer are aggregated. */
enum route_stage { ROUTE_AGGREGATED, ROUTE_PREFILL, ROUTE_DECODE };
enum { ROUTE_STAGES = ROUTE_DECODE + 1 };

/* A policy of one stage instead of that of all (worker_selection.h). */
struct route_selector {
    bool given;
    int policy; /* enum route_policy */
    /* NAN: that of all. */
    double overlap_credit, credit_decay, prefill_load_scale, active_request_weight;
    double host_weight, disk_weight, shared_weight, temperature;
    struct two_tier_conf two_tier; /* of policy two-tier */
};

struct route_conf {
    int mode;                   /* enum route_mode */
    int policy;                 /* enum route_policy */
    uint64_t accelerator_ratio; /* prompts that one takes for one of a CPU; 0 = 8 */
    uint64_t shadows;           /* bit i: ROUTE_SHADOW_WORDS[i] scores every request too */
    double overlap_weight;      /* kv_overlap_score_weight, 1.0 */
    double temperature;         /* 0 = the minimum */
    /* The cost function of 1.x (router.md §6.4). */
    double overlap_credit, credit_decay;
    double host_weight, disk_weight;
    int shared_cache;     /* enum shared_cache_type */
    double shared_weight; /* of a block that the cache shared by all holds beyond a worker's own */
    double prefill_load_scale; /* NAN: overlap_weight, of which 0 takes the credit too */
    double active_request_weight;
    struct two_tier_conf two_tier;
    bool track_prefill_tokens;
    bool load_aware;            /* caches count for nothing, bookings still do */
    bool caches_anyway;         /* …but for policy dynamo-1.x, as a policy file wants them */
    uint64_t predicted_ttl_ms;  /* beside events: credit for what was just routed; 0 = none */
    uint64_t expiry_ms;         /* bookings silent for so long count no more; 0 = never */
    bool use_kv_events;         /* false: approximate index */
    int remote;                 /* enum route_remote; if not NOT, use_kv_events is false */
    bool event_fallback;        /* where events do not come, guess what is cached */
    int approx_policy;          /* enum approx_policy */
    uint64_t ttl_ms;            /* approximate index: 120,000 */
    uint64_t index_bytes;       /* that the index may take; 0 = 2 GiB */
    uint64_t max_tree_size;     /* approximate index: 2^20 */
    double prune_target_ratio;  /* approximate index: 0.8 */
    bool track_active_blocks;   /* true */
    bool assume_kv_reuse;       /* true */
    bool track_output_blocks;   /* false */
    double busy_decode_blocks;  /* share of total_kv_blocks, NAN = off */
    double busy_prefill_tokens; /* tokens, NAN = off */
    double busy_prefill_share;  /* of max_batched_tokens; 0 or NAN = off; either is enough */
    uint64_t affinity_ttl_s;    /* how long a session stays with its worker; 0 = not at all */
    int affinity_mode;          /* enum affinity_mode */
    int prefill_load_model;     /* enum prefill_load_model */
    struct bypass_conf bypass;  /* of prefill workers */
    struct programs_conf programs;
    struct route_selector selectors[ROUTE_STAGES];
};

/* How long prompts under way are thought to take. The others ask simulators that are not here. */
enum prefill_load_model { PREFILL_LOAD_NONE, PREFILL_LOAD_AIS, PREFILL_LOAD_AIC };

/* A property of workers that a request would like to meet. */
struct route_taint {
    struct str name;
    double weight; /* above 0 attracts, below repels */
};
