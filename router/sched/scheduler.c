/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "router/kv/approx_index.h"
#include "router/sched/policy.h"
#include "router/sched/sequences.h"

/* Some 25 bytes each: 1.7 GB, and 12 GB if an engine's blocks had no runs at all; far above any fleet
 * that was reported. */
enum { INDEX_MAX_ENTRIES = 64 << 20 };
/* What the reference assumes for the threshold that was not given (router.md §4.6). */
static const double BUSY_DECODE_DEFAULT = 1.0, BUSY_PREFILL_DEFAULT = 1000000;

/* What is known of one target beside its blocks and bookings. */
struct target {
    bool known;      /* discovery has it */
    bool first_rank; /* stands for the worker in the modes that do not know ranks */
    uint64_t total_kv_blocks;
    uint64_t reported_blocks;
};

struct scheduler {
    struct route_conf conf;
    uint32_t block_size;
    struct worker_table *workers;
    struct prefix_index *index;
    struct approx_index *approx;
    struct sequences *sequences;
    struct target *targets; /* by slot */
    size_t n_targets;
    uint64_t turn;             /* of round-robin */
    uint32_t *scores, *shared; /* by slot, scratch of one decision */
    uint64_t *fresh_hashes;    /* scratch: block identities that match nothing */
    size_t cap_fresh;
};

static struct approx_conf approx_conf_of(const struct route_conf *c)
{
    return (struct approx_conf){c->ttl_ms, c->max_tree_size, c->prune_target_ratio};
}

struct scheduler *scheduler_new(uint32_t block_size, const struct route_conf *conf)
{
    struct scheduler *s = xcalloc(1, sizeof(*s));
    struct approx_conf approx = approx_conf_of(conf);

    s->conf = *conf;
    s->block_size = block_size;
    s->workers = worker_table_new();
    s->index = prefix_index_new(INDEX_MAX_ENTRIES);
    s->approx = approx_index_new(&approx);
    s->sequences = sequences_new(block_size);
    return s;
}

struct scheduler *scheduler_free(struct scheduler *s)
{
    if (!s)
        return NULL;
    free(s->fresh_hashes);
    free(s->scores);
    free(s->shared);
    free(s->targets);
    sequences_free(s->sequences);
    approx_index_free(s->approx);
    prefix_index_free(s->index);
    worker_table_free(s->workers);
    free(s);
    return NULL;
}

void scheduler_configure(struct scheduler *s, const struct route_conf *conf)
{
    struct approx_conf approx = approx_conf_of(conf);

    s->conf = *conf;
    approx_index_configure(s->approx, &approx);
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
    s->scores = xreallocarray(s->scores, n, sizeof(*s->scores));
    s->shared = xreallocarray(s->shared, n, sizeof(*s->shared));
    s->n_targets = n;
}

static uint32_t need_slot(struct scheduler *s, struct worker_rank w)
{
    uint32_t slot = worker_table_add(s->workers, w);

    if (slot != WORKER_SLOT_NONE)
        grow_slots(s, (size_t)slot + 1);
    return slot;
}

static void drop_slot(struct scheduler *s, uint32_t slot)
{
    sequences_drop_slot(s->sequences, slot);
    prefix_index_clear(s->index, slot);
    approx_index_clear(s->approx, slot);
    s->targets[slot] = (struct target){0};
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

bool scheduler_put_worker(struct scheduler *s, const struct worker_info *w)
{
    uint32_t size = MAX(w->dp_size, 1u);

    drop_ranks_outside(s, w->worker_id, w->dp_start, size);
    for (uint32_t i = 0; i < size; i++) {
        uint32_t slot = need_slot(s, (struct worker_rank){w->worker_id, w->dp_start + i});

        if (slot == WORKER_SLOT_NONE)
            return false;
        s->targets[slot].known = true;
        s->targets[slot].first_rank = i == 0;
        s->targets[slot].total_kv_blocks = w->total_kv_blocks;
    }
    return true;
}

void scheduler_remove_worker(struct scheduler *s, uint64_t worker_id)
{
    drop_ranks_outside(s, worker_id, 0, 0);
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
        prefix_index_clear(s->index, slot);
}

/* --- busy thresholds (router.md §4.6) ----------------------------------------------------------
 */

static uint64_t decode_blocks_of(const struct scheduler *s, uint32_t slot)
{
    return MAX(s->targets[slot].reported_blocks, sequences_active_blocks(s->sequences, slot));
}

static bool rank_is_busy(const struct scheduler *s, uint32_t slot)
{
    double decode = s->conf.busy_decode_blocks, prefill = s->conf.busy_prefill_tokens;
    uint64_t total = s->targets[slot].total_kv_blocks;

    if (isnan(decode) && isnan(prefill))
        return false;
    decode = isnan(decode) ? BUSY_DECODE_DEFAULT : decode;
    prefill = isnan(prefill) ? BUSY_PREFILL_DEFAULT : prefill;
    if ((double)sequences_prefill_tokens(s->sequences, slot) > prefill)
        return true;
    return total > 0 && (double)decode_blocks_of(s, slot) > decode * (double)total;
}

/* A worker is busy when all its ranks are. */
static bool worker_is_busy(const struct scheduler *s, uint64_t worker_id)
{
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct worker_rank w;

        if (s->targets[slot].known && worker_table_get(s->workers, slot, &w) &&
            w.worker_id == worker_id && !rank_is_busy(s, slot))
            return false;
    }
    return true;
}

/* --- decisions ---------------------------------------------------------------------------------
 */

static bool is_excluded(const struct route_request *q, uint64_t worker_id)
{
    for (size_t i = 0; i < q->n_exclude; i++)
        if (q->exclude[i] == worker_id)
            return true;
    return false;
}

static void add_candidate(struct route_decision *d, uint32_t slot, struct worker_rank w, bool busy)
{
    if (d->n_candidates == d->cap_candidates) {
        d->cap_candidates = d->cap_candidates ? d->cap_candidates * 2 : 16;
        d->candidates = xreallocarray(d->candidates, d->cap_candidates, sizeof(*d->candidates));
    }
    d->candidates[d->n_candidates++] =
        (struct route_candidate){.worker = w, .slot = slot, .busy = busy};
}

/* Those over a busy threshold go, unless the request names its worker itself. */
static void drop_busy(struct route_decision *d)
{
    size_t kept = 0;

    for (size_t i = 0; i < d->n_candidates; i++)
        if (!d->candidates[i].busy)
            d->candidates[kept++] = d->candidates[i];
    d->n_candidates = kept;
}

static bool is_eligible(const struct scheduler *s, const struct route_request *q, uint32_t slot,
                        struct worker_rank w)
{
    if (!s->targets[slot].known || is_excluded(q, w.worker_id))
        return false;
    if (q->pinned)
        return w.worker_id == q->pin.worker_id && w.dp_rank == q->pin.dp_rank;
    return s->conf.mode == ROUTE_KV || s->targets[slot].first_rank;
}

static int gather_candidates(const struct scheduler *s, const struct route_request *q,
                             struct route_decision *d)
{
    bool thresholds = !isnan(s->conf.busy_decode_blocks) || !isnan(s->conf.busy_prefill_tokens);

    d->n_candidates = 0;
    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct worker_rank w;

        if (worker_table_get(s->workers, slot, &w) && is_eligible(s, q, slot, w))
            add_candidate(d, slot, w, thresholds && worker_is_busy(s, w.worker_id));
    }
    if (d->n_candidates == 0)
        return q->pinned ? ROUTE_NO_SUCH_PIN : ROUTE_NO_WORKERS;
    if (!q->pinned)
        drop_busy(d);
    if (d->n_candidates == 0)
        return ROUTE_ALL_BUSY;
    return 0;
}

/* Block identities for the tracker: the prompt's own, unique ones, or none. */
static const uint64_t *tracked_sequence(struct scheduler *s, const struct route_request *q)
{
    if (!s->conf.track_active_blocks)
        return NULL;
    if (s->conf.assume_kv_reuse)
        return q->sequence;
    if (q->n_blocks > s->cap_fresh) {
        s->cap_fresh = q->n_blocks;
        s->fresh_hashes = xreallocarray(s->fresh_hashes, s->cap_fresh, sizeof(*s->fresh_hashes));
    }
    for (size_t i = 0; i < q->n_blocks; i++)
        s->fresh_hashes[i] = (q->random + i) * UINT64_C(0x9E3779B97F4A7C15);
    return s->fresh_hashes;
}

static void fill_terms(struct scheduler *s, const struct route_request *q, const uint64_t *sequence,
                       struct route_decision *d)
{
    size_t n_slots = worker_table_end(s->workers);

    if (s->conf.use_kv_events)
        (void)prefix_index_match(s->index, q->local, q->n_blocks, s->scores, n_slots);
    else
        (void)approx_index_match(s->approx, q->local, q->n_blocks, q->now_ms, s->scores, n_slots);
    sequences_shared(s->sequences, sequence, sequence ? q->n_blocks : 0, s->shared, n_slots);

    for (size_t i = 0; i < d->n_candidates; i++) {
        struct route_candidate *c = &d->candidates[i];
        uint64_t cached = (uint64_t)s->scores[c->slot] * s->block_size;
        uint64_t tokens = sequences_prefill_tokens(s->sequences, c->slot) +
                          (cached < q->isl ? q->isl - cached : 0);
        size_t fresh = sequence ? q->n_blocks - s->shared[c->slot] : 0;

        c->overlap_blocks = s->scores[c->slot];
        if (c->overlap_blocks)
            c->tree_size = s->conf.use_kv_events ? prefix_index_held(s->index, c->slot)
                                                 : approx_index_held(s->approx, c->slot);
        c->prefill_blocks = (double)tokens / s->block_size;
        c->decode_blocks = (double)(sequences_active_blocks(s->sequences, c->slot) + fresh);
    }
}

static size_t choose(struct scheduler *s, const struct route_request *q, struct route_decision *d)
{
    d->tied = false;
    switch (d->mode) {
    case ROUTE_ROUND_ROBIN:
        return s->turn++ % d->n_candidates;
    case ROUTE_RANDOM:
        return (size_t)(policy_unit(q->random) * (double)d->n_candidates);
    case ROUTE_KV:
        break;
    }
    policy_kv_score(d->candidates, d->n_candidates, d->overlap_weight);
    return policy_kv_pick(d->candidates, d->n_candidates, d->temperature, q->random, &d->tied);
}

int scheduler_route(struct scheduler *s, const struct route_request *q,
                    struct route_decision *ret_decision, struct booking **ret_booking)
{
    struct route_decision *d = ret_decision;
    const uint64_t *sequence;
    const struct route_candidate *chosen;
    int r;

    assert(q->isl >= 1);
    d->mode = (enum route_mode)s->conf.mode;
    d->overlap_weight = isnan(q->overlap_weight) ? s->conf.overlap_weight : q->overlap_weight;
    d->temperature = isnan(q->temperature) ? s->conf.temperature : q->temperature;
    d->isl = q->isl;
    d->isl_blocks = (q->isl + s->block_size - 1) / s->block_size;

    r = gather_candidates(s, q, d);
    if (r != 0)
        return r;
    sequence = tracked_sequence(s, q);
    fill_terms(s, q, sequence, d);
    d->chosen = choose(s, q, d);
    chosen = &d->candidates[d->chosen];
    d->total_kv_blocks = s->targets[chosen->slot].total_kv_blocks;

    *ret_booking = NULL;
    if (q->query_only)
        return 0;
    *ret_booking = sequences_book(s->sequences, chosen->slot, sequence, q->n_blocks, q->isl,
                                  chosen->overlap_blocks);
    if (!s->conf.use_kv_events)
        approx_index_insert(s->approx, chosen->slot, q->local, q->sequence, q->n_blocks, q->now_ms);
    return 0;
}

void route_decision_done(struct route_decision *d)
{
    free(d->candidates);
    *d = (struct route_decision){0};
}

/* --- what is there -----------------------------------------------------------------------------
 */

size_t scheduler_loads(const struct scheduler *s, struct worker_load *ret, size_t cap)
{
    size_t n = 0;

    for (uint32_t slot = 0; slot < worker_table_end(s->workers); slot++) {
        struct worker_rank w;

        if (!worker_table_get(s->workers, slot, &w) || !s->targets[slot].known)
            continue;
        if (n < cap)
            ret[n] = (struct worker_load){
                .worker = w,
                .active_decode_blocks = decode_blocks_of(s, slot),
                .active_prefill_tokens = sequences_prefill_tokens(s->sequences, slot),
                .active_requests = sequences_active_requests(s->sequences, slot),
                .cached_blocks = s->conf.use_kv_events ? prefix_index_held(s->index, slot)
                                                       : approx_index_held(s->approx, slot),
                .total_kv_blocks = s->targets[slot].total_kv_blocks,
                .busy = rank_is_busy(s, slot),
            };
        n++;
    }
    return n;
}

struct prefix_stats scheduler_index_stats(const struct scheduler *s)
{
    return s->conf.use_kv_events ? prefix_index_stats(s->index) : approx_index_stats(s->approx);
}
