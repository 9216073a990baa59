/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/task.h"

#include <errno.h>
#include <time.h>

void task_init(struct task *t, void (*run)(struct task *t), void (*free)(struct task *t))
{
    pthread_condattr_t monotonic;

    t->run = run;
    t->free = free;
    t->refs = 1;
    t->done = false;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&t->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

void task_unref(struct task *t)
{
    bool last;

    (void)pthread_mutex_lock(&t->lock);
    last = --t->refs == 0;
    (void)pthread_mutex_unlock(&t->lock);
    if (!last)
        return;
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
    t->free(t);
}

static void on_loop(void *arg)
{
    struct task *t = arg;

    t->run(t);
    (void)pthread_mutex_lock(&t->lock);
    t->done = true;
    (void)pthread_cond_signal(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
    task_unref(t);
}

static struct timespec in_ms(uint64_t ms)
{
    uint64_t at = clock_now_ns() + ms * UINT64_C(1000000);

    return (struct timespec){.tv_sec = (time_t)(at / UINT64_C(1000000000)),
                             .tv_nsec = (long)(at % UINT64_C(1000000000))};
}

bool task_do(struct task *t, struct loop *l, uint64_t patience_ms)
{
    const struct timespec until = in_ms(patience_ms);
    bool done;

    t->refs++; /* nobody else knows it yet */
    loop_post(l, on_loop, t);
    (void)pthread_mutex_lock(&t->lock);
    while (!t->done)
        if (!patience_ms)
            (void)pthread_cond_wait(&t->changed, &t->lock);
        else if (pthread_cond_timedwait(&t->changed, &t->lock, &until) == ETIMEDOUT)
            break;
    done = t->done;
    (void)pthread_mutex_unlock(&t->lock);
    return done;
}
