/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Approximate index: what workers probably hold, from where requests were sent (router.md §3.2).
 *
 * For deployments without KV events. Each routed prompt is stored under the chosen worker as if its
 * engine had reported it, with the router's own sequence hash as external hash. An entry lives for
 * a TTL that every use renews; above the size bound the entries closest to expiry go first (deeper
 * blocks first among equals) until the target share is reached. Who would rather go by what an engine
 * has room for takes no TTL, and has each target keep that many. Pure: time comes as an argument.
 * One thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct approx_index;
struct prefix_stats;

struct approx_conf {
    uint64_t ttl_ms;     /* 120,000; UINT64_MAX = none */
    size_t max_entries;  /* 2^20 */
    double prune_target; /* share of max_entries to prune to: 0.8 */
};

struct approx_index *approx_index_new(const struct approx_conf *conf);
struct approx_index *approx_index_free(struct approx_index *ix);
DEFINE_CLEANUP(struct approx_index *, approx_index_free)
/* A change of limits takes effect with the next insert or expiry. */
void approx_index_configure(struct approx_index *ix, const struct approx_conf *conf);
/* The prompt went to @slot. @sequence are the sequence hashes of the same blocks. */
void approx_index_insert(struct approx_index *ix, uint32_t slot, const uint64_t *local,
                         const uint64_t *sequence, size_t n, uint64_t now_ms);
/* The target holds @n blocks at most: those that were used last. */
void approx_index_keep(struct approx_index *ix, uint32_t slot, size_t n);
/* The target does not hold these blocks, deeper ones first dropped: the tail of a prompt. */
void approx_index_remove(struct approx_index *ix, uint32_t slot, const uint64_t *sequence,
                         size_t n);
void approx_index_clear(struct approx_index *ix, uint32_t slot);
/* As prefix_index_match(), after dropping what has expired at @now_ms. */
size_t approx_index_match(struct approx_index *ix, const uint64_t *local, size_t n, uint64_t now_ms,
                          uint32_t *ret_scores, size_t n_slots);
size_t approx_index_held(const struct approx_index *ix, uint32_t slot);
struct prefix_stats approx_index_stats(const struct approx_index *ix);
