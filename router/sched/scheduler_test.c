/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler.h"
#include "lib/base/test.h"

#include <math.h>

#include "router/kv/block_hash.h"
#include "router/sched/policy.h"
#include "router/sched/sequences.h"

enum { BS = 4, BLOCKS = 25 };

static const struct route_conf KV = {
    .mode = ROUTE_KV,
    .overlap_weight = 1,
    .use_kv_events = true,
    .ttl_ms = 1000,
    .max_tree_size = 100,
    .prune_target_ratio = 0.8,
    .track_active_blocks = true,
    .assume_kv_reuse = true,
    .busy_decode_blocks = NAN,
    .busy_prefill_tokens = NAN,
};

struct prompt {
    uint32_t tokens[BLOCKS * BS];
    uint64_t local[BLOCKS], sequence[BLOCKS];
    struct route_request q;
};

static void make_prompt(struct prompt *p, uint32_t first, uint32_t isl)
{
    for (uint32_t i = 0; i < isl; i++)
        p->tokens[i] = first + i;
    p->q = (struct route_request){
        .id = STR("r"),
        .local = p->local,
        .sequence = p->sequence,
        .isl = isl,
        .n_blocks = block_hash_local(p->tokens, isl, BS, p->local),
        .overlap_weight = NAN,
        .temperature = NAN,
        .random = UINT64_C(1) << 62,
    };
    block_hash_sequence(p->local, p->q.n_blocks, p->sequence);
}

static void put(struct scheduler *s, uint64_t id)
{
    assert_true(scheduler_put_worker(
        s, &(struct worker_info){.worker_id = id, .dp_size = 1, .total_kv_blocks = 100}));
}

static void cache(struct scheduler *s, uint64_t id, const struct prompt *p, size_t n)
{
    struct prefix_block blocks[BLOCKS];

    for (size_t i = 0; i < n; i++)
        blocks[i] = (struct prefix_block){p->sequence[i], p->local[i]};
    assert_int_equal(scheduler_store(s, (struct worker_rank){id, 0}, NULL, blocks, n), 0);
}

static uint64_t route(struct scheduler *s, const struct prompt *p, struct route_decision *d,
                      struct booking **b)
{
    assert_int_equal(scheduler_route(s, &p->q, d, b), 0);
    return d->candidates[d->chosen].worker.worker_id;
}

/* The worked example of mission document 003, in blocks of 4 tokens and divided by 4. */
static void the_example_of_the_guide(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, BLOCKS * BS);
    for (uint64_t w = 1; w <= 3; w++)
        put(s, w);
    cache(s, 1, &p, 5);
    cache(s, 2, &p, 19);
    cache(s, 3, &p, 3);
    assert_int_equal(route(s, &p, &d, &b), 2);
    assert_true(d.candidates[d.chosen].logit == 6 + 25);
    assert_true(d.candidates[0].logit == 20 + 25);
    (void)booking_release(b);
}

static struct buf traced;

static void keep_line(void *arg, struct str text)
{
    (void)arg;
    buf_put_str(&traced, text);
    buf_put_char(&traced, '\n');
}

static void trace_lines_are_those_of_the_reference(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 21); /* 5 full blocks and one token */
    put(s, UINT64_C(7587890738027725506));
    put(s, UINT64_C(12068259693190267366));
    cache(s, UINT64_C(12068259693190267366), &p, 2);
    (void)route(s, &p, &d, &b);
    buf_clear(&traced);
    route_decision_trace(&d, keep_line, NULL);
    assert_string_equal(
        buf_cstr(&traced),
        "Formula for worker_id=7587890738027725506 dp_rank=0 with 0 cached blocks: 10.250 = 1.0 * "
        "prefill_blocks + decode_blocks = 1.0 * 5.250 + 5.000\n"
        "Formula for worker_id=12068259693190267366 dp_rank=0 with 2 cached blocks: 8.250 = 1.0 * "
        "prefill_blocks + decode_blocks = 1.0 * 3.250 + 5.000\n"
        "Selected worker: worker_id=12068259693190267366 dp_rank=0, logit: 8.250, cached blocks: "
        "2, "
        "tree size: 2, total blocks: 100\n");
    booking_release(b);
    buf_done(&traced);
}

static void a_weight_is_traced_with_the_digits_that_it_has(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf conf = KV;
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.overlap_weight = 0.25;
    scheduler_configure(s, &conf);
    make_prompt(&p, 1, 20);
    put(s, 1);
    (void)route(s, &p, &d, &b);
    buf_clear(&traced);
    route_decision_trace(&d, keep_line, NULL);
    assert_non_null(strstr(buf_cstr(&traced), "blocks: 6.250 = 0.25 * prefill_blocks + "
                                              "decode_blocks = 0.25 * 5.000 + 5.000\n"));
    booking_release(b);
    buf_done(&traced);
}

static void bookings_count_until_released_and_prefill_until_first_token(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *first, *second;
    struct prompt p, q;

    (void)state;
    put(s, 1);
    make_prompt(&p, 1, 40);
    make_prompt(&q, 1, 20); /* a prefix of p: its blocks are active already */
    (void)route(s, &p, &d, &first);
    assert_true(d.candidates[0].logit == 10 + 10);
    (void)route(s, &q, &d, &second);
    assert_true(d.candidates[0].prefill_blocks == 15);
    assert_true(d.candidates[0].decode_blocks == 10);
    booking_prefill_done(first);
    booking_prefill_done(first);
    (void)booking_release(second);
    q.q.query_only = true;
    (void)route(s, &q, &d, &second);
    assert_null(second);
    assert_true(d.candidates[0].prefill_blocks == 5);
    assert_true(d.candidates[0].decode_blocks == 10);
    (void)booking_release(first);
    (void)route(s, &q, &d, &second);
    assert_true(d.candidates[0].decode_blocks == 5);
}

static void a_flip_of_mode_keeps_index_and_bookings(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf round_robin = KV;
    struct booking *b[4];
    struct prompt p;

    (void)state;
    round_robin.mode = ROUTE_ROUND_ROBIN;
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    cache(s, 2, &p, 10);
    scheduler_configure(s, &round_robin);
    assert_int_equal(route(s, &p, &d, &b[0]), 1);
    assert_int_equal(route(s, &p, &d, &b[1]), 2);
    assert_int_equal(route(s, &p, &d, &b[2]), 1);
    scheduler_configure(s, &KV);
    assert_int_equal(route(s, &p, &d, &b[3]), 2);
    assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
    assert_true(d.candidates[0].prefill_blocks == 30); /* two of round-robin and this one */
    for (int i = 0; i < 4; i++)
        (void)booking_release(b[i]);
}

static void a_lost_worker_takes_nothing_of_others_with_it(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    cache(s, 1, &p, 10);
    cache(s, 2, &p, 4);
    assert_int_equal(route(s, &p, &d, &b), 1);
    scheduler_remove_worker(s, 1);
    booking_prefill_done(b);
    (void)booking_release(b); /* of a worker that is gone: harmless */
    assert_int_equal(route(s, &p, &d, &b), 2);
    assert_int_equal(d.n_candidates, 1);
    assert_int_equal(d.candidates[0].overlap_blocks, 4);
    (void)booking_release(b);
}

static void exclusion_pins_and_empty_fleets(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    uint64_t failed = 1;
    struct booking *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 8);
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_NO_WORKERS);
    put(s, 1);
    put(s, 2);
    p.q.exclude = &failed;
    p.q.n_exclude = 1;
    assert_int_equal(route(s, &p, &d, &b), 2);
    (void)booking_release(b);
    p.q.pinned = true;
    p.q.pin = (struct worker_rank){9, 0};
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_NO_SUCH_PIN);
    p.q.pin.worker_id = 2;
    assert_int_equal(route(s, &p, &d, &b), 2);
    (void)booking_release(b);
}

static void busy_workers_are_passed_over_and_all_busy_is_said(void **state)
{
    struct route_conf conf = KV;
    struct route_decision d = {0};
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.busy_decode_blocks = 0.5;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, 8);
    put(s, 1);
    put(s, 2);
    scheduler_report_load(s, (struct worker_rank){1, 0}, 51);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(route(s, &p, &d, &b), 2);
        (void)booking_release(b);
    }
    scheduler_report_load(s, (struct worker_rank){2, 0}, 51);
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_ALL_BUSY);
    route_decision_done(&d);
}

static void the_approximate_index_learns_from_decisions(void **state)
{
    struct route_conf conf = KV;
    struct route_decision d = {0};
    struct booking *b;
    uint64_t first;
    struct prompt p;

    (void)state;
    conf.use_kv_events = false;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    first = route(s, &p, &d, &b);
    (void)booking_release(b);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(route(s, &p, &d, &b), first);
        assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
        (void)booking_release(b);
    }
    p.q.now_ms = 1000; /* the TTL is over */
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks + d.candidates[1].overlap_blocks, 0);
    (void)booking_release(b);
    route_decision_done(&d);
}

static void ties_go_to_the_smaller_tree_then_to_chance(void **state)
{
    struct route_candidate c[3] = {
        {.logit = 2, .tree_size = 9}, {.logit = 2, .tree_size = 1}, {.logit = 2, .tree_size = 1}};
    int seen[3] = {0};
    bool tied;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        seen[policy_kv_pick(c, 3, 0, i << 54, &tied)]++;
    assert_true(tied);
    assert_int_equal(seen[0], 0);
    assert_in_range(seen[1], 450, 550);
    c[0].logit = 1;
    assert_int_equal(policy_kv_pick(c, 3, 0, 0, &tied), 0);
    assert_false(tied);
}

/* p = softmax(-logit / (max - min) / T): for logits 0, 1 and T = 1 the first gets e / (e + 1). */
static void temperature_draws_from_softmax(void **state)
{
    struct route_candidate c[2] = {{.logit = 0}, {.logit = 1}};
    int first = 0;
    bool tied;

    (void)state;
    for (uint64_t i = 0; i < 10000; i++)
        first += policy_kv_pick(c, 2, 1.0, i * (UINT64_MAX / 10000), &tied) == 0;
    assert_in_range(first, 7300, 7321);
    c[1].logit = 0;
    assert_int_equal(policy_kv_pick(c, 2, 1.0, UINT64_MAX, &tied), 1);
}

int main(void)
{
    return TEST_RUN(
        T(the_example_of_the_guide), T(trace_lines_are_those_of_the_reference),
        T(a_weight_is_traced_with_the_digits_that_it_has),
        T(bookings_count_until_released_and_prefill_until_first_token),
        T(a_flip_of_mode_keeps_index_and_bookings),
        T(a_lost_worker_takes_nothing_of_others_with_it), T(exclusion_pins_and_empty_fleets),
        T(busy_workers_are_passed_over_and_all_busy_is_said),
        T(the_approximate_index_learns_from_decisions),
        T(ties_go_to_the_smaller_tree_then_to_chance), T(temperature_draws_from_softmax));
}
