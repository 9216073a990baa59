/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/kv_snapshot.h"

#include <errno.h>

#include "lib/base/err.h"
#include "router/wire/kv_event_inner.h"

enum { STORED, REMOVED, CLEARED };

/* A failure sticks; what is read after it is zero. */
struct input {
    const uint8_t *at, *end;
    const char *error;
};

static uint64_t take(struct input *in, size_t width)
{
    uint64_t v = 0;

    if (in->error || (size_t)(in->end - in->at) < width) {
        in->error = in->error ? in->error : "it ends too early";
        return 0;
    }
    for (size_t i = 0; i < width; i++)
        v |= (uint64_t)in->at[i] << (8 * i);
    in->at += width;
    return v;
}

static uint64_t take_u64(struct input *in)
{
    return take(in, 8);
}

static bool take_option(struct input *in)
{
    uint64_t some = take(in, 1);

    if (some > 1)
        in->error = "an option is neither there nor not";
    return some == 1 && !in->error;
}

/* Elements have at least @width bytes each: a length that cannot be is seen before it is believed. */
static uint64_t take_length(struct input *in, size_t width)
{
    uint64_t n = take_u64(in);

    if (!in->error && n > (uint64_t)(in->end - in->at) / width) {
        in->error = "a list is longer than what there is";
        return 0;
    }
    return in->error ? 0 : n;
}

/* Which images touch a block means nothing to the index. */
static void skip_images(struct input *in)
{
    for (uint64_t n = take_option(in) ? take_length(in, 16) : 0; n > 0 && !in->error; n--) {
        (void)take_u64(in);
        for (uint64_t k = take_length(in, 16); k > 0; k--) {
            (void)take_u64(in);
            (void)take_u64(in);
        }
    }
}

static void read_stored(struct input *in, struct kv_event_reader *r, struct kv_event *ev)
{
    ev->kind = KV_STORED;
    if (take_option(in))
        ev->parent_hash = OPT_U64(take_u64(in));
    for (uint64_t n = take_length(in, 17); n > 0 && !in->error; n--) {
        struct kv_block block = {.block_hash = take_u64(in)};

        block.tokens_hash = take_u64(in);
        skip_images(in);
        if (!in->error && !kv_event_add_block(r, ev, block))
            in->error = KV_EVENT_TOO_MANY;
    }
}

static void read_removed(struct input *in, struct kv_event_reader *r, struct kv_event *ev)
{
    ev->kind = KV_REMOVED;
    for (uint64_t n = take_length(in, 8); n > 0 && !in->error; n--)
        if (!kv_event_add_removed(r, ev, take_u64(in)))
            in->error = KV_EVENT_TOO_MANY;
}

static void read_event(struct input *in, struct kv_event_reader *r, struct kv_event *ev)
{
    *ev = (struct kv_event){.tier = KV_TIER_DEVICE};
    ev->worker_id = take_u64(in);
    ev->event_id = take_u64(in);
    switch (take(in, 4)) {
    case STORED:
        read_stored(in, r, ev);
        break;
    case REMOVED:
        read_removed(in, r, ev);
        break;
    case CLEARED:
        ev->kind = KV_CLEARED;
        break;
    default:
        in->error = "an event of unknown kind";
    }
    ev->dp_rank = (uint32_t)take(in, 4);
}

int kv_snapshot_decode(struct kv_event_reader *r, struct str bytes, kv_event_fn fn, void *arg,
                       struct err *e)
{
    const uint8_t *begin = (const uint8_t *)bytes.ptr;
    struct input in = {.at = begin, .end = begin + bytes.len};
    struct kv_event ev;

    if (bytes.len == 0)
        return err_set(e, -EBADMSG, "snapshot: it is empty");
    for (uint64_t n = take_length(&in, 24); n > 0 && !in.error; n--) {
        read_event(&in, r, &ev);
        if (!in.error)
            in.error = kv_event_report(r, &ev, SAW_ALL, fn, arg);
    }
    if (!in.error && in.at != in.end)
        in.error = "something follows its end";
    if (in.error)
        return err_set(e, in.error == KV_EVENT_TOO_MANY ? -EMSGSIZE : -EBADMSG,
                       "snapshot: offset %zu: %s", (size_t)(in.at - begin), in.error);
    return 0;
}

static void put(struct buf *out, uint64_t v, size_t width)
{
    for (size_t i = 0; i < width; i++)
        buf_put_char(out, (char)(v >> (8 * i)));
}

void kv_snapshot_begin_put(struct buf *out, uint64_t n_events)
{
    put(out, n_events, 8);
}

void kv_snapshot_event_put(struct buf *out, const struct kv_event *ev)
{
    put(out, ev->worker_id, 8);
    put(out, ev->event_id, 8);
    put(out, ev->kind == KV_STORED ? STORED : ev->kind == KV_REMOVED ? REMOVED : CLEARED, 4);
    if (ev->kind == KV_STORED) {
        put(out, ev->parent_hash.set, 1);
        if (ev->parent_hash.set)
            put(out, ev->parent_hash.v, 8);
        put(out, ev->n_blocks, 8);
        for (size_t i = 0; i < ev->n_blocks; i++) {
            put(out, ev->blocks[i].block_hash, 8);
            put(out, ev->blocks[i].tokens_hash, 8);
            put(out, 0, 1);
        }
    } else if (ev->kind == KV_REMOVED) {
        put(out, ev->n_removed, 8);
        for (size_t i = 0; i < ev->n_removed; i++)
            put(out, ev->removed[i], 8);
    }
    put(out, ev->dp_rank, 4);
}
