/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sim/engine.h"
#include "lib/base/test.h"

#include <errno.h>

#include "router/kv/block_hash.h"
#include "router/kv/prefix_index.h"

enum { MS = 1000000, JOBS = 64 };

/* Everything an engine told, and an index fed by its events. */
struct world {
    struct engine *engine;
    struct prefix_index *index;
    uint64_t now, next_event;
    struct told {
        struct engine_seq *seq;
        size_t n_tokens, n_prompt, n_cached, n_output;
        uint32_t last;
        uint64_t first_at, last_at;
        enum engine_finish finish;
        bool cancelled;
    } told[JOBS];
};

static void on_item(void *arg, const struct engine_item *item)
{
    struct world *w = arg;
    struct told *t = item->owner;

    assert_int_equal(t->finish, ENGINE_RUNS);
    assert_false(t->cancelled);
    if (t->n_tokens == 0)
        t->first_at = w->now;
    t->n_tokens += item->has_token;
    t->last = item->token;
    t->last_at = w->now;
    t->finish = item->finish;
    t->n_prompt = item->n_prompt;
    t->n_cached = item->n_cached;
    t->n_output = item->n_output;
    assert_int_equal(t->n_tokens, item->n_output);
}

static void on_event(void *arg, const struct cache_event *ev)
{
    struct world *w = arg;

    assert_int_equal(ev->id, w->next_event++);
    if (ev->kind == CACHE_REMOVED) {
        assert_int_equal(prefix_index_remove(w->index, 0, ev->removed, ev->n_removed), 0);
        return;
    }
    for (size_t i = 0; i < ev->n_blocks; i++) {
        const struct prefix_block b = {ev->blocks[i].hash, ev->blocks[i].tokens_hash};
        const uint64_t *parent = i ? &ev->blocks[i - 1].hash : ev->has_parent ? &ev->parent : NULL;

        assert_int_equal(prefix_index_store(w->index, 0, parent, &b, 1), 0);
    }
}

static const uint32_t VOCAB[] = {11, 12, 13, 14, 15};

static struct engine_conf conf_of(void)
{
    return (struct engine_conf){.block_size = 4,
                                .n_blocks = 1000,
                                .max_num_seqs = 16,
                                .max_num_batched_tokens = 64,
                                .waiting_max = JOBS,
                                .prefix_caching = true,
                                .chunked_prefill = true,
                                .watermark = 0.01,
                                .speedup_ratio = 1,
                                .vocab = VOCAB,
                                .n_vocab = ARRAY_LEN(VOCAB)};
}

static void world_open(struct world *w, const struct engine_conf *conf)
{
    struct engine_sink sink = {.item = on_item, .event = on_event, .arg = w};
    struct err e;

    *w = (struct world){.index = prefix_index_new(100000)};
    EXPECT_OK(engine_new(&w->engine, conf, 1, &sink, &e), &e);
}

static void world_close(struct world *w)
{
    engine_free(w->engine);
    prefix_index_free(w->index);
}

/* A prompt of @n tokens that shares its first @n_shared with all others. */
static int submit(struct world *w, size_t i, size_t n, size_t n_shared, uint32_t max_tokens)
{
    AUTO(mem_free) uint32_t *tokens = xcalloc(n, sizeof(*tokens));
    struct engine_job job = {
        .tokens = tokens, .n_tokens = n, .max_tokens = max_tokens, .owner = &w->told[i]};
    struct err e;

    for (size_t k = 0; k < n; k++)
        tokens[k] = (uint32_t)(k < n_shared ? k : 1000 * (i + 1) + k);
    return engine_submit(w->engine, &job, &w->told[i].seq, &e);
}

/* One step at the deadline; false when there is nothing to do. */
static bool step(struct world *w)
{
    uint64_t at = engine_deadline(w->engine);

    if (at == ENGINE_NEVER)
        return false;
    w->now = MAX(w->now, at);
    engine_step(w->engine, w->now);
    engine_check(w->engine);
    prefix_index_check(w->index);
    assert_int_equal(prefix_index_held(w->index, 0), engine_load(w->engine).cached_blocks);
    return true;
}

static void run(struct world *w)
{
    for (int i = 0; step(w); i++)
        assert_true(i < 100000);
}

static void the_timing_is_the_published_polynomial(void **state)
{
    (void)state;
    assert_float_equal(engine_prefill_ms(0), 16.50142, 1e-9);
    assert_float_equal(engine_prefill_ms(1000), 4.209989e-07 * 1e6 + 15.18344 + 16.50142, 1e-9);
    assert_float_equal(engine_decode_ms(0, DECODE_REFERENCE), 5.74, 1e-9);
    assert_float_equal(engine_decode_ms(16384, DECODE_REFERENCE), 34.01, 1e-9);
    assert_float_equal(engine_decode_ms(40000, DECODE_REFERENCE), 0, 1e-9);
    assert_float_equal(engine_decode_ms(40000, DECODE_SATURATING), 34.07217, 1e-4);
    assert_float_equal(engine_decode_ms(8192, DECODE_SATURATING),
                       engine_decode_ms(8192, DECODE_REFERENCE), 1e-9);
}

static void a_request_takes_its_prefill_and_its_decodes(void **state)
{
    struct engine_conf conf = conf_of();
    double first = engine_prefill_ms(10) + engine_decode_ms(3 * 4, DECODE_REFERENCE);
    struct world w;

    (void)state;
    conf.speedup_ratio = 2;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 10, 0, 3), 0);
    run(&w);
    assert_int_equal(w.told[0].n_tokens, 3);
    assert_int_equal(w.told[0].finish, ENGINE_LENGTH);
    assert_float_equal((double)w.told[0].first_at, first / 2 * MS, 10);
    assert_float_equal((double)w.told[0].last_at,
                       (first + engine_decode_ms(12, 0) + engine_decode_ms(16, 0)) / 2 * MS, 10);
    assert_int_equal(w.told[0].n_cached, 0);
    assert_true(w.told[0].last >= 11 && w.told[0].last <= 15);
    world_close(&w);
}

static void without_delays_the_clock_stands_still(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.speedup_ratio = 0;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 100, 0, 50), 0);
    run(&w);
    assert_int_equal(w.now, 0);
    assert_int_equal(w.told[0].n_tokens, 50);
    world_close(&w);
}

static void a_prefix_that_was_computed_costs_no_prefill(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;
    uint64_t cold, start;

    (void)state;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 60, 48, 1), 0);
    run(&w);
    cold = w.told[0].first_at;
    start = w.now;
    assert_int_equal(submit(&w, 1, 60, 48, 1), 0);
    run(&w);
    assert_int_equal(w.told[1].n_cached, 48);
    assert_int_equal(w.told[1].n_prompt, 60);
    assert_float_equal((double)(w.told[1].first_at - start),
                       (engine_prefill_ms(12) + engine_decode_ms(64, 0)) * MS, 10);
    assert_true(w.told[1].first_at - start < cold);
    /* The whole prompt again: all but the block of its last token. */
    assert_int_equal(submit(&w, 1 + 1, 60, 60, 1), 0);
    run(&w);
    assert_int_equal(submit(&w, 3, 60, 60, 1), 0);
    run(&w);
    assert_int_equal(w.told[3].n_cached, 56);
    assert_int_equal(engine_load(w.engine).prompt_tokens, 240);
    assert_int_equal(engine_load(w.engine).cached_tokens, 48 + 48 + 56);
    world_close(&w);
}

/* Only the decode of the pass takes time, whatever the length and the budget. */
static void a_prompt_that_came_from_elsewhere_costs_no_prefill(void **state)
{
    struct engine_conf conf = conf_of();
    uint32_t tokens[200];
    struct world w;
    struct engine_job job = {.tokens = tokens,
                             .n_tokens = ARRAY_LEN(tokens),
                             .max_tokens = 2,
                             .prefilled = true,
                             .owner = &w.told[0]};
    double first = engine_decode_ms(51 * 4, DECODE_REFERENCE);
    struct err e;

    (void)state;
    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i;
    world_open(&w, &conf);
    EXPECT_OK(engine_submit(w.engine, &job, &w.told[0].seq, &e), &e);
    run(&w);
    assert_int_equal(w.told[0].n_tokens, 2);
    assert_float_equal((double)w.told[0].first_at, first * MS, 10);
    assert_int_equal(engine_load(w.engine).cached_blocks, 50);
    world_close(&w);
}

static void what_is_being_computed_is_shared_but_costs_again(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 32, 32, 1), 0);
    assert_int_equal(submit(&w, 1, 32, 32, 1), 0);
    run(&w);
    assert_int_equal(w.told[1].n_cached, 0);
    assert_int_equal(w.told[0].first_at, w.told[1].first_at);
    assert_float_equal((double)w.told[0].first_at,
                       (2 * engine_prefill_ms(32) + engine_decode_ms(10 * 4, 0)) * MS, 10);
    world_close(&w);
}

static void a_long_prompt_is_prefilled_in_chunks_beside_decodes(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;
    size_t n_while_prefilling = 0;

    (void)state;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 8, 0, 100), 0);
    assert_true(step(&w) && step(&w));
    assert_int_equal(w.told[0].n_tokens, 1);
    assert_int_equal(submit(&w, 1, 64 * 3, 0, 1), 0);
    while (w.told[1].n_tokens == 0) {
        assert_true(step(&w));
        n_while_prefilling = w.told[0].n_tokens;
    }
    /* 63 of 64 tokens a pass are left for it: four passes, after the one under way. */
    assert_int_equal(n_while_prefilling, 1 + 1 + 4);
    world_close(&w);
}

static void without_chunks_a_prompt_is_prefilled_whole(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.chunked_prefill = false;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 200, 0, 1), 0);
    assert_int_equal(submit(&w, 1, 40, 0, 1), 0);
    run(&w);
    assert_float_equal((double)w.told[0].first_at,
                       (engine_prefill_ms(200) + engine_decode_ms(51 * 4, 0)) * MS, 10);
    assert_true(w.told[1].first_at > w.told[0].first_at);
    world_close(&w);
}

static void slots_and_watermark_limit_who_runs(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.max_num_seqs = 2;
    world_open(&w, &conf);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(submit(&w, i, 8, 0, 5), 0);
    assert_true(step(&w));
    assert_int_equal(engine_load(w.engine).n_running, 2);
    assert_int_equal(engine_load(w.engine).n_waiting, 1);
    run(&w);
    assert_int_equal(w.told[2].finish, ENGINE_LENGTH);
    world_close(&w);

    conf.max_num_seqs = 16;
    conf.n_blocks = 20;
    conf.watermark = 0.25;
    world_open(&w, &conf);
    for (size_t i = 0; i < 3; i++) /* 8 blocks each, 15 allowed */
        assert_int_equal(submit(&w, i, 28, 0, 1), 0);
    assert_true(step(&w));
    assert_int_equal(engine_load(w.engine).n_running, 1);
    assert_int_equal(submit(&w, 3, 60, 0, 1), -E2BIG);
    assert_int_equal(submit(&w, 3, 8, 0, 0), -EINVAL);
    run(&w);
    assert_int_equal(w.told[2].n_tokens, 1);
    world_close(&w);
}

static void the_oldest_is_preempted_and_still_gets_all_its_tokens(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.n_blocks = 12;
    conf.watermark = 0;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 12, 0, 20), 0);
    assert_int_equal(submit(&w, 1, 12, 0, 20), 0);
    run(&w);
    assert_true(engine_load(w.engine).preemptions > 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(w.told[i].finish, ENGINE_LENGTH);
        assert_int_equal(w.told[i].n_tokens, 20);
        assert_int_equal(w.told[i].n_prompt, 12);
    }
    assert_true(w.told[0].last_at > w.told[1].last_at);
    world_close(&w);
}

static void a_sequence_that_outgrows_the_cache_ends(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.n_blocks = 10;
    conf.watermark = 0;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 12, 0, 1000), 0);
    run(&w);
    assert_int_equal(w.told[0].finish, ENGINE_LENGTH);
    assert_int_equal(w.told[0].n_tokens, 40 - 12);
    assert_int_equal(engine_load(w.engine).active_blocks, 0);
    world_close(&w);
}

static void eos_ends_only_when_asked_for_and_after_min_tokens(void **state)
{
    struct engine_conf conf = conf_of();
    const uint32_t prompt[] = {1, 2, 3};
    struct engine_job job = {.tokens = prompt,
                             .n_tokens = 3,
                             .max_tokens = 50,
                             .min_tokens = 7,
                             .has_eos = true,
                             .eos_id = 2};
    struct world w;
    struct err e;

    (void)state;
    conf.eos_probability = 1;
    world_open(&w, &conf);
    job.owner = &w.told[0];
    EXPECT_OK(engine_submit(w.engine, &job, &w.told[0].seq, &e), &e);
    job.owner = &w.told[1];
    job.ignore_eos = true;
    EXPECT_OK(engine_submit(w.engine, &job, &w.told[1].seq, &e), &e);
    run(&w);
    assert_int_equal(w.told[0].finish, ENGINE_EOS);
    assert_int_equal(w.told[0].n_tokens, 8);
    assert_int_equal(w.told[0].last, 2);
    assert_int_equal(w.told[1].finish, ENGINE_LENGTH);
    assert_int_equal(w.told[1].n_tokens, 50);
    world_close(&w);
}

static void without_prefix_caching_nothing_is_kept_or_told(void **state)
{
    struct engine_conf conf = conf_of();
    struct world w;

    (void)state;
    conf.prefix_caching = false;
    world_open(&w, &conf);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(submit(&w, i, 60, 60, 30), 0);
        run(&w);
        assert_int_equal(w.told[i].n_cached, 0);
        assert_int_equal(w.told[i].n_tokens, 30);
    }
    assert_int_equal(w.next_event, 0);
    assert_int_equal(engine_load(w.engine).active_blocks, 0);
    world_close(&w);
}

static void the_router_finds_a_prompt_and_its_answer_by_its_own_hashes(void **state)
{
    struct engine_conf conf = conf_of();
    uint32_t prompt[16], score;
    uint64_t local[4];
    struct world w;

    (void)state;
    world_open(&w, &conf);
    assert_int_equal(submit(&w, 0, 13, 13, 20), 0);
    run(&w);
    for (uint32_t i = 0; i < 16; i++)
        prompt[i] = i;
    assert_int_equal(block_hash_local(prompt, 13, 4, local), 3);
    assert_int_equal(prefix_index_match(w.index, local, 3, &score, 1), 3);
    /* 33 tokens at the end, 32 of them in full blocks. */
    assert_int_equal(prefix_index_held(w.index, 0), 8);
    world_close(&w);
}

static void equal_seeds_give_equal_tokens(void **state)
{
    struct engine_conf conf = conf_of();
    uint32_t last[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct world w;

        world_open(&w, &conf);
        assert_int_equal(submit(&w, 0, 9, 0, 40), 0);
        run(&w);
        last[i] = w.told[0].last;
        world_close(&w);
    }
    assert_int_equal(last[0], last[1]);
}

static void random_load_keeps_every_invariant(void **state)
{
    struct engine_conf conf = conf_of();
    unsigned random = 99;
    struct world w;
    size_t n_done = 0;

    (void)state;
    conf.n_blocks = 60;
    conf.max_num_seqs = 6;
    world_open(&w, &conf);
    for (int i = 0; i < TEST_STEPS(20000); i++) {
        struct told *t;
        size_t k;

        random = random * 1103515245u + 12345u;
        k = (random >> 16) % JOBS;
        t = &w.told[k];
        if ((!t->seq || t->finish != ENGINE_RUNS || t->cancelled) && (random >> 24) % 2) {
            n_done += t->finish != ENGINE_RUNS;
            *t = (struct told){.seq = NULL};
            assert_int_equal(
                submit(&w, k, 1 + (random >> 8) % 100, (random >> 4) % 60, 1 + (random >> 12) % 40),
                0);
        } else if (t->seq && t->finish == ENGINE_RUNS && !t->cancelled &&
                   (random >> 24) % 32 == 0) {
            engine_cancel(w.engine, t->seq);
            t->cancelled = true;
        }
        (void)step(&w);
    }
    run(&w);
    assert_true(n_done > 300);
    assert_true(engine_load(w.engine).preemptions > 10);
    assert_int_equal(engine_load(w.engine).active_blocks, 0);
    world_close(&w);
}

static void bad_limits_are_refused(void **state)
{
    struct engine_sink sink = {.item = on_item};
    struct engine *en = NULL;
    struct err e;

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct engine_conf conf = conf_of();

        conf.block_size = i == 0 ? 0 : 4;
        conf.n_blocks = i == 1 ? 1 : 100;
        conf.max_num_seqs = i == 2 ? 0 : 1;
        conf.watermark = i == 3 ? 1 : 0;
        conf.speedup_ratio = i == 4 ? -1 : 0;
        conf.n_vocab = i == 5 ? 0 : 1;
        assert_int_equal(engine_new(&en, &conf, 1, &sink, &e), -EINVAL);
        assert_null(en);
    }
}

int main(void)
{
    return TEST_RUN(
        T(the_timing_is_the_published_polynomial), T(a_request_takes_its_prefill_and_its_decodes),
        T(without_delays_the_clock_stands_still), T(a_prefix_that_was_computed_costs_no_prefill),
        T(a_prompt_that_came_from_elsewhere_costs_no_prefill),
        T(what_is_being_computed_is_shared_but_costs_again),
        T(a_long_prompt_is_prefilled_in_chunks_beside_decodes),
        T(without_chunks_a_prompt_is_prefilled_whole), T(slots_and_watermark_limit_who_runs),
        T(the_oldest_is_preempted_and_still_gets_all_its_tokens),
        T(a_sequence_that_outgrows_the_cache_ends),
        T(eos_ends_only_when_asked_for_and_after_min_tokens),
        T(without_prefix_caching_nothing_is_kept_or_told),
        T(the_router_finds_a_prompt_and_its_answer_by_its_own_hashes),
        T(equal_seeds_give_equal_tokens), T(random_load_keeps_every_invariant),
        T(bad_limits_are_refused));
}
