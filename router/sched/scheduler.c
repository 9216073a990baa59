/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler_inner.h"

#include <assert.h>
#include <string.h>

/* For some 60 million blocks, far above any fleet that was reported. */
static size_t index_bytes(const struct route_conf *c)
{
    return c->index_bytes ? c->index_bytes : (size_t)2 << 30;
}

/* Beside events it holds what was just routed and is not reported yet, for a shorter time. */
static struct approx_conf approx_conf_of(const struct route_conf *c)
{
    bool beside = c->use_kv_events || (c->remote == ROUTE_REMOTE_EVENTS && c->predicted_ttl_ms > 0);

    if (scheduler_keeps_used(c))
        return (struct approx_conf){UINT64_MAX, c->max_tree_size, c->prune_target_ratio};
    return (struct approx_conf){beside ? c->predicted_ttl_ms : c->ttl_ms, c->max_tree_size,
                                c->prune_target_ratio};
}

/* --- observers ---------------------------------------------------------------------------------
 */

void scheduler_observe(struct scheduler *s, struct scheduler_observer *o)
{
    list_append(&s->observers, &o->link);
}

static void on_prefilled(void *arg, const struct booking *b)
{
    struct scheduler *s = arg;

    LIST_FOREACH (o, &s->observers, struct scheduler_observer, link)
        if (o->prefilled)
            o->prefilled(o, b);
}

static void on_grown(void *arg, const struct booking *b)
{
    struct scheduler *s = arg;

    LIST_FOREACH (o, &s->observers, struct scheduler_observer, link)
        if (o->grown)
            o->grown(o, b);
}

static void on_ended(void *arg, const struct booking *b)
{
    struct scheduler *s = arg;

    LIST_FOREACH (o, &s->observers, struct scheduler_observer, link)
        if (o->ended)
            o->ended(o, b);
}

/* --- life --------------------------------------------------------------------------------------
 */

struct scheduler *scheduler_new(uint32_t block_size, const struct route_conf *conf)
{
    struct scheduler *s = xcalloc(1, sizeof(*s));
    struct approx_conf approx = approx_conf_of(conf);

    s->conf = *conf;
    s->block_size = block_size;
    s->workers = worker_table_new();
    s->index = prefix_index_new(index_bytes(conf));
    s->tiers = tier_index_new(scheduler_tier_bytes(index_bytes(conf)));
    s->approx = approx_index_new(&approx);
    approx = scheduler_guess_conf(conf);
    s->guesses = approx_index_new(&approx);
    s->sequences = sequences_new();
    sequences_set_expiry(s->sequences, conf->expiry_ms * NS_PER_MS);
    sequences_set_hooks(s->sequences,
                        (struct sequences_hooks){on_prefilled, on_grown, on_ended, s});
    s->unheard = unheard_new();
    list_init(&s->observers);
    return s;
}

static void drop_taints(struct target_rest *t)
{
    for (size_t i = 0; i < t->n_taints; i++)
        free(t->taints[i]);
    free(t->taints);
    t->taints = NULL;
    t->n_taints = 0;
}

struct scheduler *scheduler_free(struct scheduler *s)
{
    if (!s)
        return NULL;
    free(s->fresh_hashes);
    free(s->scores);
    free(s->shared);
    free(s->eligible);
    free(s->ends);
    free(s->reach);
    for (size_t i = 0; i < s->n_targets; i++)
        drop_taints(&s->rest[i]);
    free(s->targets);
    free(s->rest);
    route_decision_done(&s->probe);
    sequences_free(s->sequences);
    unheard_free(s->unheard);
    approx_index_free(s->approx);
    approx_index_free(s->guesses);
    prefix_index_free(s->index);
    tier_index_free(s->tiers);
    worker_table_free(s->workers);
    free(s);
    return NULL;
}

void scheduler_configure(struct scheduler *s, const struct route_conf *conf)
{
    struct approx_conf approx = approx_conf_of(conf);

    s->conf = *conf;
    prefix_index_set_limit(s->index, index_bytes(conf));
    tier_index_set_limit(s->tiers, scheduler_tier_bytes(index_bytes(conf)));
    approx_index_configure(s->approx, &approx);
    approx = scheduler_guess_conf(conf);
    approx_index_configure(s->guesses, &approx);
    sequences_set_expiry(s->sequences, conf->expiry_ms * NS_PER_MS);
}

const struct route_conf *scheduler_conf(const struct scheduler *s)
{
    return &s->conf;
}

uint32_t scheduler_block_size(const struct scheduler *s)
{
    return s->block_size;
}

/* --- workers -----------------------------------------------------------------------------------
 */

static void grow_slots(struct scheduler *s, size_t n)
{
    if (n <= s->n_targets)
        return;
    n = MAX(n, s->n_targets * 2);
    s->targets = xreallocarray(s->targets, n, sizeof(*s->targets));
    memset(s->targets + s->n_targets, 0, (n - s->n_targets) * sizeof(*s->targets));
    s->rest = xreallocarray(s->rest, n, sizeof(*s->rest));
    memset(s->rest + s->n_targets, 0, (n - s->n_targets) * sizeof(*s->rest));
    s->scores = xreallocarray(s->scores, n, sizeof(*s->scores));
    s->shared = xreallocarray(s->shared, n, sizeof(*s->shared));
    s->eligible = xreallocarray(s->eligible, n, sizeof(*s->eligible));
    s->n_targets = n;
}

static uint32_t need_slot(struct scheduler *s, struct worker_rank w)
{
    uint32_t slot = worker_table_add(s->workers, w);

    if (slot != WORKER_SLOT_NONE)
        grow_slots(s, (size_t)slot + 1);
    return slot;
}

static void clear_blocks(struct scheduler *s, uint32_t slot)
{
    prefix_index_clear(s->index, slot);
    tier_index_clear(s->tiers, slot);
}

static void drop_slot(struct scheduler *s, uint32_t slot)
{
    sequences_drop_slot(s->sequences, slot);
    clear_blocks(s, slot);
    approx_index_clear(s->approx, slot);
    scheduler_drop_signal(s, slot);
    drop_taints(&s->rest[slot]);
    s->targets[slot] = (struct target){0};
    s->rest[slot] = (struct target_rest){0};
    worker_table_remove(s->workers, slot);
}

/* Drops ranks of the worker outside [first, first + n). */
static void drop_ranks_outside(struct scheduler *s, uint64_t worker_id, uint32_t first, uint32_t n)
{
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct worker_rank w;

        if (worker_table_get(s->workers, slot, &w) && w.worker_id == worker_id &&
            (w.dp_rank < first || w.dp_rank - first >= n))
            drop_slot(s, slot);
    }
}

static void set_taints(struct target_rest *t, const struct worker_info *w)
{
    drop_taints(t);
    t->n_taints = MIN(w->n_taints, (size_t)WORKER_TAINTS_MAX);
    t->taints = xcalloc(MAX(t->n_taints, (size_t)1), sizeof(*t->taints));
    for (size_t i = 0; i < t->n_taints; i++)
        t->taints[i] = xstrdup(w->taints[i]);
}

bool scheduler_put_worker(struct scheduler *s, const struct worker_info *w)
{
    uint32_t size = MAX(w->dp_size, 1u), first = 0;

    drop_ranks_outside(s, w->worker_id, w->dp_start, size);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t slot = need_slot(s, (struct worker_rank){w->worker_id, w->dp_start + i});
        struct target *t;

        if (slot == WORKER_SLOT_NONE)
            return false;
        if (i == 0)
            first = slot;
        t = &s->targets[slot];
        t->worker = (struct worker_rank){w->worker_id, w->dp_start + i};
        t->known = true;
        t->first_rank = i == 0;
        t->first = first;
        t->total_kv_blocks = w->total_kv_blocks;
        t->max_num_seqs = w->max_num_seqs;
        t->max_batched_tokens = w->max_batched_tokens;
        t->on_cpu = w->on_cpu;
        set_taints(&s->rest[slot], w);
    }
    return true;
}

void scheduler_remove_worker(struct scheduler *s, uint64_t worker_id)
{
    drop_ranks_outside(s, worker_id, 0, 0);
}

bool scheduler_knows(const struct scheduler *s, struct worker_rank w)
{
    uint32_t slot = worker_table_find(s->workers, w);

    return slot != WORKER_SLOT_NONE && s->targets[slot].known;
}

size_t scheduler_workers(const struct scheduler *s)
{
    size_t n = 0;

    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        n += s->targets[slot].known && s->targets[slot].first_rank;
    return n;
}

void scheduler_report_load(struct scheduler *s, struct worker_rank w, uint64_t active_decode_blocks)
{
    uint32_t slot = worker_table_find(s->workers, w);

    if (slot != WORKER_SLOT_NONE)
        s->targets[slot].reported_blocks = active_decode_blocks;
}

/* --- KV events ---------------------------------------------------------------------------------
 */

struct prefix_index *scheduler_index(struct scheduler *s)
{
    return s->index;
}

uint32_t scheduler_slot(struct scheduler *s, struct worker_rank w)
{
    return need_slot(s, w);
}

bool scheduler_rank_at(const struct scheduler *s, uint32_t slot, struct worker_rank *ret)
{
    return worker_table_get(s->workers, slot, ret);
}

uint32_t scheduler_slots_end(const struct scheduler *s)
{
    return worker_table_end(s->workers);
}

int scheduler_store(struct scheduler *s, struct worker_rank w, const uint64_t *parent,
                    const struct prefix_block *blocks, size_t n)
{
    uint32_t slot = need_slot(s, w);

    if (slot == WORKER_SLOT_NONE)
        return PREFIX_FULL;
    return prefix_index_store(s->index, slot, parent, blocks, n);
}

int scheduler_remove(struct scheduler *s, struct worker_rank w, const uint64_t *external, size_t n)
{
    uint32_t slot = worker_table_find(s->workers, w);

    return slot == WORKER_SLOT_NONE ? PREFIX_UNKNOWN
                                    : prefix_index_remove(s->index, slot, external, n);
}

void scheduler_clear(struct scheduler *s, struct worker_rank w)
{
    uint32_t slot = worker_table_find(s->workers, w);

    if (slot != WORKER_SLOT_NONE)
        clear_blocks(s, slot);
}

void scheduler_clear_worker(struct scheduler *s, uint64_t worker_id)
{
    struct worker_rank w;

    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        if (worker_table_get(s->workers, slot, &w) && w.worker_id == worker_id)
            clear_blocks(s, slot);
}

/* --- what is there -----------------------------------------------------------------------------
 */

uint64_t scheduler_expire(struct scheduler *s, uint64_t now_ns)
{
    return sequences_expire(s->sequences, now_ns);
}

bool scheduler_load(const struct scheduler *s, uint32_t slot, struct worker_load *ret)
{
    const struct target *t = &s->targets[slot];
    const struct sequences_load *load;

    if (slot >= worker_table_end(s->workers) || !t->known)
        return false;
    load = sequences_load(s->sequences, slot);
    *ret = (struct worker_load){
        .worker = t->worker,
        .active_decode_blocks = scheduler_decode_blocks(s, slot),
        .booked_blocks = load->active_blocks,
        .active_prefill_tokens = load->prefill_tokens,
        .active_requests = load->requests,
        .cached_blocks = s->conf.use_kv_events ? prefix_index_held(s->index, slot)
                                               : approx_index_held(s->approx, slot),
        .total_kv_blocks = t->total_kv_blocks,
        .busy = scheduler_rank_is_busy(s, slot),
    };
    return true;
}

size_t scheduler_loads(const struct scheduler *s, struct worker_load *ret, size_t cap)
{
    struct worker_load load;
    size_t n = 0;

    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        if (scheduler_load(s, slot, &load) && n++ < cap)
            ret[n - 1] = load;
    return n;
}

struct prefix_stats scheduler_index_stats(const struct scheduler *s)
{
    return s->conf.use_kv_events ? prefix_index_stats(s->index) : approx_index_stats(s->approx);
}
