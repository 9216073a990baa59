/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/mooncake_event.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/members.h"

enum { BATCH_PARTS = 3, EVENT_PARTS = 4 };

static const char *const CHANGES[] = {
    [MOONCAKE_STORED] = "stored", [MOONCAKE_REMOVED] = "removed", [MOONCAKE_CLEARED] = "cleared"};

/* A text or nil, which leaves *ret alone. */
static void read_opt(struct msgpack_reader *m, struct str *ret)
{
    if (!msgpack_read_nil(m))
        str_read(m, ret);
}

static void read_member(struct msgpack_reader *m, struct str name, struct str *ret_type,
                        struct mooncake_event *ev)
{
    struct str group;

    if (str_is(name, "event_type"))
        str_read(m, ret_type);
    else if (str_is(name, "object_key"))
        read_opt(m, &ev->object);
    else if (str_is(name, "tenant_id"))
        str_read(m, &ev->tenant);
    else if (str_is(name, "group_id"))
        read_opt(m, &group);
    else
        (void)msgpack_skip(m);
}

static void read_event(struct msgpack_reader *m, mooncake_event_fn fn, void *arg)
{
    struct mooncake_event ev = {.object = STR_NULL};
    struct str name, type = STR_NULL;
    struct members s;

    if (!MEMBERS(m, &s, "event_type", "object_key", "tenant_id", "group_id"))
        return;
    if (!s.is_map && s.n > EVENT_PARTS)
        msgpack_fail(m, "an event of too many parts");
    while (members_next(m, &s, &name))
        read_member(m, name, &type, &ev);
    if (!m->error && !type.ptr)
        msgpack_fail(m, "an event without type");
    for (size_t i = 0; !m->error && fn && i < ARRAY_LEN(CHANGES); i++) {
        ev.change = (enum mooncake_change)i;
        if (str_is(type, CHANGES[i]))
            fn(arg, &ev);
    }
}

/* Bytes behind the batch are nobody's. */
int mooncake_batch_decode(struct str payload, mooncake_event_fn fn, void *arg, struct err *e)
{
    struct msgpack_reader m;
    uint32_t parts, n = 0, rank;
    int64_t ms;

    msgpack_reader_init(&m, payload);
    if (!msgpack_read_array(&m, &parts) || parts != BATCH_PARTS || !msgpack_read_i64(&m, &ms) ||
        !msgpack_read_array(&m, &n))
        msgpack_fail(&m, "not a batch");
    while (!m.error && n--)
        read_event(&m, fn, arg);
    if (!m.error)
        u32_read(&m, &rank);
    return m.error ? err_set(e, -EBADMSG, "batch of a Mooncake master: %s", m.error) : 0;
}

/* --- writing --- */

void mooncake_batch_begin_put(struct buf *out, int64_t ms, uint32_t n_events)
{
    msgpack_put_array(out, BATCH_PARTS);
    msgpack_put_i64(out, ms);
    msgpack_put_array(out, n_events);
}

void mooncake_event_put(struct buf *out, const struct mooncake_event *ev)
{
    msgpack_put_map(out, EVENT_PARTS - 1);
    msgpack_put_cstr(out, "event_type");
    msgpack_put_cstr(out, CHANGES[ev->change]);
    msgpack_put_cstr(out, "tenant_id");
    msgpack_put_str(out, ev->tenant);
    msgpack_put_cstr(out, "object_key");
    if (ev->object.ptr)
        msgpack_put_str(out, ev->object);
    else
        msgpack_put_nil(out);
}

void mooncake_batch_end_put(struct buf *out)
{
    msgpack_put_u64(out, 0);
}
