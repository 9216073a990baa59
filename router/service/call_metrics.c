/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/call_metrics.h"

#include <inttypes.h>
#include <stdio.h>

static const double SECONDS[] = {.005, .01, .025, .05, .1, .25, .5,  1,  2.5,
                                 5,    10,  20,   30,  60, 120, 300, 600};

struct series_of {
    struct metric_registry *registry;
    const struct call_labels *labels;
    const char *worker_id;
};

static struct metric *series(const struct series_of *of, const char *name, const char *help,
                             enum metric_type type)
{
    const struct call_labels *l = of->labels;
    AUTO(mem_free) char *full = xasprintf("dynamo_component_%s", name);
    const struct metric_desc d = {.name = full,
                                  .help = help,
                                  .type = type,
                                  .labels = {"dynamo_namespace", "dynamo_component",
                                             "dynamo_endpoint", "service", "worker_id",
                                             l->type ? "type" : NULL},
                                  .buckets = type == METRIC_HISTOGRAM ? SECONDS : NULL,
                                  .n_buckets = type == METRIC_HISTOGRAM ? ARRAY_LEN(SECONDS) : 0};

    /* What the reference calls a service is the component. */
    return metric_with(metric_family(of->registry, &d), l->ns, l->component, l->endpoint,
                       l->component, of->worker_id, l->type);
}

void call_metrics_init(struct call_metrics *m, struct metric_registry *r,
                       const struct call_labels *labels)
{
    char id[24];
    const struct series_of of = {r, labels, id};

    (void)snprintf(id, sizeof(id), "%" PRIx64, labels->instance_id);
    m->requests = series(&of, "requests_total", "Requests taken", METRIC_COUNTER);
    m->inflight = series(&of, "inflight_requests", "Requests under way", METRIC_GAUGE);
    m->cancelled =
        series(&of, "cancellation_total", "Requests that their callers gave up", METRIC_COUNTER);
    m->duration = series(&of, "request_duration_seconds",
                         "From taking a request to the end of its answer", METRIC_HISTOGRAM);
    m->request_bytes = series(&of, "request_bytes_total", "Bytes of requests", METRIC_COUNTER);
    m->response_bytes = series(&of, "response_bytes_total", "Bytes of answers", METRIC_COUNTER);
}

void call_begun(const struct call_metrics *m, size_t bytes)
{
    metric_add(m->requests, 1);
    metric_add(m->inflight, 1);
    metric_add(m->request_bytes, (double)bytes);
}

void call_answered(const struct call_metrics *m, size_t bytes)
{
    metric_add(m->response_bytes, (double)bytes);
}

void call_over(const struct call_metrics *m, uint64_t took_ns)
{
    metric_add(m->inflight, -1);
    metric_observe(m->duration, (double)took_ns / 1e9);
}
