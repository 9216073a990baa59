/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of a KV cache that all workers share: SGLang's HiCache in a Mooncake store.
 *
 * The store knows objects by name. A page has one for each rank and kind, and is there when all of
 * them are:
 *
 *     HASH_RANK_k  HASH_RANK_v              RANK = 0 … tensor-parallel ranks - 1
 *     HASH_RANK_STAGE_k  HASH_RANK_STAGE_v  with several pipeline stages
 *     HASH__k, or HASH_STAGE_k              MLA, of which every rank holds the same
 *
 * HASH is, in hex, SHA-256 of the page before (nothing for the first one) and the page's tokens, 32
 * bits each, little-endian; for EAGLE each token together with the next. A prefix and "_" stand
 * before it where the workers have one. Source: names in the store of SGLang's workers, and what
 * ai-dynamo 1.6.1 makes of them (e2e/test_shared_cache.py).
 *
 * Of a name 64 bits are kept, so that an unknown one counts as known once in 2^42 questions or so;
 * that makes a wrong guess, nothing worse. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

enum {
    SHARED_OBJECTS_MAX = 1 << 22,   /* names kept: 17 bytes each when half full */
    SHARED_PAGE_OBJECTS_MAX = 4096, /* of one page */
    SHARED_PAGE_TOKENS_MAX = 65536,
};

struct shared_layout {
    uint32_t page_size; /* tokens */
    uint32_t ranks;     /* of which each has objects of its own; 0 = 1 */
    uint32_t stages;    /* of the pipeline; 0 = 1 */
    bool mla, eagle;
    const char *prefix; /* NULL = none; may be empty */
};

struct shared_pages;

struct shared_pages *shared_pages_new(void);
struct shared_pages *shared_pages_free(struct shared_pages *s);
DEFINE_CLEANUP(struct shared_pages *, shared_pages_free)
/* Copies. What was known of another layout is forgotten. False, and nothing is found any more, when
 * a page would have too many tokens or objects, or no token. */
bool shared_pages_lay_out(struct shared_pages *s, const struct shared_layout *layout);
bool shared_layout_eq(const struct shared_layout *a, const struct shared_layout *b);

/* False when there is no room for another name. */
bool shared_pages_put(struct shared_pages *s, struct str name);
void shared_pages_remove(struct shared_pages *s, struct str name);
void shared_pages_clear(struct shared_pages *s);
size_t shared_pages_objects(const struct shared_pages *s);

/* What is there of a prompt. Borrowed until the next look-up. */
struct shared_hits {
    uint32_t n_pages;     /* of the prompt */
    const uint32_t *from; /* from[i]: pages there among those from the i'th on; i <= n_pages */
};
void shared_pages_find(struct shared_pages *s, const uint32_t *tokens, size_t n_tokens,
                       struct shared_hits *ret);
static inline uint32_t shared_hits_from(const struct shared_hits *h, uint32_t page)
{
    return page < h->n_pages ? h->from[page] : 0;
}
