/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/router_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/strmap.h"

enum { BUCKETS_MAX = 32, ID_SIZE = 24 };
enum { WORKER_TTFT, WORKER_ISL, WORKER_ITL, WORKER_LAST };
enum { HASHING, SEQUENCES, MATCHING, SHARED, SCHEDULING, TOTAL, OVERHEADS };

static const char *const PHASE_WORDS[PHASES] = {"aggregated", "prefill", "decode"};

struct router_series {
    struct router_metrics *m;
    char *ns, *component, *model;
    const char *worker_type;
    struct metric *started, *ended, *ttft, *itl, *output_tokens, *hit_rate;
    struct metric *less_overlap, *overlap_lost, *shared_rate, *shared_beyond;
    struct phase_series {
        struct metric *input_tokens, *selected, *best, *reused;
    } phases[PHASES]; /* NULL until there is something to count */
};

struct router_metrics {
    char router_id[ID_SIZE], worker_id[ID_SIZE]; /* the same number, decimal and hex */
    struct strmap *pools;                        /* "namespace component model type" -> series */
    struct metric_family *started, *ended, *ttft, *itl, *output_tokens, *hit_rate;
    struct metric_family *input_tokens, *selected, *best, *reused; /* by model and phase too */
    struct metric_family *less_overlap, *overlap_lost;             /* by worker type too */
    struct metric_family *shared_rate, *shared_beyond;
    struct metric *shared_errors;
    struct metric_family *last[WORKER_LAST]; /* NULL: not measured */
    struct metric *overhead[OVERHEADS];
};

/* --- families ----------------------------------------------------------------------------------
 */

#define COMPONENT_LABELS "dynamo_namespace", "dynamo_component", "router_id", "worker_id"

/* first, first × ratio, … as the reference computes them: every bound from the one before. */
static size_t geometric(double first, double ratio, size_t n, double *ret)
{
    for (size_t i = 0; i < n; i++, first *= ratio)
        ret[i] = first;
    return n;
}

static size_t linear(double step, size_t n, double *ret)
{
    for (size_t i = 0; i < n; i++)
        ret[i] = (double)i * step;
    return n;
}

static struct metric_family *component(struct metric_registry *r, const char *name,
                                       const char *help, enum metric_type type, const char *more1,
                                       const char *more2)
{
    AUTO(mem_free) char *full = xasprintf("dynamo_component_router_%s", name);

    return metric_family(
        r, &(struct metric_desc){full, help, type, {COMPONENT_LABELS, more1, more2}, NULL, 0});
}

static struct metric_family *component_buckets(struct metric_registry *r, const char *name,
                                               const char *help, const double *bounds, size_t n,
                                               const char *const more[2])
{
    AUTO(mem_free) char *full = xasprintf("dynamo_component_router_%s", name);

    return metric_family(
        r, &(struct metric_desc){
               full, help, METRIC_HISTOGRAM, {COMPONENT_LABELS, more[0], more[1]}, bounds, n});
}

static void declare_histograms(struct router_metrics *m, struct metric_registry *r)
{
    static const char *const none[2] = {NULL, NULL}, *const by_type[2] = {"worker_type", NULL},
                             *const by_phase[2] = {"model", "phase"};
    double b[BUCKETS_MAX];

    m->ttft = component_buckets(r, "time_to_first_token_seconds", "First token after routing", b,
                                metric_log_buckets(0.001, 480, 18, b), none);
    m->itl = component_buckets(r, "inter_token_latency_seconds", "Mean of each request", b,
                               metric_log_buckets(0.001, 2, 13, b), none);
    m->input_tokens = component_buckets(r, "input_sequence_tokens", "Prompt tokens", b,
                                        metric_log_buckets(50, 128000, 12, b), by_phase);
    m->output_tokens = component_buckets(r, "output_sequence_tokens", "Answer tokens", b,
                                         metric_log_buckets(50, 32000, 10, b), none);
    m->hit_rate = component_buckets(r, "kv_hit_rate", "Share of a prompt's blocks that is cached",
                                    b, linear(0.05, 21, b), none);
    m->overlap_lost = component_buckets(r, "overlap_blocks_lost",
                                        "Cached blocks less than on the best eligible worker", b,
                                        geometric(0.25, 2, 16, b), by_type);
    m->shared_rate = component_buckets(r, "shared_cache_hit_rate",
                                       "Share of a prompt's pages in the shared cache", b,
                                       linear(0.05, 21, b), none);
    m->shared_beyond = component_buckets(r, "shared_cache_beyond_blocks",
                                         "Blocks there beyond those of the chosen worker", b,
                                         geometric(1, 2, 12, b), none);
}

static void declare_counters(struct router_metrics *m, struct metric_registry *r)
{
    m->started =
        component(r, "requests_started_total", "Requests routed", METRIC_COUNTER, NULL, NULL);
    m->ended = component(r, "requests_total", "Routed requests that have ended", METRIC_COUNTER,
                         NULL, NULL);
    m->selected =
        component(r, "kv_selected_cached_prefix_tokens_total",
                  "Cached prompt tokens on the chosen workers", METRIC_COUNTER, "model", "phase");
    m->best = component(r, "kv_best_eligible_cached_prefix_tokens_total",
                        "Cached prompt tokens on the best eligible workers", METRIC_COUNTER,
                        "model", "phase");
    m->reused = component(r, "kv_worker_reused_tokens_total",
                          "Cached prompt tokens that the engines reported", METRIC_COUNTER, "model",
                          "phase");
    m->less_overlap = component(r, "non_max_overlap_selections_total",
                                "Workers chosen although another held more of the prompt",
                                METRIC_COUNTER, "worker_type", NULL);
}

static void declare_overheads(struct router_metrics *m, struct metric_registry *r)
{
    static const struct {
        const char *name, *help;
        double first, ratio;
        size_t n;
    } rows[OVERHEADS] = {
        [HASHING] = {"block_hashing", "Time to hash a prompt's blocks, and their chain", 0.001, 2,
                     15},
        [SEQUENCES] = {"seq_hashing", "Time to hash them for bookings, too", 0.001, 2, 15},
        [MATCHING] = {"indexer_find_matches", "Time to find who holds what", 0.01, 3, 17},
        [SHARED] = {"shared_cache_query", "Time to look at the shared cache", 0.01, 3, 17},
        [SCHEDULING] = {"scheduling", "Time to score, choose and book", 0.01, 3, 17},
        [TOTAL] = {"total", "Time that routing took in all", 0.01, 3, 17},
    };
    double b[BUCKETS_MAX];

    for (size_t i = 0; i < OVERHEADS; i++) {
        AUTO(mem_free) char *name = xasprintf("dynamo_router_overhead_%s_ms", rows[i].name);
        size_t n = geometric(rows[i].first, rows[i].ratio, rows[i].n, b);

        m->overhead[i] = metric_with(
            metric_family(
                r,
                &(struct metric_desc){name, rows[i].help, METRIC_HISTOGRAM, {"router_id"}, b, n}),
            m->router_id);
    }
}

void router_metrics_of_workers(struct router_metrics *m, struct metric_registry *registry)
{
    static const struct {
        const char *name, *help;
    } rows[WORKER_LAST] = {
        [WORKER_TTFT] = {"time_to_first_token_seconds", "First token of the last request"},
        [WORKER_ISL] = {"input_sequence_tokens", "Prompt tokens of the last request"},
        [WORKER_ITL] = {"inter_token_latency_seconds", "Mean of the last request"},
    };

    for (size_t i = 0; i < WORKER_LAST; i++) {
        AUTO(mem_free) char *name = xasprintf("dynamo_frontend_worker_last_%s", rows[i].name);

        m->last[i] =
            metric_family(registry, &(struct metric_desc){name,
                                                          rows[i].help,
                                                          METRIC_GAUGE,
                                                          {"worker_id", "dp_rank", "worker_type"},
                                                          NULL,
                                                          0});
    }
}

struct router_metrics *router_metrics_new(struct metric_registry *registry, uint64_t router_id)
{
    struct router_metrics *m = xcalloc(1, sizeof(*m));

    (void)snprintf(m->router_id, sizeof(m->router_id), "%" PRIu64, router_id);
    (void)snprintf(m->worker_id, sizeof(m->worker_id), "%" PRIx64, router_id);
    m->pools = strmap_new();
    declare_counters(m, registry);
    declare_histograms(m, registry);
    declare_overheads(m, registry);
    m->shared_errors = metric_with(
        metric_family(registry, &(struct metric_desc){"dynamo_router_shared_cache_errors_total",
                                                      "Events of shared caches that were no good",
                                                      METRIC_COUNTER,
                                                      {"router_id"},
                                                      NULL,
                                                      0}),
        m->router_id);
    return m;
}

static void drop_series(void *value)
{
    struct router_series *s = value;

    free(s->ns);
    free(s->component);
    free(s->model);
    free(s);
}

struct router_metrics *router_metrics_free(struct router_metrics *m)
{
    if (!m)
        return NULL;
    (void)strmap_free_with(m->pools, drop_series);
    free(m);
    return NULL;
}

/* --- one target --------------------------------------------------------------------------------
 */

#define OF_TARGET(s, family, ...)                                                                  \
    metric_with((s)->m->family, (s)->ns, (s)->component, (s)->m->router_id, (s)->m->worker_id,     \
                ##__VA_ARGS__)

static struct router_series *new_series(struct router_metrics *m, const struct router_target *t)
{
    struct router_series *s = xcalloc(1, sizeof(*s));

    s->m = m;
    s->ns = xstrdup(t->ns);
    s->component = xstrdup(t->component);
    s->model = xstrdup(t->model);
    s->worker_type = t->worker_type;
    s->started = OF_TARGET(s, started);
    s->ended = OF_TARGET(s, ended);
    s->ttft = OF_TARGET(s, ttft);
    s->itl = OF_TARGET(s, itl);
    s->output_tokens = OF_TARGET(s, output_tokens);
    s->hit_rate = OF_TARGET(s, hit_rate);
    s->less_overlap = OF_TARGET(s, less_overlap, s->worker_type);
    s->overlap_lost = OF_TARGET(s, overlap_lost, s->worker_type);
    s->shared_rate = OF_TARGET(s, shared_rate);
    s->shared_beyond = OF_TARGET(s, shared_beyond);
    return s;
}

struct router_series *router_metrics_target(struct router_metrics *m, const struct router_target *t)
{
    AUTO(mem_free)
    char *key = xasprintf("%s %s %s %s", t->ns, t->component, t->model, t->worker_type);
    struct router_series *s = strmap_get(m->pools, str_from(key));

    if (!s) {
        s = new_series(m, t);
        (void)strmap_set(m->pools, str_from(key), s);
    }
    return s;
}

void router_metrics_times(struct router_metrics *m, const struct router_times *t)
{
    metric_observe(m->overhead[HASHING], (double)t->block_hashing / 1e6);
    metric_observe(m->overhead[SEQUENCES], (double)t->sequence_hashing / 1e6);
    metric_observe(m->overhead[MATCHING], (double)t->matching / 1e6);
    if (t->shared_asked)
        metric_observe(m->overhead[SHARED], (double)t->shared / 1e6);
    metric_observe(m->overhead[SCHEDULING],
                   (double)(t->scheduling - t->matching - t->shared) / 1e6);
    metric_observe(m->overhead[TOTAL],
                   (double)(t->block_hashing + t->sequence_hashing + t->scheduling) / 1e6);
}

void router_metrics_shared_errors(struct router_metrics *m, uint64_t n)
{
    metric_add(m->shared_errors, (double)n);
}

static struct phase_series *in_phase(struct router_series *s, enum router_phase phase)
{
    struct phase_series *p = &s->phases[phase];
    const char *word = PHASE_WORDS[phase];

    if (!p->input_tokens)
        *p = (struct phase_series){
            OF_TARGET(s, input_tokens, s->model, word), OF_TARGET(s, selected, s->model, word),
            OF_TARGET(s, best, s->model, word), OF_TARGET(s, reused, s->model, word)};
    return p;
}

void router_series_routed(struct router_series *s, const struct route_decision *d,
                          enum router_phase phase)
{
    const struct phase_series *p = in_phase(s, phase);
    uint32_t chosen = d->candidates[d->chosen].overlap_blocks, best = chosen;
    uint32_t block = d->inputs.block_size;

    for (size_t i = 0; i < d->n_candidates; i++)
        best = MAX(best, d->candidates[i].overlap_blocks);
    metric_add(s->started, 1);
    metric_observe(p->input_tokens, d->inputs.isl);
    metric_add(p->selected, (double)chosen * block);
    metric_add(p->best, (double)best * block);
    if (d->inputs.isl >= block)
        metric_observe(s->hit_rate, (double)chosen / (double)(d->inputs.isl / block));
    if (best > chosen)
        metric_add(s->less_overlap, 1);
    metric_observe(s->overlap_lost, best - chosen);
    if (d->shared_asked && d->n_pages)
        metric_observe(s->shared_rate, (double)d->shared_pages / d->n_pages);
    if (d->shared_asked)
        metric_observe(s->shared_beyond, d->candidates[d->chosen].shared_blocks);
}

/* --- one worker --------------------------------------------------------------------------------
 */

struct worker_labels {
    char id[ID_SIZE], rank[ID_SIZE];
};

static struct worker_labels labels_of(struct worker_rank w)
{
    struct worker_labels l;

    (void)snprintf(l.id, sizeof(l.id), "%" PRIu64, w.worker_id);
    (void)snprintf(l.rank, sizeof(l.rank), "%" PRIu32, w.dp_rank);
    return l;
}

void router_series_ended(struct router_series *s, const struct router_request_end *end)
{
    struct worker_labels l = labels_of(end->worker);
    const double last[WORKER_LAST] = {end->ttft_s, (double)end->isl, end->itl_s};

    metric_add(s->ended, 1);
    if (!isnan(end->ttft_s))
        metric_observe(s->ttft, end->ttft_s);
    if (!isnan(end->itl_s))
        metric_observe(s->itl, end->itl_s);
    if (end->output_tokens)
        metric_observe(s->output_tokens, (double)end->output_tokens);
    if (end->cached_tokens != UINT64_MAX)
        metric_add(in_phase(s, end->phase)->reused, (double)end->cached_tokens);
    for (size_t i = 0; i < WORKER_LAST && !isnan(end->ttft_s); i++)
        if (s->m->last[i] && !isnan(last[i]))
            metric_set(metric_with(s->m->last[i], l.id, l.rank, s->worker_type), last[i]);
}

void router_metrics_forget(struct router_metrics *m, const char *worker_type,
                           struct worker_rank worker)
{
    struct worker_labels l = labels_of(worker);

    for (size_t i = 0; i < WORKER_LAST; i++)
        metric_drop(m->last[i], metric_with(m->last[i], l.id, l.rank, worker_type));
}
