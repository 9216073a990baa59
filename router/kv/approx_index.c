/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefix index plus lists of its entries in order of last use, of all and of each slot's own. As the TTL is the same for all,
 * that order is also the order of expiry, so that neither expiry nor renewal needs a heap. Within
 * one prompt deeper blocks are put before shallower ones: a prefix never goes before what builds on
 * it.
 */
#include "router/kv/approx_index.h"

#include <assert.h>
#include <string.h>

#include "lib/base/map64.h"
#include "router/kv/prefix_index.h"

enum { HEAD = 0 /* entry 0 closes the ring of all and is no entry */, ENTRIES_MIN = 64 };
enum ring { RING_ALL, RING_SLOT, RINGS };

struct entry {
    uint64_t hash, used_ms;
    uint32_t slot;
    struct {
        uint32_t prev, next; /* a free entry: next free one in that of all */
    } ring[RINGS];
};

struct approx_index {
    struct approx_conf conf;
    struct prefix_index *prefixes;
    struct entry *entries;
    uint32_t n_entries, cap_entries, first_free;
    size_t n_live;
    struct map64 *by_slot;       /* sequence hash -> entry */
    uint32_t *heads;             /* by slot: what closes its ring, 0 = made when it is needed */
    struct prefix_block *blocks; /* scratch of one insert */
    size_t cap_blocks;
    size_t n_slots;
};

struct approx_index *approx_index_new(const struct approx_conf *conf)
{
    struct approx_index *ix = xcalloc(1, sizeof(*ix));

    ix->conf = *conf;
    ix->prefixes = prefix_index_new(SIZE_MAX); /* bounded by prune() here */
    ix->n_entries = 1;
    ix->cap_entries = ENTRIES_MIN;
    ix->entries = xcalloc(ix->cap_entries, sizeof(*ix->entries));
    return ix;
}

struct approx_index *approx_index_free(struct approx_index *ix)
{
    if (!ix)
        return NULL;
    for (size_t i = 0; i < ix->n_slots; i++)
        map64_done(&ix->by_slot[i]);
    free(ix->by_slot);
    free(ix->heads);
    free(ix->blocks);
    free(ix->entries);
    prefix_index_free(ix->prefixes);
    free(ix);
    return NULL;
}

void approx_index_configure(struct approx_index *ix, const struct approx_conf *conf)
{
    ix->conf = *conf;
}

static void unlink_entry(struct approx_index *ix, uint32_t id)
{
    const struct entry *en = &ix->entries[id];

    for (enum ring r = 0; r < RINGS; r++) {
        ix->entries[en->ring[r].prev].ring[r].next = en->ring[r].next;
        ix->entries[en->ring[r].next].ring[r].prev = en->ring[r].prev;
    }
}

static void put_last(struct approx_index *ix, enum ring r, uint32_t head, uint32_t id)
{
    struct entry *en = &ix->entries[id];

    en->ring[r].prev = ix->entries[head].ring[r].prev;
    en->ring[r].next = head;
    ix->entries[en->ring[r].prev].ring[r].next = id;
    ix->entries[head].ring[r].prev = id;
}

static void link_last(struct approx_index *ix, uint32_t id)
{
    put_last(ix, RING_ALL, HEAD, id);
    put_last(ix, RING_SLOT, ix->heads[ix->entries[id].slot], id);
}

static void free_entry(struct approx_index *ix, uint32_t id)
{
    ix->entries[id].ring[RING_ALL].next = ix->first_free;
    ix->first_free = id;
}

static uint32_t take_entry(struct approx_index *ix)
{
    uint32_t id = ix->first_free;

    if (id != HEAD) {
        ix->first_free = ix->entries[id].ring[RING_ALL].next;
    } else {
        if (ix->n_entries == ix->cap_entries) {
            ix->cap_entries *= 2;
            ix->entries = xreallocarray(ix->entries, ix->cap_entries, sizeof(*ix->entries));
        }
        id = ix->n_entries++;
    }
    return id;
}

static uint32_t entry_new(struct approx_index *ix, uint32_t slot, uint64_t hash)
{
    uint32_t id = take_entry(ix);

    ix->entries[id] = (struct entry){.hash = hash, .slot = slot};
    ix->n_live++;
    return id;
}

/* What closes a slot's ring: an entry in no other one. */
static void need_head(struct approx_index *ix, uint32_t slot)
{
    uint32_t id;

    if (ix->heads[slot])
        return;
    id = ix->heads[slot] = take_entry(ix);
    ix->entries[id] = (struct entry){.ring = {[RING_SLOT] = {id, id}}};
}

static void drop_head(struct approx_index *ix, uint32_t slot)
{
    if (ix->heads[slot])
        free_entry(ix, ix->heads[slot]);
    ix->heads[slot] = 0;
}

static void entry_drop(struct approx_index *ix, uint32_t id)
{
    struct entry en = ix->entries[id];

    unlink_entry(ix, id);
    (void)map64_remove(&ix->by_slot[en.slot], en.hash, NULL);
    (void)prefix_index_remove(ix->prefixes, en.slot, &en.hash, 1);
    free_entry(ix, id);
    ix->n_live--;
}

/* Nothing is left: what many entries took goes back. */
static void shrink_if_empty(struct approx_index *ix)
{
    if (ix->n_live > 0 || ix->cap_entries == ENTRIES_MIN)
        return;
    if (ix->n_slots)
        memset(ix->heads, 0, ix->n_slots * sizeof(*ix->heads));
    ix->first_free = HEAD;
    ix->n_entries = 1;
    ix->cap_entries = ENTRIES_MIN;
    ix->entries = xreallocarray(ix->entries, ix->cap_entries, sizeof(*ix->entries));
}

static void drop_expired(struct approx_index *ix, uint64_t now_ms)
{
    for (;;) {
        uint32_t oldest = ix->entries[HEAD].ring[RING_ALL].next;

        if (oldest == HEAD || now_ms - ix->entries[oldest].used_ms < ix->conf.ttl_ms)
            break;
        entry_drop(ix, oldest);
    }
    shrink_if_empty(ix);
}

static void prune(struct approx_index *ix)
{
    size_t target = (size_t)((double)ix->conf.max_entries * ix->conf.prune_target);

    if (ix->n_live <= ix->conf.max_entries)
        return;
    while (ix->n_live > target)
        entry_drop(ix, ix->entries[HEAD].ring[RING_ALL].next);
}

void approx_index_keep(struct approx_index *ix, uint32_t slot, size_t n)
{
    if (slot >= ix->n_slots)
        return;
    while (ix->by_slot[slot].len > n)
        entry_drop(ix, ix->entries[ix->heads[slot]].ring[RING_SLOT].next);
    shrink_if_empty(ix);
}

static void touch(struct approx_index *ix, uint32_t slot, uint64_t hash, uint64_t now_ms)
{
    bool is_new;
    uint64_t *at = map64_put(&ix->by_slot[slot], hash, &is_new);

    if (is_new)
        *at = entry_new(ix, slot, hash);
    else
        unlink_entry(ix, (uint32_t)*at);
    ix->entries[*at].used_ms = now_ms;
    link_last(ix, (uint32_t)*at);
}

static void need_slot(struct approx_index *ix, uint32_t slot)
{
    size_t n = MAX((size_t)slot + 1, ix->n_slots * 2);

    if (slot < ix->n_slots)
        return;
    ix->by_slot = xreallocarray(ix->by_slot, n, sizeof(*ix->by_slot));
    ix->heads = xreallocarray(ix->heads, n, sizeof(*ix->heads));
    for (size_t i = ix->n_slots; i < n; i++) {
        ix->by_slot[i] = (struct map64){0};
        ix->heads[i] = 0;
    }
    ix->n_slots = n;
}

/* Returns how many blocks are stored: behind a repeated hash they cannot be told apart. */
static size_t store(struct approx_index *ix, uint32_t slot, const uint64_t *local,
                    const uint64_t *sequence, size_t n)
{
    size_t stored = 0;

    if (n > ix->cap_blocks) {
        ix->blocks = xreallocarray(ix->blocks, n, sizeof(*ix->blocks));
        ix->cap_blocks = n;
    }
    for (size_t i = 0; i < n; i++)
        ix->blocks[i] = (struct prefix_block){.external = sequence[i], .local = local[i]};
    if (prefix_index_store(ix->prefixes, slot, NULL, ix->blocks, n) == 0)
        return n;
    while (stored < n &&
           prefix_index_store(ix->prefixes, slot, stored ? &sequence[stored - 1] : NULL,
                              &ix->blocks[stored], 1) == 0)
        stored++;
    return stored;
}

void approx_index_insert(struct approx_index *ix, uint32_t slot, const uint64_t *local,
                         const uint64_t *sequence, size_t n, uint64_t now_ms)
{
    drop_expired(ix, now_ms);
    need_slot(ix, slot);
    need_head(ix, slot);
    n = store(ix, slot, local, sequence, n);
    for (size_t i = n; i-- > 0;)
        touch(ix, slot, sequence[i], now_ms);
    prune(ix);
}

void approx_index_remove(struct approx_index *ix, uint32_t slot, const uint64_t *sequence, size_t n)
{
    if (slot >= ix->n_slots)
        return;
    while (n-- > 0) {
        const uint64_t *id = map64_find(&ix->by_slot[slot], sequence[n]);

        if (id)
            entry_drop(ix, (uint32_t)*id);
    }
}

void approx_index_clear(struct approx_index *ix, uint32_t slot)
{
    uint64_t hash, id;
    size_t at = 0;

    if (slot >= ix->n_slots)
        return;
    while (map64_next(&ix->by_slot[slot], &at, &hash, &id)) {
        unlink_entry(ix, (uint32_t)id);
        free_entry(ix, (uint32_t)id);
        ix->n_live--;
    }
    drop_head(ix, slot);
    map64_done(&ix->by_slot[slot]);
    prefix_index_clear(ix->prefixes, slot);
    shrink_if_empty(ix);
}

size_t approx_index_match(struct approx_index *ix, const uint64_t *local, size_t n, uint64_t now_ms,
                          uint32_t *ret_scores, size_t n_slots)
{
    drop_expired(ix, now_ms);
    return prefix_index_match(ix->prefixes, local, n, ret_scores, n_slots);
}

size_t approx_index_held(const struct approx_index *ix, uint32_t slot)
{
    return prefix_index_held(ix->prefixes, slot);
}

struct prefix_stats approx_index_stats(const struct approx_index *ix)
{
    return prefix_index_stats(ix->prefixes);
}
