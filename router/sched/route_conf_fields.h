/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the cost functions (router.md §6.1, §6.4): rows of a configuration table.
 */
#pragma once

#include <stddef.h>

#include "lib/base/conf.h"
#include "router/sched/route_conf.h"

/* Of a struct @owner with its struct route_conf in the member @at. */
#define ROUTE_COST_FIELDS(owner, at)                                                               \
    {.flag = "kv-overlap-score-weight",                                                            \
     .alias = "router-kv-overlap-score-weight",                                                    \
     .env = "DYN_KV_OVERLAP_SCORE_WEIGHT",                                                         \
     .env_alias = "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT",                                            \
     .type = CONF_F64,                                                                             \
     .offset = offsetof(owner, at.overlap_weight),                                                 \
     .initial = "1.0",                                                                             \
     .max = 1e6,                                                                                   \
     .help = "weight of prefill blocks against decode blocks"},                                    \
        {.flag = "router-temperature",                                                             \
         .env = "DYN_ROUTER_TEMPERATURE",                                                          \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.temperature),                                                \
         .initial = "0.0",                                                                         \
         .max = 1e6,                                                                               \
         .help = "0 = the cheapest worker; above: a draw by softmax of the cost"},                 \
        {.flag = "load-aware",                                                                     \
         .env = "DYN_ROUTER_LOAD_AWARE",                                                           \
         .type = CONF_BOOL,                                                                        \
         .offset = offsetof(owner, at.load_aware),                                                 \
         .initial = "false",                                                                       \
         .help = "mode kv without caches: only what runs counts; implies --router-mode kv"},       \
        {.flag = "router-kv-overlap-score-credit",                                                 \
         .env = "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",                                              \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.overlap_credit),                                             \
         .initial = "1.0",                                                                         \
         .max = 1e6,                                                                               \
         .help = "policy dynamo-1.x: worth of a block cached on the device"},                      \
        {.flag = "router-kv-overlap-score-credit-decay",                                           \
         .env = "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",                                        \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.credit_decay),                                               \
         .initial = "0.0",                                                                         \
         .max = 1e6,                                                                               \
         .help = "policy dynamo-1.x: how fast that falls with prompt tokens ahead"},               \
        {.flag = "router-host-cache-hit-weight",                                                   \
         .env = "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT",                                                \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.host_weight),                                                \
         .initial = "0.75",                                                                        \
         .max = 1e6,                                                                               \
         .help = "policy dynamo-1.x: worth of a block cached in host memory"},                     \
        {.flag = "router-disk-cache-hit-weight",                                                   \
         .env = "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT",                                                \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.disk_weight),                                                \
         .initial = "0.25",                                                                        \
         .max = 1e6,                                                                               \
         .help = "policy dynamo-1.x: worth of a block cached on disk"},                            \
        {.flag = "router-prefill-load-scale",                                                      \
         .env = "DYN_ROUTER_PREFILL_LOAD_SCALE",                                                   \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.prefill_load_scale),                                         \
         .max = 1e6,                                                                               \
         .help =                                                                                   \
             "policy dynamo-1.x: weight of prefill blocks (default: the overlap score weight)"},   \
        {.flag = "router-decode-active-request-weight",                                            \
         .env = "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",                                         \
         .type = CONF_F64,                                                                         \
         .offset = offsetof(owner, at.active_request_weight),                                      \
         .initial = "0.0",                                                                         \
         .max = 1e6,                                                                               \
         .help = "policy dynamo-1.x: blocks that a running request counts for"},                   \
    {                                                                                              \
        .flag = "router-track-prefill-tokens", .env = "DYN_ROUTER_TRACK_PREFILL_TOKENS",           \
        .type = CONF_BOOL, .offset = offsetof(owner, at.track_prefill_tokens), .initial = "true",  \
        .help = "count prompt tokens that are to be computed"                                      \
    }
