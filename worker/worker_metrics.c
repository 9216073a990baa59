/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker_metrics.h"

static const char *const ERRORS[WORKER_ERROR_COUNT] = {"deserialization", "generate"};

struct endpoint_metrics endpoint_metrics_of(struct metric_registry *r, const char *ns,
                                            const char *component, const char *endpoint,
                                            const char *model)
{
    const struct call_labels labels = {
        .ns = ns, .component = component, .endpoint = endpoint, .model = model};
    const struct metric_desc errors = {
        .name = "dynamo_component_errors_total",
        .help = "Requests that failed, by kind",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "dynamo_endpoint", "model",
                   "error_type"},
    };
    struct endpoint_metrics m;

    call_metrics_init(&m.calls, r, &labels);
    for (size_t i = 0; i < WORKER_ERROR_COUNT; i++)
        m.errors[i] =
            metric_with(metric_family(r, &errors), ns, component, endpoint, model, ERRORS[i]);
    return m;
}

static struct metric *cache_series(struct metric_registry *r, const char *name, const char *help,
                                   enum metric_type type, const char *const labels[4])
{
    const struct metric_desc desc = {
        .name = name,
        .help = help,
        .type = type,
        .labels = {"dynamo_namespace", "dynamo_component", "model", "worker_id"},
    };

    return metric_series(metric_family(r, &desc), labels);
}

struct cache_metrics cache_metrics_of(struct metric_registry *r, const char *ns,
                                      const char *component, const char *model,
                                      const char *worker_id)
{
    const char *const labels[4] = {ns, component, model, worker_id};

    return (struct cache_metrics){
        .active_blocks = cache_series(r, "dynamo_component_kvstats_active_blocks",
                                      "KV blocks in use", METRIC_GAUGE, labels),
        .total_blocks = cache_series(r, "dynamo_component_kvstats_total_blocks", "KV blocks",
                                     METRIC_GAUGE, labels),
        .usage = cache_series(r, "dynamo_component_kvstats_gpu_cache_usage_percent",
                              "Share of the KV blocks in use", METRIC_GAUGE, labels),
        .hit_rate = cache_series(r, "dynamo_component_kvstats_gpu_prefix_cache_hit_rate",
                                 "Share of prompt tokens found in the cache since the start",
                                 METRIC_GAUGE, labels),
        .waiting = cache_series(r, "dynamo_component_engine_waiting_requests",
                                "Requests that the engine has not admitted", METRIC_GAUGE, labels),
        .running = cache_series(r, "dynamo_component_engine_running_requests",
                                "Requests that the engine works on", METRIC_GAUGE, labels),
        .preemptions = cache_series(r, "dynamo_component_engine_preemptions",
                                    "Sequences that lost their blocks", METRIC_GAUGE, labels),
        .events = cache_series(r, "dynamo_component_events_published", "Event-plane messages sent",
                               METRIC_GAUGE, labels),
        .events_dropped =
            cache_series(r, "dynamo_component_events_dropped",
                         "Event-plane messages lost while NATS was away", METRIC_GAUGE, labels),
    };
}

static struct metric *plane_series(struct metric_registry *r, const char *name, const char *help,
                                   enum metric_type type)
{
    const struct metric_desc desc = {.name = name, .help = help, .type = type};

    return metric_plain(metric_family(r, &desc));
}

struct plane_metrics plane_metrics_of(struct metric_registry *r, size_t running_max,
                                      size_t waiting_max)
{
    metric_set(plane_series(r, "dynamo_work_handler_pool_capacity",
                            "Requests that may be under way at once", METRIC_GAUGE),
               (double)running_max);
    metric_set(plane_series(r, "dynamo_work_handler_queue_capacity",
                            "Requests that may wait, but for the next one", METRIC_GAUGE),
               (double)(waiting_max - 1));
    return (struct plane_metrics){
        .running = plane_series(r, "dynamo_engine_request", "Requests under way", METRIC_GAUGE),
        .tasks = plane_series(r, "dynamo_work_handler_pool_active_tasks", "Requests under way",
                              METRIC_GAUGE),
        .waiting = plane_series(r, "dynamo_request_queue",
                                "Requests that were acknowledged and wait", METRIC_GAUGE),
        .depth = plane_series(r, "dynamo_work_handler_queue_depth",
                              "Of them, those behind the next one", METRIC_GAUGE),
        .refused =
            plane_series(r, "dynamo_rejection_request_total",
                         "Requests refused because as many as may be wait already", METRIC_COUNTER),
    };
}

void plane_metrics_set(const struct plane_metrics *m, struct plane_server_stats now)
{
    metric_set(m->running, (double)now.running);
    metric_set(m->tasks, (double)now.running);
    metric_set(m->waiting, (double)now.waiting);
    metric_set(m->depth, now.waiting ? (double)(now.waiting - 1) : 0);
    metric_set(m->refused, (double)now.overloaded);
}
