/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/samples.h"

#include <inttypes.h>
#include <stdio.h>

#include "lib/net/nats_link.h"
#include "router/frontend/admin.h"
#include "router/frontend/router_metrics.h"
#include "router/frontend/shared_cache.h"
#include "router/sched/signals.h"
#include "router/sync/kv_events.h"
#include "router/wire/event_bus.h"

enum { LOADS_MAX = 4096, ID_SIZE = 24 };

#define BY_POOL                                                                                    \
    {                                                                                              \
        "model", "worker_type"                                                                     \
    }
#define BY_WORKER                                                                                  \
    {                                                                                              \
        "worker_id", "dp_rank", "worker_type"                                                      \
    }

static const struct {
    const char *name, *help;
    const char *labels[METRIC_LABELS_MAX];
} ROWS[SAMPLES] = {
    [SAMPLE_INDEX_BLOCKS] = {"commutator_router_index_blocks", "Blocks of workers in the index",
                             BY_POOL},
    [SAMPLE_INDEX_BYTES] = {"commutator_router_index_bytes", "Memory of the index", BY_POOL},
    [SAMPLE_INDEX_ORPHANS] = {"commutator_router_index_orphans",
                              "Stored events whose parent block was unknown", BY_POOL},
    [SAMPLE_INDEX_EVICTED] = {"commutator_router_index_evicted",
                              "Blocks that its memory budget took from the index", BY_POOL},
    [SAMPLE_INDEX_REFUSED] = {"commutator_router_index_refused",
                              "Stored events of which the index could not take all", BY_POOL},
    [SAMPLE_TIER_BLOCKS] = {"commutator_router_tier_blocks",
                            "Blocks of workers on slower tiers than the device",
                            {"model", "worker_type", "tier"}},
    [SAMPLE_TIER_EVICTED] = {"commutator_router_tier_evicted",
                             "Blocks on slower tiers that their memory budget took from the index",
                             BY_POOL},
    [SAMPLE_SHARED_OBJECTS] = {"commutator_router_shared_cache_objects",
                               "Objects known of the cache that the workers share", BY_POOL},
    [SAMPLE_SHARED_EVENTS] = {"commutator_router_shared_cache_events",
                              "Batches of its events: taken, bad; gaps between them; objects that "
                              "there was no room for",
                              {"model", "worker_type", "outcome"}},
    [SAMPLE_WORKERS] = {"commutator_router_workers", "Workers to choose from", BY_POOL},
    [SAMPLE_BOOKINGS_EXPIRED] = {"commutator_router_bookings_expired",
                                 "Requests that fell silent and count no more on their workers",
                                 BY_POOL},
    [SAMPLE_DECODE_BLOCKS] = {"dynamo_frontend_worker_active_decode_blocks",
                              "Blocks of running requests", BY_WORKER},
    [SAMPLE_PREFILL_TOKENS] = {"dynamo_frontend_worker_active_prefill_tokens",
                               "Prompt tokens to be computed", BY_WORKER},
    [SAMPLE_EVENT_CONFIDENCE] = {"commutator_router_event_confidence",
                                 "How far a worker's KV events are believed, 0..1", BY_WORKER},
    [SAMPLE_EVENT_FALLBACK] = {"commutator_router_event_fallback",
                               "Whether a worker's cache is predicted, as no KV events come",
                               BY_WORKER},
    [SAMPLE_REGISTERED] = {"dynamo_component_router_worker_registered",
                           "1 for each worker and rank that the router knows",
                           {"dynamo_namespace", "dynamo_component", "router_worker_id", "dp_rank",
                            "worker_id", "worker_type"}},
    [SAMPLE_SILENT_WORKERS] = {"dynamo_component_router_kv_event_source_mismatch_workers",
                               "Workers whose KV events do not come",
                               {"dynamo_namespace", "dynamo_component", "model", "target_namespace",
                                "target_component", "target_endpoint", "worker_id", "worker_type"}},
    [SAMPLE_MODEL_READY] = {"dynamo_frontend_model_ready",
                            "Whether the model can be served",
                            {"model"}},
    [SAMPLE_PROMPT_BYTES] = {"commutator_tokenizer_cache_bytes",
                             "Memory of prompts that are not tokenized again",
                             {"model"}},
    [SAMPLE_PROMPT_EVICTED] = {"commutator_tokenizer_cache_evicted",
                               "Parts of prompts that its memory budget took from that cache",
                               {"model"}},
    [SAMPLE_NATS_UP] = {"commutator_nats_up", "Whether NATS is connected", {NULL}},
    [SAMPLE_NATS_DROPPED] = {"commutator_nats_dropped",
                             "Messages dropped because a queue was full",
                             {NULL}},
    [SAMPLE_EVENT_MESSAGES] = {"commutator_event_plane_messages",
                               "Messages of the event plane: received, bad, twice (came by several "
                               "brokers), sent, dropped (could not leave)",
                               {"outcome"}},
    [SAMPLE_PLANE_INFLIGHT] = {"dynamo_request_plane_inflight_requests",
                               "Requests at workers, the reference's name for it",
                               {NULL}},
    [SAMPLE_PLANE_STREAMS] = {"commutator_plane_streams", "Response streams open", {NULL}},
    [SAMPLE_PLANE_CONNECTIONS] = {"commutator_plane_connections", "Connections to workers", {NULL}},
    [SAMPLE_DISCOVERY_UP] = {"commutator_discovery_up", "Whether discovery works", {NULL}},
    [SAMPLE_REFUSED_CARDS] = {"commutator_discovery_refused_cards",
                              "Model cards that differed from that of the model they named",
                              {NULL}},
    [SAMPLE_DISCOVERY_KEPT] = {"commutator_discovery_kept_workers",
                               "Workers served although the store does not tell them now",
                               {NULL}},
    [SAMPLE_DISCOVERY_GIVEN_UP] =
        {"commutator_discovery_given_up",
         "Whether its workers were given up because the store stayed away",
         {NULL}},
    [SAMPLE_DISCOVERY_AGE] = {"commutator_discovery_view_age_seconds",
                              "Since when the store cannot be asked; 0 = it can",
                              {NULL}},
    [SAMPLE_DISCOVERY_RECORDS] =
        {"commutator_discovery_records",
         "Discovery records: known now, and since the start those that were "
         "bad, kept and told again, kept and given up",
         {"state"}},
};

void samples_init(struct samples *s, struct metric_registry *r)
{
    s->registry = r;
    for (size_t i = 0; i < SAMPLES; i++) {
        struct metric_desc d = {ROWS[i].name, ROWS[i].help, METRIC_GAUGE, {NULL}, NULL, 0};

        for (size_t k = 0; k < METRIC_LABELS_MAX && ROWS[i].labels[k]; k++)
            d.labels[k] = ROWS[i].labels[k];
        s->families[i] = metric_family(r, &d);
    }
}

#define SET(s, sample, value, ...)                                                                 \
    metric_set(metric_series((s)->families[sample], (const char *const[]){__VA_ARGS__, NULL}),     \
               (double)(value))

/* Sampled from nothing each time: the sets of a model add up. */
#define ADD(s, sample, value, ...)                                                                 \
    metric_add(metric_series((s)->families[sample], (const char *const[]){__VA_ARGS__, NULL}),     \
               (double)(value))

static void sample_prompts(struct samples *s, const struct model *m)
{
    struct prompt_cache_stats stats;

    if (!m->prompt_cache)
        return;
    stats = prompt_cache_stats(m->prompt_cache);
    ADD(s, SAMPLE_PROMPT_BYTES, stats.bytes, m->label);
    ADD(s, SAMPLE_PROMPT_EVICTED, stats.evicted, m->label);
}

static void sample_tiers(struct samples *s, const struct sampled_pool *p)
{
    struct tier_index_stats stats = tier_index_stats(scheduler_tiers(p->scheduler));

    for (size_t i = 0; i < N_CACHE_TIERS; i++)
        ADD(s, SAMPLE_TIER_BLOCKS, stats.blocks[i], p->model, p->worker_type, CACHE_TIER_WORDS[i]);
    ADD(s, SAMPLE_TIER_EVICTED, stats.evicted, p->model, p->worker_type);
}

static void sample_shared(struct samples *s, const struct sampled_pool *p,
                          struct router_metrics *router)
{
    struct shared_cache_stats n;

    if (!p->shared)
        return;
    router_metrics_shared_errors(router, shared_cache_take_errors(p->shared));
    if (scheduler_conf(p->scheduler)->shared_cache == SHARED_CACHE_NONE)
        return;
    n = shared_cache_stats(p->shared);
    ADD(s, SAMPLE_SHARED_OBJECTS, n.objects, p->model, p->worker_type);
    ADD(s, SAMPLE_SHARED_EVENTS, n.events.batches, p->model, p->worker_type, "taken");
    ADD(s, SAMPLE_SHARED_EVENTS, n.events.bad, p->model, p->worker_type, "bad");
    ADD(s, SAMPLE_SHARED_EVENTS, n.events.gaps, p->model, p->worker_type, "gap");
    ADD(s, SAMPLE_SHARED_EVENTS, n.events.refused, p->model, p->worker_type, "refused");
}

static void sample_index(struct samples *s, const struct sampled_pool *p)
{
    struct prefix_stats stats = scheduler_index_stats(p->scheduler);

    ADD(s, SAMPLE_INDEX_BLOCKS, stats.entries, p->model, p->worker_type);
    ADD(s, SAMPLE_INDEX_BYTES, stats.bytes, p->model, p->worker_type);
    ADD(s, SAMPLE_INDEX_ORPHANS, stats.orphans, p->model, p->worker_type);
    ADD(s, SAMPLE_INDEX_EVICTED, stats.evicted, p->model, p->worker_type);
    ADD(s, SAMPLE_INDEX_REFUSED, stats.refused, p->model, p->worker_type);
    sample_tiers(s, p);
    ADD(s, SAMPLE_WORKERS, scheduler_workers(p->scheduler), p->model, p->worker_type);
    ADD(s, SAMPLE_BOOKINGS_EXPIRED, scheduler_expire(p->scheduler, clock_now_ns()), p->model,
        p->worker_type);
}

static void sample_workers(struct samples *s, const struct sampled_pool *p)
{
    static struct worker_load loads[LOADS_MAX];
    size_t n = MIN(scheduler_loads(p->scheduler, loads, LOADS_MAX), (size_t)LOADS_MAX);

    for (size_t i = 0; i < n; i++) {
        char id[ID_SIZE], rank[ID_SIZE];

        (void)snprintf(id, sizeof(id), "%" PRIu64, loads[i].worker.worker_id);
        (void)snprintf(rank, sizeof(rank), "%" PRIu32, loads[i].worker.dp_rank);
        SET(s, SAMPLE_DECODE_BLOCKS, loads[i].active_decode_blocks, id, rank, p->worker_type);
        SET(s, SAMPLE_PREFILL_TOKENS, loads[i].active_prefill_tokens, id, rank, p->worker_type);
        SET(s, SAMPLE_REGISTERED, 1, p->ns, p->component, id, rank, p->own_id, p->worker_type);
    }
}

struct signal_samples {
    struct samples *samples;
    const char *worker_type;
    size_t n_dead;
};

static void sample_signal(void *arg, struct worker_rank w, const struct signal_health *h,
                          enum signal_verdict verdict)
{
    struct signal_samples *to = arg;
    char id[ID_SIZE], rank[ID_SIZE];

    (void)verdict;
    (void)snprintf(id, sizeof(id), "%" PRIu64, w.worker_id);
    (void)snprintf(rank, sizeof(rank), "%" PRIu32, w.dp_rank);
    SET(to->samples, SAMPLE_EVENT_CONFIDENCE, signal_health_confidence(h), id, rank,
        to->worker_type);
    SET(to->samples, SAMPLE_EVENT_FALLBACK, h->dead, id, rank, to->worker_type);
    to->n_dead += h->dead;
}

static void sample_signals(struct samples *s, const struct sampled_pool *p)
{
    struct signal_samples to = {s, p->worker_type, 0};

    if (!scheduler_conf(p->scheduler)->use_kv_events)
        return;
    scheduler_each_signal(p->scheduler, sample_signal, &to);
    SET(s, SAMPLE_SILENT_WORKERS, to.n_dead, p->ns, p->component, p->model, p->ns, p->component,
        p->endpoint, p->own_id, to.worker_type);
}

static void sample_bus(struct samples *s, const struct event_bus *bus)
{
    struct event_bus_stats n;

    if (!bus)
        return;
    n = event_bus_stats(bus);
    SET(s, SAMPLE_EVENT_MESSAGES, n.received, "received");
    SET(s, SAMPLE_EVENT_MESSAGES, n.bad, "bad");
    SET(s, SAMPLE_EVENT_MESSAGES, n.twice, "twice");
    SET(s, SAMPLE_EVENT_MESSAGES, n.sent, "sent");
    SET(s, SAMPLE_EVENT_MESSAGES, n.dropped, "dropped");
}

static void sample_discovery(struct samples *s, struct instances_stats n, bool up)
{
    SET(s, SAMPLE_DISCOVERY_UP, up, NULL);
    SET(s, SAMPLE_DISCOVERY_KEPT, (double)n.kept, NULL);
    SET(s, SAMPLE_DISCOVERY_GIVEN_UP, n.given_up, NULL);
    SET(s, SAMPLE_DISCOVERY_AGE, (double)n.view_age_ms / 1000, NULL);
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.records, "known");
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.bad_records, "bad");
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.restored, "restored");
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.dropped, "dropped");
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.beyond_limit, "beyond_limit");
    SET(s, SAMPLE_DISCOVERY_RECORDS, (double)n.publish_failures, "publish_failed");
}

static void sample_links(struct samples *s, const struct admin *a)
{
    const struct nats_link *nats = kv_events_nats(a->events);
    struct plane_stats p = plane_client_stats(a->serving->plane);

    if (nats) {
        struct nats_link_stats n = nats_link_stats(nats);

        SET(s, SAMPLE_NATS_UP, n.up, NULL);
        SET(s, SAMPLE_NATS_DROPPED, n.dropped_in, NULL);
    }
    sample_bus(s, kv_events_bus(a->events));
    SET(s, SAMPLE_PLANE_STREAMS, p.streams, NULL);
    SET(s, SAMPLE_PLANE_INFLIGHT, p.streams, NULL);
    SET(s, SAMPLE_PLANE_CONNECTIONS, p.connections, NULL);
    sample_discovery(s, instances_stats(a->instances), instances_store_up(a->instances));
    SET(s, SAMPLE_REFUSED_CARDS, instances_stats(a->instances).refused_cards, NULL);
}

void samples_pool(struct samples *s, const struct sampled_pool *p, struct router_metrics *router)
{
    sample_index(s, p);
    sample_workers(s, p);
    sample_signals(s, p);
    sample_shared(s, p, router);
}

void samples_forget(struct samples *s)
{
    for (size_t i = 0; i < SAMPLES; i++)
        metric_forget(s->registry, ROWS[i].name);
}

static void take_pool(struct samples *s, const struct pool *p, const char *own_id,
                      struct router_metrics *router)
{
    const struct sampled_pool of = {.scheduler = p->scheduler,
                                    .shared = p->shared,
                                    .ns = p->ns,
                                    .component = p->component,
                                    .endpoint = p->endpoint,
                                    .model = p->model,
                                    .worker_type = POOL_ROLE_WORDS[p->role],
                                    .own_id = own_id};

    samples_pool(s, &of, router);
}

void samples_take(struct samples *s, const struct admin *a)
{
    char own_id[ID_SIZE];
    struct str name;
    void *value;

    (void)snprintf(own_id, sizeof(own_id), "%" PRIx64, a->serving->router_id);
    samples_forget(s);
    for (size_t at = 0; strmap_next(a->serving->models, &at, &name, &value);) {
        const struct model *m = value;

        take_pool(s, m->pool, own_id, a->serving->router);
        ADD(s, SAMPLE_MODEL_READY, 0, m->name);
        if (model_is_served(m) && scheduler_workers(m->pool->scheduler) > 0)
            SET(s, SAMPLE_MODEL_READY, 1, m->name);
        sample_prompts(s, m);
    }
    for (size_t at = 0; strmap_next(a->serving->prefills, &at, &name, &value);)
        take_pool(s, value, own_id, a->serving->router);
    sample_links(s, a);
}
