/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps lie in segments by number, from 1; free ones form a list. Two tables find a step by where it
 * leads from and by the block that it leads to; each worker's steps form a ring through its head.
 */
#include "router/kv/tier_index.h"

#include <assert.h>

#include "router/kv/name_table.h"

const char *const CACHE_TIER_WORDS[] = {"host_pinned", "disk", "external"};

enum {
    SEGMENT_STEPS = 1024,
    STEP_BYTES = 64, /* a step and its entries in both tables, while these are well filled */
    LIMIT_MIN = 1 << 20,
    STEPS_MAX = 1 << 30,
};

struct step {
    uint64_t parent, local, external;
    uint32_t next, prev; /* in the worker's list, 0 = end; of a free one `next` is the next free */
    uint16_t slot;
    uint8_t tier; /* TIER_FREE */
    bool has_parent;
};

enum { TIER_FREE = N_CACHE_TIERS };

struct owner {
    uint32_t first; /* step, 0 = none */
    uint32_t n;
};

struct tier_index {
    struct step **segments;
    uint32_t n_segments, end, first_free, limit; /* steps are in [1, end) */
    uint32_t hand;                               /* where eviction looks next */
    struct name_table from, to;                  /* (slot, tier, parent, local); (…, external) */
    struct kv_mem mem;
    struct owner *owners; /* by slot */
    uint32_t n_owners;
    struct tier_index_stats stats;
};

static struct step *step_at(const struct tier_index *ix, uint32_t id)
{
    return &ix->segments[id / SEGMENT_STEPS][id % SEGMENT_STEPS];
}

/* --- finding ----------------------------------------------------------------------------------- */

static uint64_t mix_place(uint32_t slot, enum cache_tier tier, uint64_t hash)
{
    return name_mix(hash + (uint64_t)(slot * 4 + tier + 1) * UINT64_C(0x9E3779B97F4A7C15));
}

static uint64_t mix_from(uint32_t slot, enum cache_tier tier, const uint64_t *parent,
                         uint64_t local)
{
    return mix_place(slot, tier, name_mix(local) ^ (parent ? *parent : ~local));
}

static uint64_t mix_step_from(const struct step *s)
{
    return mix_from(s->slot, (enum cache_tier)s->tier, s->has_parent ? &s->parent : NULL, s->local);
}

static uint64_t mix_step_to(const struct step *s)
{
    return mix_place(s->slot, (enum cache_tier)s->tier, s->external);
}

static bool is_place(const struct step *s, uint32_t slot, enum cache_tier tier)
{
    return s->slot == slot && s->tier == tier;
}

static uint32_t find_from(const struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                          const uint64_t *parent, uint64_t local)
{
    struct name_probe p = name_table_probe(&ix->from, mix_from(slot, tier, parent, local));

    for (uint32_t id = name_probe_next(&p); id; id = name_probe_next(&p)) {
        const struct step *s = step_at(ix, id);

        if (is_place(s, slot, tier) && s->local == local && s->has_parent == (parent != NULL) &&
            (!parent || s->parent == *parent))
            return id;
    }
    return 0;
}

static uint32_t find_to(const struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                        uint64_t external)
{
    struct name_probe p = name_table_probe(&ix->to, mix_place(slot, tier, external));

    for (uint32_t id = name_probe_next(&p); id; id = name_probe_next(&p))
        if (is_place(step_at(ix, id), slot, tier) && step_at(ix, id)->external == external)
            return id;
    return 0;
}

/* --- dropping ---------------------------------------------------------------------------------- */

static void drop(struct tier_index *ix, uint32_t id)
{
    struct step *s = step_at(ix, id);
    struct owner *o = &ix->owners[s->slot];

    name_table_remove(&ix->from, mix_step_from(s), id);
    name_table_shrink(&ix->from, &ix->mem, 1);
    name_table_remove(&ix->to, mix_step_to(s), id);
    name_table_shrink(&ix->to, &ix->mem, 1);
    if (s->prev)
        step_at(ix, s->prev)->next = s->next;
    else
        o->first = s->next;
    if (s->next)
        step_at(ix, s->next)->prev = s->prev;
    o->n--;
    ix->stats.blocks[s->tier]--;
    *s = (struct step){.tier = TIER_FREE, .next = ix->first_free};
    ix->first_free = id;
}

/* When all are gone memory returns; the numbers begin again. */
static void shrink(struct tier_index *ix)
{
    if (ix->to.len)
        return;
    for (uint32_t i = 0; i < ix->n_segments; i++)
        free(ix->segments[i]);
    free(ix->segments);
    ix->segments = NULL;
    ix->n_segments = ix->first_free = 0;
    ix->end = ix->hand = 1;
}

/* Numbers are given in the order of stores, so the hand meets what was stored long ago first. */
static void evict(struct tier_index *ix)
{
    while (ix->to.len) {
        ix->hand = ix->hand + 1 < ix->end ? ix->hand + 1 : 1;
        if (step_at(ix, ix->hand)->tier == TIER_FREE)
            continue;
        drop(ix, ix->hand);
        ix->stats.evicted++;
        return;
    }
}

/* --- storing ----------------------------------------------------------------------------------- */

static uint32_t new_step(struct tier_index *ix)
{
    uint32_t id = ix->first_free;

    if (id) {
        ix->first_free = step_at(ix, id)->next;
        return id;
    }
    if (ix->end / SEGMENT_STEPS == ix->n_segments) {
        struct step *more = xcalloc(SEGMENT_STEPS, sizeof(*more));

        ix->segments = xreallocarray(ix->segments, ix->n_segments + 1, sizeof(more));
        ix->segments[ix->n_segments++] = more;
    }
    return ix->end++;
}

static void need_owner(struct tier_index *ix, uint32_t slot)
{
    uint32_t n = MAX(slot + 1, ix->n_owners * 2);

    if (slot < ix->n_owners)
        return;
    ix->owners = xreallocarray(ix->owners, n, sizeof(*ix->owners));
    memset(ix->owners + ix->n_owners, 0, (n - ix->n_owners) * sizeof(*ix->owners));
    ix->n_owners = n;
}

/* False when there is no memory for the tables. */
static bool add(struct tier_index *ix, const struct step *step)
{
    uint32_t id = new_step(ix);
    struct step *s = step_at(ix, id);
    struct owner *o = &ix->owners[step->slot];

    *s = *step;
    s->prev = 0;
    s->next = o->first;
    if (!name_table_reserve(&ix->from, &ix->mem, 1) || !name_table_reserve(&ix->to, &ix->mem, 1))
        goto no_memory;
    name_table_put(&ix->from, mix_step_from(s), id);
    name_table_put(&ix->to, mix_step_to(s), id);
    if (o->first)
        step_at(ix, o->first)->prev = id;
    o->first = id;
    o->n++;
    ix->stats.blocks[s->tier]++;
    return true;
no_memory:
    *s = (struct step){.tier = TIER_FREE, .next = ix->first_free};
    ix->first_free = id;
    ix->stats.evicted++;
    return false;
}

void tier_index_store(struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                      const uint64_t *parent, const struct prefix_block *blocks, size_t n)
{
    assert(slot < UINT16_MAX + 1u && tier < N_CACHE_TIERS);
    need_owner(ix, slot);
    for (size_t i = 0; i < n; i++) {
        const uint64_t *up = i ? &blocks[i - 1].external : parent;
        struct step s = {.local = blocks[i].local,
                         .external = blocks[i].external,
                         .slot = (uint16_t)slot,
                         .tier = (uint8_t)tier,
                         .has_parent = up != NULL};

        s.parent = up ? *up : 0;
        if (find_to(ix, slot, tier, s.external) || find_from(ix, slot, tier, up, s.local))
            continue;
        while (ix->to.len >= ix->limit)
            evict(ix);
        if (!add(ix, &s))
            return;
    }
}

int tier_index_remove(struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                      const uint64_t *external, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t id = find_to(ix, slot, tier, external[i]);

        if (id)
            drop(ix, id);
        else
            r = PREFIX_UNKNOWN;
    }
    shrink(ix);
    return r;
}

void tier_index_clear_tier(struct tier_index *ix, uint32_t slot, enum cache_tier tier)
{
    uint32_t id = tier_index_held(ix, slot) ? ix->owners[slot].first : 0, next;

    for (; id; id = next) {
        next = step_at(ix, id)->next;
        if (step_at(ix, id)->tier == tier)
            drop(ix, id);
    }
    shrink(ix);
}

void tier_index_clear(struct tier_index *ix, uint32_t slot)
{
    for (unsigned tier = 0; tier < N_CACHE_TIERS; tier++)
        tier_index_clear_tier(ix, slot, (enum cache_tier)tier);
}

/* --- asking ------------------------------------------------------------------------------------ */

size_t tier_index_held(const struct tier_index *ix, uint32_t slot)
{
    return slot < ix->n_owners ? ix->owners[slot].n : 0;
}

uint32_t tier_index_slots_end(const struct tier_index *ix)
{
    return ix->to.len ? ix->n_owners : 0;
}

void tier_index_match(const struct tier_index *ix, uint32_t slot, const uint64_t *parent,
                      const uint64_t *local, size_t n, uint32_t ret_blocks[N_CACHE_TIERS])
{
    size_t at = 0;

    for (unsigned tier = 0; tier < N_CACHE_TIERS; tier++) {
        size_t start = at;
        uint32_t id;

        while (at < n && (id = find_from(ix, slot, (enum cache_tier)tier, parent, local[at]))) {
            parent = &step_at(ix, id)->external;
            at++;
        }
        ret_blocks[tier] = (uint32_t)(at - start);
    }
}

void tier_index_each(const struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                     prefix_block_fn fn, void *arg)
{
    uint32_t id = slot < ix->n_owners ? ix->owners[slot].first : 0;

    for (; id; id = step_at(ix, id)->next) {
        const struct step *s = step_at(ix, id);
        struct prefix_block block = {s->external, s->local};

        if (s->tier == tier)
            fn(arg, s->has_parent ? &s->parent : NULL, &block, 1);
    }
}

struct tier_index_stats tier_index_stats(const struct tier_index *ix)
{
    struct tier_index_stats s = ix->stats;

    s.bytes = ix->mem.used + (size_t)ix->n_segments * SEGMENT_STEPS * sizeof(struct step) +
              ix->n_owners * sizeof(struct owner);
    return s;
}

void tier_index_check(const struct tier_index *ix)
{
    size_t n[N_CACHE_TIERS] = {0}, total = 0;

    for (uint32_t slot = 0; slot < ix->n_owners; slot++) {
        uint32_t held = 0, before = 0;

        for (uint32_t id = ix->owners[slot].first; id; id = step_at(ix, id)->next) {
            const struct step *s = step_at(ix, id);

            assert(s->slot == slot && s->tier < N_CACHE_TIERS && s->prev == before);
            assert(find_to(ix, slot, (enum cache_tier)s->tier, s->external) == id);
            assert(find_from(ix, slot, (enum cache_tier)s->tier, s->has_parent ? &s->parent : NULL,
                             s->local) == id);
            n[s->tier]++;
            held++;
            before = id;
        }
        assert(held == ix->owners[slot].n);
        total += held;
    }
    assert(total == ix->to.len && total == ix->from.len);
    for (unsigned tier = 0; tier < N_CACHE_TIERS; tier++)
        assert(n[tier] == ix->stats.blocks[tier]);
}

/* --- life -------------------------------------------------------------------------------------- */

void tier_index_set_limit(struct tier_index *ix, size_t limit)
{
    ix->limit = (uint32_t)MIN(MAX(limit, (size_t)LIMIT_MIN) / STEP_BYTES, (size_t)STEPS_MAX);
}

struct tier_index *tier_index_new(size_t limit)
{
    struct tier_index *ix = xcalloc(1, sizeof(*ix));

    ix->mem.limit = SIZE_MAX; /* the number of steps bounds it */
    ix->end = ix->hand = 1;
    tier_index_set_limit(ix, limit);
    return ix;
}

struct tier_index *tier_index_free(struct tier_index *ix)
{
    if (!ix)
        return NULL;
    for (uint32_t i = 0; i < ix->n_segments; i++)
        free(ix->segments[i]);
    free(ix->segments);
    free(ix->owners);
    name_table_done(&ix->from, &ix->mem);
    name_table_done(&ix->to, &ix->mem);
    free(ix);
    return NULL;
}
