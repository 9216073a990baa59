/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An item is in at most one place: a lane (ready), the heap (delayed), or with a worker. It is
 * forgotten when it is in none of them and has no failures to remember.
 */
#include "operator/ctrl/queue.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/strmap.h"

enum { NOT_DELAYED = 0 }; /* heap places start at 1 */

struct item {
    struct queue_key key;
    struct list lane; /* linked while ready */
    size_t heap_place;
    uint64_t due_ms;
    bool urgent; /* of the coming run */
    bool working;
    bool dirty; /* added while working */
    uint64_t started_ms;
    char *ns, *name;
};

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t ready;
    uint64_t (*now_ms)(void);
    struct strmap *items; /* "ns/name" */
    struct list lanes[2]; /* normal, urgent */
    struct item **heap;   /* 1-based, by due_ms */
    size_t n_heap, cap_heap;
    size_t n_ready, n_working;
    unsigned urgent_run;
    bool stopped;
    uint64_t adds, retries;
};

struct queue *queue_new(uint64_t (*now_ms)(void))
{
    struct queue *q = xcalloc(1, sizeof(*q));
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&q->ready, &attr);
    (void)pthread_condattr_destroy(&attr);
    (void)pthread_mutex_init(&q->lock, NULL);
    q->now_ms = now_ms;
    q->items = strmap_new();
    list_init(&q->lanes[0]);
    list_init(&q->lanes[1]);
    return q;
}

static void item_free(void *value)
{
    struct item *it = value;

    free(it->ns);
    free(it->name);
    free(it);
}

struct queue *queue_free(struct queue *q)
{
    if (!q)
        return NULL;
    strmap_free_with(q->items, item_free);
    free(q->heap);
    (void)pthread_cond_destroy(&q->ready);
    (void)pthread_mutex_destroy(&q->lock);
    free(q);
    return NULL;
}

/* --- heap of delayed items --------------------------------------------------------------------------- */

static void heap_place(struct queue *q, size_t at, struct item *it)
{
    q->heap[at] = it;
    it->heap_place = at;
}

static void heap_up(struct queue *q, struct item *it)
{
    size_t at = it->heap_place;

    for (; at > 1 && q->heap[at / 2]->due_ms > it->due_ms; at /= 2)
        heap_place(q, at, q->heap[at / 2]);
    heap_place(q, at, it);
}

static void heap_down(struct queue *q, struct item *it)
{
    size_t at = it->heap_place;

    for (size_t child; (child = at * 2) <= q->n_heap; at = child) {
        if (child < q->n_heap && q->heap[child + 1]->due_ms < q->heap[child]->due_ms)
            child++;
        if (q->heap[child]->due_ms >= it->due_ms)
            break;
        heap_place(q, at, q->heap[child]);
    }
    heap_place(q, at, it);
}

static void heap_insert(struct queue *q, struct item *it)
{
    if (q->n_heap + 1 >= q->cap_heap) {
        q->cap_heap = MAX((size_t)16, q->cap_heap * 2);
        q->heap = xreallocarray(q->heap, q->cap_heap, sizeof(struct item *));
    }
    heap_place(q, ++q->n_heap, it);
    heap_up(q, it);
}

static void heap_remove(struct queue *q, struct item *it)
{
    size_t at = it->heap_place;
    struct item *last = q->heap[q->n_heap--];

    it->heap_place = NOT_DELAYED;
    if (last == it)
        return;
    heap_place(q, at, last);
    heap_up(q, last);
    heap_down(q, last);
}

/* --- items ------------------------------------------------------------------------------------------- */

static void item_key(struct buf *out, const char *ns, const char *name)
{
    buf_printf(out, "%s/%s", ns, name);
}

static struct item *need_item(struct queue *q, const char *ns, const char *name)
{
    AUTO(buf_done) struct buf key = BUF_NULL;
    struct item *it;

    item_key(&key, ns, name);
    it = strmap_get(q->items, buf_str(&key));
    if (it)
        return it;
    it = xcalloc(1, sizeof(*it));
    it->ns = xstrdup(ns);
    it->name = xstrdup(name);
    it->key = (struct queue_key){.ns = it->ns, .name = it->name};
    (void)strmap_set(q->items, buf_str(&key), it);
    return it;
}

static void make_ready(struct queue *q, struct item *it, uint64_t now)
{
    if (it->heap_place != NOT_DELAYED)
        heap_remove(q, it);
    if (list_linked(&it->lane)) {
        list_remove(&it->lane); /* perhaps to the other lane */
    } else {
        q->n_ready++;
        q->adds++;
        it->key.queued_ms = now;
    }
    list_append(&q->lanes[it->urgent], &it->lane);
    (void)pthread_cond_signal(&q->ready);
}

/* @it was being worked on until now, so it stands neither in a lane nor in the heap. */
static void delay(struct queue *q, struct item *it, uint64_t due)
{
    it->due_ms = due;
    heap_insert(q, it);
    /* Whoever waits may wait too long now. */
    (void)pthread_cond_signal(&q->ready);
}

void queue_add(struct queue *q, const char *ns, const char *name, bool urgent)
{
    struct item *it;

    (void)pthread_mutex_lock(&q->lock);
    it = need_item(q, ns, name);
    if (it->working) {
        it->dirty = true;
        it->urgent |= urgent;
    } else if (!list_linked(&it->lane) || (urgent && !it->urgent)) {
        it->urgent = urgent;
        make_ready(q, it, q->now_ms());
    }
    (void)pthread_mutex_unlock(&q->lock);
}

/* With the lock held: moves what is due to its lane, takes the next of a lane. */
static struct item *take_ready(struct queue *q, uint64_t now)
{
    bool urgent;
    struct item *it;

    while (q->n_heap && q->heap[1]->due_ms <= now)
        make_ready(q, q->heap[1], now);
    urgent = !list_empty(&q->lanes[1]);
    if (urgent && q->urgent_run >= QUEUE_URGENT_RUN && !list_empty(&q->lanes[0]))
        urgent = false;
    if (list_empty(&q->lanes[urgent]))
        return NULL;
    q->urgent_run = urgent ? q->urgent_run + 1 : 0;
    it = LIST_ENTRY(q->lanes[urgent].next, struct item, lane);
    list_remove(&it->lane);
    it->urgent = false;
    it->working = true;
    it->started_ms = now;
    q->n_ready--;
    q->n_working++;
    return it;
}

const struct queue_key *queue_try(struct queue *q)
{
    struct item *it;

    (void)pthread_mutex_lock(&q->lock);
    it = q->stopped ? NULL : take_ready(q, q->now_ms());
    (void)pthread_mutex_unlock(&q->lock);
    return it ? &it->key : NULL;
}

/* With the lock held: until something is added, or the first delayed item is due. */
static void wait_ready(struct queue *q, uint64_t now)
{
    struct timespec until;
    uint64_t wait;

    if (!q->n_heap) {
        (void)pthread_cond_wait(&q->ready, &q->lock);
        return;
    }
    wait = q->heap[1]->due_ms - now;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(wait / 1000);
    until.tv_nsec += (long)(wait % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&q->ready, &q->lock, &until);
}

const struct queue_key *queue_take(struct queue *q)
{
    struct item *it = NULL;

    (void)pthread_mutex_lock(&q->lock);
    while (!q->stopped) {
        uint64_t now = q->now_ms();

        it = take_ready(q, now);
        if (it)
            break;
        wait_ready(q, now);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return it ? &it->key : NULL;
}

static void forget_if_idle(struct queue *q, struct item *it)
{
    AUTO(buf_done) struct buf key = BUF_NULL;

    if (list_linked(&it->lane) || it->heap_place != NOT_DELAYED || it->working || it->key.failures)
        return;
    item_key(&key, it->ns, it->name);
    (void)strmap_remove(q->items, buf_str(&key));
    item_free(it);
}

static uint64_t backoff_ms(unsigned failures)
{
    uint64_t wait = QUEUE_BACKOFF_MIN_MS;

    for (unsigned i = 0; i < failures && wait < QUEUE_BACKOFF_MAX_MS; i++)
        wait *= 2;
    return MIN(wait, (uint64_t)QUEUE_BACKOFF_MAX_MS);
}

void queue_done(struct queue *q, const struct queue_key *key, enum queue_outcome outcome,
                uint64_t delay_ms)
{
    struct item *it;
    uint64_t now;

    (void)pthread_mutex_lock(&q->lock);
    it = need_item(q, key->ns, key->name);
    now = q->now_ms();
    it->working = false;
    q->n_working--;
    if (outcome == QUEUE_RETRY) {
        uint64_t wait = backoff_ms(it->key.failures++);

        delay(q, it, now + (delay_ms ? MIN(wait, delay_ms) : wait));
        q->retries++;
    } else {
        it->key.failures = 0;
        if (outcome == QUEUE_AFTER)
            delay(q, it, now + delay_ms);
    }
    if (it->dirty) {
        it->dirty = false;
        make_ready(q, it, now);
    }
    forget_if_idle(q, it);
    (void)pthread_mutex_unlock(&q->lock);
}

void queue_stop(struct queue *q)
{
    (void)pthread_mutex_lock(&q->lock);
    q->stopped = true;
    (void)pthread_cond_broadcast(&q->ready);
    (void)pthread_mutex_unlock(&q->lock);
}

struct queue_stats queue_stats(struct queue *q)
{
    struct queue_stats stats;
    struct str key;
    size_t at = 0;
    void *value;

    (void)pthread_mutex_lock(&q->lock);
    stats = (struct queue_stats){.depth = q->n_ready,
                                 .delayed = q->n_heap,
                                 .working = q->n_working,
                                 .adds = q->adds,
                                 .retries = q->retries};
    while (q->n_working && strmap_next(q->items, &at, &key, &value)) {
        const struct item *it = value;
        double age_s = (double)(q->now_ms() - it->started_ms) / 1000;

        if (!it->working)
            continue;
        stats.unfinished_s += age_s;
        stats.longest_s = MAX(stats.longest_s, age_s);
    }
    (void)pthread_mutex_unlock(&q->lock);
    return stats;
}
