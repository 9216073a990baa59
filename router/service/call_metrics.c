/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/call_metrics.h"

#include <inttypes.h>
#include <stdio.h>

static const double SECONDS[] = {.005, .01, .025, .05, .1, .25, .5,  1,  2.5,
                                 5,    10,  20,   30,  60, 120, 300, 600};

struct series_of {
    struct metric_registry *registry;
    struct metric_desc desc; /* but for its name, help and type */
    const char *values[METRIC_LABELS_MAX];
    size_t n;
};

static void label(struct series_of *of, const char *name, const char *value)
{
    if (!value)
        return;
    of->desc.labels[of->n] = name;
    of->values[of->n++] = value;
}

static struct metric *series(const struct series_of *of, const char *name, const char *help,
                             enum metric_type type)
{
    AUTO(mem_free) char *full = xasprintf("dynamo_component_%s", name);
    struct metric_desc d = of->desc;

    d.name = full;
    d.help = help;
    d.type = type;
    d.buckets = type == METRIC_HISTOGRAM ? SECONDS : NULL;
    d.n_buckets = type == METRIC_HISTOGRAM ? ARRAY_LEN(SECONDS) : 0;
    return metric_series(metric_family(of->registry, &d), of->values);
}

void call_metrics_init(struct call_metrics *m, struct metric_registry *r,
                       const struct call_labels *l)
{
    struct series_of of = {.registry = r};
    char id[24];

    (void)snprintf(id, sizeof(id), "%" PRIx64, l->instance_id);
    label(&of, "dynamo_namespace", l->ns);
    label(&of, "dynamo_component", l->component);
    label(&of, "dynamo_endpoint", l->endpoint);
    label(&of, "model", l->model);
    label(&of, "service", l->model ? NULL : l->component); /* as the reference calls it */
    label(&of, "worker_id", l->model ? NULL : id);
    label(&of, "type", l->type);
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
