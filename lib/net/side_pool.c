/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/side_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "lib/base/list.h"
#include "lib/base/mem.h"

struct job {
    struct list link;
    loop_fn work, done;
    void *arg;
};

struct side_pool {
    struct loop *loop;
    atomic_bool stopping;
    pthread_t *threads;
    size_t n_threads, n_max;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t more;
    struct list waiting, finished;
    size_t idle;   /* threads without work */
    size_t posted; /* calls to the loop that are under way */
    bool freed;
};

struct side_pool *side_pool_new(struct loop *l, size_t n)
{
    struct side_pool *p = xcalloc(1, sizeof(*p));

    p->loop = l;
    p->n_max = n;
    p->threads = xcalloc(n, sizeof(*p->threads));
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->more, NULL);
    list_init(&p->waiting);
    list_init(&p->finished);
    return p;
}

bool side_pool_stopping(void *arg)
{
    const struct side_pool *p = arg;

    return atomic_load(&p->stopping);
}

static void destroy(struct side_pool *p)
{
    (void)pthread_mutex_destroy(&p->lock);
    (void)pthread_cond_destroy(&p->more);
    free(p->threads);
    free(p);
}

/* With the lock held. */
static struct job *take(struct list *from)
{
    struct job *j = list_empty(from) ? NULL : LIST_ENTRY(from->next, struct job, link);

    if (j)
        list_remove(&j->link);
    return j;
}

/* On the loop: tells of all that is finished. Callbacks may free the pool. */
static void tell(struct side_pool *p, struct list *of)
{
    for (;;) {
        struct job *j;

        (void)pthread_mutex_lock(&p->lock);
        j = take(of);
        (void)pthread_mutex_unlock(&p->lock);
        if (!j)
            return;
        j->done(j->arg);
        free(j);
    }
}

static void on_posted(void *arg)
{
    struct side_pool *p = arg;
    bool last;

    tell(p, &p->finished);
    (void)pthread_mutex_lock(&p->lock);
    last = --p->posted == 0 && p->freed;
    (void)pthread_mutex_unlock(&p->lock);
    if (last)
        destroy(p);
}

static void *thread_run(void *arg)
{
    struct side_pool *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    while (!atomic_load(&p->stopping)) {
        struct job *j = take(&p->waiting);

        if (!j) {
            p->idle++;
            (void)pthread_cond_wait(&p->more, &p->lock);
            p->idle--;
            continue;
        }
        (void)pthread_mutex_unlock(&p->lock);
        j->work(j->arg);
        (void)pthread_mutex_lock(&p->lock);
        list_append(&p->finished, &j->link);
        p->posted++;
        loop_post(p->loop, on_posted, p);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

void side_pool_run(struct side_pool *p, loop_fn work, loop_fn done, void *arg)
{
    struct job *j = xcalloc(1, sizeof(*j));
    bool grow;

    *j = (struct job){.work = work, .done = done, .arg = arg};
    (void)pthread_mutex_lock(&p->lock);
    list_append(&p->waiting, &j->link);
    grow = p->idle == 0 && p->n_threads < p->n_max;
    (void)pthread_cond_signal(&p->more);
    (void)pthread_mutex_unlock(&p->lock);
    if (!grow)
        return;
    if (pthread_create(&p->threads[p->n_threads], NULL, thread_run, p) == 0)
        p->n_threads++;
    else if (p->n_threads == 0)
        abort(); /* no thread at all: as when memory is gone */
}

struct side_pool *side_pool_free(struct side_pool *p)
{
    bool now;

    if (!p)
        return NULL;
    (void)pthread_mutex_lock(&p->lock);
    atomic_store(&p->stopping, true);
    (void)pthread_cond_broadcast(&p->more);
    (void)pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_threads; i++)
        (void)pthread_join(p->threads[i], NULL);
    tell(p, &p->finished);
    tell(p, &p->waiting);
    (void)pthread_mutex_lock(&p->lock);
    p->freed = true;
    now = p->posted == 0;
    (void)pthread_mutex_unlock(&p->lock);
    if (now)
        destroy(p);
    return NULL;
}
