/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State that engine.c (life of sequences) and engine_pass.c (what a pass does) share.
 */
#pragma once

#include "lib/base/list.h"
#include "router/sim/engine.h"

struct engine_seq {
    struct list link; /* in waiting or running */
    void *owner;
    uint32_t *tokens; /* prompt and what was generated */
    size_t n_tokens, cap_tokens, n_prompt;
    struct cache_block *chain; /* of its full blocks, when prefixes are cached */
    size_t n_chain, cap_chain;
    uint32_t max_tokens, min_tokens, eos_id;
    bool may_end; /* by EOS */
    bool prefilled;
    bool running;
    bool was_admitted; /* so n_cached is known */
    size_t n_cached;
    size_t n_computed;  /* tokens whose KV is there */
    size_t n_chunk;     /* tokens to prefill in this pass */
    bool emits;         /* a token at the end of this pass */
    size_t n_named;     /* blocks held by name: the first of chain */
    size_t n_anonymous; /* blocks held without */
};

struct engine {
    struct engine_conf conf;
    uint32_t *vocab;
    struct engine_sink sink;
    struct block_cache *cache;
    const struct engine_seq *storing; /* whose blocks become known to the cache */
    struct list waiting, running;     /* both oldest first */
    size_t n_waiting, n_running;
    uint64_t random;
    bool in_pass;
    uint64_t pass_end_ns;
    uint64_t prompt_tokens, cached_tokens, output_tokens, preemptions;
};

static inline size_t engine_admission_limit(const struct engine *en)
{
    return (size_t)((1 - en->conf.watermark) * (double)en->conf.n_blocks);
}
/* Blocks of @n_tokens and of the token that comes next. */
static inline size_t engine_blocks_for(const struct engine *en, size_t n_tokens)
{
    return n_tokens / en->conf.block_size + 1;
}
void engine_seq_hash(const struct engine *en, struct engine_seq *s);
void engine_seq_release(struct engine *en, struct engine_seq *s);
void engine_seq_free(struct engine_seq *s);
uint64_t engine_random(struct engine *en);

/* Returns the length of the pass; plans it. */
uint64_t engine_pass_begin(struct engine *en);
void engine_pass_end(struct engine *en);
