/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/scheduler.h"
#include "lib/base/test.h"

#include <inttypes.h>
#include <math.h>

#include "router/kv/block_hash.h"
#include "router/sched/policy.h"
#include "router/sched/sched_test.h"
#include "router/sched/sequences.h"
#include "router/sched/signals.h"

enum { BS = 4, BLOCKS = 25 };
enum { PREFILL_BLOCKS, DECODE_BLOCKS }; /* terms of policy dynamo */

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
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
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
    assert_true(d.scores[d.chosen].logit == 6 + 25);
    assert_true(d.scores[0].logit == 20 + 25);
    (void)booking_end(b, 0, true);
}

/* The cache that all share counts for a worker behind what it holds itself. */
static void shared_pages_count_behind_the_own(void **state)
{
    static const uint32_t from[] = {4, 4, 3, 3, 2, 1, 0}; /* 1, 3, 4 and 5 of 6 are there */
    const struct shared_hits hits = {.n_pages = 6, .from = from};
    struct route_conf conf = ROUTE_CONF_KV;
    AUTO(route_decision_done) struct route_decision d = {0};
    AUTO(scheduler_free) struct scheduler *s = NULL;
    struct route_request q;
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.policy = ROUTE_POLICY_DYNAMO_1;
    conf.shared_weight = 0.5;
    s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, BLOCKS * BS);
    for (uint64_t w = 1; w <= 3; w++)
        put(s, w);
    cache(s, 2, &p, 3);
    cache(s, 3, &p, 7);
    q = p.q;
    q.query_only = true;
    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    assert_true(d.inputs.shared_weight == 0);
    assert_int_equal(d.candidates[0].shared_blocks, 0);
    q.shared = &hits;
    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    assert_true(d.inputs.shared_weight == 0.5);
    assert_int_equal(d.candidates[0].shared_blocks, 4);
    assert_int_equal(d.candidates[1].shared_blocks, 3);
    assert_int_equal(d.candidates[2].shared_blocks, 0);
    assert_true(d.scores[0].logit == BLOCKS - 0.5 * 4 + BLOCKS);
    assert_true(d.scores[1].logit == BLOCKS - 3 - 0.5 * 3 + BLOCKS);
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
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
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
    booking_end(b, 0, true);
    buf_done(&traced);
}

static void a_weight_is_traced_with_the_digits_that_it_has(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf conf = ROUTE_CONF_KV;
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
    booking_end(b, 0, true);
    buf_done(&traced);
}

static void a_request_may_have_a_credit_of_its_own(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf conf = ROUTE_CONF_KV;
    const double credits[] = {0, 0.5, 1};
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.policy = ROUTE_POLICY_DYNAMO_1;
    scheduler_configure(s, &conf);
    make_prompt(&p, 1, 10 * BS);
    put(s, 1);
    cache(s, 1, &p, 4);
    p.q.query_only = true;
    for (size_t i = 0; i < ARRAY_LEN(credits); i++) {
        p.q.overlap_credit = &credits[i];
        (void)route(s, &p, &d, &b);
        assert_true(d.inputs.overlap_credit == credits[i]);
        assert_true(d.scores[0].logit == 20 - 4 * credits[i]);
    }
    p.q.overlap_credit = NULL;
    (void)route(s, &p, &d, &b);
    assert_true(d.scores[0].logit == 16);
}

static void bookings_count_until_released_and_prefill_until_first_token(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *first, *second;
    struct prompt p, q;

    (void)state;
    put(s, 1);
    make_prompt(&p, 1, 40);
    make_prompt(&q, 1, 20); /* a prefix of p: its blocks are active already */
    (void)route(s, &p, &d, &first);
    assert_true(d.scores[0].logit == 10 + 10);
    (void)route(s, &q, &d, &second);
    assert_true(d.scores[0].terms[PREFILL_BLOCKS] == 15);
    assert_true(d.scores[0].terms[DECODE_BLOCKS] == 10);
    booking_first_token(first, 0);
    booking_first_token(first, 0);
    (void)booking_end(second, 0, true);
    q.q.query_only = true;
    (void)route(s, &q, &d, &second);
    assert_null(second);
    assert_true(d.scores[0].terms[PREFILL_BLOCKS] == 5);
    assert_true(d.scores[0].terms[DECODE_BLOCKS] == 10);
    (void)booking_end(first, 0, true);
    (void)route(s, &q, &d, &second);
    assert_true(d.scores[0].terms[DECODE_BLOCKS] == 5);
}

static void a_flip_of_mode_keeps_index_and_bookings(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf round_robin = ROUTE_CONF_KV;
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
    scheduler_configure(s, &ROUTE_CONF_KV);
    assert_int_equal(route(s, &p, &d, &b[3]), 2);
    assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
    assert_true(d.scores[0].terms[PREFILL_BLOCKS] == 30); /* two of round-robin and this one */
    for (int i = 0; i < 4; i++)
        (void)booking_end(b[i], 0, true);
}

static void a_lost_worker_takes_nothing_of_others_with_it(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
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
    booking_first_token(b, 0);
    (void)booking_end(b, 0, true); /* of a worker that is gone: harmless */
    assert_int_equal(route(s, &p, &d, &b), 2);
    assert_int_equal(d.n_candidates, 1);
    assert_int_equal(d.candidates[0].overlap_blocks, 4);
    (void)booking_end(b, 0, true);
}

static void exclusion_pins_and_empty_fleets(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
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
    (void)booking_end(b, 0, true);
    p.q.pinned = true;
    p.q.pin = (struct worker_rank){9, 0};
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_NO_SUCH_PIN);
    p.q.pin.worker_id = 2;
    assert_int_equal(route(s, &p, &d, &b), 2);
    (void)booking_end(b, 0, true);
}

static void busy_workers_are_passed_over_and_all_busy_is_said(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
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
        (void)booking_end(b, 0, true);
    }
    scheduler_report_load(s, (struct worker_rank){2, 0}, 51);
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_ALL_BUSY);
    route_decision_done(&d);
}

/* Whom a decision left out, and why. */
static void assert_rejected(const struct route_decision *d, uint64_t worker, enum route_reject why)
{
    for (size_t i = 0; i < d->n_rejections; i++)
        if (d->rejections[i].worker.worker_id == worker) {
            assert_string_equal(route_reject_word(d->rejections[i].why), route_reject_word(why));
            return;
        }
    fail_msg("worker %d was not rejected", (int)worker);
}

static void every_rejection_keeps_its_reason(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    struct str wanted = STR("zone=a");
    const char *zone_a = "zone=a";
    uint64_t failed = 1;
    struct prompt p;
    struct booking *b;

    (void)state;
    conf.busy_decode_blocks = 0.5;
    for (int mode = ROUTE_ROUND_ROBIN; mode <= ROUTE_KV; mode++) {
        AUTO(route_decision_done) struct route_decision d = {0};

        conf.mode = mode;
        AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
        for (uint64_t w = 1; w <= 4; w++)
            assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = w,
                                                                      .dp_size = 1,
                                                                      .total_kv_blocks = 100,
                                                                      .taints = &zone_a,
                                                                      .n_taints = w != 3}));
        scheduler_report_load(s, (struct worker_rank){2, 0}, 51);
        make_prompt(&p, 1, 8);
        p.q.exclude = &failed;
        p.q.n_exclude = 1;
        p.q.required = &wanted;
        p.q.n_required = 1;
        if (mode == ROUTE_DIRECT) {
            assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_PIN_NEEDED);
            p.q.pinned = true;
            p.q.pin.worker_id = 4;
        }
        assert_int_equal(route(s, &p, &d, &b), 4);
        assert_int_equal(d.n_rejections, 3);
        assert_rejected(&d, 1, p.q.pinned ? ROUTE_REJECT_NOT_PINNED : ROUTE_REJECT_FAILED);
        assert_rejected(&d, 2, p.q.pinned ? ROUTE_REJECT_NOT_PINNED : ROUTE_REJECT_BUSY);
        assert_rejected(&d, 3, p.q.pinned ? ROUTE_REJECT_NOT_PINNED : ROUTE_REJECT_TAINT);
        (void)booking_end(b, 0, true);
        wanted = STR("zone=b");
        assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_CONSTRAINED);
        wanted = STR("zone=a");
    }
}

static void every_mode_can_follow_every_other(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf conf = ROUTE_CONF_KV;
    struct booking *b[2 * ROUTE_KV + 2], *none;
    struct prompt p;
    size_t n = 0;

    (void)state;
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    cache(s, 2, &p, 10);
    p.q.pinned = true;
    p.q.pin.worker_id = 1;
    for (int step = 0; step < 2; step++)
        for (int mode = ROUTE_ROUND_ROBIN; mode <= ROUTE_KV; mode++) {
            conf.mode = mode;
            scheduler_configure(s, &conf);
            (void)route(s, &p, &d, &b[n++]);
        }
    p.q.pinned = false;
    p.q.query_only = true;
    scheduler_configure(s, &ROUTE_CONF_KV);
    assert_int_equal(route(s, &p, &d, &none), 2);
    assert_int_equal(d.candidates[0].requests, n);
    assert_int_equal(d.candidates[0].prefill_tokens, n * 40);
    assert_int_equal(d.candidates[1].overlap_blocks, 10);
    while (n > 0)
        (void)booking_end(b[--n], 0, true);
}

static void the_approximate_index_learns_from_decisions(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
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
    (void)booking_end(b, 0, true);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(route(s, &p, &d, &b), first);
        assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
        (void)booking_end(b, 0, true);
    }
    p.q.now_ns = UINT64_C(1000000000); /* the TTL is over */
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks + d.candidates[1].overlap_blocks, 0);
    (void)booking_end(b, 0, true);
    route_decision_done(&d);
}

static void what_was_just_routed_counts_before_the_engine_reports_it(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    struct route_decision d = {0};
    struct booking *b;
    struct prompt p;
    uint64_t first;

    (void)state;
    conf.predicted_ttl_ms = 500;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    first = route(s, &p, &d, &b);
    (void)booking_end(b, 0, true);
    p.q.query_only = true;
    assert_int_equal(route(s, &p, &d, &b), first);
    assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
    cache(s, first, &p, 4); /* what it reports is less than what was predicted */
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[d.chosen].overlap_blocks, 10);
    p.q.now_ns = UINT64_C(500000000);
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[d.chosen].overlap_blocks, 4);
    route_decision_done(&d);
}

static void a_session_stays_while_its_worker_is_eligible(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    static const uint64_t failed[] = {2};
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 8 * BS);
    for (uint64_t w = 1; w <= 3; w++)
        put(s, w);
    cache(s, 1, &p, 8);
    p.q.query_only = p.q.bound = true;
    p.q.binding = (struct worker_rank){2, 0};
    assert_int_equal(route(s, &p, &d, &(struct booking *){NULL}), 2);
    assert_rejected(&d, 1, ROUTE_REJECT_SESSION);
    assert_rejected(&d, 3, ROUTE_REJECT_SESSION);
    p.q.exclude = failed;
    p.q.n_exclude = 1;
    assert_int_equal(route(s, &p, &d, &(struct booking *){NULL}), 1);
    p.q.n_exclude = 0;
    scheduler_remove_worker(s, 2);
    assert_int_equal(route(s, &p, &d, &(struct booking *){NULL}), 1);
}

/* As 1.6.1's: hard waits for the worker, soft goes on elsewhere. */
static void a_session_of_a_busy_worker_is_refused_or_moves(void **state)
{
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_conf conf = ROUTE_CONF_KV;
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.busy_decode_blocks = 0.5;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, 8 * BS);
    put(s, 1);
    put(s, 2);
    p.q.query_only = p.q.bound = true;
    p.q.binding = (struct worker_rank){2, 0};
    scheduler_report_load(s, p.q.binding, 51);
    assert_int_equal(scheduler_route(s, &p.q, &d, &b), ROUTE_ALL_BUSY);
    assert_rejected(&d, 1, ROUTE_REJECT_SESSION);
    assert_rejected(&d, 2, ROUTE_REJECT_BUSY);
    conf.affinity_mode = AFFINITY_SOFT;
    scheduler_configure(s, &conf);
    assert_int_equal(route(s, &p, &d, &b), 1);
    scheduler_report_load(s, p.q.binding, 0);
    assert_int_equal(route(s, &p, &d, &b), 2);
}

/* Each target keeps as many blocks as it has; time does not matter. */
static void predictions_last_while_there_is_room(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    AUTO(route_decision_done) struct route_decision d = {0};
    struct prompt first, p;
    struct booking *b;

    (void)state;
    conf.use_kv_events = false;
    conf.approx_policy = APPROX_LRU;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    assert_true(scheduler_put_worker(
        s, &(struct worker_info){.worker_id = 1, .dp_size = 1, .total_kv_blocks = 20}));
    make_prompt(&first, 1, 8 * BS);
    for (uint32_t i = 0; i < 3; i++) {
        make_prompt(&p, 1 + i * 1000, 8 * BS);
        p.q.now_ns = i * UINT64_C(1000000000000);
        (void)route(s, &p, &d, &b);
        assert_int_equal(d.candidates[0].overlap_blocks, 0);
        (void)booking_end(b, p.q.now_ns, true);
    }
    first.q.now_ns = p.q.now_ns;
    first.q.query_only = p.q.query_only = true;
    (void)route(s, &first, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks,
                     4); /* of 24, the four that were used first are gone */
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks, 8);
    make_prompt(&p, 5000, 8 * BS + 1); /* its rest takes a block */
    (void)route(s, &p, &d, &b);
    (void)booking_end(b, 0, true);
    make_prompt(&p, 1001, 8 * BS);
    p.q.query_only = true;
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks, 3);
}

static void bookings_and_index_may_call_blocks_otherwise(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    static const uint64_t names[] = {11, 22, 33};
    struct booking *b, *shared, *other;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 3 * BS);
    p.q.tracked = names;
    put(s, 1);
    cache(s, 1, &p, 2);
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].overlap_blocks, 2);
    (void)route(s, &p, &d, &shared);
    assert_int_equal(d.candidates[0].new_blocks, 0);
    p.q.tracked = NULL; /* the same blocks, but nobody can tell */
    (void)route(s, &p, &d, &other);
    assert_int_equal(d.candidates[0].overlap_blocks, 2);
    assert_int_equal(d.candidates[0].new_blocks, 3);
    booking_end(b, 0, false);
    booking_end(shared, 0, false);
    booking_end(other, 0, false);
}

static void load_aware_looks_at_bookings_only(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    struct route_decision d = {0};
    struct booking *b[2];
    struct prompt p;

    (void)state;
    conf.load_aware = true;
    conf.assume_kv_reuse = false; /* as it is set with that */
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    make_prompt(&p, 1, 40);
    put(s, 1);
    put(s, 2);
    cache(s, 1, &p, 10);
    p.q.pinned = true;
    p.q.pin.worker_id = 1;
    (void)route(s, &p, &d, &b[0]);
    p.q.pinned = false;
    p.q.random++;
    assert_int_equal(route(s, &p, &d, &b[1]), 2);
    assert_true(d.scores[0].logit == 20 + 20); /* no reuse is assumed either */
    (void)booking_end(b[0], 0, true);
    (void)booking_end(b[1], 0, true);
    route_decision_done(&d);
}

static void confidence_scales_what_an_overlap_is_worth(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    const struct observed_prompt seen = {
        .worker = {1, 0}, .n_blocks = 4, .predicted = 4, .cached_tokens = BS};
    struct booking *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 40);
    put(s, 1);
    cache(s, 1, &p, 10);
    /* Twice half of what was predicted: 1 - 1/8 · 1/2, and an eighth of the way again. */
    for (int i = 0; i < 2; i++)
        scheduler_signal_cached(s, &seen, 0);
    (void)route(s, &p, &d, &b);
    assert_true(d.scores[0].terms[PREFILL_BLOCKS] == 10 * (1 - 0.8828125));
    assert_true(scheduler_loads(s, &(struct worker_load){0}, 1) == 1);
    (void)booking_end(b, 0, true);
}

/* Bookings with known times teach the rates that policy marginal sees: 100 us a token above 10 ms,
 * 2 s from first token to end. */
static void rates_are_learned_from_bookings(void **state)
{
    enum { MS = 1000000 };
    struct route_conf conf = ROUTE_CONF_KV;
    struct route_decision d = {0};
    struct booking *b;
    struct prompt p;

    (void)state;
    conf.policy = ROUTE_POLICY_MARGINAL;
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
    put(s, 1);
    for (uint32_t i = 0; i < 400; i++) {
        uint32_t isl = 1 + i * 37 % (BLOCKS * BS);
        uint64_t sent = UINT64_C(10000) * MS * i, first = sent + 10 * MS + isl * UINT64_C(100000);

        make_prompt(&p, 1, isl);
        p.q.now_ns = sent;
        (void)route(s, &p, &d, &b);
        booking_first_token(b, first);
        (void)booking_end(b, first + 2000 * (uint64_t)MS, true);
    }
    (void)route(s, &p, &d, &b);
    assert_true(fabs(d.inputs.seconds_per_token - 100e-6) < 1e-6);
    assert_true(fabs(d.candidates[0].lifetime - 2) < 1e-6);
    assert_true(d.candidates[0].slowness == 1);
    (void)booking_end(b, p.q.now_ns, false);
    route_decision_done(&d);
}

static void a_forgotten_booking_expires(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    const uint64_t later = UINT64_C(300) * 1000000000;
    struct booking *forgotten, *b;
    struct prompt p;

    (void)state;
    make_prompt(&p, 1, 40);
    put(s, 1);
    (void)route(s, &p, &d, &forgotten);
    p.q.query_only = true;
    p.q.now_ns = later - 1;
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].requests, 1);
    p.q.now_ns = later;
    (void)route(s, &p, &d, &b);
    assert_int_equal(d.candidates[0].requests, 0);
    assert_int_equal(scheduler_expire(s, later), 1);
    (void)booking_end(forgotten, later, true);
}

static void a_worker_is_cleared_with_all_its_ranks(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    struct prefix_block block = {1, 2};

    (void)state;
    for (uint64_t w = 1; w <= 2; w++) {
        assert_true(scheduler_put_worker(
            s, &(struct worker_info){.worker_id = w, .dp_start = 100, .dp_size = 3}));
        for (uint32_t rank = 100; rank < 103; rank++)
            assert_int_equal(scheduler_store(s, (struct worker_rank){w, rank}, NULL, &block, 1), 0);
    }
    assert_int_equal(scheduler_index_stats(s).entries, 6);
    scheduler_clear_worker(s, 1);
    assert_int_equal(scheduler_index_stats(s).entries, 3);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* One of the decisions of a run: what was chosen and what it scored, to the bit. */
static uint64_t decide_once(struct scheduler *s, struct route_decision *d, struct booking **b,
                            uint64_t i)
{
    uint64_t now = i * 20000000, bits;
    struct prompt p;

    make_prompt(&p, (uint32_t)(mix(i) % 7 * 1000), (uint32_t)(1 + mix(i + 1) % (BLOCKS * BS)));
    p.q.random = mix(i * UINT64_C(0x9E3779B97F4A7C15));
    p.q.now_ns = now;
    if (*b) {
        booking_first_token(*b, now - mix(i + 2) % 10000000);
        *b = booking_end(*b, now, i % 5 != 0);
    }
    assert_int_equal(scheduler_route(s, &p.q, d, b), 0);
    if (mix(i) % 3 == 0)
        cache(s, d->candidates[d->chosen].worker.worker_id, &p, p.q.n_blocks);
    memcpy(&bits, &d->scores[d->chosen].logit, sizeof(bits));
    return mix(bits + d->chosen);
}

/* Index, bookings, learned rates and policies together: another machine, compiler or C library must
 * come to the same sum. */
static void a_seeded_run_is_the_same_everywhere(void **state)
{
    enum { RUNNING_AT_ONCE = 40 };
    struct route_conf conf = ROUTE_CONF_KV;
    uint64_t sum = 0;

    (void)state;
    for (conf.mode = ROUTE_ROUND_ROBIN; conf.mode <= ROUTE_KV; conf.mode++)
        for (conf.policy = 0; ROUTE_POLICY_WORDS[conf.policy]; conf.policy++) {
            AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &conf);
            AUTO(route_decision_done) struct route_decision d = {0};
            struct booking *b[RUNNING_AT_ONCE] = {NULL};

            if (conf.mode == ROUTE_DIRECT)
                continue;
            for (uint64_t w = 1; w <= 9; w++)
                assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = w,
                                                                          .dp_size = 1,
                                                                          .max_num_seqs = 4 + w,
                                                                          .on_cpu = w % 3 == 0}));
            for (uint64_t i = 1; i <= 500; i++)
                sum = mix(sum + decide_once(s, &d, &b[i % RUNNING_AT_ONCE], i));
            for (size_t i = 0; i < RUNNING_AT_ONCE; i++)
                b[i] = booking_end(b[i], 0, false);
        }
    if (sum != UINT64_C(6612982372869311629))
        fail_msg("%" PRIu64, sum);
}

int main(void)
{
    return TEST_RUN(
        T(the_example_of_the_guide), T(shared_pages_count_behind_the_own),
        T(trace_lines_are_those_of_the_reference),
        T(a_weight_is_traced_with_the_digits_that_it_has),
        T(a_request_may_have_a_credit_of_its_own),
        T(bookings_count_until_released_and_prefill_until_first_token),
        T(a_flip_of_mode_keeps_index_and_bookings),
        T(a_lost_worker_takes_nothing_of_others_with_it), T(exclusion_pins_and_empty_fleets),
        T(busy_workers_are_passed_over_and_all_busy_is_said), T(every_rejection_keeps_its_reason),
        T(every_mode_can_follow_every_other), T(the_approximate_index_learns_from_decisions),
        T(what_was_just_routed_counts_before_the_engine_reports_it),
        T(a_session_stays_while_its_worker_is_eligible),
        T(a_session_of_a_busy_worker_is_refused_or_moves), T(predictions_last_while_there_is_room),
        T(bookings_and_index_may_call_blocks_otherwise), T(load_aware_looks_at_bookings_only),
        T(confidence_scales_what_an_overlap_is_worth), T(rates_are_learned_from_bookings),
        T(a_forgotten_booking_expires), T(a_worker_is_cleared_with_all_its_ranks),
        T(a_seeded_run_is_the_same_everywhere));
}
