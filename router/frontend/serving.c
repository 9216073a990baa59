/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/serving.h"

#include <stdio.h>

#include "lib/base/digest.h"
#include "router/frontend/program_gate.h"

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
                                       const char *name, const char *help,
                                       struct histogram_range range)
{
    AUTO(mem_free) char *full = xasprintf("%s%s", prefix, name);
    double bounds[HISTOGRAM_BOUNDS_MAX];
    struct metric_desc d = {full, help, METRIC_HISTOGRAM, {"model"}, bounds, 0};

    d.n_buckets = metric_log_buckets(range.min, range.max, range.n, bounds);
    return metric_family(m->registry, &d);
}

/* Bounds as 1.6.1 has them. */
static struct metric_family *migration_seconds(struct serving_metrics *m, const char *prefix)
{
    static const double bounds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60};
    AUTO(mem_free) char *full = xasprintf("%smodel_migration_duration_seconds", prefix);
    const struct metric_desc d = {full,
                                  "From the loss of a worker until another one goes on, or none",
                                  METRIC_HISTOGRAM,
                                  {"model", "migration_type", "outcome"},
                                  bounds,
                                  ARRAY_LEN(bounds)};

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
    m->decisions = family(m, "commutator_router_", "decisions_total", "Routing decisions",
                          METRIC_COUNTER, (const char *const[]){"model", "mode", NULL});
    m->retries = family(m, "commutator_router_", "retries_total",
                        "Requests sent to another worker, by what failed before", METRIC_COUNTER,
                        (const char *const[]){"model", "reason", NULL});
    m->prefills =
        family(m, "commutator_router_", "prefills_total",
               "How the prompts of disaggregated requests were computed, and why not by a "
               "prefill worker",
               METRIC_COUNTER, (const char *const[]){"model", "path", "reason", NULL});
    m->prefill_seconds = histogram(m, "commutator_router_", "prefill_seconds",
                                   "From sending a prompt to a prefill worker until it is computed",
                                   (struct histogram_range){0.001, 480, 18});
    m->overloads = family(m, "commutator_router_", "overloads_total",
                          "Requests refused for want of room, by reason", METRIC_COUNTER,
                          (const char *const[]){"model", "reason", NULL});
    m->session_evictions = family(m, "commutator_router_", "session_evictions_total",
                                  "Session bindings dropped to make room for others",
                                  METRIC_COUNTER, (const char *const[]){"model", NULL});
    m->reuse_bytes = family(m, "commutator_", "tokenizer_cache_reused_bytes_total",
                            "Text of prompts that was not tokenized again", METRIC_COUNTER,
                            (const char *const[]){"model", NULL});
    m->loads = family(m, "commutator_model_", "loads_total",
                      "Times that a model's files were loaded, or could not be", METRIC_COUNTER,
                      (const char *const[]){"model", "outcome", NULL});
    m->model_files = family(m, "commutator_model_", "files",
                            "Files of a loaded model that were fetched, or that differ from the "
                            "worker's",
                            METRIC_GAUGE, (const char *const[]){"model", "kind", NULL});
    m->cache_evictions = metric_plain(family(
        m, "commutator_model_cache_", "evictions_total",
        "Models that went from the hub's cache because it was at its bound", METRIC_COUNTER, NULL));
    m->cache_bytes = metric_plain(family(m, "commutator_model_cache_", "bytes",
                                         "What programs of this project have in the hub's cache, "
                                         "as of the last download here",
                                         METRIC_GAUGE, NULL));
    m->conf_generation = metric_plain(family(m, "commutator_routing_", "generation",
                                             "Generation of the routing configuration in force",
                                             METRIC_GAUGE, NULL));
    m->conf_changes = metric_plain(family(m, "commutator_routing_", "changes_total",
                                          "Routing configurations applied", METRIC_COUNTER, NULL));
    m->conf_errors = metric_plain(family(m, "commutator_routing_", "errors_total",
                                         "Routing configurations refused", METRIC_COUNTER, NULL));
}

void serving_metrics_init(struct serving_metrics *m, const char *prefix,
                          const struct histogram_range *ranges)
{
    static const char *const by_model[] = {"model", NULL};
    AUTO(mem_free) char *p = xasprintf("%s_", prefix);

    m->registry = metric_registry_new();
    m->requests = family(
        m, p, "requests_total", "Total number of LLM requests processed", METRIC_COUNTER,
        (const char *const[]){"model", "endpoint", "request_type", "status", "error_type", NULL});
    m->started = family(m, p, "requests_started_total", "Requests accepted", METRIC_COUNTER,
                        (const char *const[]){"model", "endpoint", "request_type", NULL});
    m->active = family(m, p, "active_requests",
                       "Requests under way, from their head to the end of their answer",
                       METRIC_GAUGE, by_model);
    m->inflight =
        family(m, p, "inflight_requests", "Number of inflight requests", METRIC_GAUGE, by_model);
    m->queued = family(m, p, "queued_requests", "Requests that have no first token yet",
                       METRIC_GAUGE, by_model);
    m->disconnected = metric_plain(
        family(m, p, "disconnected_clients", "Number of disconnected clients", METRIC_GAUGE, NULL));
    m->output_total =
        family(m, p, "output_tokens_total", "Output tokens", METRIC_COUNTER, by_model);
    m->duration = histogram(m, p, "request_duration_seconds", "Duration of LLM requests",
                            ranges[HISTOGRAM_DURATION]);
    m->input_tokens = histogram(m, p, "input_sequence_tokens", "Input sequence length in tokens",
                                ranges[HISTOGRAM_INPUT]);
    m->output_tokens = histogram(m, p, "output_sequence_tokens", "Output sequence length in tokens",
                                 ranges[HISTOGRAM_OUTPUT]);
    m->cached_tokens = histogram(m, p, "cached_tokens", "Prompt tokens that the engine had cached",
                                 ranges[HISTOGRAM_INPUT]);
    m->ttft = histogram(m, p, "time_to_first_token_seconds", "Time to first token",
                        ranges[HISTOGRAM_TTFT]);
    m->itl = histogram(m, p, "inter_token_latency_seconds", "Inter-token latency",
                       ranges[HISTOGRAM_ITL]);
    m->reuse_hits =
        metric_plain(family(m, p, "tokenizer_cache_hits_total",
                            "Prompts that began like a recent one", METRIC_COUNTER, NULL));
    m->reuse_misses =
        metric_plain(family(m, p, "tokenizer_cache_misses_total",
                            "Prompts that began like no recent one", METRIC_COUNTER, NULL));
    m->reuse_ids = family(m, p, "tokenizer_cache_cached_tokens_total",
                          "Prompt tokens known from a recent prompt", METRIC_COUNTER, by_model);
    m->fresh_ids = family(m, p, "tokenizer_cache_uncached_tokens_total",
                          "Prompt tokens that had to be computed", METRIC_COUNTER, by_model);
    m->migrations = family(m, p, "model_migration_total", "Requests handed to another worker",
                           METRIC_COUNTER, (const char *const[]){"model", "migration_type", NULL});
    m->migration_seconds = migration_seconds(m, p);
    m->migrations_too_long = family(m, p, "model_migration_max_seq_len_exceeded_total",
                                    "Requests that grew too long to be handed to another worker",
                                    METRIC_COUNTER, by_model);
    for (size_t i = 0; i < ARRAY_LEN(CARD_GAUGES); i++)
        m->card_gauges[i] =
            family(m, p, CARD_GAUGES[i].name, CARD_GAUGES[i].help, METRIC_GAUGE, by_model);
    admission_metrics_init(&m->admission, m->registry, prefix);
    m->programs = program_gate_metric(m->registry);
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

void serving_metrics_reuse(struct serving_metrics *m, const struct model *model,
                           struct prompt_reuse reuse, size_t n_ids)
{
    if (!model->prompt_cache)
        return;
    metric_add(reuse.ids ? m->reuse_hits : m->reuse_misses, 1);
    metric_add(metric_with(m->reuse_ids, model->label), (double)reuse.ids);
    metric_add(metric_with(m->fresh_ids, model->label), (double)(n_ids - reuse.ids));
    metric_add(metric_with(m->reuse_bytes, model->label), (double)reuse.bytes);
}

void serving_metrics_load(struct serving_metrics *m, const struct model *model)
{
    bool ready = model->state == MODEL_READY;

    metric_add(metric_with(m->loads, model->label, ready ? "ready" : "failed"), 1);
    if (!ready)
        return;
    metric_set(metric_with(m->model_files, model->label, "fetched"), model->n_fetched);
    metric_set(metric_with(m->model_files, model->label, "differs"), model->n_differ);
    if (!model->has_room)
        return;
    metric_add(m->cache_evictions, model->n_evicted);
    metric_set(m->cache_bytes, (double)model->hub_bytes);
}

struct model *serving_find_model(const struct serving *s, struct str name)
{
    return strmap_get(s->by_name, name);
}

void serving_link_sets(struct serving *s)
{
    struct str set;
    void *value;

    (void)strmap_free(s->by_name);
    s->by_name = strmap_new();
    for (size_t at = 0; strmap_next(s->models, &at, &set, &value);) {
        struct model *m = value, *last = strmap_get(s->by_name, str_from(m->name));

        m->next_set = NULL;
        while (last && last->next_set)
            last = last->next_set;
        if (last)
            last->next_set = m;
        else
            (void)strmap_set(s->by_name, str_from(m->name), m);
    }
}

/* How often a set is chosen. */
static size_t weight_of(const struct model *m)
{
    return model_is_served(m) ? scheduler_workers(m->pool->scheduler) : 0;
}

struct model *serving_pick_model(struct serving *s, struct str name, struct opt_u64 worker,
                                 struct str session)
{
    struct model *first = strmap_get(s->by_name, name);
    uint64_t sum = 0, turn;

    if (!first || !first->next_set)
        return first;
    for (struct model *m = first; m; m = m->next_set) {
        if (worker.set && pool_worker(m->pool, worker.v))
            return m;
        sum += weight_of(m);
    }
    if (!sum)
        return first;
    turn = (session.len ? digest_siphash13(session) : s->set_turn++) % sum;
    for (struct model *m = first; m; m = m->next_set) {
        if (turn < weight_of(m))
            return m;
        turn -= weight_of(m);
    }
    return first;
}

/* Of the model's own namespace: KV blocks go from one to the other. Of another one only if nobody
 * can be mixed up. */
struct pool *serving_find_prefill(const struct serving *s, const struct model *m)
{
    const struct model *first = strmap_get(s->by_name, str_from(m->name));
    struct pool *other = NULL;
    size_t n_others = 0;
    struct str set;
    void *value;

    for (size_t at = 0; strmap_next(s->prefills, &at, &set, &value);) {
        struct pool *p = value;

        if (strcmp(p->model, m->name) != 0 || !scheduler_workers(p->scheduler))
            continue;
        if (strcmp(p->ns, m->pool->ns) == 0)
            return p;
        n_others++;
        other = p;
    }
    return n_others == 1 && first && !first->next_set ? other : NULL;
}

/* Replicas agree on it: the same model, in workers of the same namespace. */
bool serving_track(const struct serving *s, const struct model *m, struct str salt,
                   const uint32_t *tokens, size_t n_tokens, uint64_t *ret)
{
    const struct tracking_scope scope = {.model = str_from(m->name),
                                         .routing_group = str_from(m->pool->ns),
                                         .block_size = scheduler_block_size(m->pool->scheduler),
                                         .cache_namespace = model_salt(m, salt),
                                         .eagle = m->pool->eagle};

    if (!s->tracking)
        return false;
    (void)tracking_hash_sequence(s->tracking, &scope, tokens, n_tokens, ret);
    return true;
}
