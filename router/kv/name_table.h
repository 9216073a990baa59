/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds positions by the hashes that engines give blocks.
 *
 * An entry is 8 bytes, 32 bits of the mixed hash and the position; the whole hash lies at the
 * position, where the caller compares it. Seven entries share a bucket, which is a cache line and
 * is searched without branches. The home of an entry is its 32 bits scaled to the number of buckets,
 * so that any number will do and entries lie in the order of their hashes. An entry whose bucket is
 * full lies in the next one that is not, and the buckets before count it. It grows at a load of 7/8
 * and may reach 15/16 where there is no memory to grow; below 1/8 it shrinks to a quarter.
 *
 * A table that grows or shrinks moves front to back, some buckets with every change, so that none
 * pays for many. Only name_table_reserve() and name_table_shrink() move: entries whose old home
 * lies before `moved` are in the new place.
 *
 * Growth may fail. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "router/kv/kv_mem.h"

enum { NAME_LANES = 7 };

struct name_bucket {
    uint32_t check[NAME_LANES];
    uint32_t len;
    uint32_t position[NAME_LANES]; /* not 0 */
    uint32_t spilled;              /* entries with homes up to here that lie behind */
};

struct name_place {
    struct name_bucket *buckets; /* more than `n`, for what the last ones spill */
    uint32_t n;
};

/* Embedded by value; zero-initialised is empty. */
struct name_table {
    struct name_place now, old; /* old.n is 0 unless the table moves */
    uint32_t moved;
    size_t len;
};

/* Goes through the entries that may be meant by a hash. */
struct name_probe {
    const struct name_bucket *at; /* NULL at the end */
    uint32_t check, lanes;        /* lanes still to come */
};

void name_table_done(struct name_table *t, struct kv_mem *mem);
/* Makes room for @n more; false without memory. */
MUST_CHECK bool name_table_reserve(struct name_table *t, struct kv_mem *mem, size_t n);
/* Adds the entry, which is not there; @mixed is name_mix() of the hash. Room was reserved. */
void name_table_put(struct name_table *t, uint64_t mixed, uint32_t position);
/* Likewise, unless there is an entry that may be meant by the hash: false. */
bool name_table_put_new(struct name_table *t, uint64_t mixed, uint32_t position);
/* The entry is there. */
void name_table_remove(struct name_table *t, uint64_t mixed, uint32_t position);
/* Gives back memory after @n were removed. */
void name_table_shrink(struct name_table *t, struct kv_mem *mem, size_t n);

/* The high half is well mixed, whatever numbers engines choose: a run of them must not cluster. */
static inline uint64_t name_mix(uint64_t hash)
{
    uint64_t h = (hash ^ hash >> 32) * UINT64_C(0xBF58476D1CE4E5B9);

    return (h ^ h >> 29) * UINT64_C(0x94D049BB133111EB);
}

static inline uint32_t name_check(uint64_t mixed)
{
    return (uint32_t)(mixed >> 32);
}

static inline uint32_t name_home(const struct name_place *p, uint32_t check)
{
    return (uint32_t)((uint64_t)check * p->n >> 32);
}

/* Where the hash's entries begin; NULL in an empty table. */
static inline struct name_bucket *name_table_home(const struct name_table *t, uint64_t mixed)
{
    uint32_t check = name_check(mixed);

    if (t->old.n && name_home(&t->old, check) >= t->moved)
        return t->old.buckets + name_home(&t->old, check);
    return t->now.n ? t->now.buckets + name_home(&t->now, check) : NULL;
}

/* Bits of the first @len words that are @word; behind NAME_LANES there is one more to read. */
static inline uint32_t name_lanes(const uint32_t *words, uint32_t len, uint32_t word)
{
#ifdef __SSE2__
    __m128i want = _mm_set1_epi32((int)word);
    __m128i low = _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(const void *)words), want);
    __m128i high =
        _mm_cmpeq_epi32(_mm_loadu_si128((const __m128i *)(const void *)(words + 4)), want);
    uint32_t lanes = (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(low)) |
                     (uint32_t)_mm_movemask_ps(_mm_castsi128_ps(high)) << 4;
#else
    uint32_t lanes = 0;

    for (uint32_t i = 0; i < NAME_LANES; i++)
        lanes |= (uint32_t)(words[i] == word) << i;
#endif
    return lanes & ((1u << len) - 1);
}

static inline struct name_probe name_table_probe(const struct name_table *t, uint64_t mixed)
{
    struct name_probe p = {name_table_home(t, mixed), name_check(mixed), 0};

    p.lanes = p.at ? name_lanes(p.at->check, p.at->len, p.check) : 0;
    return p;
}

/* The next position that the hash may mean, 0 at the end. */
static inline uint32_t name_probe_next(struct name_probe *p)
{
    uint32_t lane;

    while (!p->lanes) {
        if (!p->at || !p->at->spilled)
            return 0;
        p->at++;
        p->lanes = name_lanes(p->at->check, p->at->len, p->check);
    }
    lane = (uint32_t)__builtin_ctz(p->lanes);
    p->lanes &= p->lanes - 1;
    return p->at->position[lane];
}

/*
 * The table outgrows every cache: callers that know their next hashes ask for their buckets some
 * steps ahead, and when those are here for the ones behind full buckets. To ask for both at once
 * would double what the memory has to bring. Macros, as gcc 12 takes a function that only prefetches
 * for one without effect and drops the call.
 */
#define NAME_TABLE_PREFETCH(t, mixed)                                                              \
    do {                                                                                           \
        const struct name_bucket *prefetched = name_table_home((t), (mixed));                      \
                                                                                                   \
        if (prefetched)                                                                            \
            __builtin_prefetch(prefetched, 1);                                                     \
    } while (0)

#define NAME_TABLE_PREFETCH_BEHIND(t, mixed)                                                       \
    do {                                                                                           \
        const struct name_bucket *prefetched = name_table_home((t), (mixed));                      \
                                                                                                   \
        if (prefetched)                                                                            \
            __builtin_prefetch(prefetched + (prefetched->len == NAME_LANES), 1);                   \
    } while (0)
