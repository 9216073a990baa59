/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_conf.h"

#include <stddef.h>

const char *const ROUTE_MODE_WORDS[] = {
    "round-robin",           "random", "power-of-two", "least-loaded",
    "device-aware-weighted", "direct", "kv",           NULL};
const char *const ROUTE_POLICY_WORDS[] = {"dynamo",   "dynamo-1.x",   "marginal",
                                          "two-tier", "thunderagent", NULL};
const char *const APPROX_POLICY_WORDS[] = {"ttl", "lru", NULL};
const char *const AFFINITY_MODE_WORDS[] = {"hard", "soft", NULL};
const char *const ROUTE_SHADOW_WORDS[] = {
    "round-robin", "random",   "power-of-two",          "least-loaded", "dynamo",
    "dynamo-1.x",  "marginal", "device-aware-weighted", "two-tier",     "thunderagent",
    NULL};
