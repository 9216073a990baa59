/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a component measures of each of its endpoints, under the reference's names, labels and bounds
 * (wire.md §10): dynamo_component_requests_total and its neighbours. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/metric.h"

struct call_metrics {
    struct metric *requests, *inflight, *cancelled, *duration, *request_bytes, *response_bytes;
};

struct call_labels {
    const char *ns, *component, *endpoint;
    const char *model;    /* that workers name; NULL = service and worker_id, as routers do */
    const char *type;     /* of endpoints that have one; NULL = there is no such label */
    uint64_t instance_id; /* of a router's records */
};
/* The series live as long as @r. */
void call_metrics_init(struct call_metrics *m, struct metric_registry *r,
                       const struct call_labels *l);

void call_begun(const struct call_metrics *m, size_t bytes);
void call_answered(const struct call_metrics *m, size_t bytes);
void call_over(const struct call_metrics *m, uint64_t took_ns);
