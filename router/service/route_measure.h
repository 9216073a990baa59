/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stand-alone router measures of its requests (router_metrics.h): each decision, and the end
 * of each request, whoever of the workers came to answer it. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct engine_output;
struct route_decision;
struct route_pool;
struct router_times;
struct routing_times;

/* Of one request. */
struct route_measure {
    uint64_t n_tokens;      /* that were told, by all workers */
    uint64_t last_ns;       /* when the last of them came */
    uint64_t cached_tokens; /* that the engine reported; UINT64_MAX = nothing */
};
#define ROUTE_MEASURE_NULL ((struct route_measure){.cached_tokens = UINT64_MAX})

void route_measure_decision(const struct route_pool *p, const struct router_times *took,
                            const struct route_decision *d);
/* Notes in @at when the first token came. */
void route_measure_output(struct route_measure *m, struct routing_times *at,
                          const struct engine_output *o);
/* @d is what was decided last, @isl the prompt's length. */
void route_measure_end(const struct route_pool *p, const struct route_measure *m,
                       const struct routing_times *at, const struct route_decision *d, size_t isl);
