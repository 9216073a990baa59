/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_queue.h"
#include "lib/base/test.h"

#include <math.h>

enum { NEVER = 1 << 30 };

static const struct route_queue_rule FCFS = {.order = ROUTE_QUEUE_FCFS, .quantum = 1000};
static const struct route_queue_rule WSPT = {.order = ROUTE_QUEUE_WSPT, .quantum = 1000};
static const struct route_queue_rule LCFS = {.order = ROUTE_QUEUE_LCFS, .quantum = 1000};

static bool always(void *arg, struct route_queue_item *head)
{
    (void)arg;
    (void)head;
    return true;
}

static void put(struct route_queue *q, size_t class, struct route_queue_item *item)
{
    assert_int_equal(route_queue_put(q, class, item, 1), 0);
}

static struct route_queue_item *next(struct route_queue *q, uint64_t now_ms)
{
    return route_queue_next(q, now_ms, always, NULL);
}

/* Puts all of @items in their order and expects them back as @want says. */
static void expect_order(const struct route_queue_rule *rule, struct route_queue_item *items,
                         size_t n, const size_t *want)
{
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rule, 1, NEVER);

    for (size_t i = 0; i < n; i++)
        put(q, 0, &items[i]);
    for (size_t i = 0; i < n; i++) {
        struct route_queue_item *item = next(q, 0);

        assert_non_null(item);
        assert_int_equal(item - items, want[i]);
    }
    assert_null(next(q, 0));
}

static void fcfs_keeps_arrival_and_a_jump_moves_it(void **state)
{
    struct route_queue_item items[] = {
        {.arrival_ms = 1000, .isl_tokens = 9},
        {.arrival_ms = 1000, .isl_tokens = 1},
        {.arrival_ms = 4000, .isl_tokens = 1, .jump_s = 3.5}, /* as if it had come at 0.5 s */
        {.arrival_ms = 2000, .isl_tokens = 1},
    };

    (void)state;
    expect_order(&FCFS, items, 4, (const size_t[]){2, 0, 1, 3});
}

static void lcfs_is_the_reverse(void **state)
{
    struct route_queue_item items[] = {
        {.arrival_ms = 1000, .isl_tokens = 1},
        {.arrival_ms = 2000, .isl_tokens = 1},
        {.arrival_ms = 2000, .isl_tokens = 1},
        {.arrival_ms = 500, .isl_tokens = 1, .jump_s = 10},
    };

    (void)state;
    expect_order(&LCFS, items, 4, (const size_t[]){3, 2, 1, 0});
}

static void wspt_takes_the_short_ones_by_what_is_not_cached(void **state)
{
    struct route_queue_item items[] = {
        {.isl_tokens = 100},
        {.isl_tokens = 1000, .cached_tokens = 990},
        {.isl_tokens = 50},
        {.isl_tokens = 300, .jump_s = 29},         /* 30 / 300 = 1 / 10, later than the second */
        {.isl_tokens = 40, .cached_tokens = 4000}, /* all cached: 1 token */
    };

    (void)state;
    expect_order(&WSPT, items, 5, (const size_t[]){4, 1, 3, 2, 0});
}

static void strict_priority_goes_before_every_score(void **state)
{
    struct route_queue_item items[] = {
        {.isl_tokens = 1, .jump_s = 1000},
        {.isl_tokens = 9000, .strict_priority = 1},
        {.isl_tokens = 1, .strict_priority = 1},
        {.isl_tokens = 9000, .strict_priority = UINT32_MAX},
    };

    (void)state;
    expect_order(&WSPT, items, 4, (const size_t[]){3, 2, 1, 0});
}

static void any_item_can_leave_and_the_rest_keeps_its_order(void **state)
{
    enum { N = 200 };
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(&WSPT, 1, NEVER);
    struct route_queue_item items[N] = {0};
    uint64_t last = 0;
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        items[i].isl_tokens = 1 + (i * 7919) % 977;
        items[i].cached_tokens = i % 2 ? 0 : 1;
        put(q, 0, &items[i]);
    }
    for (size_t i = 0; i < N; i += 3)
        route_queue_remove(q, &items[i]);
    route_queue_remove(q, &items[0]); /* harmless */
    assert_int_equal(route_queue_len(q), N - (N + 2) / 3);
    for (struct route_queue_item *item; (item = next(q, 0)); n++) {
        uint64_t cost = MAX(item->isl_tokens - item->cached_tokens, (uint64_t)1);

        assert_true((item - items) % 3 != 0);
        assert_true(cost >= last);
        last = cost;
    }
    assert_int_equal(n, N - (N + 2) / 3);
    assert_int_equal(route_queue_stats(q, 0).isl_tokens, 0);
    assert_int_equal(route_queue_stats(q, 0).cached_tokens, 0);
}

/* Under wspt a stream of short prompts holds a long one back, but not beyond its patience; without
 * patience it would wait for ever, which shows that the stream does starve it. */
static void a_long_prompt_does_not_starve(void **state)
{
    enum { PATIENCE = 30000, STEP = 100, ROUNDS = 1000 };
    const struct {
        const struct route_queue_rule *rule;
        uint64_t patience;
        bool goes;
    } cases[] = {{&WSPT, PATIENCE, true}, {&WSPT, NEVER, false}, {&LCFS, PATIENCE, true}};

    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        AUTO(route_queue_free)
        struct route_queue *q = route_queue_new(cases[k].rule, 1, cases[k].patience);
        struct route_queue_item large = {.isl_tokens = 8500}, small[ROUNDS] = {0};
        uint64_t went_at = 0, now = 0;

        put(q, 0, &large);
        for (size_t i = 0; i < ROUNDS; i++, now += STEP) {
            /* One comes, one goes: the queue never empties. */
            small[i].isl_tokens = 16;
            small[i].arrival_ms = now;
            put(q, 0, &small[i]);
            if (next(q, now) == &large)
                went_at = now;
        }
        assert_int_equal(went_at, cases[k].goes ? PATIENCE : 0);
        while (next(q, now))
            ;
    }
}

static void patience_respects_strict_priority(void **state)
{
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(&WSPT, 1, 1000);
    struct route_queue_item low = {.isl_tokens = 1},
                            high = {.isl_tokens = 9, .strict_priority = 1, .arrival_ms = 5000};

    (void)state;
    put(q, 0, &low);
    put(q, 0, &high);
    assert_ptr_equal(next(q, 5000), &high);
    assert_ptr_equal(next(q, 5000), &low);
}

/* --- classes --------------------------------------------------------------------------------- */

/* Serves @tokens from two backlogged classes and returns the share of the first. */
static double share_of_first(uint64_t quantum_a, uint64_t quantum_b, uint64_t size_a,
                             uint64_t size_b)
{
    enum { N = 400 };
    const struct route_queue_rule rules[] = {{ROUTE_QUEUE_FCFS, quantum_a, 0, 0, 0},
                                             {ROUTE_QUEUE_FCFS, quantum_b, 0, 0, 0}};
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rules, 2, NEVER);
    struct route_queue_item *items = xcalloc(2 * N, sizeof(*items));
    uint64_t served[2] = {0, 0};

    for (size_t i = 0; i < 2 * N; i++) {
        items[i].isl_tokens = i < N ? size_a : size_b;
        put(q, i / N, &items[i]);
    }
    while (route_queue_stats(q, 0).requests && route_queue_stats(q, 1).requests) {
        const struct route_queue_item *item = next(q, 0);

        served[item->class] += item->isl_tokens;
    }
    while (next(q, 0))
        ;
    free(items);
    return (double)served[0] / (double)(served[0] + served[1]);
}

static void quanta_divide_tokens_not_requests(void **state)
{
    (void)state;
    assert_true(fabs(share_of_first(1000, 1000, 100, 100) - 0.5) < 0.02);
    assert_true(fabs(share_of_first(4000, 1000, 100, 100) - 0.8) < 0.02);
    /* Small requests against large ones: still tokens. */
    assert_true(fabs(share_of_first(1000, 1000, 10, 700) - 0.5) < 0.1);
    /* Requests far above the quantum. */
    assert_true(fabs(share_of_first(3, 1, 9000, 9000) - 0.75) < 0.02);
}

/* router.md's facts of the reference: quantum 10 and costs of 3 make bursts of three. */
static void a_class_spends_what_it_saved(void **state)
{
    const struct route_queue_rule rules[] = {{ROUTE_QUEUE_FCFS, 10, 0, 0, 0},
                                             {ROUTE_QUEUE_FCFS, 10, 0, 0, 0}};
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rules, 2, NEVER);
    struct route_queue_item items[16] = {0};
    char got[17] = "";

    (void)state;
    for (size_t i = 0; i < 16; i++) {
        items[i].isl_tokens = 3;
        put(q, i / 8, &items[i]);
    }
    for (size_t i = 0; i < 16; i++)
        got[i] = (char)('a' + next(q, 0)->class);
    assert_string_equal(got, "aaabbbaaabbbaabb");
}

/* Six rounds for one class, four for the other: the other pays after four and keeps the change. */
static void rounds_are_skipped_at_once(void **state)
{
    const struct route_queue_rule rules[] = {{ROUTE_QUEUE_FCFS, 1000, 0, 0, 0},
                                             {ROUTE_QUEUE_FCFS, 2000, 0, 0, 0}};
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rules, 2, NEVER);
    struct route_queue_item a = {.isl_tokens = 7000}, b = {.isl_tokens = 9000},
                            c = {.isl_tokens = 1000};
    struct route_queue_item huge = {.isl_tokens = UINT64_MAX / 2};

    (void)state;
    put(q, 0, &a);
    put(q, 1, &b);
    put(q, 1, &c);
    assert_ptr_equal(next(q, 0), &b);
    assert_ptr_equal(next(q, 0), &c); /* with the 1,000 that b left */
    assert_ptr_equal(next(q, 0), &a);
    put(q, 0, &huge);
    assert_ptr_equal(next(q, 0), &huge);
}

static bool can_go_if(void *arg, struct route_queue_item *head)
{
    return head->class != *(const uint32_t *)arg;
}

static void a_blocked_class_holds_nobody_up_and_earns_nothing(void **state)
{
    const struct route_queue_rule rules[] = {{ROUTE_QUEUE_FCFS, 100, 0, 0, 0},
                                             {ROUTE_QUEUE_FCFS, 100, 0, 0, 0}};
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rules, 2, NEVER);
    struct route_queue_item a[4] = {0}, b[4] = {0};
    uint32_t blocked = 0;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        a[i].isl_tokens = b[i].isl_tokens = 100;
        put(q, 0, &a[i]);
        put(q, 1, &b[i]);
    }
    assert_ptr_equal(route_queue_next(q, 0, can_go_if, &blocked), &b[0]);
    assert_ptr_equal(route_queue_next(q, 0, can_go_if, &blocked), &b[1]);
    /* Had it saved for its two turns, two of its requests would come now. */
    assert_ptr_equal(next(q, 0), &a[0]);
    assert_ptr_equal(next(q, 0), &b[2]);
    while (next(q, 0))
        ;
    put(q, 0, &a[0]);
    assert_null(route_queue_next(q, 0, can_go_if, &blocked));
    route_queue_remove(q, &a[0]);
}

static void bounds_are_per_worker_and_say_which(void **state)
{
    const struct route_queue_rule rules[] = {
        {ROUTE_QUEUE_FCFS, 1, .max_requests = 2, 0, 0},
        {ROUTE_QUEUE_FCFS, 1, 0, .max_isl_tokens = 100, 0},
        {ROUTE_QUEUE_FCFS, 1, 0, 0, .max_cached_tokens = 10},
    };
    AUTO(route_queue_free) struct route_queue *q = route_queue_new(rules, 3, NEVER);
    struct route_queue_item items[9] = {0};

    (void)state;
    for (size_t i = 0; i < 9; i++)
        items[i] = (struct route_queue_item){.isl_tokens = 150, .cached_tokens = 20};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(route_queue_put(q, 0, &items[i], 2), 0);
    assert_int_equal(route_queue_put(q, 0, &items[4], 2), ROUTE_QUEUE_REQUESTS_FULL);
    assert_false(items[4].queued);
    assert_int_equal(route_queue_put(q, 1, &items[4], 1), 0); /* the one that crosses it comes in */
    assert_int_equal(route_queue_put(q, 1, &items[5], 1), ROUTE_QUEUE_ISL_FULL);
    assert_int_equal(route_queue_put(q, 1, &items[5], 2), 0);
    assert_int_equal(route_queue_put(q, 2, &items[6], 1), 0);
    assert_int_equal(route_queue_put(q, 2, &items[7], 1), ROUTE_QUEUE_CACHED_FULL);
    route_queue_remove(q, &items[6]);
    assert_int_equal(route_queue_put(q, 2, &items[7], 1), 0);
    assert_int_equal(route_queue_len(q), 7);
    for (struct route_queue_item *item; (item = route_queue_any(q));)
        route_queue_remove(q, item);
    assert_int_equal(route_queue_len(q), 0);
}

int main(void)
{
    return TEST_RUN(T(fcfs_keeps_arrival_and_a_jump_moves_it), T(lcfs_is_the_reverse),
                    T(wspt_takes_the_short_ones_by_what_is_not_cached),
                    T(strict_priority_goes_before_every_score),
                    T(any_item_can_leave_and_the_rest_keeps_its_order),
                    T(a_long_prompt_does_not_starve), T(patience_respects_strict_priority),
                    T(quanta_divide_tokens_not_requests), T(a_class_spends_what_it_saved),
                    T(rounds_are_skipped_at_once),
                    T(a_blocked_class_holds_nobody_up_and_earns_nothing),
                    T(bounds_are_per_worker_and_say_which));
}
