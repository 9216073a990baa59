/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one worker holds: the hash that its engine gave a block -> the block's position in the tree.
 *
 * Most of the index's memory is in these tables, hence 12 bytes an entry and a load of 1/2 to 3/4.
 * The home of a key is the high half of its mixed hash scaled to the capacity, so any capacity will
 * do, and growing copies the table from front to back. Linear probing, no tombstones.
 * Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct held_entry {
    uint32_t key[2];   /* the external hash, low half first; halves keep the entry at 12 bytes */
    uint32_t position; /* 0 marks a free place */
};

/* Embedded by value; zero-initialised is empty. */
struct held_table {
    struct held_entry *entries;
    uint32_t cap, len;
};

void held_table_done(struct held_table *t);
DEFINE_CLEANUP_EMBEDDED(struct held_table, held_table_done)
/* 0 when absent. */
uint32_t held_table_find(const struct held_table *t, uint64_t external);
/* The position to fill in, 0 if the key is new; borrowed until the next change. */
uint32_t *held_table_put(struct held_table *t, uint64_t external);
/* The position that it had, 0 when absent. */
uint32_t held_table_remove(struct held_table *t, uint64_t external);

static inline uint32_t held_table_home(const struct held_table *t, uint64_t external)
{
    uint64_t h = external * UINT64_C(0x9E3779B97F4A7C15);

    h ^= h >> 32;
    return (uint32_t)(((h * UINT64_C(0xD6E8FEB86659FD93) >> 32) * t->cap) >> 32);
}

/*
 * Tables outgrow every cache: callers that know their next keys ask for them some steps ahead. A
 * macro, as gcc 12 takes a function that only prefetches for one without effect and drops the call.
 */
#define HELD_TABLE_PREFETCH(t, external)                                                           \
    __builtin_prefetch((t)->entries + held_table_home((t), (external)), 1)

static inline size_t held_table_bytes(const struct held_table *t)
{
    return t->cap * sizeof(struct held_entry);
}
