/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/replica_ledger.h"
#include "lib/base/test.h"

#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/wire/sequence_event.h"

enum { BS = 4, US = 1, OTHER = 2, THIRD = 3, PUBLISHER = 70 };

static const uint64_t MS = 1000000;
static const uint64_t BLOCKS[] = {11, 12, 13, 14, 15};

static struct scheduler *two_workers(void)
{
    struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);

    for (uint64_t id = 1; id <= 2; id++)
        assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = id, .dp_size = 1}));
    return s;
}

static struct worker_load load_of(const struct scheduler *s, uint64_t worker)
{
    struct worker_load loads[2];

    assert_int_equal(scheduler_loads(s, loads, 2), 2);
    return loads[loads[0].worker.worker_id == worker ? 0 : 1];
}

static struct sequence_event event(uint64_t router, const char *id, enum sequence_event_kind kind)
{
    return (struct sequence_event){.request_id = str_from(id),
                                   .worker_id = 1,
                                   .kind = kind,
                                   .router_id = router,
                                   .sequence = kind == SEQUENCE_ADD ? BLOCKS : NULL,
                                   .n_sequence = kind == SEQUENCE_ADD ? 5 : 0,
                                   .isl = kind == SEQUENCE_ADD ? OPT_U64(22) : (struct opt_u64){0},
                                   .overlap_blocks = OPT_U64(2)};
}

static enum replica_outcome apply(struct replica_ledger *l, uint64_t router, const char *id,
                                  enum sequence_event_kind kind, uint64_t now_ns)
{
    struct sequence_event ev = event(router, id, kind);

    return replica_ledger_apply(l, ev.router_id + PUBLISHER, &ev, now_ns);
}

static void a_request_elsewhere_counts_until_it_is_freed(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);

    (void)state;
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 1), REPLICA_APPLIED);
    assert_int_equal(load_of(s, 1).active_prefill_tokens, 22 - 2 * BS);
    assert_int_equal(load_of(s, 1).active_decode_blocks, 5);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 1), REPLICA_TWICE);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_PREFILL_DONE, 2), REPLICA_APPLIED);
    assert_int_equal(load_of(s, 1).active_prefill_tokens, 0);
    assert_int_equal(load_of(s, 1).active_decode_blocks, 5);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_FREE, 3), REPLICA_APPLIED);
    assert_int_equal(load_of(s, 1).active_decode_blocks, 0);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_FREE, 3), REPLICA_UNKNOWN_REQUEST);
    assert_int_equal(replica_ledger_bookings(l), 0);
}

static void the_form_of_1_x_says_what_is_left_to_compute(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);
    struct sequence_event ev = event(OTHER, "a", SEQUENCE_ADD);

    (void)state;
    ev.isl = ev.overlap_blocks = (struct opt_u64){0};
    ev.prefill_tokens = OPT_U64(7);
    ev.form = SEQUENCE_FORM_1_X;
    assert_false(replica_ledger_newer(l));
    assert_int_equal(replica_ledger_apply(l, ev.router_id + PUBLISHER, &ev, 1), REPLICA_APPLIED);
    assert_true(replica_ledger_newer(l));
    assert_int_equal(load_of(s, 1).active_prefill_tokens, 7);
    assert_int_equal(load_of(s, 1).active_decode_blocks, 5);
    /* One of ours repeats itself in that form, for others. */
    replica_ledger_present(l, THIRD, 1);
    ev.router_id = THIRD;
    assert_int_equal(replica_ledger_apply(l, ev.router_id + PUBLISHER, &ev, 1), REPLICA_TWICE);
}

static void own_words_and_unknown_workers_are_dropped(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);
    struct sequence_event ev = event(OTHER, "a", SEQUENCE_ADD);

    (void)state;
    assert_int_equal(apply(l, US, "a", SEQUENCE_ADD, 1), REPLICA_OWN);
    replica_ledger_present(l, US, 1);
    assert_int_equal(replica_ledger_routers(l), 0);
    ev.worker_id = 9;
    assert_int_equal(replica_ledger_apply(l, ev.router_id + PUBLISHER, &ev, 1),
                     REPLICA_UNKNOWN_WORKER);
    assert_int_equal(replica_ledger_bookings(l), 0);
    assert_int_equal(replica_ledger_routers(l), 1); /* it is there all the same */
}

static void equal_ids_of_two_routers_are_two_requests(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);

    (void)state;
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 1), REPLICA_APPLIED);
    assert_int_equal(apply(l, THIRD, "a", SEQUENCE_ADD, 1), REPLICA_APPLIED);
    assert_int_equal(replica_ledger_bookings(l), 2);
    assert_int_equal(apply(l, THIRD, "a", SEQUENCE_FREE, 1), REPLICA_APPLIED);
    assert_int_equal(load_of(s, 1).active_requests, 1);
}

static void silence_ends_what_a_router_of_ours_placed(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);
    uint64_t silence = REPLICA_SILENCE_MS * MS;

    (void)state;
    replica_ledger_present(l, OTHER, 0);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 0), REPLICA_APPLIED);
    assert_int_equal(apply(l, THIRD, "b", SEQUENCE_ADD, 0), REPLICA_APPLIED);
    assert_int_equal(replica_ledger_routers(l), 2);
    replica_ledger_present(l, OTHER, silence / 2);
    replica_ledger_tick(l, silence);
    /* The one of the reference counts as alive no more, but its request may well run. */
    assert_int_equal(replica_ledger_routers(l), 1);
    assert_int_equal(replica_ledger_bookings(l), 2);
    replica_ledger_tick(l, silence / 2 + silence);
    assert_int_equal(replica_ledger_routers(l), 0);
    assert_int_equal(replica_ledger_bookings(l), 1);
    assert_int_equal(load_of(s, 1).active_requests, 1);
    replica_ledger_publisher_gone(l, THIRD, silence * 2);
    assert_int_equal(load_of(s, 1).active_requests, 1);
    replica_ledger_publisher_gone(l, THIRD + PUBLISHER, silence * 2);
    assert_int_equal(load_of(s, 1).active_requests, 0);
}

static void what_is_never_freed_ages(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);
    uint64_t age = ROUTE_CONF_KV.expiry_ms * MS;

    (void)state;
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 0), REPLICA_APPLIED);
    assert_int_equal(apply(l, OTHER, "b", SEQUENCE_ADD, 1), REPLICA_APPLIED);
    replica_ledger_tick(l, age - 1);
    assert_int_equal(replica_ledger_bookings(l), 2);
    replica_ledger_tick(l, age);
    assert_int_equal(replica_ledger_bookings(l), 1);
    replica_ledger_tick(l, age + 1);
    assert_int_equal(replica_ledger_bookings(l), 0);
}

static void routers_are_bounded(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);

    (void)state;
    for (uint64_t id = 100; id < 100 + REPLICA_ROUTERS_MAX; id++)
        replica_ledger_present(l, id, 0);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 0), REPLICA_FULL);
    replica_ledger_tick(l, REPLICA_SILENCE_MS * MS);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, REPLICA_SILENCE_MS * MS), REPLICA_APPLIED);
}

static void a_worker_that_leaves_takes_its_load_along(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers();
    AUTO(replica_ledger_free) struct replica_ledger *l = replica_ledger_new(s, US);

    (void)state;
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_ADD, 1), REPLICA_APPLIED);
    scheduler_remove_worker(s, 1);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_PREFILL_DONE, 1), REPLICA_APPLIED);
    assert_int_equal(apply(l, OTHER, "a", SEQUENCE_FREE, 1), REPLICA_APPLIED);
}

int main(void)
{
    return TEST_RUN(T(a_request_elsewhere_counts_until_it_is_freed),
                    T(the_form_of_1_x_says_what_is_left_to_compute),
                    T(own_words_and_unknown_workers_are_dropped),
                    T(equal_ids_of_two_routers_are_two_requests),
                    T(silence_ends_what_a_router_of_ours_placed), T(what_is_never_freed_ages),
                    T(routers_are_bounded), T(a_worker_that_leaves_takes_its_load_along));
}
