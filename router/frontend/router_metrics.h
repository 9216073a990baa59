/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reference's router measures of itself, under its names, labels and bucket bounds
 * (router.md §7.2): dynamo_component_router_*, dynamo_router_overhead_*, and the last latencies of
 * each worker.
 *
 * Series are looked up once per target or worker where that is on the path of a token or a decision.
 * One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/metric.h"
#include "router/frontend/pool.h"

struct router_metrics;
struct router_series; /* of one target; lives as long as its router_metrics */

/* @router_id names this router among its replicas; also its instance id. */
struct router_metrics *router_metrics_new(struct metric_registry *registry, uint64_t router_id);
struct router_metrics *router_metrics_free(struct router_metrics *m);
DEFINE_CLEANUP(struct router_metrics *, router_metrics_free)
/* Latencies of each worker's last request are measured too, as by a frontend. */
void router_metrics_of_workers(struct router_metrics *m, struct metric_registry *registry);

/* Whom requests are sent to, in words of labels. */
struct router_target {
    const char *ns, *component, *model;
    const char *worker_type; /* not copied */
};
struct router_series *router_metrics_target(struct router_metrics *m,
                                            const struct router_target *t);

/* Times that a decision took, in nanoseconds. */
struct router_times {
    uint64_t block_hashing;    /* with the chain, which is made at the same time */
    uint64_t sequence_hashing; /* those for bookings, where they are others */
    uint64_t matching;
    uint64_t shared; /* of a look-up in a shared cache, if it was */
    bool shared_asked;
    uint64_t scheduling;    /* matching and shared included */
    uint64_t hashing_at_ns; /* when it began; 0 = told of in a span */
    uint64_t queued_at_ns;  /* when it had to wait for room; 0 = it had not, or that was told of */
};
void router_metrics_times(struct router_metrics *m, const struct router_times *t);
/* What went wrong with shared caches. */
void router_metrics_shared_errors(struct router_metrics *m, uint64_t n);
/* What the workers chosen had to do. */
enum router_phase { PHASE_AGGREGATED, PHASE_PREFILL, PHASE_DECODE, PHASES };
/* A request was routed. */
void router_series_routed(struct router_series *s, const struct route_decision *d,
                          enum router_phase phase);

struct router_request_end {
    struct worker_rank worker;
    uint64_t isl, output_tokens;
    double ttft_s, itl_s;   /* NAN = none; the latter is the mean of the request */
    uint64_t cached_tokens; /* that the engine reported; UINT64_MAX = nothing */
    enum router_phase phase;
};
void router_series_ended(struct router_series *s, const struct router_request_end *end);
/* The worker left: its latencies are forgotten. */
void router_metrics_forget(struct router_metrics *m, const char *worker_type,
                           struct worker_rank worker);
