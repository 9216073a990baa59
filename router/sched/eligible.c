/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler_inner.h"

#include <math.h>
#include <string.h>

/* What the reference assumes for the threshold that was not given (router.md §4.6). */
static const double BUSY_DECODE_DEFAULT = 1.0, BUSY_PREFILL_DEFAULT = 1000000;

/* --- busy thresholds (router.md §4.6) ----------------------------------------------------------
 */

uint64_t scheduler_decode_blocks(const struct scheduler *s, uint32_t slot)
{
    return MAX(s->targets[slot].reported_blocks, sequences_load(s->sequences, slot)->active_blocks);
}

static bool has_thresholds(const struct scheduler *s)
{
    return !isnan(s->conf.busy_decode_blocks) || !isnan(s->conf.busy_prefill_tokens) ||
           s->conf.busy_prefill_share > 0;
}

bool scheduler_rank_is_busy(const struct scheduler *s, uint32_t slot)
{
    double decode = s->conf.busy_decode_blocks, prefill = s->conf.busy_prefill_tokens;
    double share = s->conf.busy_prefill_share;
    double active = (double)sequences_load(s->sequences, slot)->prefill_tokens;
    uint64_t total = s->targets[slot].total_kv_blocks;

    if (!has_thresholds(s))
        return false;
    decode = isnan(decode) ? BUSY_DECODE_DEFAULT : decode;
    prefill = isnan(prefill) ? BUSY_PREFILL_DEFAULT : prefill;
    if (active > prefill || (share > 0 && active > share * scheduler_batched_tokens(s, slot)))
        return true;
    return total > 0 && (double)scheduler_decode_blocks(s, slot) > decode * (double)total;
}

/* A worker is busy when all its ranks are: the first rank keeps what was found of them. */
static void find_free_workers(struct scheduler *s)
{
    if (!has_thresholds(s))
        return;
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++)
        s->targets[slot].worker_free = false;
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct target *t = &s->targets[slot];

        if (t->known && !scheduler_rank_is_busy(s, slot))
            s->targets[t->first].worker_free = true;
    }
}

/* --- taints ------------------------------------------------------------------------------------
 */

static bool has_taint(const struct target_rest *t, struct str taint)
{
    for (size_t i = 0; i < t->n_taints; i++)
        if (str_is(taint, t->taints[i]))
            return true;
    return false;
}

static bool has_required(const struct target_rest *t, const struct route_request *q)
{
    for (size_t i = 0; i < q->n_required; i++)
        if (!has_taint(t, q->required[i]))
            return false;
    return true;
}

double eligible_preference(const struct target_rest *t, const struct route_request *q)
{
    double sum = 0;

    for (size_t i = 0; i < q->n_preferred; i++)
        if (has_taint(t, q->preferred[i].name))
            sum += q->preferred[i].weight;
    return sum;
}

/* --- the stage ---------------------------------------------------------------------------------
 */

static bool is_excluded(const struct route_request *q, uint64_t worker_id)
{
    for (size_t i = 0; i < q->n_exclude; i++)
        if (q->exclude[i] == worker_id)
            return true;
    return false;
}

/* Whether the target may be chosen; *ret_why otherwise. A request that names its worker gets it
 * busy or not. */
static bool is_eligible(const struct scheduler *s, const struct route_request *q, uint32_t slot,
                        enum route_reject *ret_why)
{
    const struct target *t = &s->targets[slot];

    if (q->pinned && !worker_rank_eq(t->worker, q->pin)) {
        *ret_why = ROUTE_REJECT_NOT_PINNED;
        return false;
    }
    if (q->n_exclude && is_excluded(q, t->worker.worker_id)) {
        *ret_why = ROUTE_REJECT_FAILED;
        return false;
    }
    if (q->n_required && !has_required(&s->rest[slot], q)) {
        *ret_why = ROUTE_REJECT_TAINT;
        return false;
    }
    if (!q->pinned && has_thresholds(s) && !s->targets[t->first].worker_free) {
        *ret_why = ROUTE_REJECT_BUSY;
        return false;
    }
    return true;
}

static void add_rejection(struct route_decision *d, struct worker_rank w, enum route_reject why)
{
    if (d->n_rejections == d->cap_rejections) {
        d->cap_rejections = d->cap_rejections ? d->cap_rejections * 2 : 16;
        d->rejections = xreallocarray(d->rejections, d->cap_rejections, sizeof(*d->rejections));
    }
    d->rejections[d->n_rejections++] = (struct route_rejection){w, why};
}

static bool was_rejected_for(const struct route_decision *d, enum route_reject why)
{
    for (size_t i = 0; i < d->n_rejections; i++)
        if (d->rejections[i].why == why)
            return true;
    return false;
}

/* What the caller is told when nobody is left: the reason that time or a choice of its own cures. */
static int nobody(const struct route_request *q, const struct route_decision *d)
{
    if (was_rejected_for(d, ROUTE_REJECT_BUSY))
        return ROUTE_ALL_BUSY;
    if (was_rejected_for(d, ROUTE_REJECT_TAINT))
        return ROUTE_CONSTRAINED;
    return q->pinned ? ROUTE_NO_SUCH_PIN : ROUTE_NO_WORKERS;
}

static bool is_busy(const struct route_decision *d, struct worker_rank w)
{
    for (size_t i = 0; i < d->n_rejections; i++)
        if (d->rejections[i].why == ROUTE_REJECT_BUSY && worker_rank_eq(d->rejections[i].worker, w))
            return true;
    return false;
}

/* A session stays where it was while it can; else the choice is free, unless it is to wait. */
static void keep_binding(struct scheduler *s, const struct route_request *q,
                         struct route_decision *d)
{
    uint32_t bound = WORKER_SLOT_NONE;

    for (size_t i = 0; i < s->n_eligible; i++)
        if (worker_rank_eq(s->targets[s->eligible[i]].worker, q->binding))
            bound = s->eligible[i];
    if (bound == WORKER_SLOT_NONE &&
        (s->conf.affinity_mode == AFFINITY_SOFT || q->yields || !is_busy(d, q->binding)))
        return;
    for (size_t i = 0; i < s->n_eligible; i++)
        if (s->eligible[i] != bound)
            add_rejection(d, s->targets[s->eligible[i]].worker, ROUTE_REJECT_SESSION);
    s->eligible[0] = bound;
    s->n_eligible = bound != WORKER_SLOT_NONE;
}

/* Whether the request and the configuration give any reason to reject somebody. */
static bool may_reject(const struct scheduler *s, const struct route_request *q)
{
    return q->pinned || q->n_exclude || q->n_required || has_thresholds(s);
}

/* The usual case in short: all that are there. Without branches, as it is asked of every slot. */
static size_t gather_all(const struct scheduler *s, bool all_ranks, uint32_t *ret_slots)
{
    uint32_t end = worker_table_end(s->workers);
    const struct target *targets = s->targets;
    size_t n = 0;

    for (uint32_t slot = 0; slot < end; slot++) {
        ret_slots[n] = slot;
        n += targets[slot].known & (all_ranks | targets[slot].first_rank);
    }
    return n;
}

static void gather_asked(struct scheduler *s, const struct route_request *q, bool all_ranks,
                         struct route_decision *d)
{
    uint32_t end = worker_table_end(s->workers);

    find_free_workers(s);
    for (uint32_t slot = 0; slot < end; slot++) {
        const struct target *t = &s->targets[slot];
        enum route_reject why;

        if (!t->known || (!t->first_rank && !all_ranks))
            continue;
        if (is_eligible(s, q, slot, &why))
            s->eligible[s->n_eligible++] = slot;
        else
            add_rejection(d, t->worker, why);
    }
}

int eligible_gather(struct scheduler *s, const struct route_request *q, struct route_decision *d)
{
    /* In other modes the engine spreads over its ranks itself. */
    bool all_ranks = q->pinned || s->conf.mode == ROUTE_KV;

    s->n_eligible = d->n_rejections = 0;
    if (s->conf.mode == ROUTE_DIRECT && !q->pinned)
        return ROUTE_PIN_NEEDED;
    if (may_reject(s, q))
        gather_asked(s, q, all_ranks, d);
    else
        s->n_eligible = gather_all(s, all_ranks, s->eligible);
    if (q->bound && !q->pinned)
        keep_binding(s, q, d);
    return s->n_eligible ? 0 : nobody(q, d);
}
