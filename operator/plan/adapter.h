/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scaling adapters: the scale subresource of one service, for autoscalers and the planner.
 *
 * Once it exists, an adapter is the master of its service's replicas: the graph follows it, never
 * the reverse, so that a pass between an autoscaler's write and ours undoes nothing.
 * Source: operator.md §1.6. Pure.
 */
#pragma once

#include "lib/base/json_tree.h"

/* Merge patch for the graph that makes it follow; NULL when it does already. Owned. */
struct json *adapter_graph_patch(const struct json *adapter, const struct json *dgd);
/* Its whole status; @scaled_at is the time of a scaling that just happened, or NULL. Owned. */
struct json *adapter_status(const struct json *adapter, const char *scaled_at)
    __attribute__((returns_nonnull));
