/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What targets hold on slower tiers than the device, beside the prefix index.
 */
#include "router/sched/scheduler_inner.h"

#include <assert.h>

/* Beside the budget of the index, a part of it. */
size_t scheduler_tier_bytes(size_t index_bytes)
{
    return index_bytes / 4;
}

void scheduler_tier_store(struct scheduler *s, struct worker_rank w, enum cache_tier tier,
                          const uint64_t *parent, const struct prefix_block *blocks, size_t n)
{
    uint32_t slot = scheduler_slot(s, w);

    if (slot != WORKER_SLOT_NONE)
        tier_index_store(s->tiers, slot, tier, parent, blocks, n);
}

int scheduler_tier_remove(struct scheduler *s, struct worker_rank w, enum cache_tier tier,
                          const uint64_t *external, size_t n)
{
    uint32_t slot = worker_table_find(s->workers, w);

    return slot == WORKER_SLOT_NONE ? PREFIX_UNKNOWN
                                    : tier_index_remove(s->tiers, slot, tier, external, n);
}

void scheduler_tier_clear(struct scheduler *s, struct worker_rank w, enum cache_tier tier)
{
    uint32_t slot = worker_table_find(s->workers, w);

    if (slot != WORKER_SLOT_NONE)
        tier_index_clear_tier(s->tiers, slot, tier);
}

const struct tier_index *scheduler_tiers(const struct scheduler *s)
{
    return s->tiers;
}

void scheduler_need_reach(struct scheduler *s, uint32_t n_slots)
{
    if (n_slots <= s->cap_ends)
        return;
    s->cap_ends = n_slots;
    s->ends = xreallocarray(s->ends, n_slots, sizeof(*s->ends));
    s->reach = xreallocarray(s->reach, n_slots, sizeof(*s->reach));
}

/* Where the device's part ends, for the targets that may go on elsewhere. */
static size_t gather_ends(struct scheduler *s)
{
    uint32_t end = MIN(tier_index_slots_end(s->tiers), worker_table_end(s->workers));
    size_t n = 0;

    scheduler_need_reach(s, end);
    for (uint32_t slot = 0; slot < end; slot++) {
        s->reach[slot] = (struct tier_reach){0, 0};
        if (tier_index_held(s->tiers, slot) && !s->rest[slot].signal.dead)
            s->ends[n++] = (struct prefix_end){.slot = slot, .depth = s->scores[slot]};
    }
    s->n_reach = end;
    return n;
}

void scheduler_match_tiers(struct scheduler *s, const struct route_request *q)
{
    size_t n = gather_ends(s);

    if (n)
        prefix_index_ends(s->index, q->local, q->n_blocks, s->ends, n);
    for (size_t i = 0; i < n; i++) {
        const struct prefix_end *end = &s->ends[i];
        struct tier_reach *reach = &s->reach[end->slot];
        uint32_t blocks[N_CACHE_TIERS];

        if (end->depth && !end->known)
            continue;
        tier_index_match(s->tiers, end->slot, end->depth ? &end->external : NULL,
                         q->local + end->depth, q->n_blocks - end->depth, blocks);
        reach->host = end->depth + blocks[TIER_HOST];
        reach->disk = reach->host + blocks[TIER_DISK] + blocks[TIER_EXTERNAL];
    }
}

void scheduler_fill_tiers(const struct scheduler *s, uint32_t slot, struct route_candidate *ret)
{
    struct tier_reach reach = slot < s->n_reach ? s->reach[slot] : (struct tier_reach){0, 0};
    uint32_t host = MAX(reach.host, ret->overlap_blocks);
    uint32_t disk = MAX(reach.disk, host);

    ret->host_blocks = host - ret->overlap_blocks;
    ret->disk_blocks = disk - host;
}
