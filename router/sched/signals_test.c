/* SPDX-License-Identifier: Apache-2.0 */
/* Fall-back and corrections, seen through decisions. */
#include "router/sched/signals.h"
#include "lib/base/test.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"

enum { BLOCK = 16, N = 12, MS = 1000000 };
static const struct worker_rank HEARD = {1, 0}, SILENT = {2, 0};

struct bench {
    struct scheduler *s;
    struct route_decision d;
    uint64_t local[N], sequence[N], now_ms;
    size_t died, revived, asked_news, asked_all;
};

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct route_conf conf = ROUTE_CONF_KV;

    conf.event_fallback = true;
    conf.ttl_ms = 120000;
    conf.max_tree_size = 10000;
    b->now_ms = 1000000;
    b->s = scheduler_new(BLOCK, &conf);
    for (size_t i = 0; i < N; i++) {
        b->local[i] = 100 + i;
        b->sequence[i] = 200 + i;
    }
    for (uint64_t id = 1; id <= 2; id++)
        assert_true(
            scheduler_put_worker(b->s, &(struct worker_info){.worker_id = id, .dp_size = 1}));
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    route_decision_done(&b->d);
    scheduler_free(b->s);
    free(b);
    return 0;
}

static struct route_request request(const struct bench *b, bool query)
{
    return (struct route_request){.local = b->local,
                                  .sequence = b->sequence,
                                  .n_blocks = N,
                                  .isl = N * BLOCK,
                                  .overlap_weight = NAN,
                                  .temperature = NAN,
                                  .query_only = query,
                                  .now_ns = b->now_ms * MS};
}

static const struct route_candidate *candidate(struct bench *b, struct worker_rank w)
{
    struct route_request q = request(b, true);
    struct booking *none;

    assert_int_equal(scheduler_route(b->s, &q, &b->d, &none), 0);
    for (size_t i = 0; i < b->d.n_candidates; i++)
        if (b->d.candidates[i].worker.worker_id == w.worker_id)
            return &b->d.candidates[i];
    fail();
    return NULL;
}

/* The prompt is routed to @w and computed there; no event comes of it. */
static void compute(struct bench *b, struct worker_rank w)
{
    struct route_request q = request(b, false);
    struct booking *booking;

    q.pinned = true;
    q.pin = w;
    assert_int_equal(scheduler_route(b->s, &q, &b->d, &booking), 0);
    scheduler_signal_prompt(b->s, w, N, b->d.candidates[0].overlap_blocks, b->now_ms);
    booking_end(booking, b->now_ms * MS, true);
}

static void on_verdict(void *arg, struct worker_rank w, const struct signal_health *h,
                       enum signal_verdict verdict)
{
    struct bench *b = arg;

    (void)h;
    assert_int_equal(w.worker_id, SILENT.worker_id);
    b->died += verdict == SIGNAL_DIED;
    b->revived += verdict == SIGNAL_REVIVED;
    b->asked_news += verdict == SIGNAL_ASK_NEWS;
    b->asked_all += verdict == SIGNAL_ASK_ALL;
}

static void seconds_pass(struct bench *b, unsigned n)
{
    while (n-- > 0) {
        b->now_ms += 1000;
        scheduler_judge_signals(b->s, b->now_ms, on_verdict, b);
    }
}

static void observe(struct bench *b, struct worker_rank w, size_t predicted, size_t cached)
{
    scheduler_signal_cached(b->s,
                            &(struct observed_prompt){.worker = w,
                                                      .local = b->local,
                                                      .sequence = b->sequence,
                                                      .n_blocks = N,
                                                      .predicted = predicted,
                                                      .cached_tokens = cached * BLOCK},
                            b->now_ms);
}

static void die(struct bench *b)
{
    for (int i = 0; i < SIGNAL_PROMPTS; i++)
        compute(b, SILENT);
    seconds_pass(b, SIGNAL_DEAD_MS / 1000);
    assert_int_equal(b->died, 1);
}

static void a_silent_worker_is_guessed_until_its_events_come(void **state)
{
    struct bench *b = *state;

    scheduler_signal_event(b->s, HEARD, b->now_ms);
    for (int i = 0; i < SIGNAL_PROMPTS; i++)
        compute(b, SILENT);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 0);
    seconds_pass(b, SIGNAL_DEAD_MS / 1000);
    assert_int_equal(b->died, 1);
    assert_true(b->asked_news >= 1);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, N);
    assert_int_equal(candidate(b, HEARD)->overlap_blocks, 0);
    assert_true(candidate(b, SILENT)->confidence == 1);

    scheduler_signal_event(b->s, SILENT, b->now_ms);
    seconds_pass(b, 1);
    assert_int_equal(b->revived, 1);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 0);
}

static void guesses_and_what_was_known_end_with_their_ttl(void **state)
{
    struct bench *b = *state;
    struct prefix_block known[] = {{1, 100}, {2, 101}, {3, 102}};

    assert_int_equal(scheduler_store(b->s, SILENT, NULL, known, 3), 0);
    scheduler_signal_told(b->s, SILENT, b->now_ms);
    die(b);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, N);
    scheduler_signal_told(b->s, SILENT, b->now_ms);
    b->now_ms += 115000;
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 3);
    b->now_ms += 10000;
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 0);
}

static void observations_correct_guesses(void **state)
{
    struct bench *b = *state;

    die(b);
    observe(b, SILENT, N, N - 1); /* the last block is always computed anew */
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, N);
    observe(b, SILENT, N, 4);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 4);
    observe(b, SILENT, 4, 9);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 9);
}

static void the_exact_index_is_put_right_by_asking(void **state)
{
    struct bench *b = *state;
    struct prefix_block known[] = {{1, 100}, {2, 101}, {3, 102}};

    assert_int_equal(scheduler_store(b->s, SILENT, NULL, known, 3), 0);
    scheduler_signal_event(b->s, SILENT, b->now_ms);
    for (int i = 0; i < SIGNAL_MISSES; i++)
        observe(b, SILENT, 3, 0);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 3);
    assert_true(candidate(b, SILENT)->confidence < 1);
    seconds_pass(b, 1);
    assert_int_equal(b->asked_all, 1);
}

static void a_worker_that_leaves_takes_its_guesses_along(void **state)
{
    struct bench *b = *state;

    die(b);
    scheduler_remove_worker(b->s, SILENT.worker_id);
    assert_true(scheduler_put_worker(b->s, &(struct worker_info){.worker_id = 2, .dp_size = 1}));
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 0);
    seconds_pass(b, 60);
    assert_int_equal(b->died, 1);
}

static void other_modes_expect_no_events(void **state)
{
    struct bench *b = *state;
    struct route_conf conf = *scheduler_conf(b->s);

    conf.mode = ROUTE_RANDOM;
    scheduler_configure(b->s, &conf);
    for (int i = 0; i < 10 * SIGNAL_PROMPTS; i++)
        compute(b, SILENT);
    seconds_pass(b, 60);
    assert_int_equal(b->died, 0);
    conf.mode = ROUTE_KV; /* then it begins */
    scheduler_configure(b->s, &conf);
    die(b);
}

static void fallback_can_be_switched_off(void **state)
{
    struct bench *b = *state;
    struct route_conf conf = *scheduler_conf(b->s);

    conf.event_fallback = false;
    scheduler_configure(b->s, &conf);
    for (int i = 0; i < 10 * SIGNAL_PROMPTS; i++)
        compute(b, SILENT);
    seconds_pass(b, 60);
    assert_int_equal(b->died, 0);
    assert_int_equal(candidate(b, SILENT)->overlap_blocks, 0);
}

#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    return TEST_RUN(WITH(a_silent_worker_is_guessed_until_its_events_come),
                    WITH(guesses_and_what_was_known_end_with_their_ttl),
                    WITH(observations_correct_guesses),
                    WITH(the_exact_index_is_put_right_by_asking),
                    WITH(a_worker_that_leaves_takes_its_guesses_along),
                    WITH(other_modes_expect_no_events), WITH(fallback_can_be_switched_off));
}
