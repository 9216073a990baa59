/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing configuration: one immutable value, swapped as a whole when it changes (router.md §6.1).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum route_mode { ROUTE_ROUND_ROBIN, ROUTE_RANDOM, ROUTE_KV };

/* "round-robin", "random", "kv", NULL: for the configuration table. */
extern const char *const ROUTE_MODE_WORDS[];

struct route_conf {
    int mode;                   /* enum route_mode */
    double overlap_weight;      /* kv_overlap_score_weight, 1.0 */
    double temperature;         /* 0 = the minimum */
    bool use_kv_events;         /* false: approximate index */
    uint64_t ttl_ms;            /* approximate index: 120,000 */
    uint64_t max_tree_size;     /* approximate index: 2^20 */
    double prune_target_ratio;  /* approximate index: 0.8 */
    bool track_active_blocks;   /* true */
    bool assume_kv_reuse;       /* true */
    bool track_output_blocks;   /* false */
    double busy_decode_blocks;  /* share of total_kv_blocks, NAN = off */
    double busy_prefill_tokens; /* tokens, NAN = off */
};
