/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images of a chat in the prompt that it is routed by (router.md §1.5): in the place of each stands its
 * block_media_token(), so that other images are other blocks.
 *
 * It stands there as often as the engine will have it where that is known: the family of the model's
 * processor, and the sizes of all images, which only URLs that hold their image tell, as nothing is
 * fetched here. Workers of 1.x are told then, and publish their blocks so. Else it stands there once:
 * what is before the first image can be found in an engine's cache, and equal images count as cached
 * where routing goes by its own placements. Where the images cannot be found in the prompt either, it is
 * routed by its text alone.
 *
 * Owned by a request, used by its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/token/tokenizer.h"

struct arena;
struct engine_request;
struct model;
struct openai_request;

struct prompt_media {
    struct token_ids tokens; /* empty: as the prompt */
    bool is_exact;           /* as long as the engine's */
    const uint64_t *hashes;  /* of the images, in the request's arena */
    size_t n;
};

/* @prompt has its tokens, whose images stand there once each. */
void prompt_media_make(const struct model *m, const struct openai_request *in,
                       const struct token_ids *prompt, struct arena *a, struct prompt_media *ret);
/* The prompt as its blocks are known by: its images are in it. */
static inline const struct token_ids *prompt_media_tokens(const struct prompt_media *p,
                                                          const struct token_ids *prompt)
{
    return p->tokens.len ? &p->tokens : prompt;
}
/* Tokens that were said are part of the prompt now. */
void prompt_media_extend(struct prompt_media *p, const uint32_t *said, size_t n);
/* What workers are told of it. Borrows from @p, whose tokens are filled up to a block. */
void prompt_media_fill(struct prompt_media *p, uint32_t block_size, struct engine_request *ret);
void prompt_media_done(struct prompt_media *p);
