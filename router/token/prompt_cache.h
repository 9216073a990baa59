/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts that begin like a recent one: what is equal is not tokenized twice.
 *
 * A prompt is cut behind added tokens that no other text can change (tokenizer_next_cut()), which is
 * where turns of a chat end; the ids of its parts are those of the whole. The cache is a tree of such
 * parts, so conversations share their beginning. A part is found by the hash of all up to its end and
 * then compared itself, so ids are always those that tokenizer_encode() gives. What is behind the last
 * cut is encoded every time.
 *
 * Bounded in bytes: the part that was unused longest goes first, and never before those that follow it.
 * Parts that were not found again yet take no more than a quarter: prompts that never come back are
 * soon forgotten, cost little memory, and cannot drive out what conversations share.
 * Any number of threads; a lock is held while parts are compared and copied, not while they are encoded.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/token/tokenizer.h"

struct prompt_cache;

enum { PROMPT_CACHE_PART = 128 }; /* bytes of a part at least; less begins the next */

/* Borrows @t. @seed makes hashes unpredictable. */
struct prompt_cache *prompt_cache_new(const struct tokenizer *t, size_t max_bytes, uint64_t seed);
struct prompt_cache *prompt_cache_free(struct prompt_cache *c);
DEFINE_CLEANUP(struct prompt_cache *, prompt_cache_free)

/* What one prompt had from the cache. */
struct prompt_reuse {
    size_t bytes, ids;
};

/* tokenizer_encode() into @out, which is empty. */
MUST_CHECK int prompt_cache_encode(struct prompt_cache *c, struct tokenizer_scratch *s,
                                   struct str text, struct token_ids *out,
                                   struct prompt_reuse *ret_reuse, struct err *e);

struct prompt_cache_stats {
    size_t bytes, parts;
    uint64_t evicted; /* parts, since the start */
};
struct prompt_cache_stats prompt_cache_stats(struct prompt_cache *c);
