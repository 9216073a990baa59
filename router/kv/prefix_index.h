/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prefix index: which worker holds which KV blocks.
 *
 *     root ── A B C ── D         a block is known in its context, reached by local hashes; each
 *              └── E F           knows the slots of the workers that hold it. A worker finds "its"
 *                                block by the hash that its engine gave it (external hash), which
 *                                is opaque to us
 *
 * A worker's score for a prompt is the number of leading blocks that it holds without a gap. Stores
 * and removes are idempotent. A block goes when no worker holds it and nothing follows it, so
 * memory follows what workers hold. Depth costs no recursion.
 *
 * Costs: a block that is new to all workers costs one table access, and so does one that is gone
 * from all; a block that others hold costs a comparison; all a search among the holders per 16
 * blocks. A lookup is a comparison of the prompt's hashes, a comparison of holder lists per 16
 * blocks, and O(holders) where those change; clearing a worker is O(its blocks). About 33 bytes for
 * each distinct block, and 16 for each holder of 16 of them.
 *
 * Memory has a budget, which is never passed. When it is used up, a store evicts leaves to make
 * room: of some that come next in the order of their numbers, always the one that was stored or
 * matched longest ago. An evicted block is still in its engine; the index forgets it.
 *
 * Threads: any number of readers, one writer at a time, which lets readers in whenever they wait: it
 * looks every 16 blocks at most, so a lookup waits for a microsecond, or until the end of the event
 * if the writer does not run. A lookup that comes in never waits again. Events of one worker come
 * from one thread at a time, in their order. Who has one thread pays 20 ns a call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct prefix_index;

struct prefix_block {
    uint64_t external; /* what the engine calls the block */
    uint64_t local;    /* block_hash_local() of its tokens */
};

enum {
    PREFIX_NO_PARENT =
        1,           /* the parent is unknown for this worker: nothing stored, ask for a resync */
    PREFIX_FULL = 2, /* the budget is used up; blocks before it are stored */
    PREFIX_INVALID = 3, /* a block follows itself; blocks before it are stored */
    PREFIX_UNKNOWN = 4, /* remove: at least one hash was not held; the others are removed */
};

struct prefix_stats {
    size_t nodes;   /* distinct blocks in context */
    size_t entries; /* (worker, external hash) pairs */
    size_t bytes, limit;
    uint64_t events; /* stores */
    uint64_t stored, removed, orphans, refused, unknown_removes;
    uint64_t evicted; /* entries that the budget took */
};

/* @limit in bytes; below 8 MiB counts as that. Slots are below 65,536. Never NULL. */
struct prefix_index *prefix_index_new(size_t limit);
/* Another budget; a lower one takes effect as blocks are stored, and frees nothing by itself. */
void prefix_index_set_limit(struct prefix_index *ix, size_t limit);
struct prefix_index *prefix_index_free(struct prefix_index *ix);
DEFINE_CLEANUP(struct prefix_index *, prefix_index_free)

/*
 * The engine of @slot holds blocks[0..n), each following the one before it; the first follows the
 * block that the engine calls *parent, or nothing when @parent is NULL.
 * 0, PREFIX_NO_PARENT, PREFIX_FULL or PREFIX_INVALID. A parent that may have been evicted gives
 * PREFIX_FULL, for a resync would only evict others.
 */
MUST_CHECK int prefix_index_store(struct prefix_index *ix, uint32_t slot, const uint64_t *parent,
                                  const struct prefix_block *blocks, size_t n);
/* 0 or PREFIX_UNKNOWN. */
int prefix_index_remove(struct prefix_index *ix, uint32_t slot, const uint64_t *external, size_t n);
/* The worker holds nothing any more. */
void prefix_index_clear(struct prefix_index *ix, uint32_t slot);
/* Blocks that the worker holds ("tree size" in the trace lines). Takes no lock. */
size_t prefix_index_held(const struct prefix_index *ix, uint32_t slot);
/* The worker's part of prefix_stats.bytes: its own tables, and of what is shared as much as it
 * has entries. */
size_t prefix_index_bytes_of(struct prefix_index *ix, uint32_t slot);

/*
 * Scores of all workers for a prompt: ret_scores[slot] = leading blocks held, for slots below
 * @n_slots; all zero where nothing matches. Returns the longest match.
 */
size_t prefix_index_match(struct prefix_index *ix, const uint64_t *local, size_t n,
                          uint32_t *ret_scores, size_t n_slots);
/* What a worker calls the block at which its part of a prompt ends. */
struct prefix_end {
    uint32_t slot, depth; /* blocks that it holds of the prompt, >= 1 */
    bool known;           /* whether it holds the last of them (still) */
    uint64_t external;
};
/* Fills the last two members of @ends[0..n_ends) for a prompt of @n blocks. */
void prefix_index_ends(struct prefix_index *ix, const uint64_t *local, size_t n,
                       struct prefix_end *ends, size_t n_ends);
/*
 * Calls @fn for runs of blocks that the worker holds, each following the one before and the first
 * the block *parent (NULL: it begins a prompt), which came in an earlier call. What cannot be
 * matched, behind a block that the worker lacks, is left out. @fn must not call the index.
 */
typedef void (*prefix_block_fn)(void *arg, const uint64_t *parent,
                                const struct prefix_block *blocks, size_t n);
void prefix_index_each(struct prefix_index *ix, uint32_t slot, prefix_block_fn fn, void *arg);
struct prefix_stats prefix_index_stats(struct prefix_index *ix);
/* Asserts every invariant of the structure; O(size). For tests. */
void prefix_index_check(struct prefix_index *ix);
