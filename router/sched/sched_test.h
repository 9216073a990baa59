/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing configuration that tests and benchmarks start from: kv with every default, small bounds.
 */
#pragma once

#include <math.h>

#include "router/sched/route_conf.h"

static const struct route_conf ROUTE_CONF_KV = {
    .mode = ROUTE_KV,
    .policy = ROUTE_POLICY_DYNAMO,
    .overlap_weight = 1,
    .overlap_credit = 1,
    .host_weight = 0.75,
    .disk_weight = 0.25,
    .prefill_load_scale = NAN,
    .two_tier = TWO_TIER_DEFAULTS,
    .track_prefill_tokens = true,
    .expiry_ms = 300000,
    .use_kv_events = true,
    .ttl_ms = 1000,
    .max_tree_size = 100,
    .prune_target_ratio = 0.8,
    .track_active_blocks = true,
    .assume_kv_reuse = true,
    .busy_decode_blocks = NAN,
    .busy_prefill_tokens = NAN,
};
