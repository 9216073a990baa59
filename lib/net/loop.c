/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/loop.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "lib/net/uv_lib.h"

enum {
    POSTED_PER_TURN = 4096, /* so that a busy poster cannot starve sockets and timers */
    DEFER_ROUNDS = 16,      /* deferred calls that defer again, before the loop polls in between */
    DRAIN_MS = 6000,        /* longer than tcp_close() takes to give up */
};

struct call {
    loop_fn fn;
    void *arg;
};

struct calls {
    struct call *items;
    size_t n, cap;
};

struct signal_watch {
    uv_signal_t uv; /* first: the handle is the allocation */
    loop_fn fn;
    void *arg;
    struct signal_watch *next;
};

/*
 * Posted calls go through two arrays: threads append to `posted` under the lock, the loop swaps it
 * for `taken` when that one is empty and works it off without the lock. Deferred calls likewise,
 * without a lock, so that a call may defer another while the array is walked.
 */
struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_timer_t turn_limit;

    pthread_mutex_t lock;
    struct calls posted; /* under lock */
    struct calls taken;
    size_t taken_at; /* first call of `taken` that has not run */
    atomic_bool stop_wanted;

    struct calls deferred, deferred_now;
    struct signal_watch *signals;
    size_t n_work; /* under way in the pool, or not told yet */
    bool in_turn;  /* libuv's clock is fresh */
    char scratch[LOOP_SCRATCH_BYTES];
};

struct timer {
    uv_timer_t uv; /* first: the handle is the allocation */
    struct loop *loop;
    loop_fn fn;
    void *arg;
};

struct work {
    uv_work_t uv; /* first: the request is the allocation */
    struct loop *loop;
    loop_fn work, done;
    void *arg;
};

static void calls_append(struct calls *c, loop_fn fn, void *arg)
{
    if (c->n == c->cap) {
        c->cap = MAX(c->cap * 2, (size_t)64);
        c->items = xreallocarray(c->items, c->cap, sizeof(*c->items));
    }
    c->items[c->n++] = (struct call){fn, arg};
}

static void calls_swap(struct calls *a, struct calls *b)
{
    struct calls old = *a;

    *a = *b;
    *b = old;
}

static void run_deferred(struct loop *l)
{
    for (int round = 0; l->deferred.n && round < DEFER_ROUNDS; round++) {
        calls_swap(&l->deferred, &l->deferred_now);
        for (size_t i = 0; i < l->deferred_now.n; i++)
            l->deferred_now.items[i].fn(l->deferred_now.items[i].arg);
        l->deferred_now.n = 0;
    }
    if (l->deferred.n)
        (void)uv_async_send(&l->wake); /* go on after a look at the sockets, without sleeping */
}

static bool calls_wait(struct loop *l)
{
    bool waiting;

    (void)pthread_mutex_lock(&l->lock);
    waiting = l->posted.n || l->taken_at < l->taken.n;
    (void)pthread_mutex_unlock(&l->lock);
    return waiting;
}

static void run_posted(struct loop *l)
{
    size_t end;

    if (l->taken_at == l->taken.n) {
        l->taken.n = l->taken_at = 0;
        (void)pthread_mutex_lock(&l->lock);
        calls_swap(&l->posted, &l->taken);
        (void)pthread_mutex_unlock(&l->lock);
    }
    end = MIN(l->taken.n, l->taken_at + POSTED_PER_TURN);
    while (l->taken_at < end) {
        struct call c = l->taken.items[l->taken_at++];

        c.fn(c.arg);
    }
    if (calls_wait(l))
        (void)uv_async_send(&l->wake);
}

static void on_wake(uv_async_t *h)
{
    struct loop *l = h->data;

    run_posted(l);
    if (atomic_exchange(&l->stop_wanted, false))
        uv_stop(&l->uv);
}

static void on_before_poll(uv_prepare_t *h)
{
    run_deferred(h->data);
}

static void on_after_poll(uv_check_t *h)
{
    run_deferred(h->data);
}

static void on_turn_limit(uv_timer_t *h)
{
    uv_stop(h->loop); /* libuv may run timers first and then wait with none left */
}

/* libuv aborts the process when there is no room for the pipe that its first loop makes. */
static int find_room(void)
{
    int files[1 + 2], r = 0; /* of epoll, and the pipe */
    size_t n = 0;

    for (; r == 0 && n < ARRAY_LEN(files); n += r == 0) {
        files[n] = eventfd(0, EFD_CLOEXEC);
        r = files[n] < 0 ? -errno : 0;
    }
    while (n > 0)
        (void)close(files[--n]);
    return r;
}

int loop_new(struct loop **ret, struct err *e)
{
    struct loop *l;
    int r = find_room();

    if (r < 0)
        return err_errno(e, r, "event loop");
    l = xcalloc(1, sizeof(*l));
    r = uv_loop_init(&l->uv);
    if (r == 0 && (r = uv_async_init(&l->uv, &l->wake, on_wake)) < 0)
        (void)uv_loop_close(&l->uv);
    if (r < 0) {
        free(l);
        return err_errno(e, r, "event loop");
    }
    (void)pthread_mutex_init(&l->lock, NULL);
    (void)uv_prepare_init(&l->uv, &l->before_poll);
    (void)uv_prepare_start(&l->before_poll, on_before_poll);
    (void)uv_check_init(&l->uv, &l->after_poll);
    (void)uv_check_start(&l->after_poll, on_after_poll);
    (void)uv_timer_init(&l->uv, &l->turn_limit);
    uv_unref((uv_handle_t *)&l->before_poll);
    uv_unref((uv_handle_t *)&l->after_poll);
    l->wake.data = l->before_poll.data = l->after_poll.data = l;
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that left is an error code of the write */
    *ret = l;
    return 0;
}

static void ignore(uv_signal_t *h, int signo)
{
    (void)h;
    (void)signo;
}

/*
 * The last handle of a signal takes libuv's handler along, and the next signal would kill a program
 * that is about to end by itself. This one stays, on a loop that nobody turns.
 */
static void ignore_from_now(int signo)
{
    static uv_loop_t unturned;
    static bool made;
    uv_signal_t *h = xcalloc(1, sizeof(*h));

    made = made || uv_loop_init(&unturned) == 0;
    if (made && uv_signal_init(&unturned, h) == 0)
        (void)uv_signal_start(h, ignore, signo);
    else
        free(h);
}

static void on_handle_gone(uv_handle_t *h)
{
    free(h);
}

/* Lets calls that own memory run and closing handles go. */
static void drain(struct loop *l)
{
    uint64_t give_up_ns = clock_now_ns() + (uint64_t)DRAIN_MS * 1000000;

    uv_unref((uv_handle_t *)&l->wake);
    while ((calls_wait(l) || l->deferred.n || uv_loop_alive(&l->uv)) && clock_now_ns() < give_up_ns)
        loop_run_once(l, 100);
}

struct loop *loop_free(struct loop *l)
{
    int r;

    if (!l)
        return NULL;
    while (l->signals) {
        struct signal_watch *w = l->signals;

        l->signals = w->next;
        ignore_from_now(w->uv.signum);
        uv_close((uv_handle_t *)w, on_handle_gone);
    }
    drain(l);
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_close((uv_handle_t *)&l->before_poll, NULL);
    uv_close((uv_handle_t *)&l->after_poll, NULL);
    uv_close((uv_handle_t *)&l->turn_limit, NULL);
    (void)uv_run(&l->uv, UV_RUN_NOWAIT);
    r = uv_loop_close(&l->uv);
    assert(r == 0); /* else an object has outlived its loop */
    (void)r;
    (void)pthread_mutex_destroy(&l->lock);
    free(l->posted.items);
    free(l->taken.items);
    free(l->deferred.items);
    free(l->deferred_now.items);
    free(l);
    return NULL;
}

void loop_run(struct loop *l)
{
    l->in_turn = true;
    (void)uv_run(&l->uv, UV_RUN_DEFAULT);
    l->in_turn = false;
}

void loop_run_once(struct loop *l, uint64_t timeout_ms)
{
    l->in_turn = true;
    if (timeout_ms) {
        uv_update_time(&l->uv);
        (void)uv_timer_start(&l->turn_limit, on_turn_limit, timeout_ms, 0);
    }
    (void)uv_run(&l->uv, timeout_ms ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    (void)uv_timer_stop(&l->turn_limit);
    run_deferred(l); /* what its last timers deferred */
    l->in_turn = false;
}

void loop_stop(struct loop *l)
{
    atomic_store(&l->stop_wanted, true);
    (void)uv_async_send(&l->wake);
}

void loop_post(struct loop *l, loop_fn fn, void *arg)
{
    bool first;

    (void)pthread_mutex_lock(&l->lock);
    first = l->posted.n == 0;
    calls_append(&l->posted, fn, arg);
    /* Under the lock: once a call is visible the loop may run it and be freed by its owner. */
    if (first)
        (void)uv_async_send(&l->wake);
    (void)pthread_mutex_unlock(&l->lock);
}

void loop_defer(struct loop *l, loop_fn fn, void *arg)
{
    calls_append(&l->deferred, fn, arg);
}

static void on_work(uv_work_t *req)
{
    struct work *w = (struct work *)req;

    w->work(w->arg);
}

static void on_work_done(uv_work_t *req, int status)
{
    struct work *w = (struct work *)req;

    (void)status; /* never cancelled */
    w->done(w->arg);
    w->loop->n_work--;
    free(w);
}

void loop_work(struct loop *l, loop_fn work, loop_fn done, void *arg)
{
    struct work *w = xcalloc(1, sizeof(*w));

    l->n_work++;
    w->loop = l;
    w->work = work;
    w->done = done;
    w->arg = arg;
    (void)uv_queue_work(&l->uv, &w->uv, on_work, on_work_done);
}

void loop_settle(struct loop *l)
{
    while (l && l->n_work)
        loop_run_once(l, 100);
}

uint64_t clock_now_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    return clock_wall_ns() / 1000000;
}

uint64_t loop_now_ms(const struct loop *l)
{
    return l->in_turn ? uv_now(&l->uv) : clock_now_ns() / 1000000;
}

static void on_timer(uv_timer_t *h)
{
    struct timer *t = (struct timer *)h;

    t->fn(t->arg);
}

struct timer *timer_new(struct loop *l, loop_fn fn, void *arg)
{
    struct timer *t = xcalloc(1, sizeof(*t));

    (void)uv_timer_init(&l->uv, &t->uv);
    t->loop = l;
    t->fn = fn;
    t->arg = arg;
    return t;
}

struct timer *timer_free(struct timer *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->uv, on_handle_gone);
    return NULL;
}

static void start(struct timer *t, uint64_t delay_ms, uint64_t period_ms)
{
    if (!t->loop->in_turn)
        uv_update_time(&t->loop->uv); /* else the delay counts from the last turn, long ago */
    (void)uv_timer_start(&t->uv, on_timer, delay_ms, period_ms);
}

void timer_start(struct timer *t, uint64_t delay_ms)
{
    start(t, delay_ms, 0);
}

void timer_start_repeat(struct timer *t, uint64_t period_ms)
{
    start(t, period_ms, MAX(period_ms, (uint64_t)1));
}

void timer_stop(struct timer *t)
{
    (void)uv_timer_stop(&t->uv);
}

bool timer_active(const struct timer *t)
{
    return uv_is_active((const uv_handle_t *)&t->uv);
}

static void on_signal(uv_signal_t *h, int signo)
{
    struct signal_watch *w = (struct signal_watch *)h;

    (void)signo;
    w->fn(w->arg);
}

int loop_on_signal(struct loop *l, int signo, loop_fn fn, void *arg, struct err *e)
{
    struct signal_watch *w = xcalloc(1, sizeof(*w));
    int r = uv_signal_init(&l->uv, &w->uv);

    if (r < 0) {
        free(w);
        return err_errno(e, r, "signal %d", signo);
    }
    w->fn = fn;
    w->arg = arg;
    w->next = l->signals;
    l->signals = w;
    r = uv_signal_start(&w->uv, on_signal, signo);
    if (r < 0)
        return err_errno(e, r, "signal %d", signo); /* the idle watch goes with the loop */
    return 0;
}

uv_loop_t *loop_uv(struct loop *l)
{
    return &l->uv;
}

char *loop_scratch(struct loop *l)
{
    return l->scratch;
}
