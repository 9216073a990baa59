/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop on a thread of its own, in a program that is not ours: signals stay with the program.
 *
 * What runs there tells whether it came up; who has started it may wait for that. own_thread_start(),
 * _wait() and _join() are of one thread, _cancel() of any while it lives.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct own_thread {
    pthread_t thread;
    struct loop *loop; /* of the thread while it runs; freed by own_thread_join() */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool up; /* these three below the lock */
    int failed;
    struct err why;
};

/* On failure there is nothing to free. */
MUST_CHECK int own_thread_start(struct own_thread *t, void *(*run)(void *arg), void *arg,
                                struct err *e);
/* It is up; or it will not be: @code is -errno, and the first one told counts. */
void own_thread_up(struct own_thread *t);
void own_thread_fail(struct own_thread *t, int code, const struct err *why);
/* 0 when it is up; else why not. own_thread_join() is due in both cases. */
MUST_CHECK int own_thread_wait(struct own_thread *t, struct err *e);
/* Who waits need not any more: -ECANCELED. */
void own_thread_cancel(struct own_thread *t);
/* Stops the loop, waits for the thread's end and frees what own_thread_start() made. */
void own_thread_join(struct own_thread *t);
