/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of a worker (wire.md §10): prefix dynamo_component_, one set of series per endpoint.
 */
#pragma once

#include "lib/base/metric.h"
#include "router/service/call_metrics.h"
#include "router/wire/plane_server.h"

enum worker_error { WORKER_ERROR_DESERIALIZATION, WORKER_ERROR_GENERATE, WORKER_ERROR_COUNT };

struct endpoint_metrics {
    struct call_metrics calls;
    struct metric *errors[WORKER_ERROR_COUNT];
};

/* Of one instance of the model. */
struct cache_metrics {
    struct metric *active_blocks, *total_blocks, *usage, *hit_rate, *waiting, *running,
        *preemptions, *events, *events_dropped;
};

/* Of the request plane of the process, as 1.6.1 tells it. */
struct plane_metrics {
    struct metric *running, *tasks, *waiting, *depth, *refused;
};

struct plane_metrics plane_metrics_of(struct metric_registry *r, size_t running_max,
                                      size_t waiting_max);
void plane_metrics_set(const struct plane_metrics *m, struct plane_server_stats now);

struct endpoint_metrics endpoint_metrics_of(struct metric_registry *r, const char *ns,
                                            const char *component, const char *endpoint,
                                            const char *model);
struct cache_metrics cache_metrics_of(struct metric_registry *r, const char *ns,
                                      const char *component, const char *model,
                                      const char *worker_id);
