/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that failed somebody are passed over: for how long, and when not. */
#include "router/frontend/pool.h"

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "router/kv/block_hash.h"
#include "router/sched/sched_test.h"
#include "router/sched/sequences.h"

enum { INHIBIT_MS = 100 };

struct rig {
    struct loop *loop;
    struct model_card card;
    struct pool *pool;
};

static void put_worker(struct rig *g, uint64_t id)
{
    pool_put_worker(
        g->pool,
        &(struct worker){.id = id, .card = &g->card, .address = (char[]){"127.0.0.1:1/7/e"}});
}

static void rig_init(struct rig *g, size_t n_workers)
{
    struct route_conf route = ROUTE_CONF_KV;
    const struct served_model found = {.name = (char[]){"m"},
                                       .card = &g->card,
                                       .ns = (char[]){"n"},
                                       .component = (char[]){"c"},
                                       .endpoint = (char[]){"e"}};
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    g->card = (struct model_card){.kv_cache_block_size = 16, .dp_size = 1};
    route.mode = ROUTE_ROUND_ROBIN;
    g->pool = pool_new(g->loop, &found, 0, &route);
    g->pool->inhibit_ms = INHIBIT_MS;
    for (size_t i = 1; i <= n_workers; i++)
        put_worker(g, i);
}

static void rig_done(struct rig *g)
{
    pool_unref(g->pool);
    loop_free(g->loop);
}

/* 0 when nobody takes it. */
static uint64_t route(struct rig *g, struct pool_avoid avoid)
{
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    struct route_request q = {.isl = 16, .now_ns = clock_now_ns(), .clock = clock_now_ns};
    struct booking *booking = NULL;

    if (pool_route(g->pool, &q, avoid, &d, &booking) != 0)
        return 0;
    (void)booking_end(booking, clock_now_ns(), false);
    return d.candidates[d.chosen].worker.worker_id;
}

/* How often each of the first two is chosen in ten. */
static void count(struct rig *g, size_t ret[3])
{
    memset(ret, 0, 3 * sizeof(ret[0]));
    for (int i = 0; i < 10; i++)
        ret[route(g, (struct pool_avoid){NULL, 0})]++;
}

static void a_worker_that_failed_is_passed_over_for_a_while(void **state)
{
    uint64_t end;
    size_t n[3];
    struct rig g;

    (void)state;
    rig_init(&g, 2);
    pool_inhibit(g.pool, 1);
    count(&g, n);
    assert_true(n[1] == 0 && n[2] == 10);
    for (end = loop_now_ms(g.loop) + INHIBIT_MS; loop_now_ms(g.loop) <= end;)
        loop_run_once(g.loop, 10);
    count(&g, n);
    assert_true(n[1] == 5 && n[2] == 5);
    rig_done(&g);
}

static void discovery_ends_it(void **state)
{
    size_t n[3];
    struct rig g;

    (void)state;
    rig_init(&g, 2);
    pool_inhibit(g.pool, 1);
    put_worker(&g, 1); /* its record was written again */
    count(&g, n);
    assert_true(n[1] == 5 && n[2] == 5);
    pool_inhibit(g.pool, 1);
    pool_remove_worker(g.pool, 1);
    put_worker(&g, 1); /* gone and back */
    count(&g, n);
    assert_true(n[1] == 5 && n[2] == 5);
    rig_done(&g);
}

/* Better one that failed somebody else just now than none; but not one that failed this request. */
static void it_is_asked_when_there_is_no_other(void **state)
{
    const uint64_t failed = 1;
    struct rig g;

    (void)state;
    rig_init(&g, 1);
    pool_inhibit(g.pool, 1);
    assert_int_equal(route(&g, (struct pool_avoid){NULL, 0}), 1);
    assert_int_equal(route(&g, (struct pool_avoid){&failed, 1}), 0);
    rig_done(&g);
}

static void it_opens_with_enough_workers_and_stays_open(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g, 0);
    assert_true(pool_is_open(g.pool));
    g.pool->min_workers = 2;
    assert_false(pool_is_open(g.pool));
    put_worker(&g, 1);
    put_worker(&g, 1); /* told of again */
    assert_false(pool_is_open(g.pool));
    pool_remove_worker(g.pool, 1);
    put_worker(&g, 2); /* one after the other does not count */
    assert_false(pool_is_open(g.pool));
    put_worker(&g, 1);
    assert_true(pool_is_open(g.pool));
    pool_remove_worker(g.pool, 1);
    assert_true(pool_is_open(g.pool));
    rig_done(&g);
}

/* Of a plain server's prompts the first block alone, of those of Dynamo's workers every one. */
static void salts_tell_blocks_apart(void **state)
{
    static const uint32_t tokens[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                      13, 14, 15, 16, 17, 18, 1,  2,  3,  4,  5,  6,
                                      7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18};
    uint64_t plain[2], salted[2], both[2], chain[2];
    struct rig g;

    (void)state;
    for (int first = 0; first < 2; first++) {
        rig_init(&g, 1);
        g.pool->salts_first = first;
        assert_int_equal(pool_hash_local(g.pool, STR_NULL, tokens, ARRAY_LEN(tokens), plain), 2);
        assert_int_equal(pool_hash_local(g.pool, STR("a"), tokens, ARRAY_LEN(tokens), salted), 2);
        assert_true(plain[0] != salted[0]);
        assert_int_equal(plain[1] == salted[1], first);
        assert_int_equal(pool_hash_local(g.pool, STR("a"), tokens, 15, salted), 0);
        (void)pool_hash_local(g.pool, STR("a"), tokens, ARRAY_LEN(tokens), salted);
        assert_int_equal(pool_hash(g.pool, STR("a"), tokens, ARRAY_LEN(tokens), both, chain), 2);
        assert_memory_equal(both, salted, sizeof(both));
        assert_int_equal(chain[1], block_hash_next(salted[0], salted[1]));
        rig_done(&g);
    }
}

int main(void)
{
    return TEST_RUN(T(a_worker_that_failed_is_passed_over_for_a_while), T(discovery_ends_it),
                    T(it_is_asked_when_there_is_no_other),
                    T(it_opens_with_enough_workers_and_stays_open), T(salts_tell_blocks_apart));
}
