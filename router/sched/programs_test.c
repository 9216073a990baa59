/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/programs.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/base/yaml.h"

static const uint64_t SECOND = 1000000000;

/* Two workers of 1000 tokens; no buffer, no slack. */
static struct programs *two_workers(const struct programs_conf *conf)
{
    struct programs *p = programs_new(conf);

    programs_put_worker(p, (struct worker_rank){20, 0}, 1000);
    programs_put_worker(p, (struct worker_rank){10, 0}, 1000);
    return p;
}

static struct programs_conf strict(void)
{
    struct programs_conf c = PROGRAMS_DEFAULTS;

    c.on = true;
    c.pause_threshold = c.pause_target = 1;
    c.resume_hysteresis = 0;
    c.buffer = 0;
    return c;
}

static struct program_ticket of(uint64_t tokens)
{
    return (struct program_ticket){.isl_tokens = tokens};
}

/* Of a new request: the worker that it may go to, 0 = anywhere, -1 = it waits, -2 = refused. */
static int enter(struct programs *p, struct program_ticket *t, const char *session, uint64_t now_ns)
{
    int r = programs_enter(p, t, str_from(session), now_ns);

    return r == PROGRAMS_WAITS ? -1 : r ? -2 : t->has_target ? (int)t->target.worker_id : 0;
}

/* The worker of the next one that is let go, which is @t; -1: none is. */
static int next(struct programs *p, const struct program_ticket *t)
{
    struct program_ticket *found = programs_next(p);

    if (!found)
        return -1;
    assert_ptr_equal(found, t);
    return t->has_target ? (int)t->target.worker_id : 0;
}

static void assert_stats(const struct programs *p, size_t active, size_t paused, size_t waiting)
{
    struct programs_stats s = programs_stats(p);

    if (s.active != active || s.paused != paused || s.waiting != waiting)
        fail_msg("active %zu, paused %zu, waiting %zu", s.active, s.paused, s.waiting);
}

static void who_is_not_known_may_leave(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *nobody = programs_new(&conf), *two = two_workers(&conf);
    struct program_ticket t = of(600);

    (void)state;
    programs_remove_worker(nobody, 10);
    programs_remove_worker(two, 15);
    assert_true(enter(two, &t, "a", 1) > 0);
    programs_leave(&t, true, 2);
}

static void new_programs_go_to_the_least_used_worker_that_has_room(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(600), b = of(500), c = of(450), d = of(100), e = of(10);

    (void)state;
    assert_int_equal(enter(p, &a, "a", 0), 10); /* of equals the lowest id */
    assert_int_equal(enter(p, &b, "b", 0), 20);
    assert_int_equal(enter(p, &c, "c", 0), 20);
    assert_int_equal(enter(p, &d, "d", 0), 10);
    a.context_tokens = 1000; /* it grows, and is past what there is */
    b.context_tokens = 560;
    assert_int_equal(enter(p, &e, "e", 0), -1);
    assert_stats(p, 4, 1, 1);
    programs_leave(&b, false, 0);
    assert_int_equal(next(p, &e), -1); /* at the next tick */
    assert_int_equal(programs_tick(p, 0), 0);
    assert_int_equal(next(p, &e), 20);
    programs_leave(&a, false, 0);
    programs_leave(&c, false, 0);
    programs_leave(&d, false, 0);
    programs_leave(&e, false, 0);
    assert_stats(p, 0, 0, 0); /* none was ever answered */
}

static void requests_of_a_session_take_turns_at_its_worker(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(10), b = of(700), c = of(20), free = of(5);

    (void)state;
    assert_int_equal(enter(p, &a, "s", 0), 10);
    programs_sent(&a, (struct worker_rank){20, 0}); /* a pin, say */
    assert_int_equal(enter(p, &b, "s", 0), -1);
    assert_int_equal(enter(p, &c, "s", 0), -1);
    assert_int_equal(enter(p, &free, "", 0), 0);
    programs_leave(&a, true, 0);
    assert_int_equal(next(p, &b), 20);
    assert_int_equal(next(p, NULL), -1);
    programs_leave(&b, false, 0);
    assert_int_equal(next(p, &c), 20);
    programs_leave(&c, true, 0);
    assert_stats(p, 1, 0, 0);
    programs_remove_worker(p, 20);
    assert_int_equal(enter(p, &a, "s", 0), 10);
    programs_leave(&a, true, 0);
    programs_leave(&a, true, 0); /* once is enough */
}

static void who_leaves_before_its_turn_is_skipped(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(10), b = of(20), c = of(30);

    (void)state;
    assert_int_equal(enter(p, &a, "s", 0), 10);
    assert_int_equal(enter(p, &b, "s", 0), -1);
    assert_int_equal(enter(p, &c, "s", 0), -1);
    programs_leave(&b, false, 0);
    programs_leave(&a, true, 0);
    assert_int_equal(next(p, &c), 10);
    programs_leave(&c, true, 0);
}

static void new_programs_wait_behind_those_that_wait(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(900), b = of(900), big = of(600), small = of(10);

    (void)state;
    assert_int_equal(enter(p, &a, "a", 0), 10);
    assert_int_equal(enter(p, &b, "b", 0), 20);
    assert_int_equal(enter(p, &big, "big", 0), -1);
    assert_int_equal(enter(p, &small, "small", 0), -1); /* although it would fit */
    (void)programs_tick(p, 0);
    assert_int_equal(next(p, &small), 10);
    assert_int_equal(next(p, NULL), -1);
    assert_int_equal(programs_tick(p, 1799 * SECOND), 0);
    programs_leave(&b, false, 0);
    b = of(1);
    assert_int_equal(enter(p, &b, "c", 0), -1);
    assert_int_equal(programs_tick(p, 1801 * SECOND), 0);
    assert_int_equal(next(p, &big), 20); /* the largest goes first */
    assert_int_equal(next(p, &b), 20);
    programs_leave(&a, true, 0);
    programs_leave(&b, true, 0);
    programs_leave(&big, true, 0);
    programs_leave(&small, true, 0);
}

static void who_waits_for_too_long_goes_where_most_room_is(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(1000), b = of(990), late = of(500);

    (void)state;
    assert_int_equal(enter(p, &a, "a", 0), 10);
    assert_int_equal(enter(p, &b, "b", 0), 20);
    assert_int_equal(enter(p, &late, "late", SECOND), -1);
    assert_int_equal(programs_tick(p, 1800 * SECOND), 0);
    assert_int_equal(next(p, NULL), -1);
    assert_int_equal(programs_tick(p, 1801 * SECOND), 1);
    assert_int_equal(next(p, &late), 20);
    programs_leave(&a, true, 0);
    programs_leave(&b, true, 0);
    programs_leave(&late, true, 0);
}

/* Worker 10 with programs that act, of these tokens, and one that reasons. */
static void fill(struct programs *p, const uint64_t *tokens, size_t n, struct program_ticket *last)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct program_ticket t;

    programs_remove_worker(p, 20);
    for (size_t i = 0; i < n; i++) {
        t = of(1);
        assert_int_equal(enter(p, &t, names[i], 0), 10);
        t.context_tokens = tokens[i];
        programs_leave(&t, true, 0);
    }
    *last = of(10);
    assert_int_equal(enter(p, last, "last", 0), 10);
}

static void a_full_worker_pauses_those_that_act_smallest_first(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = NULL;
    struct program_ticket last, again = of(210);

    (void)state;
    conf.pause_target = 0.8;
    p = two_workers(&conf);
    fill(p, (const uint64_t[]){300, 200, 240, 220}, 4, &last);
    (void)programs_tick(p, 0);
    assert_stats(p, 5, 0, 0); /* 970 */
    last.context_tokens = 50;
    (void)programs_tick(p, 0); /* 1010: without b 810, without d 590 */
    assert_stats(p, 3, 2, 0);
    assert_int_equal(enter(p, &again, "b", 0), -1);
    (void)programs_tick(p, 0); /* it first, then what acts, and there is room for no more */
    assert_int_equal(next(p, &again), 10);
    assert_stats(p, 4, 1, 0);
    programs_leave(&again, true, 0);
    programs_leave(&last, true, 0);
}

static void one_that_reasons_is_paused_when_its_request_ends(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = NULL;
    struct program_ticket last, more;

    (void)state;
    p = two_workers(&conf);
    fill(p, (const uint64_t[]){100}, 1, &last);
    last.context_tokens = 1100;
    (void)programs_tick(p, 0);
    assert_stats(p, 1, 1, 0); /* a */
    programs_leave(&last, true, 0);
    assert_stats(p, 0, 2, 0);
    more = of(10);
    assert_int_equal(enter(p, &more, "last", 0), -1);
    programs_leave(&more, false, 0);
    assert_stats(p, 0, 2, 0);
}

static void acting_programs_weigh_less_and_are_forgotten(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = NULL;
    struct program_ticket last, more = of(450);

    (void)state;
    conf.acting_weight = 0.5;
    conf.retention_s = 10;
    p = two_workers(&conf);
    fill(p, (const uint64_t[]){800}, 1, &last);
    assert_int_equal(enter(p, &more, "more", 0), 10); /* 400 + 10 + 450 */
    programs_leave(&more, false, 0);
    assert_stats(p, 2, 0, 0);
    (void)programs_tick(p, 10 * SECOND);
    assert_stats(p, 2, 0, 0);
    (void)programs_tick(p, 10 * SECOND + 1);
    assert_stats(p, 1, 0, 0);
    programs_leave(&last, true, 0);
}

static void the_last_request_of_a_session_ends_it(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(900), b = of(900), final = of(5000);

    (void)state;
    final.is_last = true;
    assert_int_equal(enter(p, &a, "a", 0), 10);
    programs_leave(&a, true, 0);
    assert_int_equal(enter(p, &final, "a", 0), 10);
    assert_stats(p, 0, 0, 0);
    assert_int_equal(enter(p, &b, "b", 0), 10); /* its room is free */
    programs_leave(&final, true, 0);
    programs_leave(&b, false, 0);
    assert_stats(p, 0, 0, 0);
}

static void pins_wait_for_their_own_worker(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(900), pinned = of(500);

    (void)state;
    assert_int_equal(enter(p, &a, "a", 0), 10);
    pinned.pinned = true;
    pinned.pin = (struct worker_rank){10, 0};
    assert_int_equal(enter(p, &pinned, "p", 0), -1);
    programs_leave(&pinned, false, 0);
    pinned.pin.worker_id = 20;
    assert_int_equal(enter(p, &pinned, "p", 0), 20);
    programs_leave(&pinned, false, 0);
    programs_leave(&a, false, 0);
}

static void what_is_tracked_is_bounded(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = NULL;
    struct program_ticket a = of(1), b = of(1), c = of(1);

    (void)state;
    conf.max_tracked = 2;
    p = two_workers(&conf);
    assert_int_equal(enter(p, &a, "a", 1), 10);
    assert_int_equal(enter(p, &b, "b", 1), 20);
    assert_int_equal(enter(p, &c, "c", 1), -2);
    programs_leave(&a, true, 1);
    assert_int_equal(enter(p, &c, "c", 1), 10); /* instead of a, which acts */
    assert_stats(p, 2, 0, 0);
    programs_leave(&b, true, 1);
    programs_leave(&c, true, 1);
}

static void switched_off_it_lets_all_go(void **state)
{
    struct programs_conf conf = strict(), off = PROGRAMS_DEFAULTS;
    AUTO(programs_free) struct programs *p = two_workers(&conf);
    struct program_ticket a = of(1), b = of(1), c = of(1);

    (void)state;
    assert_int_equal(enter(p, &a, "a", 1), 10);
    assert_int_equal(enter(p, &b, "a", 1), -1);
    programs_configure(p, &off);
    assert_int_equal(next(p, &b), 0);
    assert_int_equal(enter(p, &c, "a", 1), 0);
    programs_leave(&c, true, 1);
    programs_leave(&a, true, 1);
    programs_leave(&b, true, 1);
    assert_stats(p, 0, 0, 0);
}

static void without_sizes_of_caches_nobody_waits(void **state)
{
    struct programs_conf conf = strict();
    AUTO(programs_free) struct programs *p = programs_new(&conf);
    struct program_ticket a = of(1000000), b = of(1000000);

    (void)state;
    programs_put_worker(p, (struct worker_rank){10, 0}, 0);
    assert_int_equal(enter(p, &a, "a", 1), 0);
    assert_int_equal(enter(p, &b, "b", 1), 0);
    programs_sent(&a, (struct worker_rank){10, 0});
    programs_leave(&a, true, 1);
    assert_int_equal(enter(p, &a, "a", 1), 10);
    programs_leave(&a, true, 1);
    programs_leave(&b, true, 1);
}

/* --- parameters -------------------------------------------------------------------------------- */

static int read_text(struct programs_conf *ret, const char *text, struct err *e)
{
    AUTO(json_free) struct json *documents = NULL;

    EXPECT_OK(yaml_parse(&documents, str_from(text), e), e);
    return programs_conf_read(ret, json_at(documents, 0), e);
}

static void parameters_are_read(void **state)
{
    struct programs_conf c = {0};
    struct err e;

    (void)state;
    EXPECT_OK(read_text(&c, "type: thunderagent\n", &e), &e);
    assert_true(c.on && c.pause_threshold == 0.95 && c.buffer == 100 && c.max_tracked == 10000);
    EXPECT_OK(read_text(&c,
                        "{type: thunderagent, parameters: {pause_threshold: 0.5, pause_target: "
                        "0.4, resume_timeout_seconds: 2.5, buffer_per_program: 0}}",
                        &e),
              &e);
    assert_true(c.pause_target == 0.4 && c.resume_timeout_s == 2.5 && c.buffer == 0);
    EXPECT_OK(programs_conf_read(&c, NULL, &e), &e);
    assert_false(c.on);
}

static void what_makes_no_sense_is_refused(void **state)
{
#define WITH(parameters) "{type: thunderagent, parameters: {" parameters "}}"
    static const char *const bad[][2] = {
        {"{}", "type"},
        {"{type: default}", "type"},
        {"{type: other}", "type"},
        {"{type: thunderagent, x: 1}", "'x'"},
        {"{type: thunderagent, parameters: 1}", "parameters"},
        {WITH("x: 1"), "'x'"},
        {WITH("pause_threshold: 1.5"), "pause_threshold"},
        {WITH("pause_target: 0.96"), "pause_target"},
        {WITH("resume_hysteresis: 0.2, pause_threshold: 0.1, pause_target: 0"),
         "resume_hysteresis"},
        {WITH("resume_timeout_seconds: 0"), "resume_timeout_seconds"},
        {WITH("scheduler_interval_seconds: -1"), "scheduler_interval_seconds"},
        {WITH("acting_token_weight: 0"), "acting_token_weight"},
        {WITH("buffer_per_program: 1.5"), "buffer_per_program"},
        {WITH("max_tracked_requests: 0"), "max_tracked_requests"},
    };
    struct programs_conf c = {.buffer = 7};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (read_text(&c, bad[i][0], &e) != -EINVAL)
            fail_msg("taken: %s", bad[i][0]);
        if (!str_has(str_from(e.text), str_from(bad[i][1])))
            fail_msg("%s: %s", bad[i][0], e.text);
        assert_int_equal(c.buffer, 7);
    }
}

int main(void)
{
    return TEST_RUN(
        T(who_is_not_known_may_leave), T(new_programs_go_to_the_least_used_worker_that_has_room),
        T(requests_of_a_session_take_turns_at_its_worker), T(who_leaves_before_its_turn_is_skipped),
        T(new_programs_wait_behind_those_that_wait),
        T(who_waits_for_too_long_goes_where_most_room_is),
        T(a_full_worker_pauses_those_that_act_smallest_first),
        T(one_that_reasons_is_paused_when_its_request_ends),
        T(acting_programs_weigh_less_and_are_forgotten), T(the_last_request_of_a_session_ends_it),
        T(pins_wait_for_their_own_worker), T(what_is_tracked_is_bounded),
        T(switched_off_it_lets_all_go), T(without_sizes_of_caches_nobody_waits),
        T(parameters_are_read), T(what_makes_no_sense_is_refused));
}
