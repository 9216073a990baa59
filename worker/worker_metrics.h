/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of a worker (wire.md §10): prefix dynamo_component_, one set of series per endpoint.
 */
#pragma once

#include "lib/base/metric.h"

enum worker_error { WORKER_ERROR_DESERIALIZATION, WORKER_ERROR_GENERATE, WORKER_ERROR_COUNT };

struct endpoint_metrics {
    struct metric *requests, *inflight, *duration, *request_bytes, *response_bytes, *cancelled;
    struct metric *errors[WORKER_ERROR_COUNT];
};

/* Of one instance of the model. */
struct cache_metrics {
    struct metric *active_blocks, *total_blocks, *usage, *hit_rate, *waiting, *running,
        *preemptions, *events, *events_dropped;
};

struct endpoint_metrics endpoint_metrics_of(struct metric_registry *r, const char *ns,
                                            const char *component, const char *endpoint,
                                            const char *model);
struct cache_metrics cache_metrics_of(struct metric_registry *r, const char *ns,
                                      const char *component, const char *model,
                                      const char *worker_id);
