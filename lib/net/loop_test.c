/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/base/test.h"
#include "lib/net/uv_lib.h"

enum { POSTERS = 4, POSTS = 20000 };

static struct loop *make_loop(void)
{
    struct loop *l = NULL;
    struct err e;

    EXPECT_OK(loop_new(&l, &e), &e);
    return l;
}

struct trace {
    struct loop *loop;
    struct buf text;
};

static void trace_a(void *arg)
{
    buf_put_char(&((struct trace *)arg)->text, 'a');
}

static void trace_b(void *arg)
{
    buf_put_char(&((struct trace *)arg)->text, 'b');
}

static void trace_end(void *arg)
{
    buf_put_char(&((struct trace *)arg)->text, 'e');
    loop_stop(((struct trace *)arg)->loop);
}

static void defers_and_posts(void *arg)
{
    struct trace *t = arg;

    buf_put_char(&t->text, '1');
    loop_post(t->loop, trace_end, t);
    loop_defer(t->loop, trace_a, t);
    loop_defer(t->loop, trace_b, t);
    buf_put_char(&t->text, '2');
}

static void test_deferred_calls_run_in_the_same_turn(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    struct trace t = {.loop = l};

    (void)state;
    loop_post(l, defers_and_posts, &t);
    loop_run(l);
    assert_string_equal(buf_cstr(&t.text), "12abe");
    buf_done(&t.text);
}

static void defers_again(void *arg)
{
    struct trace *t = arg;

    buf_put_char(&t->text, 'd');
    if (t->text.len < 1000)
        loop_defer(t->loop, defers_again, t);
}

static void on_posted_among_deferred(void *arg)
{
    struct trace *t = arg;

    /* Long before the thousandth deferred call: the loop has polled in between. */
    assert_in_range(t->text.len, 1, 100);
    loop_stop(t->loop);
}

static void test_endless_deferring_does_not_starve_the_loop(void **state)
{
    struct loop *l = make_loop();
    struct trace t = {.loop = l};

    (void)state;
    loop_defer(l, defers_again, &t);
    loop_post(l, on_posted_among_deferred, &t);
    loop_run(l);
    loop_free(l); /* runs the rest */
    assert_int_equal(t.text.len, 1000);
    buf_done(&t.text);
}

struct poster {
    struct loop *loop;
    struct poster_sum *sum;
    uint64_t next; /* number expected from this poster */
    uint64_t id;
    pthread_t thread;
};

struct poster_sum {
    struct loop *loop;
    uint64_t seen, out_of_order;
};

struct posted {
    struct poster *from;
    uint64_t number;
};

static void on_posted(void *arg)
{
    AUTO(mem_free) struct posted *p = arg;
    struct poster_sum *sum = p->from->sum;

    if (p->number != p->from->next)
        sum->out_of_order++;
    p->from->next = p->number + 1;
    if (++sum->seen == (uint64_t)POSTERS * POSTS)
        loop_stop(sum->loop);
}

static void *post_many(void *arg)
{
    struct poster *me = arg;

    for (uint64_t i = 0; i < POSTS; i++) {
        struct posted *p = xmalloc(sizeof(*p));

        *p = (struct posted){me, i};
        loop_post(me->loop, on_posted, p);
    }
    return NULL;
}

static void test_posts_from_threads_keep_their_order(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    struct poster_sum sum = {.loop = l};
    struct poster posters[POSTERS];

    (void)state;
    for (uint64_t i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.loop = l, .sum = &sum, .id = i};
        assert_int_equal(pthread_create(&posters[i].thread, NULL, post_many, &posters[i]), 0);
    }
    loop_run(l);
    for (size_t i = 0; i < POSTERS; i++)
        (void)pthread_join(posters[i].thread, NULL);
    assert_int_equal(sum.seen, POSTERS * POSTS);
    assert_int_equal(sum.out_of_order, 0);
}

static void free_arg(void *arg)
{
    free(arg);
}

static void test_loop_free_runs_what_was_posted(void **state)
{
    struct loop *l = make_loop();

    (void)state;
    loop_post(l, free_arg, xmalloc(16)); /* the leak checker sees it when it is not run */
    loop_defer(l, free_arg, xmalloc(16));
    loop_free(l);
}

static void test_stop_before_run_is_not_lost(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();

    (void)state;
    loop_stop(l);
    loop_run(l); /* hangs when it is */
}

struct ticker {
    struct loop *loop;
    struct timer *timer, *other;
    int ticks;
};

static void on_tick(void *arg)
{
    struct ticker *t = arg;

    if (++t->ticks < 3)
        return;
    t->timer = timer_free(t->timer); /* in its own callback */
    loop_stop(t->loop);
}

static void test_timers(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    struct ticker t = {.loop = l};
    uint64_t before_ms;

    (void)state;
    t.timer = timer_new(l, on_tick, &t);
    assert_false(timer_active(t.timer));
    before_ms = loop_now_ms(l);
    timer_start_repeat(t.timer, 5);
    assert_true(timer_active(t.timer));
    loop_run(l);
    assert_int_equal(t.ticks, 3);
    assert_null(t.timer);
    assert_true(loop_now_ms(l) - before_ms >= 14); /* a coarse clock may round one ms away */
}

static void stops_the_other(void *arg)
{
    struct ticker *t = arg;

    t->other = timer_free(t->other);
    loop_stop(t->loop);
}

static void never(void *arg)
{
    (void)arg;
    fail_msg("a freed or stopped timer fired");
}

static void test_freed_timer_never_fires(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    struct ticker t = {.loop = l};
    AUTO(timer_free) struct timer *stopped = timer_new(l, never, NULL);

    (void)state;
    t.timer = timer_new(l, stops_the_other, &t);
    t.other = timer_new(l, never, NULL);
    timer_start(stopped, 0);
    timer_stop(stopped);
    timer_start(t.timer, 1); /* due in the same pass as the other, and before it */
    timer_start(t.other, 1);
    loop_run(l);
    timer_free(t.timer);
}

static void test_a_timer_counts_from_its_start(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    AUTO(timer_free) struct timer *t = timer_new(l, never, NULL);
    uint64_t until_ns = clock_now_ns() + 30000000;

    (void)state;
    while (clock_now_ns() < until_ns)
        ; /* start-up work, during which the loop does not turn */
    timer_start(t, 20);
    loop_run_once(l, 0);
    assert_true(timer_active(t));
}

static void outlasts_the_turn(void *arg)
{
    uint64_t until_ns = clock_now_ns() + 5000000;

    while (clock_now_ns() < until_ns)
        ;
    uv_update_time(loop_uv(arg));
}

/* A process that is stopped for a while finds the end of its turn due before it has polled. */
static void test_a_turn_whose_end_is_due_does_not_wait(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    AUTO(timer_free) struct timer *t = timer_new(l, outlasts_the_turn, l);

    (void)state;
    timer_start(t, 0);
    loop_run_once(l, 1);
    assert_false(timer_active(t));
}

static void work(void *arg)
{
    atomic_store((atomic_int *)arg, 1);
}

static struct loop *work_loop;

static void work_done(void *arg)
{
    assert_int_equal(atomic_fetch_add((atomic_int *)arg, 1), 1);
    loop_stop(work_loop);
}

static void test_work_runs_before_done(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    atomic_int step = 0;

    (void)state;
    work_loop = l;
    loop_work(l, work, work_done, &step);
    loop_run(l);
    assert_int_equal(atomic_load(&step), 2);
}

static void count_done(void *arg)
{
    (void)atomic_fetch_add((atomic_int *)arg, 1);
}

static void more_work_done(void *arg)
{
    count_done(arg);
    loop_work(work_loop, count_done, count_done, arg);
}

/* Also for what the end of one work begins; and when the loop was told to stop. */
static void test_settling_waits_for_work(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    atomic_int steps = 0;

    (void)state;
    loop_settle(NULL);
    loop_settle(l);
    work_loop = l;
    loop_work(l, count_done, more_work_done, &steps);
    loop_work(l, count_done, count_done, &steps);
    loop_stop(l);
    loop_settle(l);
    assert_int_equal(atomic_load(&steps), 6);
}

/* Else it would be the end of the test. */
static void test_a_signal_after_the_loop_is_ignored(void **state)
{
    struct loop *l = make_loop();
    struct trace t = {.loop = l};
    struct err e;

    (void)state;
    EXPECT_OK(loop_on_signal(l, SIGTERM, trace_end, &t, &e), &e);
    EXPECT_OK(loop_on_signal(l, SIGINT, trace_end, &t, &e), &e);
    loop_free(l);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    assert_int_equal(t.text.len, 0);
}

static void test_signal(void **state)
{
    AUTO(loop_free) struct loop *l = make_loop();
    struct trace t = {.loop = l};
    struct err e;

    (void)state;
    EXPECT_OK(loop_on_signal(l, SIGHUP, trace_end, &t, &e), &e);
    assert_int_equal(kill(getpid(), SIGHUP), 0);
    loop_run(l);
    assert_string_equal(buf_cstr(&t.text), "e");
    buf_done(&t.text);
    assert_int_equal(loop_on_signal(l, 9999, trace_end, &t, &e), -EINVAL);
}

/* Of a process that has made no loop yet: libuv aborts where its first one finds no pipe. */
static void test_too_few_open_files_are_an_error(void **state)
{
    struct rlimit before, low;
    int lowest = dup(STDIN_FILENO);

    (void)state;
    assert_true(lowest >= 0);
    (void)close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    for (rlim_t left = 0; left < 4; left++) {
        struct loop *l = NULL;
        struct err e;

        low.rlim_cur = (rlim_t)lowest + left;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        assert_int_equal(loop_new(&l, &e), -EMFILE);
        assert_non_null(strstr(e.text, "open files"));
        assert_null(l);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
    return TEST_RUN(
        T(test_too_few_open_files_are_an_error), T(test_deferred_calls_run_in_the_same_turn),
        T(test_endless_deferring_does_not_starve_the_loop),
        T(test_posts_from_threads_keep_their_order), T(test_loop_free_runs_what_was_posted),
        T(test_stop_before_run_is_not_lost), T(test_timers), T(test_freed_timer_never_fires),
        T(test_a_timer_counts_from_its_start), T(test_a_turn_whose_end_is_due_does_not_wait),
        T(test_work_runs_before_done), T(test_settling_waits_for_work), T(test_signal),
        T(test_a_signal_after_the_loop_is_ignored));
}
