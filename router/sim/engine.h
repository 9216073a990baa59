/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model of an inference engine, one data-parallel rank: continuous batching, chunked prefill,
 * prefix cache, preemption (router.md §8.5). It computes nothing but says when which token would
 * be there and which blocks it would hold.
 *
 *     submit ──▶ waiting ──admit──▶ running: prefill, chunk by chunk ──▶ decode ──▶ last item
 *                   ▲                                   │
 *                   └────────── preempted, in front ────┘
 *
 * Time is cut into passes. A pass gives every decoding sequence one token and fills the rest of
 * max_num_batched_tokens with prefill, first come first served; it lasts
 *     (Σ prefill(new tokens of each prompt in it) + decode(active tokens)) / speedup ratio
 * and at its end its tokens come out and its blocks are computed. A prompt is admitted while
 * active blocks + its own <= (1 - watermark) * capacity. Cached leading blocks cost no prefill;
 * blocks that are still being computed by another sequence are shared but cost the same again.
 * When decoding finds no block, the longest running sequence is preempted: it gives up its blocks
 * and is prefilled anew later, with what it had generated; the items it had sent stay sent. A
 * prompt that another worker has prefilled takes its blocks, but no time.
 *
 * Pure and deterministic: time (monotonic, ns) and seed are arguments. One thread. Output tokens
 * are drawn from the given vocabulary, so that they decode to text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/sim/block_cache.h"
#include "router/sim/engine_timing.h"

struct engine;
struct engine_seq; /* dead after its last item or engine_cancel() */

struct engine_conf {
    uint32_t block_size;           /* tokens */
    size_t n_blocks;               /* capacity */
    size_t max_num_seqs;           /* running at once */
    size_t max_num_batched_tokens; /* of one pass */
    size_t waiting_max;            /* submitted, not yet running; more are refused */
    bool prefix_caching;           /* off: blocks die with their sequence and make no events */
    bool chunked_prefill;
    double watermark;     /* share of blocks that admission leaves free */
    double speedup_ratio; /* 0 = no delays */
    enum decode_timing decode_timing;
    double eos_probability; /* of each token after min_tokens; 0 = never */
    const uint32_t *vocab;  /* output tokens; copied */
    size_t n_vocab;         /* at least 1 */
};

struct engine_job {
    const uint32_t *tokens; /* prompt, at least one; copied */
    size_t n_tokens;
    uint32_t max_tokens; /* at least 1 */
    uint32_t min_tokens;
    bool ignore_eos;
    bool has_eos;
    bool prefilled;  /* the prompt's KV comes from another worker: it costs no prefill here */
    uint32_t eos_id; /* what an early end emits */
    void *owner;     /* comes back in items */
};

enum engine_finish { ENGINE_RUNS, ENGINE_EOS, ENGINE_LENGTH };

struct engine_item {
    void *owner;
    bool has_token; /* false: only the end is told (an outgrown sequence) */
    uint32_t token;
    enum engine_finish finish;           /* not ENGINE_RUNS: the last item; the sequence is gone */
    size_t n_prompt, n_cached, n_output; /* tokens; cached: found at the first admission */
};

/* Called by engine_step(); they must not call the engine. */
struct engine_sink {
    void (*item)(void *arg, const struct engine_item *item);
    cache_event_fn event; /* block events; may be NULL */
    void *arg;
};

/* 0, or -EINVAL with what is wrong in @conf. The sink is copied. */
MUST_CHECK int engine_new(struct engine **ret, const struct engine_conf *conf, uint64_t seed,
                          const struct engine_sink *sink, struct err *e);
struct engine *engine_free(struct engine *en); /* drops its sequences without items */
DEFINE_CLEANUP(struct engine *, engine_free)

/* -E2BIG: the prompt can never be admitted; -EBUSY: waiting_max; -EINVAL: no tokens wanted. */
MUST_CHECK int engine_submit(struct engine *en, const struct engine_job *job,
                             struct engine_seq **ret, struct err *e);
/* Ends it without further items. NULL in, NULL out. */
struct engine_seq *engine_cancel(struct engine *en, struct engine_seq *seq);

#define ENGINE_NEVER UINT64_MAX
/* When engine_step() has something to do: ENGINE_NEVER while there is no work. */
uint64_t engine_deadline(const struct engine *en);
/* Ends the pass that is over at @now_ns and begins the next; at most one of each. */
void engine_step(struct engine *en, uint64_t now_ns);

struct engine_load {
    size_t active_blocks, total_blocks, cached_blocks;
    size_t n_running, n_waiting;
    uint64_t prompt_tokens, cached_tokens, output_tokens, preemptions; /* sums */
};
struct engine_load engine_load(const struct engine *en);
/* What an index rebuilt from the engine's events holds; parents first. */
void engine_each_block(const struct engine *en, cache_block_fn fn, void *arg);
/* Asserts every invariant; O(size). For tests. */
void engine_check(const struct engine *en);
