/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One pass of the engine: at its beginning blocks are taken and tokens are shared out, at its end
 * the tokens are there.
 */
#include "router/sim/engine_inner.h"

#include <assert.h>

/* What is left to give in the pass that is being planned. */
struct plan {
    size_t budget;     /* tokens */
    size_t n_prefills; /* prompts with a chunk */
    double prefill_ms;
    bool decodes;
};

/* --- blocks ----------------------------------------------------------------------------------- */

static void tell(struct engine *en, struct engine_seq *s, enum engine_finish why,
                 const uint32_t *token)
{
    const struct engine_item item = {.owner = s->owner,
                                     .has_token = token != NULL,
                                     .token = token ? *token : 0,
                                     .finish = why,
                                     .n_prompt = s->n_prompt,
                                     .n_cached = s->n_cached,
                                     .n_output = s->n_tokens - s->n_prompt};

    if (why != ENGINE_RUNS)
        (void)engine_cancel(en, s);
    en->sink.item(en->sink.arg, &item);
}

/* Back to the front of the queue, to be prefilled anew with what it has generated. */
static void preempt(struct engine *en, struct engine_seq *s)
{
    engine_seq_release(en, s);
    list_remove(&s->link);
    list_prepend(&en->waiting, &s->link);
    en->n_running--;
    en->n_waiting++;
    en->preemptions++;
    s->running = false;
    s->emits = false;
    s->prefilled = false; /* what was fetched is gone */
    s->n_computed = s->n_chunk = 0;
}

/* Blocks for the next token of everybody who decodes. Preempts the oldest until it fits, which may
 * be the one in need itself. */
static void reserve(struct engine *en, struct engine_seq *s)
{
    size_t need = engine_blocks_for(en, s->n_tokens);

    while (s->running && s->n_named + s->n_anonymous < need) {
        if (block_cache_take_anonymous(en->cache))
            s->n_anonymous++;
        else
            preempt(en, LIST_ENTRY(en->running.next, struct engine_seq, link));
    }
}

static void take_blocks(struct engine *en, struct engine_seq *s)
{
    size_t need = engine_blocks_for(en, s->n_tokens), cached;
    bool room = true;

    /* The last token is always computed: its output is what sampling needs. */
    cached = block_cache_match(en->cache, s->chain, s->n_chain) * en->conf.block_size;
    s->n_computed = MIN(cached, (s->n_tokens - 1) / en->conf.block_size * en->conf.block_size);
    block_cache_hold(en->cache, s->chain, s->n_chain);
    s->n_named = s->n_chain;
    for (; s->n_named + s->n_anonymous < need && room; s->n_anonymous += room)
        room = block_cache_take_anonymous(en->cache);
    assert(room);
    if (s->was_admitted)
        return;
    s->was_admitted = true;
    s->n_cached = s->n_computed;
    en->prompt_tokens += s->n_prompt;
    en->cached_tokens += s->n_cached;
}

/* --- begin ------------------------------------------------------------------------------------ */

/* False when the pass can take no more prefill behind this one. */
static bool plan_prefill(const struct engine *en, struct engine_seq *s, struct plan *p)
{
    size_t left = s->n_tokens - s->n_computed;

    if (s->prefilled) {
        s->n_chunk = left;
        s->emits = p->decodes = true;
        p->budget -= p->budget > 0;
        return true;
    }
    if (en->conf.chunked_prefill)
        s->n_chunk = MIN(left, p->budget);
    else /* Whole or not at all; one that exceeds every budget has a pass to itself. */
        s->n_chunk = left <= p->budget || p->n_prefills == 0 ? left : 0;
    if (s->n_chunk == 0)
        return false;
    p->budget -= MIN(p->budget, s->n_chunk);
    p->n_prefills++;
    p->prefill_ms += engine_prefill_ms((double)s->n_chunk);
    s->emits = s->n_chunk == left;
    p->decodes |= s->emits;
    return s->emits;
}

static bool can_admit(const struct engine *en, const struct engine_seq *s, const struct plan *p)
{
    return en->n_running < en->conf.max_num_seqs && p->budget > 0 &&
           block_cache_active(en->cache) + engine_blocks_for(en, s->n_tokens) <=
               engine_admission_limit(en);
}

static void plan_admissions(struct engine *en, struct plan *p)
{
    bool more = true;

    while (more && en->n_waiting > 0) {
        struct engine_seq *s = LIST_ENTRY(en->waiting.next, struct engine_seq, link);

        if (!can_admit(en, s, p))
            return;
        list_remove(&s->link);
        list_append(&en->running, &s->link);
        en->n_waiting--;
        en->n_running++;
        s->running = true;
        take_blocks(en, s);
        more = plan_prefill(en, s, p);
    }
}

/* A sequence that outgrew what admission allows would wait for ever. */
static void end_outgrown(struct engine *en)
{
    LIST_FOREACH (s, &en->waiting, struct engine_seq, link) {
        if (!s->was_admitted)
            return; /* preempted ones stand in front */
        if (engine_blocks_for(en, s->n_tokens) > engine_admission_limit(en))
            tell(en, s, ENGINE_LENGTH, NULL);
    }
}

uint64_t engine_pass_begin(struct engine *en)
{
    struct plan p = {.budget = en->conf.max_num_batched_tokens};
    uint64_t preempted = en->preemptions;
    bool more = true;
    double ms;

    LIST_FOREACH (s, &en->running, struct engine_seq, link) {
        s->emits = false;
        s->n_chunk = 0;
    }
    LIST_FOREACH (s, &en->running, struct engine_seq, link) {
        if (s->n_computed < s->n_tokens)
            continue;
        reserve(en, s);
        s->emits = s->running;
        p.decodes |= s->emits;
        p.budget -= s->emits && p.budget > 0;
    }
    LIST_FOREACH (s, &en->running, struct engine_seq, link)
        if (s->n_computed < s->n_tokens)
            more = more && plan_prefill(en, s, &p);
    if (preempted == en->preemptions) {
        if (more)
            plan_admissions(en, &p);
    } else {
        end_outgrown(en);
    }
    ms = p.prefill_ms;
    if (p.decodes)
        ms += engine_decode_ms((double)(block_cache_active(en->cache) * en->conf.block_size),
                               en->conf.decode_timing);
    return en->conf.speedup_ratio > 0 ? (uint64_t)(ms * 1e6 / en->conf.speedup_ratio) : 0;
}

/* --- end -------------------------------------------------------------------------------------- */

static void append(struct engine_seq *s, uint32_t token)
{
    if (s->n_tokens == s->cap_tokens) {
        s->cap_tokens *= 2;
        s->tokens = xreallocarray(s->tokens, s->cap_tokens, sizeof(*s->tokens));
    }
    s->tokens[s->n_tokens++] = token;
}

/* The last block may have become full: it gets a name. */
static void promote(struct engine *en, struct engine_seq *s)
{
    engine_seq_hash(en, s);
    if (s->n_chain == s->n_named)
        return;
    assert(s->n_chain == s->n_named + 1 && s->n_anonymous > 0);
    en->storing = s;
    block_cache_promote(en->cache, s->chain, s->n_chain);
    s->n_named++;
    s->n_anonymous--;
}

static void emit(struct engine *en, struct engine_seq *s)
{
    size_t n = s->n_tokens - s->n_prompt + 1;
    double chance = (double)(engine_random(en) >> 11) * 0x1p-53;
    bool ends = s->may_end && n > s->min_tokens && chance < en->conf.eos_probability;
    uint32_t token = ends ? s->eos_id : en->vocab[engine_random(en) % en->conf.n_vocab];

    append(s, token);
    s->n_computed = s->n_tokens;
    en->output_tokens++;
    promote(en, s);
    tell(en, s, ends ? ENGINE_EOS : n >= s->max_tokens ? ENGINE_LENGTH : ENGINE_RUNS, &token);
}

void engine_pass_end(struct engine *en)
{
    size_t bs = en->conf.block_size;

    LIST_FOREACH (s, &en->running, struct engine_seq, link) {
        if (s->n_chunk > 0) {
            size_t from = s->n_computed / bs;

            s->n_computed += s->n_chunk;
            s->n_chunk = 0;
            en->storing = s;
            block_cache_computed(en->cache, s->chain, MIN(from, s->n_named),
                                 MIN(s->n_computed / bs, s->n_named));
        }
        if (s->emits)
            emit(en, s);
    }
}
