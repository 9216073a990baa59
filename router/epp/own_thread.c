/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/own_thread.h"

#include <errno.h>
#include <signal.h>

static void release(struct own_thread *t)
{
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_mutex_destroy(&t->lock);
}

/* No signal is taken by our threads, nor is SIGPIPE's disposition changed for the program. On a thread
 * that blocks it, a peer that left is an error code. */
static int make_loop(struct own_thread *t, struct err *e)
{
    struct sigaction pipe;
    int r;

    (void)sigaction(SIGPIPE, NULL, &pipe);
    r = loop_new(&t->loop, e);
    (void)sigaction(SIGPIPE, &pipe, NULL);
    return r;
}

int own_thread_start(struct own_thread *t, void *(*run)(void *arg), void *arg, struct err *e)
{
    sigset_t all, before;
    int r;

    t->up = false;
    t->failed = 0;
    r = make_loop(t, e);
    if (r < 0)
        return r;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&t->thread, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return 0;
    t->loop = loop_free(t->loop);
    release(t);
    return err_errno(e, -r, "thread");
}

void own_thread_up(struct own_thread *t)
{
    (void)pthread_mutex_lock(&t->lock);
    t->up = true;
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

void own_thread_fail(struct own_thread *t, int code, const struct err *why)
{
    (void)pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        t->failed = code;
        t->why = *why;
    }
    (void)pthread_cond_broadcast(&t->changed);
    (void)pthread_mutex_unlock(&t->lock);
}

void own_thread_cancel(struct own_thread *t)
{
    struct err why;

    own_thread_fail(t, err_set(&why, -ECANCELED, "it was given up"), &why);
}

int own_thread_wait(struct own_thread *t, struct err *e)
{
    int r = 0;

    (void)pthread_mutex_lock(&t->lock);
    while (!t->up && !t->failed)
        (void)pthread_cond_wait(&t->changed, &t->lock);
    if (t->failed)
        r = err_set(e, t->failed, "%s", t->why.text);
    (void)pthread_mutex_unlock(&t->lock);
    return r;
}

void own_thread_join(struct own_thread *t)
{
    loop_stop(t->loop);
    (void)pthread_join(t->thread, NULL);
    t->loop = loop_free(t->loop);
    release(t);
}
