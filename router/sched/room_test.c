/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the queue and other replicas ask of the scheduler: room, remote bookings, observers.
 */
#include "router/sched/scheduler.h"
#include "lib/base/test.h"

#include "router/sched/sched_test.h"
#include "router/sched/sequences.h"

enum { BS = 4, BLOCKS = 25 };
static const struct room_limit FOUR_STEPS = {.tokens = NAN, .share = 4, .ratio = 1};

static const uint64_t HASHES[BLOCKS] = {11, 12, 13, 14, 15};

static struct route_request prompt(uint32_t isl)
{
    return (struct route_request){.id = STR("r"),
                                  .local = HASHES,
                                  .sequence = HASHES,
                                  .n_blocks = isl / BS,
                                  .isl = isl,
                                  .overlap_weight = NAN,
                                  .temperature = NAN,
                                  .random = 1};
}

static void end(struct booking *b)
{
    (void)booking_end(b, 1, true);
}

static struct scheduler *two_workers(const struct route_conf *conf)
{
    struct scheduler *s = scheduler_new(BS, conf);

    for (uint64_t id = 1; id <= 2; id++)
        assert_true(scheduler_put_worker(
            s, &(struct worker_info){.worker_id = id, .dp_size = 1, .max_batched_tokens = 10}));
    return s;
}

static struct booking *book(struct scheduler *s, uint64_t worker, uint32_t isl)
{
    struct route_booked b = {
        .id = STR("o"), .worker = {worker, 0}, .isl = isl, .prefill_tokens = isl};
    struct booking *booking = scheduler_book_remote(s, &b, 0);

    assert_non_null(booking);
    return booking;
}

static void room_ends_when_all_are_over_their_share(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers(&ROUTE_CONF_KV);
    struct route_request q = prompt(8), pinned = q;
    struct room_limit half = FOUR_STEPS, tokens = {.tokens = 30, .share = NAN, .ratio = 1};
    struct booking *one, *two;

    (void)state;
    assert_true(scheduler_has_room(s, &q, &FOUR_STEPS));
    one = book(s, 1, 41); /* over 4 x 10 */
    two = book(s, 2, 40); /* at it */
    assert_true(scheduler_has_room(s, &q, &FOUR_STEPS));
    half.ratio = 0.5;
    assert_false(scheduler_has_room(s, &q, &half));
    assert_false(scheduler_has_room(s, &q, &tokens));
    pinned.pinned = true;
    pinned.pin.worker_id = 1;
    assert_false(scheduler_has_room(s, &pinned, &FOUR_STEPS));
    booking_first_token(one, 1);
    assert_true(scheduler_has_room(s, &pinned, &FOUR_STEPS));
    /* A request that cannot be placed at all is not to wait. */
    pinned.pin.worker_id = 9;
    assert_true(scheduler_has_room(s, &pinned, &FOUR_STEPS));
    end(one);
    end(two);
}

static void unknown_batches_count_as_ten_million(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = scheduler_new(BS, &ROUTE_CONF_KV);
    struct route_request q = prompt(8);
    struct booking *b;

    (void)state;
    assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = 1, .dp_size = 1}));
    b = book(s, 1, 40000001);
    assert_false(scheduler_has_room(s, &q, &FOUR_STEPS));
    end(b);
    b = book(s, 1, 40000000);
    assert_true(scheduler_has_room(s, &q, &FOUR_STEPS));
    end(b);
}

static void best_cached_is_over_the_eligible(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers(&ROUTE_CONF_KV);
    const struct prefix_block blocks[] = {{11, 11}, {12, 12}, {13, 13}};
    const uint64_t exclude[] = {2};
    struct route_request q = prompt(11);

    (void)state;
    assert_int_equal(scheduler_store(s, (struct worker_rank){1, 0}, NULL, blocks, 1), 0);
    assert_int_equal(scheduler_store(s, (struct worker_rank){2, 0}, NULL, blocks, 3), 0);
    assert_int_equal(scheduler_best_cached(s, &q), 8);
    q.exclude = exclude;
    q.n_exclude = 1;
    assert_int_equal(scheduler_best_cached(s, &q), 4);
}

static void busy_counts_by_share_of_a_batch(void **state)
{
    struct route_conf conf = ROUTE_CONF_KV;
    struct route_request q = prompt(8);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct booking *one, *two, *b = NULL;

    (void)state;
    conf.busy_prefill_share = 2;
    {
        AUTO(scheduler_free) struct scheduler *s = two_workers(&conf);

        one = book(s, 1, 21);
        two = book(s, 2, 20);
        assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
        assert_int_equal(d.candidates[d.chosen].worker.worker_id, 2);
        assert_int_equal(scheduler_route(s, &q, &d, &b), ROUTE_ALL_BUSY);
        end(one);
        end(two);
        end(b);
    }
}

/* --- observers ------------------------------------------------------------------------------- */

struct witness {
    struct scheduler_observer o;
    struct route_booked last;
    const struct booking *prefilled, *ended;
    size_t n_booked, n_prefilled, n_grown, n_ended;
};

static void saw_booked(struct scheduler_observer *o, const struct route_booked *b)
{
    struct witness *w = CONTAINER_OF(o, struct witness, o);

    w->last = *b;
    w->n_booked++;
}

static void saw_grown(struct scheduler_observer *o, const struct booking *b)
{
    (void)b;
    CONTAINER_OF(o, struct witness, o)->n_grown++;
}

static void saw_prefilled(struct scheduler_observer *o, const struct booking *b)
{
    struct witness *w = CONTAINER_OF(o, struct witness, o);

    w->prefilled = b;
    w->n_prefilled++;
}

static void saw_ended(struct scheduler_observer *o, const struct booking *b)
{
    struct witness *w = CONTAINER_OF(o, struct witness, o);

    w->ended = b;
    w->n_ended++;
}

static void observers_hear_what_is_booked_here_and_what_ends(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers(&ROUTE_CONF_KV);
    struct witness w = {.o = {.booked = saw_booked,
                              .prefilled = saw_prefilled,
                              .grown = saw_grown,
                              .ended = saw_ended}};
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_request q = prompt(20);
    struct booking *b, *remote;

    (void)state;
    scheduler_observe(s, &w.o);
    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    assert_int_equal(w.n_booked, 1);
    assert_ptr_equal(w.last.booking, b);
    assert_int_equal(w.last.n_blocks, 5);
    assert_int_equal(w.last.isl, 20);
    assert_int_equal(w.last.worker.worker_id, d.candidates[d.chosen].worker.worker_id);
    remote = book(s, 1, 8);
    assert_int_equal(w.n_booked, 1);
    booking_first_token(b, 1);
    booking_first_token(b, 1);
    assert_int_equal(w.n_prefilled, 1);
    booking_output_block(b, 1);
    assert_int_equal(w.n_grown, 1);
    end(remote);
    assert_ptr_equal(w.ended, remote);
    assert_int_equal(w.n_prefilled, 1); /* its prompt was not computed */
    end(b);
    assert_int_equal(w.n_ended, 2);
    list_remove(&w.o.link);
    end(book(s, 1, 8));
    assert_int_equal(w.n_ended, 2);
}

static void a_remote_booking_needs_a_known_worker(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers(&ROUTE_CONF_KV);
    struct route_booked b = {.id = STR("o"), .worker = {3, 0}, .isl = 8};

    (void)state;
    assert_null(scheduler_book_remote(s, &b, 0));
    b.worker = (struct worker_rank){1, 1};
    assert_null(scheduler_book_remote(s, &b, 0));
}

/* The term that stands for what others placed: only with others, only for its window. */
static void what_is_unheard_counts_for_a_moment(void **state)
{
    AUTO(scheduler_free) struct scheduler *s = two_workers(&ROUTE_CONF_KV);
    AUTO(route_decision_done) struct route_decision d = {0};
    struct route_request q = prompt(20);
    struct booking *b, *none;
    uint64_t worker;
    size_t mine;

    (void)state;
    scheduler_set_replicas(s, 3);
    assert_int_equal(scheduler_route(s, &q, &d, &b), 0);
    mine = d.chosen;
    worker = d.candidates[mine].worker.worker_id;
    q.query_only = true;
    assert_int_equal(scheduler_route(s, &q, &d, &none), 0);
    assert_int_equal(d.candidates[mine].prefill_tokens, 60);
    assert_int_equal(d.candidates[mine].requests, 3);
    assert_int_equal(d.candidates[mine].active_blocks, 15);
    end(book(s, worker, 20)); /* one of the two is heard of */
    assert_int_equal(scheduler_route(s, &q, &d, &none), 0);
    assert_int_equal(d.candidates[mine].prefill_tokens, 40);
    q.now_ns = UINT64_C(25000000);
    assert_int_equal(scheduler_route(s, &q, &d, &none), 0);
    assert_int_equal(d.candidates[mine].prefill_tokens, 20);
    end(b);
}

int main(void)
{
    return TEST_RUN(
        T(room_ends_when_all_are_over_their_share), T(unknown_batches_count_as_ten_million),
        T(best_cached_is_over_the_eligible), T(busy_counts_by_share_of_a_batch),
        T(observers_hear_what_is_booked_here_and_what_ends),
        T(a_remote_booking_needs_a_known_worker), T(what_is_unheard_counts_for_a_moment));
}
