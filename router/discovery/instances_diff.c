/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Difference of two tables as events. Removals come before additions, a model's workers inside of
 * its own life. A model whose card or endpoint is another one is removed and added.
 */
#include <string.h>

#include "router/discovery/instances_inner.h"

struct diff {
    const struct model_table *old, *now;
    void (*event)(void *arg, const struct instances_event *ev);
    void *arg;
};

static void tell(const struct diff *d, enum instances_change change, const struct served_model *m,
                 const struct worker *w, const struct event_channel *c)
{
    const struct instances_event ev = {.change = change, .model = m, .worker = w, .channel = c};

    d->event(d->arg, &ev);
}

static void workers_all(const struct diff *d, enum instances_change change,
                        const struct served_model *m)
{
    for (size_t i = 0; i < m->n_workers; i++)
        tell(d, change, m, &m->workers[i], NULL);
}

static bool same_worker(const struct worker *a, const struct worker *b)
{
    return a->card == b->card && a->on_cpu == b->on_cpu && strcmp(a->address, b->address) == 0 &&
           strcmp(a->queries, b->queries) == 0;
}

static void workers_gone(const struct diff *d, const struct served_model *old,
                         const struct served_model *now)
{
    for (size_t i = 0; i < old->n_workers; i++)
        if (!served_model_worker(now, old->workers[i].id))
            tell(d, WORKER_REMOVED, old, &old->workers[i], NULL);
}

static void workers_come(const struct diff *d, const struct served_model *old,
                         const struct served_model *now)
{
    for (size_t i = 0; i < now->n_workers; i++) {
        const struct worker *w = &now->workers[i];
        const struct worker *before = served_model_worker(old, w->id);

        if (!before)
            tell(d, WORKER_ADDED, now, w, NULL);
        else if (!same_worker(before, w))
            tell(d, WORKER_CHANGED, now, w, NULL);
    }
}

static bool same_model(const struct served_model *a, const struct served_model *b)
{
    return a->card->kv_cache_block_size == b->card->kv_cache_block_size &&
           a->card->eagle == b->card->eagle && strcmp(a->ns, b->ns) == 0 &&
           strcmp(a->component, b->component) == 0 && strcmp(a->endpoint, b->endpoint) == 0;
}

/* The same model in @t, or NULL. */
static const struct served_model *counterpart(const struct model_table *t,
                                              const struct served_model *m)
{
    for (size_t i = 0; i < t->n_models; i++)
        if (t->models[i].is_prefill == m->is_prefill && strcmp(t->models[i].set, m->set) == 0)
            return same_model(&t->models[i], m) ? &t->models[i] : NULL;
    return NULL;
}

static int channel_cmp(const struct event_channel *a, const struct event_channel *b)
{
    const char *const x[] = {a->ns, a->component, a->endpoint, a->topic, a->address};
    const char *const y[] = {b->ns, b->component, b->endpoint, b->topic, b->address};

    if (a->publisher_id != b->publisher_id)
        return a->publisher_id < b->publisher_id ? -1 : 1;
    for (size_t i = 0; i < ARRAY_LEN(x); i++) {
        int r = strcmp(x[i], y[i]);

        if (r)
            return r;
    }
    return (int)a->transport - (int)b->transport;
}

static int index_cmp(const struct served_index *a, const struct served_index *b)
{
    const char *const x[] = {a->ns, a->component, a->endpoint, a->address};
    const char *const y[] = {b->ns, b->component, b->endpoint, b->address};

    if (a->instance_id != b->instance_id)
        return a->instance_id < b->instance_id ? -1 : 1;
    for (size_t i = 0; i < ARRAY_LEN(x); i++) {
        int r = strcmp(x[i], y[i]);

        if (r)
            return r;
    }
    return 0;
}

/* Things that have no life but to be there or not. */
struct things {
    const void **at; /* sorted */
    size_t n;
};

typedef int (*things_cmp_fn)(const void *a, const void *b); /* of elements of things.at */
typedef void (*things_tell_fn)(const struct diff *d, const void *thing, bool there);

static int by_channel(const void *a, const void *b)
{
    return channel_cmp(*(const struct event_channel *const *)a,
                       *(const struct event_channel *const *)b);
}

static int by_index(const void *a, const void *b)
{
    return index_cmp(*(const struct served_index *const *)a,
                     *(const struct served_index *const *)b);
}

static struct things things_sorted(const void *first, size_t n, size_t size, things_cmp_fn cmp)
{
    struct things t = {xcalloc(n + 1, sizeof(*t.at)), n};

    for (size_t i = 0; i < n; i++)
        t.at[i] = (const char *)first + i * size;
    qsort(t.at, n, sizeof(*t.at), cmp);
    return t;
}

/* Both are sorted: one walk, which tells what is only in @of. */
static void things_only_in(const struct diff *d, struct things of, struct things other,
                           things_cmp_fn cmp, things_tell_fn tell_one, bool there)
{
    for (size_t i = 0, k = 0; i < of.n; i++) {
        while (k < other.n && cmp(&other.at[k], &of.at[i]) < 0)
            k++;
        if (k == other.n || cmp(&other.at[k], &of.at[i]) != 0)
            tell_one(d, of.at[i], there);
    }
}

static void things_diff(const struct diff *d, struct things old, struct things now,
                        things_cmp_fn cmp, things_tell_fn tell_one)
{
    things_only_in(d, old, now, cmp, tell_one, false);
    things_only_in(d, now, old, cmp, tell_one, true);
    free(old.at);
    free(now.at);
}

static void tell_channel(const struct diff *d, const void *channel, bool there)
{
    tell(d, there ? CHANNEL_ADDED : CHANNEL_REMOVED, NULL, NULL, channel);
}

static void tell_index(const struct diff *d, const void *index, bool there)
{
    const struct instances_event ev = {.change = there ? INDEX_ADDED : INDEX_REMOVED,
                                       .index = index};

    d->event(d->arg, &ev);
}

static struct things channels_of(const struct model_table *t)
{
    return things_sorted(t->channels, t->n_channels, sizeof(*t->channels), by_channel);
}

static struct things indexes_of(const struct model_table *t)
{
    return things_sorted(t->indexes, t->n_indexes, sizeof(*t->indexes), by_index);
}

void model_table_diff(const struct model_table *old, const struct model_table *now,
                      void (*event)(void *arg, const struct instances_event *ev), void *arg)
{
    const struct diff d = {old, now, event, arg};

    for (size_t i = 0; i < old->n_models; i++) {
        const struct served_model *m = &old->models[i], *other = counterpart(now, m);

        if (other) {
            workers_gone(&d, m, other);
        } else {
            workers_all(&d, WORKER_REMOVED, m);
            tell(&d, MODEL_REMOVED, m, NULL, NULL);
        }
    }
    for (size_t i = 0; i < now->n_models; i++) {
        const struct served_model *m = &now->models[i], *other = counterpart(old, m);

        if (other) {
            if (strcmp(other->card->mdc_sum, m->card->mdc_sum) != 0)
                tell(&d, MODEL_CHANGED, m, NULL, NULL);
            workers_come(&d, other, m);
        } else {
            tell(&d, MODEL_ADDED, m, NULL, NULL);
            workers_all(&d, WORKER_ADDED, m);
        }
    }
    things_diff(&d, channels_of(old), channels_of(now), by_channel, tell_channel);
    things_diff(&d, indexes_of(old), indexes_of(now), by_index, tell_index);
}
