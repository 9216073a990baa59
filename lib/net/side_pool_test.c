/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/side_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "lib/base/test.h"

enum { JOBS = 200 };

static struct loop *loop;
static struct side_pool *pool;
static pthread_t home;

struct job {
    atomic_int worked;
    int done;
    bool waits; /* until the pool is stopped */
};

static void work(void *arg)
{
    struct job *j = arg;

    assert_false(pthread_equal(home, pthread_self()));
    atomic_fetch_add(&j->worked, 1);
    while (j->waits && !side_pool_stopping(pool))
        (void)sched_yield();
}

static void done(void *arg)
{
    struct job *j = arg;

    assert_true(pthread_equal(home, pthread_self()));
    j->done++;
}

static int setup(void **state)
{
    struct err e;

    (void)state;
    home = pthread_self();
    EXPECT_OK(loop_new(&loop, &e), &e);
    pool = side_pool_new(loop, 3);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    pool = side_pool_free(pool);
    loop = loop_free(loop);
    return 0;
}

static void test_all_are_done(void **state)
{
    static struct job jobs[JOBS];
    int left = JOBS;

    (void)state;
    for (size_t i = 0; i < JOBS; i++)
        side_pool_run(pool, work, done, &jobs[i]);
    while (left > 0) {
        loop_run_once(loop, 1000);
        left = JOBS;
        for (size_t i = 0; i < JOBS; i++)
            left -= jobs[i].done;
    }
    for (size_t i = 0; i < JOBS; i++)
        assert_int_equal(atomic_load(&jobs[i].worked), 1);
}

/* Work under way is told to end, what waits is not begun, and each is told of once. */
static void test_free_under_way(void **state)
{
    static struct job jobs[5];
    int worked = 0;

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        jobs[i].waits = true;
        side_pool_run(pool, work, done, &jobs[i]);
    }
    while (!atomic_load(&jobs[0].worked))
        (void)sched_yield();
    pool = side_pool_free(pool);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(jobs[i].done, 1);
        worked += atomic_load(&jobs[i].worked);
    }
    assert_true(worked >= 1 && worked <= 3);
    loop_run_once(loop, 0); /* what was posted meanwhile finds nothing to tell */
    assert_int_equal(jobs[0].done, 1);
}

int main(void)
{
    return TEST_RUN(cmocka_unit_test_setup_teardown(test_all_are_done, setup, teardown),
                    cmocka_unit_test_setup_teardown(test_free_under_way, setup, teardown));
}
