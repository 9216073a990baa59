/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV-block memory of one modelled engine: who uses which block, what is kept for reuse, and the
 * events that tell a router about it (router.md §8.5).
 *
 *     free ──hold──▶ active (references > 0) ──release──▶ inactive, computed: LRU ──▶ evicted
 *                       ▲                                        │
 *                       └───────────────── hold ─────────────────┘
 *
 * A full block is named by its sequence hash. It may be reused once it is computed, and that is
 * when the stored event says so; a block that goes before it was computed leaves no trace. The
 * last, partial block of a sequence is anonymous and takes its name when it is full. Whoever holds
 * a block holds all before it and releases the last one first, so a block is always evicted before
 * its parent and the events never orphan one.
 *
 * Pure. One thread. Memory is bounded by the capacity.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct block_cache;

struct cache_block {
    uint64_t hash;        /* of the block with all before it: its name */
    uint64_t tokens_hash; /* of its own tokens */
};

enum cache_event_kind { CACHE_STORED, CACHE_REMOVED };

struct cache_event {
    uint64_t id; /* from 0, without gaps */
    enum cache_event_kind kind;
    bool has_parent; /* stored: what the first block follows; else it begins a prompt */
    uint64_t parent;
    const struct cache_block *blocks; /* stored, each following the one before it */
    size_t n_blocks;
    const uint32_t *tokens; /* stored: of all its blocks; NULL from a cache alone */
    const uint64_t *removed;
    size_t n_removed;
};

typedef void (*cache_event_fn)(void *arg, const struct cache_event *ev); /* borrowed */

/* @capacity blocks, at least 1. @event may be NULL. Never NULL. */
struct block_cache *block_cache_new(size_t capacity, cache_event_fn event, void *arg);
struct block_cache *block_cache_free(struct block_cache *c);
DEFINE_CLEANUP(struct block_cache *, block_cache_free)

/* Leading blocks of the chain that are computed. */
size_t block_cache_match(const struct block_cache *c, const struct cache_block *chain, size_t n);
/*
 * References all blocks of the chain, evicting for those that are new. There must be room:
 * block_cache_active() + n <= capacity.
 */
void block_cache_hold(struct block_cache *c, const struct cache_block *chain, size_t n);
/* Drops what hold and promote took. */
void block_cache_release(struct block_cache *c, const struct cache_block *chain, size_t n);
/* Blocks [from, to) of a held chain now hold their tokens: stored events for those that are new. */
void block_cache_computed(struct block_cache *c, const struct cache_block *chain, size_t from,
                          size_t to);

/* One nameless block. False when every block is active. */
MUST_CHECK bool block_cache_take_anonymous(struct block_cache *c);
void block_cache_drop_anonymous(struct block_cache *c, size_t n);
/* An anonymous block became chain[n - 1], computed; the blocks before it are held. */
void block_cache_promote(struct block_cache *c, const struct cache_block *chain, size_t n);

/* Reports the evictions that no event has told yet. Call at the end of every step. */
void block_cache_flush(struct block_cache *c);

size_t block_cache_active(const struct block_cache *c);
size_t block_cache_computed_count(const struct block_cache *c);
/* Every computed block once, parents first: a dump from which an index is rebuilt. */
typedef void (*cache_block_fn)(void *arg, const struct cache_block *block, const uint64_t *parent);
void block_cache_each(const struct block_cache *c, cache_block_fn fn, void *arg);
/* Asserts every invariant; O(size). For tests. */
void block_cache_check(const struct block_cache *c);
