/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/task.h"
#include "lib/net/loop_test.h"

struct sum {
    struct task task;
    int a, b, result;
    unsigned *freed;
};

static void add(struct task *t)
{
    struct sum *s = (struct sum *)t;

    s->result = s->a + s->b;
}

static void sum_free(struct task *t)
{
    ++*((struct sum *)t)->freed;
    free(t);
}

static struct sum *sum_new(unsigned *freed)
{
    struct sum *s = xcalloc(1, sizeof(*s));

    task_init(&s->task, add, sum_free);
    s->a = 2;
    s->b = 3;
    s->freed = freed;
    return s;
}

static void *turn(void *arg)
{
    loop_run(arg);
    return NULL;
}

static void test_done_on_the_loop(void **state)
{
    struct loop *l;
    unsigned freed = 0;
    pthread_t thread;
    struct sum *s = sum_new(&freed);
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&l, &e), &e);
    assert_int_equal(pthread_create(&thread, NULL, turn, l), 0);
    assert_true(task_do(&s->task, l, 0));
    assert_int_equal(s->result, 5);
    task_unref(&s->task);
    loop_stop(l);
    (void)pthread_join(thread, NULL);
    loop_free(l);
    assert_int_equal(freed, 1);
}

/* A loop that nobody turns: the caller leaves, and the loop finds the task alive. */
static void test_caller_leaves(void **state)
{
    struct loop *l;
    unsigned freed = 0;
    struct sum *s = sum_new(&freed);
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&l, &e), &e);
    assert_false(task_do(&s->task, l, 1));
    task_unref(&s->task);
    assert_int_equal(freed, 0);
    LOOP_UNTIL(l, freed == 1);
    loop_free(l);
}

int main(void)
{
    return TEST_RUN(T(test_done_on_the_loop), T(test_caller_leaves));
}
