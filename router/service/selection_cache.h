/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selections that a gateway asked for and may yet reserve by their id (router.md §8.3).
 *
 * A selection waits for a limited time; beyond the bounds on number and bytes the oldest go first.
 * Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/worker_table.h"

struct selection_cache;

struct selection {
    struct worker_rank worker;
    const uint64_t *local, *sequence;
    size_t n_blocks;
    uint32_t isl;
    struct str session; /* to be bound to the worker when it is claimed; empty = none */
};

struct selection_cache_conf {
    uint64_t ttl_ms;
    size_t max_entries, max_bytes;
};

struct selection_cache_stats {
    size_t entries, bytes;
    uint64_t expired, evicted;
};

struct selection_cache *selection_cache_new(const struct selection_cache_conf *conf)
    __attribute__((returns_nonnull));
struct selection_cache *selection_cache_free(struct selection_cache *c);
DEFINE_CLEANUP(struct selection_cache *, selection_cache_free)
/* Copies; a selection of the same key is replaced. */
void selection_cache_put(struct selection_cache *c, struct str key, const struct selection *s,
                         uint64_t now_ms);
/* What is kept under @key, or NULL; borrowed until the next call. */
const struct selection *selection_cache_find(struct selection_cache *c, struct str key,
                                             uint64_t now_ms);
void selection_cache_remove(struct selection_cache *c, struct str key);
struct selection_cache_stats selection_cache_stats(const struct selection_cache *c);
