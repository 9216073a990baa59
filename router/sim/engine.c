/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sim/engine.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "router/kv/block_hash.h"
#include "router/sim/engine_inner.h"

enum { LAG_MAX_NS = 100000000 }; /* a caller later than this does not make up for it */

static int conf_check(const struct engine_conf *c, struct err *e)
{
    if (c->block_size < 1)
        return err_set(e, -EINVAL, "block size must be at least 1");
    if (c->n_blocks < 2)
        return err_set(e, -EINVAL, "at least 2 blocks are needed");
    if (c->max_num_seqs < 1 || c->max_num_batched_tokens < 1)
        return err_set(e, -EINVAL, "max sequences and batched tokens must be at least 1");
    if (!(c->watermark >= 0 && c->watermark < 1))
        return err_set(e, -EINVAL, "watermark must be at least 0 and below 1");
    if (!(c->speedup_ratio >= 0))
        return err_set(e, -EINVAL, "speedup ratio must not be negative");
    if (!(c->eos_probability >= 0 && c->eos_probability <= 1))
        return err_set(e, -EINVAL, "EOS probability must be between 0 and 1");
    if (c->n_vocab < 1)
        return err_set(e, -EINVAL, "no output tokens");
    return 0;
}

/* The cache knows blocks by their hashes; the tokens are the sequence's. */
static void on_cache_event(void *arg, const struct cache_event *ev)
{
    const struct engine *en = arg;
    struct cache_event with_tokens = *ev;

    if (ev->kind == CACHE_STORED)
        with_tokens.tokens =
            en->storing->tokens + (size_t)(ev->blocks - en->storing->chain) * en->conf.block_size;
    en->sink.event(en->sink.arg, &with_tokens);
}

int engine_new(struct engine **ret, const struct engine_conf *conf, uint64_t seed,
               const struct engine_sink *sink, struct err *e)
{
    struct engine *en;
    int r = conf_check(conf, e);

    if (r < 0)
        return err_wrap(e, r, "engine");
    en = xcalloc(1, sizeof(*en));
    en->conf = *conf;
    en->vocab = xcalloc(conf->n_vocab, sizeof(*en->vocab));
    memcpy(en->vocab, conf->vocab, conf->n_vocab * sizeof(*en->vocab));
    en->conf.vocab = en->vocab;
    en->sink = *sink;
    en->random = seed;
    en->cache = block_cache_new(conf->n_blocks, sink->event ? on_cache_event : NULL, en);
    list_init(&en->waiting);
    list_init(&en->running);
    *ret = en;
    return 0;
}

struct engine *engine_free(struct engine *en)
{
    if (!en)
        return NULL;
    LIST_FOREACH (s, &en->waiting, struct engine_seq, link)
        engine_seq_free(s);
    LIST_FOREACH (s, &en->running, struct engine_seq, link)
        engine_seq_free(s);
    block_cache_free(en->cache);
    free(en->vocab);
    free(en);
    return NULL;
}

/* SplitMix64 (Steele, Lea, Flood 2014): good enough for tokens, and its state is one number. */
uint64_t engine_random(struct engine *en)
{
    uint64_t z = en->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* --- sequences -------------------------------------------------------------------------------- */

/* Names the full blocks that have none yet. */
void engine_seq_hash(const struct engine *en, struct engine_seq *s)
{
    size_t bs = en->conf.block_size, n = en->conf.prefix_caching ? s->n_tokens / bs : 0;

    if (n > s->cap_chain) {
        s->cap_chain = MAX(n, 2 * s->cap_chain);
        s->chain = xreallocarray(s->chain, s->cap_chain, sizeof(*s->chain));
    }
    for (; s->n_chain < n; s->n_chain++) {
        struct cache_block *b = &s->chain[s->n_chain];

        (void)block_hash_local(s->tokens + s->n_chain * bs, bs, (uint32_t)bs, &b->tokens_hash);
        b->hash = s->n_chain ? block_hash_next(b[-1].hash, b->tokens_hash) : b->tokens_hash;
    }
}

void engine_seq_free(struct engine_seq *s)
{
    free(s->tokens);
    free(s->chain);
    free(s);
}

void engine_seq_release(struct engine *en, struct engine_seq *s)
{
    block_cache_release(en->cache, s->chain, s->n_named);
    block_cache_drop_anonymous(en->cache, s->n_anonymous);
    s->n_named = s->n_anonymous = 0;
}

int engine_submit(struct engine *en, const struct engine_job *job, struct engine_seq **ret,
                  struct err *e)
{
    struct engine_seq *s;

    if (job->n_tokens < 1 || job->max_tokens < 1)
        return err_set(e, -EINVAL, "a prompt and at least one token to generate are needed");
    if (engine_blocks_for(en, job->n_tokens) > engine_admission_limit(en))
        return err_set(e, -E2BIG, "prompt of %zu tokens exceeds the KV cache of %zu tokens",
                       job->n_tokens, engine_admission_limit(en) * en->conf.block_size);
    if (en->n_waiting >= en->conf.waiting_max)
        return err_set(e, -EBUSY, "%zu requests are waiting already", en->n_waiting);
    s = xcalloc(1, sizeof(*s));
    s->owner = job->owner;
    s->n_tokens = s->n_prompt = job->n_tokens;
    s->cap_tokens = job->n_tokens + MIN(job->max_tokens, 256u);
    s->tokens = xcalloc(s->cap_tokens, sizeof(*s->tokens));
    memcpy(s->tokens, job->tokens, job->n_tokens * sizeof(*s->tokens));
    s->max_tokens = job->max_tokens;
    s->min_tokens = job->min_tokens;
    s->eos_id = job->eos_id;
    s->may_end = job->has_eos && !job->ignore_eos;
    s->prefilled = job->prefilled;
    engine_seq_hash(en, s);
    list_append(&en->waiting, &s->link);
    en->n_waiting++;
    *ret = s;
    return 0;
}

struct engine_seq *engine_cancel(struct engine *en, struct engine_seq *s)
{
    if (!s)
        return NULL;
    list_remove(&s->link);
    if (s->running)
        en->n_running--;
    else
        en->n_waiting--;
    engine_seq_release(en, s);
    engine_seq_free(s);
    return NULL;
}

/* --- time ------------------------------------------------------------------------------------- */

uint64_t engine_deadline(const struct engine *en)
{
    if (en->in_pass)
        return en->pass_end_ns;
    return en->n_running + en->n_waiting > 0 ? 0 : ENGINE_NEVER;
}

/*
 * Passes follow each other without gaps in the model's time, however coarse the caller's timer is;
 * after an idle time, or when the caller was away for long, the next one begins now.
 */
void engine_step(struct engine *en, uint64_t now_ns)
{
    uint64_t start = now_ns;

    if (en->in_pass && now_ns < en->pass_end_ns)
        return;
    if (en->in_pass) {
        engine_pass_end(en);
        if (now_ns - en->pass_end_ns < LAG_MAX_NS)
            start = en->pass_end_ns;
    }
    en->in_pass = en->n_running + en->n_waiting > 0;
    if (en->in_pass)
        en->pass_end_ns = start + engine_pass_begin(en);
    block_cache_flush(en->cache);
}

struct engine_load engine_load(const struct engine *en)
{
    return (struct engine_load){
        .active_blocks = block_cache_active(en->cache),
        .total_blocks = en->conf.n_blocks,
        .cached_blocks = block_cache_computed_count(en->cache),
        .n_running = en->n_running,
        .n_waiting = en->n_waiting,
        .prompt_tokens = en->prompt_tokens,
        .cached_tokens = en->cached_tokens,
        .output_tokens = en->output_tokens,
        .preemptions = en->preemptions,
    };
}

void engine_each_block(const struct engine *en, cache_block_fn fn, void *arg)
{
    block_cache_each(en->cache, fn, arg);
}

void engine_check(const struct engine *en)
{
    size_t n_anonymous = 0, n_running = 0, n_waiting = 0, bs = en->conf.block_size;

    block_cache_check(en->cache);
    LIST_FOREACH (s, &en->running, struct engine_seq, link) {
        assert(s->running && s->n_computed <= s->n_tokens);
        assert((s->n_named + s->n_anonymous) * bs >= s->n_tokens);
        assert(s->n_named <= s->n_chain);
        n_anonymous += s->n_anonymous;
        n_running++;
    }
    LIST_FOREACH (s, &en->waiting, struct engine_seq, link) {
        assert(!s->running && s->n_named == 0 && s->n_anonymous == 0);
        n_waiting++;
    }
    assert(n_running == en->n_running && n_waiting == en->n_waiting);
    assert(n_running <= en->conf.max_num_seqs);
    assert(n_anonymous <= block_cache_active(en->cache));
}
