/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_ring.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

struct event_ring {
    struct kv_event events[EVENT_RING_LENGTH]; /* arrays owned; by id modulo the length */
    size_t n;
    uint64_t newest; /* id; 0 when there was none */
};

struct event_ring *event_ring_new(void)
{
    return xcalloc(1, sizeof(struct event_ring));
}

static void *copy(const void *from, size_t n, size_t size)
{
    void *to = n > 0 ? xmalloc(n * size) : NULL;

    if (to)
        memcpy(to, from, n * size);
    return to;
}

/* The arrays are ours, though events show them as constant to everybody else. */
static void drop(struct kv_event *ev)
{
    free((void *)(uintptr_t)ev->blocks);
    free((void *)(uintptr_t)ev->removed);
    *ev = (struct kv_event){.worker_id = 0};
}

struct event_ring *event_ring_free(struct event_ring *r)
{
    if (!r)
        return NULL;
    for (size_t i = 0; i < EVENT_RING_LENGTH; i++)
        drop(&r->events[i]);
    free(r);
    return NULL;
}

void event_ring_push(struct event_ring *r, const struct kv_event *ev)
{
    struct kv_event *slot = &r->events[ev->event_id % EVENT_RING_LENGTH];

    drop(slot);
    *slot = *ev;
    slot->blocks = copy(ev->blocks, ev->n_blocks, sizeof(*ev->blocks));
    slot->removed = copy(ev->removed, ev->n_removed, sizeof(*ev->removed));
    r->newest = ev->event_id;
    if (r->n < EVENT_RING_LENGTH)
        r->n++;
}

const struct kv_event *event_ring_newest(const struct event_ring *r)
{
    return r->n > 0 ? &r->events[r->newest % EVENT_RING_LENGTH] : NULL;
}

static void pull_opt(struct json_pull *p, struct opt_u64 *ret)
{
    if (!json_pull_null(p))
        ret->set = json_pull_u64(p, &ret->v);
}

int kv_query_parse(struct str json, struct kv_query *ret, struct err *e)
{
    struct kv_query q = {.worker_id = 0};
    struct json_pull p;
    struct str key;
    bool has_worker = false;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "worker_id"))
                has_worker = json_pull_u64(&p, &q.worker_id);
            else if (str_is(key, "start_event_id"))
                pull_opt(&p, &q.start);
            else if (str_is(key, "end_event_id"))
                pull_opt(&p, &q.end);
            else if (str_is(key, "dp_rank"))
                pull_opt(&p, &q.dp_rank);
            else
                (void)json_pull_skip(&p, NULL);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return err_wrap(e, r, "recovery query");
    if (!has_worker)
        return err_set(e, -EINVAL, "recovery query: worker_id is missing");
    *ret = q;
    return 0;
}

static void put_invalid(struct buf *out, const struct kv_query *q)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "InvalidRange");
    json_put_object(&j);
    opt_u64_put(&j, "start_id", q->start);
    opt_u64_put(&j, "end_id", q->end);
    json_put_object_end(&j);
    json_put_object_end(&j);
}

static void put_too_new(struct buf *out, const struct kv_query *q, uint64_t newest)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_key(&j, "TooNew");
    json_put_object(&j);
    opt_u64_put(&j, "requested_start", q->start);
    opt_u64_put(&j, "requested_end", q->end);
    opt_u64_put(&j, "newest_available", OPT_U64(newest));
    json_put_object_end(&j);
    json_put_object_end(&j);
}

void kv_events_begin_put(const char *name, struct buf *out, bool newer)
{
    buf_printf(out, "{\"%s\":%s", name, newer ? "{\"events\":[" : "[");
}

void kv_events_end_put(const struct event_ring *r, struct buf *out, bool newer)
{
    if (newer)
        buf_printf(out, "],\"last_event_id\":%" PRIu64 "}}", r->newest);
    else
        buf_put_cstr(out, "]}");
}

/* The order of the cases is the reference's. */
int event_ring_answer(const struct event_ring *r, const struct kv_query *q, bool newer,
                      struct buf *out)
{
    uint64_t end = q->end.set && !newer ? MIN(q->end.v, r->newest) : r->newest;

    if (q->start.set && q->end.set && q->end.v < q->start.v) {
        put_invalid(out, q);
        return 0;
    }
    if (!q->start.set || r->n == 0 || q->start.v < r->newest + 1 - r->n)
        return EVENT_RING_DUMP;
    if (q->start.v > r->newest) {
        put_too_new(out, q, r->newest);
        return 0;
    }
    kv_events_begin_put("Events", out, newer);
    for (uint64_t id = q->start.v; id <= end; id++) {
        if (id > q->start.v)
            buf_put_char(out, ',');
        kv_event_put_json(out, &r->events[id % EVENT_RING_LENGTH]);
    }
    kv_events_end_put(r, out, newer);
    return 0;
}
