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
 * memory follows what workers hold: about 25 bytes per (worker, block). Depth costs no recursion.
 *
 * Costs: a store or remove of a block is one table access, and a search among the block's holders
 * per 16 blocks; a lookup is a comparison of the prompt's hashes, a comparison of holder lists per
 * 16 blocks, and O(holders) where those change; dropping a worker is O(its blocks).
 *
 * Pure; one thread: the loop that routes. What a version with many readers and several writers can
 * rely on: nodes never move, a block keeps its position while it exists, growth only fills cells
 * behind a node's length, a worker's table has one writer. It needs the lengths, links and holder
 * words as atomics and a grace period before nodes and holder lists are freed.
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
    PREFIX_FULL = 2, /* the bound was hit; blocks before it are stored */
    PREFIX_INVALID = 3, /* a block follows itself; blocks before it are stored */
    PREFIX_UNKNOWN = 4, /* remove: at least one hash was not held; the others are removed */
};

struct prefix_stats {
    size_t nodes;   /* distinct blocks in context */
    size_t entries; /* (worker, block) pairs */
    size_t bytes;
    uint64_t stored, removed, orphans, refused, unknown_removes;
};

/* @max_entries bounds (worker, block) pairs; slots are below 65,536. Never NULL. */
struct prefix_index *prefix_index_new(size_t max_entries);
struct prefix_index *prefix_index_free(struct prefix_index *ix);
DEFINE_CLEANUP(struct prefix_index *, prefix_index_free)

/*
 * The engine of @slot holds blocks[0..n), each following the one before it; the first follows the
 * block that the engine calls *parent, or nothing when @parent is NULL.
 * 0, PREFIX_NO_PARENT, PREFIX_FULL or PREFIX_INVALID.
 */
MUST_CHECK int prefix_index_store(struct prefix_index *ix, uint32_t slot, const uint64_t *parent,
                                  const struct prefix_block *blocks, size_t n);
/* 0 or PREFIX_UNKNOWN. */
int prefix_index_remove(struct prefix_index *ix, uint32_t slot, const uint64_t *external, size_t n);
/* The worker holds nothing any more. */
void prefix_index_clear(struct prefix_index *ix, uint32_t slot);
/* Blocks that the worker holds ("tree size" in the trace lines). */
size_t prefix_index_held(const struct prefix_index *ix, uint32_t slot);

/*
 * Scores of all workers for a prompt: ret_scores[slot] = leading blocks held, for slots below
 * @n_slots; all zero where nothing matches. Returns the longest match.
 */
size_t prefix_index_match(const struct prefix_index *ix, const uint64_t *local, size_t n,
                          uint32_t *ret_scores, size_t n_slots);
struct prefix_stats prefix_index_stats(const struct prefix_index *ix);
/* Asserts every invariant of the structure; O(size). For tests. */
void prefix_index_check(const struct prefix_index *ix);
