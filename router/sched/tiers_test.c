/* SPDX-License-Identifier: Apache-2.0 */
/* Slower tiers, seen through decisions. */
#include "lib/base/test.h"
#include "router/sched/policy.h"
#include "router/sched/prompt_test.h"
#include "router/sched/sequences.h"

static struct route_candidate seen(struct scheduler *s, uint64_t worker, uint64_t now_ms)
{
    AUTO(route_decision_done) struct route_decision d = {0};
    const struct route_request q = {.local = local,
                                    .sequence = sequence,
                                    .n_blocks = N,
                                    .isl = N * BLOCK,
                                    .overlap_weight = NAN,
                                    .temperature = NAN,
                                    .query_only = true,
                                    .now_ns = now_ms * MS};
    struct booking *none;

    assert_int_equal(scheduler_route(s, &q, &d, &none), 0);
    for (size_t i = 0; i < d.n_candidates; i++)
        if (d.candidates[i].worker.worker_id == worker)
            return d.candidates[i];
    fail();
    return (struct route_candidate){.slot = 0};
}

#define EXPECT_SEEN(s, worker, device, host, disk)                                                 \
    do {                                                                                           \
        struct route_candidate c_ = seen((s), (worker), 1000);                                     \
        assert_int_equal(c_.overlap_blocks, (device));                                             \
        assert_int_equal(c_.host_blocks, (host));                                                  \
        assert_int_equal(c_.disk_blocks, (disk));                                                  \
    } while (0)

static void what_goes_on_in_slower_tiers_is_seen(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = with_workers(&ROUTE_CONF_KV);

    (void)state;
    hold(s, ONE, TIER_HOST, 3, 5); /* before the device has what it follows */
    EXPECT_SEEN(s, 1, 0, 0, 0);
    hold(s, ONE, -1, 0, 3);
    hold(s, ONE, TIER_DISK, 5, 6);
    hold(s, ONE, TIER_EXTERNAL, 6, 8);
    hold(s, TWO, TIER_HOST, 0, 2);
    EXPECT_SEEN(s, 1, 3, 2, 3);
    EXPECT_SEEN(s, 2, 0, 2, 0);
    hold(s, ONE, -1, 3, 4); /* loaded back: it counts once */
    EXPECT_SEEN(s, 1, 4, 1, 3);
    scheduler_tier_clear(s, ONE, TIER_DISK);
    EXPECT_SEEN(s, 1, 4, 1, 0);
    assert_int_equal(scheduler_tier_remove(s, ONE, TIER_HOST, (uint64_t[]){1004}, 1), 0);
    EXPECT_SEEN(s, 1, 4, 0, 0);
    scheduler_clear(s, TWO);
    EXPECT_SEEN(s, 2, 0, 0, 0);
}

static void a_worker_that_leaves_takes_them_along(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = with_workers(&ROUTE_CONF_KV);

    (void)state;
    hold(s, ONE, TIER_HOST, 0, 4);
    hold(s, TWO, TIER_HOST, 0, 3);
    scheduler_remove_worker(s, 1);
    assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = 1, .dp_size = 1}));
    EXPECT_SEEN(s, 1, 0, 0, 0);
    EXPECT_SEEN(s, 2, 0, 3, 0);
    assert_int_equal(tier_index_stats(scheduler_tiers(s)).blocks[TIER_HOST], 3);
}

static uint64_t booked_tokens(enum route_policy policy)
{
    struct route_conf conf = ROUTE_CONF_KV;
    AUTO(route_decision_done) struct route_decision d = {0};
    AUTO(scheduler_free) struct scheduler *s = NULL;
    const struct route_request q = {.local = local,
                                    .sequence = sequence,
                                    .n_blocks = N,
                                    .isl = N * BLOCK,
                                    .pinned = true,
                                    .pin = ONE,
                                    .overlap_weight = NAN,
                                    .temperature = NAN,
                                    .now_ns = MS};
    struct worker_load load;
    struct booking *b;

    conf.policy = policy;
    s = with_workers(&conf);
    hold(s, ONE, -1, 0, 3);
    hold(s, ONE, TIER_HOST, 3, 5);
    hold(s, ONE, TIER_DISK, 5, 8);
    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    assert_true(scheduler_load(s, scheduler_slot(s, ONE), &load));
    (void)booking_end(b, MS, true);
    return load.active_prefill_tokens;
}

/* 3 + 0.75 × 2 + 0.25 × 3 = 5.25 blocks of 4 tokens; 0.9.0 knows the device only. */
static void they_are_credited_by_their_weights(void **state)
{
    (void)state;
    assert_int_equal(booked_tokens(ROUTE_POLICY_DYNAMO_1), N * BLOCK - 21);
    assert_int_equal(booked_tokens(ROUTE_POLICY_DYNAMO), N * BLOCK - 12);
}

static void caches_that_do_not_count_do_not_here(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    AUTO(scheduler_free) struct scheduler *s = with_workers(&conf);

    (void)state;
    hold(s, ONE, TIER_HOST, 0, 4);
    EXPECT_SEEN(s, 1, 0, 4, 0);
    conf.load_aware = true;
    scheduler_configure(s, &conf);
    EXPECT_SEEN(s, 1, 0, 0, 0);
    conf.load_aware = false;
    conf.use_kv_events = false;
    scheduler_configure(s, &conf);
    EXPECT_SEEN(s, 1, 0, 0, 0);
}

int main(void)
{
    return TEST_RUN(T(what_goes_on_in_slower_tiers_is_seen),
                    T(a_worker_that_leaves_takes_them_along), T(they_are_credited_by_their_weights),
                    T(caches_that_do_not_count_do_not_here));
}
