/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the scheduler makes of the health of its targets' events.
 */
#include "router/sched/signals.h"

#include "router/sched/scheduler_inner.h"

struct approx_conf scheduler_guess_conf(const struct route_conf *c)
{
    return (struct approx_conf){c->ttl_ms, c->max_tree_size, c->prune_target_ratio};
}

static struct signal_health *signal_of(struct scheduler *s, struct worker_rank w,
                                       uint32_t *ret_slot)
{
    uint32_t slot = worker_table_find(s->workers, w);

    if (slot == WORKER_SLOT_NONE || !s->targets[slot].known)
        return NULL;
    *ret_slot = slot;
    return &s->rest[slot].signal;
}

/* --- guesses ---------------------------------------------------------------------------------- */

static bool falls_back(const struct scheduler *s)
{
    return s->conf.use_kv_events && s->conf.event_fallback;
}

void scheduler_guess(struct scheduler *s, uint32_t slot, const struct route_request *q)
{
    uint64_t now_ms = q->now_ns / NS_PER_MS;

    if (falls_back(s) && signal_health_is_suspect(&s->rest[slot].signal, now_ms))
        approx_index_insert(s->guesses, slot, q->local, q->sequence, q->n_blocks, now_ms);
}

/*
 * What was learned for certain, by events before they stopped or by asking, is worth at least as much
 * as a guess of that time: it counts for as long as one lives.
 */
void scheduler_match_guesses(struct scheduler *s, const struct route_request *q)
{
    size_t n_slots = worker_table_end(s->workers);
    uint64_t now_ms = q->now_ns / NS_PER_MS;

    (void)approx_index_match(s->guesses, q->local, q->n_blocks, now_ms, s->shared, n_slots);
    for (size_t slot = 0; slot < n_slots; slot++) {
        const struct signal_health *h = &s->rest[slot].signal;

        if (!h->dead)
            continue;
        if (!h->told_ms || h->told_ms + s->conf.ttl_ms <= now_ms)
            s->scores[slot] = 0;
        s->scores[slot] = MAX(s->scores[slot], s->shared[slot]);
    }
}

void scheduler_drop_signal(struct scheduler *s, uint32_t slot)
{
    s->n_dead -= s->rest[slot].signal.dead;
    approx_index_clear(s->guesses, slot);
}

/* --- what is heard ---------------------------------------------------------------------------- */

void scheduler_signal_event(struct scheduler *s, struct worker_rank w, uint64_t now_ms)
{
    uint32_t slot;
    struct signal_health *h = signal_of(s, w, &slot);

    if (h)
        signal_health_event(h, now_ms);
}

void scheduler_signal_told(struct scheduler *s, struct worker_rank w, uint64_t now_ms)
{
    uint32_t slot;
    struct signal_health *h = signal_of(s, w, &slot);

    if (h)
        h->told_ms = now_ms;
}

bool scheduler_signal_block_size(struct scheduler *s, uint64_t worker_id, uint32_t block_size)
{
    bool fits = block_size == 0 || block_size == s->block_size;

    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        if (s->targets[slot].known && s->targets[slot].worker.worker_id == worker_id)
            s->rest[slot].signal.block_size = fits ? 0 : block_size;
    return fits;
}

static void set_doubt(struct scheduler *s, uint32_t slot)
{
    s->targets[slot].doubt = 1 - signal_health_confidence(&s->rest[slot].signal);
}

void scheduler_signal_fault(struct scheduler *s, struct worker_rank w, enum signal_fault what)
{
    uint32_t slot;
    struct signal_health *h = signal_of(s, w, &slot);

    if (h) {
        signal_health_fault(h, what);
        set_doubt(s, slot);
    }
}

/* A prompt of which everything was there leads to no event. Outside of mode kv nobody minds. */
void scheduler_signal_prompt(struct scheduler *s, struct worker_rank w, size_t n_blocks,
                             size_t predicted, uint64_t now_ms)
{
    uint32_t slot;
    struct signal_health *h = signal_of(s, w, &slot);

    if (h && falls_back(s) && s->conf.mode == ROUTE_KV &&
        (predicted < n_blocks || (h->dead && n_blocks > 0)))
        signal_health_prompt(h, now_ms);
}

static void correct(struct approx_index *ix, uint32_t slot, const struct observed_prompt *p,
                    size_t cached, uint64_t now_ms)
{
    if (cached + 1 < p->predicted)
        approx_index_remove(ix, slot, p->sequence + cached, p->n_blocks - cached);
    else if (cached > p->predicted)
        approx_index_insert(ix, slot, p->local, p->sequence, cached, now_ms);
}

void scheduler_signal_cached(struct scheduler *s, const struct observed_prompt *p, uint64_t now_ms)
{
    size_t cached = MIN((size_t)(p->cached_tokens / s->block_size), p->n_blocks);
    uint32_t slot;
    struct signal_health *h = signal_of(s, p->worker, &slot);

    if (!h)
        return;
    signal_health_cached(h, p->predicted, cached);
    set_doubt(s, slot);
    if (!s->conf.use_kv_events)
        correct(s->approx, slot, p, cached, now_ms);
    else if (h->dead)
        correct(s->guesses, slot, p, cached, now_ms);
}

/* --- verdicts --------------------------------------------------------------------------------- */

void scheduler_judge_signals(struct scheduler *s, uint64_t now_ms, scheduler_signal_fn fn,
                             void *arg)
{
    if (!s->conf.use_kv_events)
        return;
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct signal_health *h = &s->rest[slot].signal;
        enum signal_verdict verdict;

        if (!s->targets[slot].known)
            continue;
        verdict = signal_health_judge(h, now_ms);
        set_doubt(s, slot);
        if (verdict == SIGNAL_SAME)
            continue;
        s->n_dead += verdict == SIGNAL_DIED;
        s->n_dead -= verdict == SIGNAL_REVIVED;
        if (verdict == SIGNAL_REVIVED)
            approx_index_clear(s->guesses, slot);
        fn(arg, s->targets[slot].worker, h, verdict);
    }
}

void scheduler_each_signal(const struct scheduler *s, scheduler_signal_fn fn, void *arg)
{
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        if (s->targets[slot].known)
            fn(arg, s->targets[slot].worker, &s->rest[slot].signal, SIGNAL_SAME);
}

uint64_t scheduler_index_age_ms(const struct scheduler *s, uint32_t slot, uint64_t now_ms)
{
    uint64_t told_ms = s->rest[slot].signal.told_ms;

    return told_ms ? now_ms - MIN(told_ms, now_ms) : UINT64_MAX;
}
