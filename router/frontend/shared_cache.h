/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache that all workers of a pool share (--shared-cache-type): where it is and how its objects
 * are named is what the workers' cards say; its objects are followed as long as they agree, and
 * prompts are looked up in what is known of them. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/kv/shared_pages.h"
#include "router/sync/mooncake_source.h"

struct card_hicache;
struct loop;
struct route_conf;
struct shared_cache;

/* @endpoint goes before what cards say; NULL = none. Copies. Off at first. */
struct shared_cache *shared_cache_new(struct loop *l, const char *model, uint32_t block_size,
                                      const char *endpoint);
struct shared_cache *shared_cache_free(struct shared_cache *c);
DEFINE_CLEANUP(struct shared_cache *, shared_cache_free)
void shared_cache_switch(struct shared_cache *c, bool on);
/* Adds, or updates what changed. */
void shared_cache_put_worker(struct shared_cache *c, uint64_t id, const struct card_hicache *h);
void shared_cache_remove_worker(struct shared_cache *c, uint64_t id);

/* False when there is no cache to look at. *ret is borrowed until the next look-up. */
bool shared_cache_find(struct shared_cache *c, const uint32_t *tokens, size_t n_tokens,
                       struct shared_hits *ret);

/* Whether decisions by @conf look at it; @c may be NULL. */
bool shared_cache_is_asked(const struct shared_cache *c, const struct route_conf *conf);
/* For one of them: @ret, or NULL where nothing is looked at or there. Every decision asks anew, as it does
 * the index. @tokens NULL: the prompt is not to be looked up. */
const struct shared_hits *shared_cache_ask(struct shared_cache *c, const struct route_conf *conf,
                                           const uint32_t *tokens, size_t n_tokens,
                                           struct shared_hits *ret);
/* Tells the log when what @now follows counts for nothing; @was: what was in force before, of which was
 * told, NULL at the start. */
void shared_cache_warn(const struct route_conf *now, const struct route_conf *was);

struct shared_cache_stats {
    size_t objects;
    struct mooncake_source_stats events;
    uint64_t unreachable; /* endpoints that are none */
};
struct shared_cache_stats shared_cache_stats(const struct shared_cache *c);
/* Messages and endpoints that were no good since it was asked last. */
uint64_t shared_cache_take_errors(struct shared_cache *c);
