/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_queue.h"

#include <string.h>

static size_t hashes_of(const struct kv_event *ev)
{
    return 2 * ev->n_blocks + ev->n_removed;
}

size_t event_weight(const struct kv_event *ev)
{
    return sizeof(*ev) + sizeof(ev) + hashes_of(ev) * sizeof(uint64_t);
}

size_t event_queue_weight(const struct event_queue *q)
{
    return q->n * (sizeof(struct kv_event) + sizeof(struct kv_event *)) +
           q->hashes * sizeof(uint64_t);
}

/* One allocation: the event, then its arrays. */
static struct kv_event *copy_of(const struct kv_event *ev)
{
    size_t blocks = ev->n_blocks * sizeof(*ev->blocks), removed = ev->n_removed * sizeof(uint64_t);
    struct kv_event *copy = xmalloc(sizeof(*copy) + blocks + removed);
    char *tail = (char *)(copy + 1);

    *copy = *ev;
    if (blocks) {
        memcpy(tail, ev->blocks, blocks);
        copy->blocks = (const struct kv_block *)(const void *)tail;
    }
    if (removed) {
        memcpy(tail + blocks, ev->removed, removed);
        copy->removed = (const uint64_t *)(const void *)(tail + blocks);
    }
    return copy;
}

static void make_room(struct event_queue *q)
{
    if (q->first + q->n < q->cap)
        return;
    if (q->first > q->n) {
        memmove(q->events, q->events + q->first, q->n * sizeof(*q->events));
        q->first = 0;
        return;
    }
    q->cap = q->cap ? 2 * q->cap : 16;
    q->events = xreallocarray(q->events, q->cap, sizeof(*q->events));
}

void event_queue_put(struct event_queue *q, const struct kv_event *ev)
{
    size_t at;

    make_room(q);
    /* They come in order but for a few. */
    for (at = q->first + q->n; at > q->first && q->events[at - 1]->event_id > ev->event_id; at--)
        q->events[at] = q->events[at - 1];
    q->events[at] = copy_of(ev);
    q->n++;
    q->hashes += hashes_of(ev);
}

const struct kv_event *event_queue_head(const struct event_queue *q)
{
    return q->n ? q->events[q->first] : NULL;
}

void event_queue_drop_head(struct event_queue *q)
{
    struct kv_event *ev = q->events[q->first++];

    q->hashes -= hashes_of(ev);
    free(ev);
    if (--q->n == 0)
        event_queue_done(q); /* gaps are rare: most ranks hold nothing */
}

void event_queue_done(struct event_queue *q)
{
    for (size_t i = 0; i < q->n; i++)
        free(q->events[q->first + i]);
    free(q->events);
    *q = (struct event_queue){0};
}
