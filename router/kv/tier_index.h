/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker holds which blocks on slower tiers than the device (router.md §3.4, "lower tier").
 *
 * An event of such a tier says that block C, whose tokens hash to L, follows the block that the
 * engine calls P. P may be on any tier, or gone by now: so a tier is a set of steps
 *
 *     (worker, P, L) -> C             P absent: C begins a prompt
 *
 * in no order, and what a worker holds of a prompt shows when one asks. A lookup starts at the last
 * block that the device holds, goes on in host memory as far as steps lead, then on disk, then
 * elsewhere, and never back. Stores and removes are idempotent; of two blocks that claim the same
 * step the first one counts, until it is removed.
 *
 * Costs: store and remove O(1) a block, a lookup O(1) per block found and worker that has any,
 * clearing a worker O(its blocks). About 64 bytes a block. The number of blocks is bounded; beyond it
 * those that were stored longest ago go, roughly.
 *
 * Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/kv/prefix_index.h"

/* In the order in which a lookup goes through them. */
enum cache_tier { TIER_HOST, TIER_DISK, TIER_EXTERNAL, N_CACHE_TIERS };
extern const char *const CACHE_TIER_WORDS[N_CACHE_TIERS]; /* "host_pinned" … */

struct tier_index;

struct tier_index_stats {
    size_t blocks[N_CACHE_TIERS];
    size_t bytes;
    uint64_t evicted; /* for the bound, or for want of memory */
};

/* @limit in bytes; below 1 MiB counts as that. Slots are below 65,536. Never NULL. */
struct tier_index *tier_index_new(size_t limit);
struct tier_index *tier_index_free(struct tier_index *ix);
DEFINE_CLEANUP(struct tier_index *, tier_index_free)
/* A lower one takes effect as blocks are stored. */
void tier_index_set_limit(struct tier_index *ix, size_t limit);

/* blocks[0..n), each following the one before it; the first follows *parent, or nothing. */
void tier_index_store(struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                      const uint64_t *parent, const struct prefix_block *blocks, size_t n);
/* 0 or PREFIX_UNKNOWN: at least one was not held; the others are removed. */
int tier_index_remove(struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                      const uint64_t *external, size_t n);
/* The worker holds nothing any more on that tier. */
void tier_index_clear_tier(struct tier_index *ix, uint32_t slot, enum cache_tier tier);
/* The worker holds nothing any more on any of these tiers. */
void tier_index_clear(struct tier_index *ix, uint32_t slot);
/* Blocks that the worker holds here, on all tiers. */
size_t tier_index_held(const struct tier_index *ix, uint32_t slot);
/* Slots that hold some are below. */
uint32_t tier_index_slots_end(const struct tier_index *ix);

/*
 * How a prompt goes on: @local[0..n) are the hashes of its blocks behind the one that the worker
 * calls *parent (NULL: from the start). ret_blocks[tier] = blocks found there in a row.
 */
void tier_index_match(const struct tier_index *ix, uint32_t slot, const uint64_t *parent,
                      const uint64_t *local, size_t n, uint32_t ret_blocks[N_CACHE_TIERS]);
/* Calls @fn for each block that the worker holds on the tier, one by one and in no order. */
void tier_index_each(const struct tier_index *ix, uint32_t slot, enum cache_tier tier,
                     prefix_block_fn fn, void *arg);
struct tier_index_stats tier_index_stats(const struct tier_index *ix);
/* Asserts every invariant; O(size). For tests. */
void tier_index_check(const struct tier_index *ix);
