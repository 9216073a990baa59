/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event loop per thread (libuv inside).
 *
 * Objects belong to one loop and are touched on its thread only. loop_post() is the one call that
 * any thread may make. A turn is: posted calls and I/O callbacks, timers, then deferred calls;
 * callbacks never free what called them, they defer. Nothing blocks on a loop thread: blocking
 * work goes to loop_work().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"

struct loop;
struct timer;

typedef void (*loop_fn)(void *arg);

MUST_CHECK int loop_new(struct loop **ret, struct err *e);
/*
 * All objects on the loop must have been freed; drains what is closing first. The signals that it
 * watched are ignored from now on, as a program ends by itself that frees its loop.
 */
struct loop *loop_free(struct loop *l);
DEFINE_CLEANUP(struct loop *, loop_free)

/* Runs until loop_stop(). */
void loop_run(struct loop *l);
/* One turn: waits for at most @timeout_ms (0 = polls). For tests. */
void loop_run_once(struct loop *l, uint64_t timeout_ms);
/* Any thread; the loop returns after the current turn. */
void loop_stop(struct loop *l);

/* Any thread: @fn(@arg) runs on the loop's thread, in order of posting. */
void loop_post(struct loop *l, loop_fn fn, void *arg);
/* On the loop's thread: runs at the end of this turn, before the loop sleeps. */
void loop_defer(struct loop *l, loop_fn fn, void *arg);
/*
 * Runs @work(@arg) on a pool thread (shared by the process, 4 threads unless UV_THREADPOOL_SIZE),
 * then @done(@arg) on the loop. Cannot be cancelled: @arg lives until @done.
 */
void loop_work(struct loop *l, loop_fn work, loop_fn done, void *arg);
/*
 * Turns the loop until no work is under way: before that is freed which work or its @done use. The
 * caller has ended what else could call back into something freed. Not within a callback. NULL: nothing.
 */
void loop_settle(struct loop *l);

/* Monotonic, cached at the start of the turn. */
uint64_t loop_now_ms(const struct loop *l);
/* Monotonic, read now, for measuring. Any thread. */
uint64_t clock_now_ns(void);
/* Wall clock, since the epoch. Any thread. */
uint64_t clock_wall_ms(void);
uint64_t clock_wall_ns(void);

/* One-shot timer; restarted by timer_start(). Never fires after timer_free() or timer_stop(). */
struct timer *timer_new(struct loop *l, loop_fn fn, void *arg) __attribute__((returns_nonnull));
struct timer *timer_free(struct timer *t);
DEFINE_CLEANUP(struct timer *, timer_free)
void timer_start(struct timer *t, uint64_t delay_ms);
void timer_start_repeat(struct timer *t, uint64_t period_ms);
void timer_stop(struct timer *t);
bool timer_active(const struct timer *t);

/* @fn(@arg) on the loop when the signal arrives (SIGTERM, SIGINT, SIGHUP). Lives with the loop. */
MUST_CHECK int loop_on_signal(struct loop *l, int signo, loop_fn fn, void *arg, struct err *e);
