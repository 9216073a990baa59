/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/serving.h"

#include <stdio.h>

enum { BUCKETS_MAX = 32 };

static struct metric_family *family(struct serving_metrics *m, const char *prefix, const char *name,
                                    const char *help, enum metric_type type,
                                    const char *const *labels)
{
    AUTO(mem_free) char *full = xasprintf("%s%s", prefix, name);
    struct metric_desc d = {.name = full, .help = help, .type = type};

    for (size_t i = 0; labels && labels[i]; i++)
        d.labels[i] = labels[i];
    return metric_family(m->registry, &d);
}

static struct metric_family *histogram(struct serving_metrics *m, const char *prefix,
                                       const char *name, const char *help, double min, double max,
                                       size_t n)
{
    AUTO(mem_free) char *full = xasprintf("%s%s", prefix, name);
    double bounds[BUCKETS_MAX];
    struct metric_desc d = {full, help, METRIC_HISTOGRAM, {"model"}, bounds, 0};

    d.n_buckets = metric_log_buckets(min, max, n, bounds);
    return metric_family(m->registry, &d);
}

static const struct {
    const char *name, *help;
} CARD_GAUGES[] = {
    {"model_total_kv_blocks", "Total KV blocks of a worker of the model"},
    {"model_max_num_seqs", "Sequences that a worker runs at once"},
    {"model_max_num_batched_tokens", "Tokens of one engine step"},
    {"model_context_length", "Context length of the model"},
    {"model_kv_cache_block_size", "Tokens of a KV block"},
    {"model_migration_limit", "Migrations allowed per request"},
};

static void init_ours(struct serving_metrics *m)
{
    static const double shares[] = {0,   .05, .1,  .15, .2,  .25, .3,  .35, .4,  .45, .5,
                                    .55, .6,  .65, .7,  .75, .8,  .85, .9,  .95, 1};
    struct metric_desc hit = {.name = "dynamo_component_router_kv_hit_rate",
                              .help = "Share of a prompt's blocks that the chosen worker holds",
                              .type = METRIC_HISTOGRAM,
                              .labels = {"model"},
                              .buckets = shares,
                              .n_buckets = ARRAY_LEN(shares)};

    m->hit_rate = metric_family(m->registry, &hit);
    m->decisions = family(m, "commutator_router_", "decisions_total", "Routing decisions",
                          METRIC_COUNTER, (const char *const[]){"model", "mode", NULL});
    m->retries = family(m, "commutator_router_", "retries_total",
                        "Requests sent to another worker, by what failed before", METRIC_COUNTER,
                        (const char *const[]){"model", "reason", NULL});
    m->conf_generation = metric_plain(family(m, "commutator_routing_", "generation",
                                             "Generation of the routing configuration in force",
                                             METRIC_GAUGE, NULL));
    m->conf_changes = metric_plain(family(m, "commutator_routing_", "changes_total",
                                          "Routing configurations applied", METRIC_COUNTER, NULL));
    m->conf_errors = metric_plain(family(m, "commutator_routing_", "errors_total",
                                         "Routing configurations refused", METRIC_COUNTER, NULL));
}

void serving_metrics_init(struct serving_metrics *m, const char *prefix)
{
    static const char *const by_model[] = {"model", NULL};
    AUTO(mem_free) char *p = xasprintf("%s_", prefix);

    m->registry = metric_registry_new();
    m->requests =
        family(m, p, "requests_total", "Total number of LLM requests processed", METRIC_COUNTER,
               (const char *const[]){"model", "endpoint", "request_type", "status", NULL});
    m->inflight =
        family(m, p, "inflight_requests", "Number of inflight requests", METRIC_GAUGE, by_model);
    m->queued = family(m, p, "queued_requests", "Requests that have no first token yet",
                       METRIC_GAUGE, by_model);
    m->disconnected = metric_plain(
        family(m, p, "disconnected_clients", "Number of disconnected clients", METRIC_GAUGE, NULL));
    m->output_total =
        family(m, p, "output_tokens_total", "Output tokens", METRIC_COUNTER, by_model);
    m->duration =
        histogram(m, p, "request_duration_seconds", "Duration of LLM requests", 1, 256, 10);
    m->input_tokens =
        histogram(m, p, "input_sequence_tokens", "Input sequence length in tokens", 50, 128000, 12);
    m->output_tokens = histogram(m, p, "output_sequence_tokens", "Output sequence length in tokens",
                                 50, 32000, 10);
    m->cached_tokens = histogram(m, p, "cached_tokens", "Prompt tokens that the engine had cached",
                                 50, 128000, 12);
    m->ttft = histogram(m, p, "time_to_first_token_seconds", "Time to first token", 0.001, 480, 18);
    m->itl = histogram(m, p, "inter_token_latency_seconds", "Inter-token latency", 0.001, 2, 13);
    for (size_t i = 0; i < ARRAY_LEN(CARD_GAUGES); i++)
        m->card_gauges[i] =
            family(m, p, CARD_GAUGES[i].name, CARD_GAUGES[i].help, METRIC_GAUGE, by_model);
    init_ours(m);
}

void serving_metrics_done(struct serving_metrics *m)
{
    m->registry = metric_registry_free(m->registry);
}

void serving_metrics_card(struct serving_metrics *m, const struct model *model)
{
    const struct model_card *c = model->card;
    const uint64_t values[] = {c->total_kv_blocks,        c->max_num_seqs,
                               c->max_num_batched_tokens, c->context_length,
                               c->kv_cache_block_size,    c->migration_limit};

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        metric_set(metric_with(m->card_gauges[i], model->name), (double)values[i]);
}

struct model *serving_find_model(const struct serving *s, struct str name)
{
    return strmap_get(s->models, name);
}
