/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/service_event.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/members.h"

enum { SAW_MODEL = 1, SAW_GROUP = 2, SAW_BLOCK_SIZE = 4, SAW_EVENT = 8, SAW_PLACEMENT = 15 };

/* The bytes of the next value, not looked into. */
static struct str value_read(struct msgpack_reader *m)
{
    const uint8_t *begin = m->at;

    return msgpack_skip(m) ? str_slice(begin, (size_t)(m->at - begin)) : STR_NULL;
}

static unsigned placement_read(struct msgpack_reader *m, struct str name,
                               struct service_sequence *s, struct str *event)
{
    if (str_is(name, "model_name")) {
        str_read(m, &s->model);
        return SAW_MODEL;
    }
    if (str_is(name, "routing_group")) {
        str_read(m, &s->group);
        return SAW_GROUP;
    }
    if (str_is(name, "block_size")) {
        u32_read(m, &s->block_size);
        return SAW_BLOCK_SIZE;
    }
    if (str_is(name, "event")) {
        *event = value_read(m);
        return SAW_EVENT;
    }
    (void)msgpack_skip(m);
    return 0;
}

struct one {
    struct sequence_event event;
    size_t n;
};

static void on_event(void *arg, const struct sequence_event *ev)
{
    struct one *one = arg;

    one->event = *ev;
    one->n++;
}

int service_sequence_decode(struct sequence_event_reader *r, struct str payload,
                            struct service_sequence *ret, struct err *e)
{
    struct service_sequence s = {.block_size = 0};
    struct members members = {0};
    struct str name, event = STR_NULL;
    struct one one = {.n = 0};
    struct msgpack_reader m;
    unsigned saw = 0;
    int x;

    if (payload.len > SEQUENCE_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "placement of %zu bytes", payload.len);
    msgpack_reader_init(&m, payload);
    members_begin_map(&m, &members);
    while (members_next(&m, &members, &name))
        saw |= placement_read(&m, name, &s, &event);
    x = msgpack_end(&m, e);
    if (x == 0 && saw != SAW_PLACEMENT)
        return err_set(e, -EBADMSG, "placement lacks model, group, block size or event");
    if (x == 0)
        x = sequence_events_decode(r, event, on_event, &one, e);
    if (x < 0)
        return err_wrap(e, x, "placement");
    if (one.n != 1)
        return err_set(e, -EBADMSG, "placement with %zu events", one.n);
    s.event = one.event;
    *ret = s;
    return 0;
}

void service_sequence_put(struct buf *out, const struct service_sequence *s)
{
    msgpack_put_map(out, 4);
    str_member_put(out, "model_name", s->model);
    str_member_put(out, "routing_group", s->group);
    u64_member_put(out, "block_size", s->block_size);
    msgpack_put_cstr(out, "event");
    sequence_event_put(out, &s->event, SEQUENCE_FORM_1_X);
}
