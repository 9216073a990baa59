/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events in both encodings: an event that was read says the same after writing and reading it in
 * either.
 */
#include <stdlib.h>
#include <string.h>

#include "router/wire/kv_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct compare {
    const struct kv_event *want;
    size_t n;
};

static void same(void *arg, const struct kv_event *ev)
{
    struct compare *c = arg;
    const struct kv_event *w = c->want;

    c->n++;
    if (ev->worker_id != w->worker_id || ev->event_id != w->event_id || ev->kind != w->kind ||
        ev->dp_rank != w->dp_rank)
        abort();
    if (ev->kind == KV_STORED &&
        (ev->n_blocks != w->n_blocks || ev->parent_hash.set != w->parent_hash.set ||
         (w->n_blocks && memcmp(ev->blocks, w->blocks, w->n_blocks * sizeof(*w->blocks)) != 0)))
        abort();
    if (ev->kind == KV_REMOVED && ev->n_removed != w->n_removed)
        abort();
}

static void again(void *arg, const struct kv_event *ev)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct compare c = {ev, 0};

    (void)arg;
    kv_event_put(&out, ev);
    if (kv_events_decode(&r, buf_str(&out), same, &c, NULL) != 0)
        abort();
    buf_clear(&out);
    kv_event_put_json(&out, ev);
    if (kv_events_parse(&r, buf_str(&out), same, &c, NULL) != 0 || c.n != 2)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    struct str in = str_slice(data, size);
    struct str envelope;
    struct event_envelope v;
    struct active_load load;
    struct kv_hit_rate rate;

    if (event_frame_parse(in, &envelope, NULL) == 0 && envelope.len + 5 != size)
        abort();
    if (event_envelope_decode(in, &v, NULL) == 0)
        (void)!kv_events_decode(&r, v.payload, again, NULL, NULL);
    (void)!kv_events_decode(&r, in, again, NULL, NULL);
    (void)!kv_events_parse(&r, in, again, NULL, NULL);
    (void)!active_load_decode(in, &load, NULL);
    (void)!kv_hit_rate_decode(in, &rate, NULL);
    return 0;
}
