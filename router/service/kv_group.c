/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/kv_group.h"

#include <errno.h>
#include <inttypes.h>

#include "lib/net/loop.h"
#include "router/frontend/admission.h"
#include "router/sched/affinity.h"
#include "router/sync/kv_apply.h"

/* --- groups ----------------------------------------------------------------------------------- */

void kv_groups_init(struct kv_groups *gs, const struct route_conf *route,
                    struct metric_registry *metrics)
{
    static const struct metric_desc applied = {
        .name = "dynamo_kvrouter_kv_cache_events_applied",
        .help = "Total number of KV cache events applied to index",
        .type = METRIC_COUNTER,
        .labels = {"event_type", "status"}};
    static const struct metric_desc warnings = {.name = "dynamo_kvrouter_kv_cache_event_warnings",
                                                .help = "KV cache events that look wrong",
                                                .type = METRIC_COUNTER,
                                                .labels = {"warning_kind"}};
    static const struct metric_desc tiers = {
        .name = "commutator_router_tier_blocks",
        .help = "Blocks of workers on slower tiers than the device",
        .type = METRIC_GAUGE,
        .labels = {"tier"}};
    struct metric_family *f = metric_family(metrics, &applied);

    gs->by_key = strmap_new();
    gs->route = *route;
    for (size_t kind = 0; kind < ARRAY_LEN(KV_KIND_WORDS); kind++)
        for (size_t i = 0; i < N_KV_APPLIED; i++)
            gs->applied[kind][i] = metric_with(f, KV_KIND_WORDS[kind], KV_APPLIED_WORDS[i]);
    gs->known = metric_with(metric_family(metrics, &warnings), KV_WARNING_KNOWN);
    for (size_t i = 0; i < N_CACHE_TIERS; i++)
        gs->tier_blocks[i] = metric_with(metric_family(metrics, &tiers), CACHE_TIER_WORDS[i]);
}

void kv_groups_sample(const struct kv_groups *gs)
{
    size_t blocks[N_CACHE_TIERS] = {0}, at = 0;
    struct str key;
    void *group;

    while (strmap_next(gs->by_key, &at, &key, &group)) {
        const struct kv_group *g = group;
        struct tier_index_stats stats = tier_index_stats(scheduler_tiers(g->scheduler));

        for (size_t i = 0; i < N_CACHE_TIERS; i++)
            blocks[i] += stats.blocks[i];
    }
    for (size_t i = 0; i < N_CACHE_TIERS; i++)
        metric_set(gs->tier_blocks[i], (double)blocks[i]);
}

static void on_booked(struct scheduler_observer *o, const struct route_booked *b)
{
    const struct kv_group *g = CONTAINER_OF(o, struct kv_group, observer);

    g->all->booked(g->all->arg, g, b);
}

static void on_bound(void *arg, const struct affinity_binding *b)
{
    const struct kv_group *g = arg;

    g->all->bound(g->all->arg, g, b);
}

void kv_groups_set_replicas(struct kv_groups *gs, size_t n)
{
    struct str key;
    size_t at = 0;
    void *group;

    gs->n_replicas = n;
    while (strmap_next(gs->by_key, &at, &key, &group))
        scheduler_set_replicas(((struct kv_group *)group)->scheduler, n);
}

static void group_free(void *group)
{
    struct kv_group *g = group;

    affinity_free(g->affinity);
    admission_free(g->admission);
    scheduler_free(g->scheduler);
    free(g->key);
    free(g->model);
    free(g->name);
    free(g);
}

void kv_groups_done(struct kv_groups *gs)
{
    if (gs->by_key)
        gs->by_key = strmap_free_with(gs->by_key, group_free);
}

/* Nobody serves it, and nobody waits for that. */
static bool is_idle(const struct kv_group *g)
{
    return g->n_workers == 0 && !(g->admission && admission_waiting(g->admission).requests);
}

/* One of these; false when there is none. */
static bool drop_an_empty_one(struct kv_groups *gs)
{
    struct str key;
    size_t at = 0;
    void *group;

    while (strmap_next(gs->by_key, &at, &key, &group))
        if (is_idle(group)) {
            kv_groups_drop(gs, group);
            return true;
        }
    return false;
}

static char *key_of(struct str model, struct str name)
{
    return xasprintf("%.*s:%.*s", STR_ARG(model), STR_ARG(name));
}

struct kv_group *kv_groups_find(const struct kv_groups *gs, struct str model, struct str name)
{
    AUTO(mem_free) char *key = key_of(model, name);

    return strmap_get(gs->by_key, str_from(key));
}

static struct admission *admission_for(const struct kv_group *g)
{
    const struct kv_groups *gs = g->all;
    const struct admission_conf conf = {.loop = gs->loop,
                                        .scheduler = g->scheduler,
                                        .metrics = gs->queue_metrics,
                                        .model = g->model,
                                        .worker_type = "decode",
                                        .pins_wait = true};

    return admission_new(&conf, gs->rules);
}

int kv_groups_need(struct kv_groups *gs, struct str model, struct str name, uint32_t block_size,
                   struct kv_group **ret, struct err *e)
{
    struct kv_group *g = kv_groups_find(gs, model, name);

    if (g && g->block_size != block_size)
        return err_set(e, -EEXIST,
                       "block_size mismatch for model=%.*s routing_group=%.*s: "
                       "existing=%" PRIu32 " requested=%" PRIu32,
                       STR_ARG(model), STR_ARG(name), g->block_size, block_size);
    if (!g && strmap_len(gs->by_key) >= KV_GROUPS_MAX && !drop_an_empty_one(gs))
        return err_set(e, -ENOSPC, "more than %d models and routing groups", KV_GROUPS_MAX);
    if (!g) {
        g = xcalloc(1, sizeof(*g));
        g->all = gs;
        g->key = key_of(model, name);
        g->model = str_dup(model);
        g->name = str_dup(name);
        g->block_size = block_size;
        g->scheduler = scheduler_new(block_size, &gs->route);
        g->affinity = affinity_new(AFFINITY_SESSIONS_MAX);
        if (gs->n_replicas)
            scheduler_set_replicas(g->scheduler, gs->n_replicas);
        if (gs->writer)
            affinity_share(g->affinity, gs->writer, clock_wall_ms() * UINT64_C(1000000), on_bound,
                           g);
        if (gs->rules)
            g->admission = admission_for(g);
        if (gs->booked) {
            g->observer.booked = on_booked;
            scheduler_observe(g->scheduler, &g->observer);
        }
        (void)strmap_set(gs->by_key, str_from(g->key), g);
    }
    *ret = g;
    return 0;
}

void kv_groups_drop(struct kv_groups *gs, struct kv_group *g)
{
    (void)strmap_remove(gs->by_key, str_from(g->key));
    group_free(g);
}

/* --- events ----------------------------------------------------------------------------------- */

void kv_group_apply(struct kv_group *g, const struct kv_event *ev)
{
    enum kv_applied applied;
    bool known;

    if (ev->tier == KV_TIER_UNKNOWN)
        return;
    applied = kv_apply(g->scheduler, ev, &known);
    if (known)
        metric_add(g->all->known, 1);
    if (ev->tier == KV_TIER_DEVICE) /* the reference counts these */
        metric_add(g->all->applied[ev->kind][applied], 1);
}

void kv_group_remove_worker(struct kv_group *g, uint64_t worker_id)
{
    scheduler_remove_worker(g->scheduler, worker_id);
}

void kv_group_wake(struct kv_group *g)
{
    if (g->admission)
        admission_wake(g->admission);
}

/* --- dumps ------------------------------------------------------------------------------------ */

struct dump {
    struct json_put *json;
    struct worker_rank worker;
    enum kv_tier tier;
    struct buf event;
    uint64_t next_id;
};

static void put_blocks(void *arg, const uint64_t *parent, const struct prefix_block *blocks,
                       size_t n)
{
    struct dump *d = arg;
    struct kv_event ev = {.worker_id = d->worker.worker_id,
                          .dp_rank = d->worker.dp_rank,
                          .tier = d->tier,
                          .event_id = d->next_id++,
                          .kind = KV_STORED,
                          .blocks = (const struct kv_block *)(const void *)blocks,
                          .n_blocks = n};

    if (parent)
        ev.parent_hash = OPT_U64(*parent);
    buf_clear(&d->event);
    kv_event_put_json(&d->event, &ev);
    json_put_raw(d->json, buf_str(&d->event));
}

static void put_group_events(struct json_put *j, struct scheduler *s)
{
    struct dump d = {.json = j};

    for (uint32_t slot = 0; slot < scheduler_slots_end(s); slot++) {
        if (!scheduler_rank_at(s, slot, &d.worker))
            continue;
        d.tier = KV_TIER_DEVICE;
        prefix_index_each(scheduler_index(s), slot, put_blocks, &d);
        for (unsigned tier = 0; tier < N_CACHE_TIERS; tier++) {
            d.tier = (enum kv_tier)(KV_TIER_HOST + tier);
            tier_index_each(scheduler_tiers(s), slot, (enum cache_tier)tier, put_blocks, &d);
        }
    }
    buf_done(&d.event);
}

void kv_groups_put_dump(const struct kv_groups *gs, struct json_put *j)
{
    struct str key;
    void *group;
    size_t at = 0;

    json_put_object(j);
    while (strmap_next(gs->by_key, &at, &key, &group)) {
        const struct kv_group *g = group;

        json_put_key_str(j, key);
        json_put_object(j);
        json_put_member_u64(j, "block_size", g->block_size);
        json_put_key(j, "events");
        json_put_array(j);
        put_group_events(j, g->scheduler);
        json_put_array_end(j);
        json_put_object_end(j);
    }
    json_put_object_end(j);
}

const struct worker_load *kv_group_loads(const struct kv_group *g, struct arena *a, size_t *ret_n)
{
    size_t n = scheduler_loads(g->scheduler, NULL, 0);
    struct worker_load *loads = arena_alloc(a, (n + 1) * sizeof(*loads));

    *ret_n = MIN(n, scheduler_loads(g->scheduler, loads, n));
    return loads;
}
