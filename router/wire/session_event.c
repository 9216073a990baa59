/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/session_event.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/members.h"

enum { SAW_SESSION = 1, SAW_WORKER = 2, SAW_RANK = 4, SAW_SEQUENCE = 8, SAW_WRITER = 16 };
enum { SAW_ALL = 31 };

static void name_read(struct msgpack_reader *m, struct str *ret)
{
    str_read(m, ret);
    if (ret->len > SESSION_EVENT_NAME_MAX)
        msgpack_fail(m, "name is too long");
}

/* One member; what it was, for the check that none is missing. */
static unsigned member_read(struct msgpack_reader *m, struct str name, struct session_event *s)
{
    unsigned saw = 0;

    if (str_is(name, "session_id")) {
        name_read(m, &s->session);
        saw = SAW_SESSION;
    } else if (str_is(name, "worker_id")) {
        u64_read(m, &s->worker_id);
        saw = SAW_WORKER;
    } else if (str_is(name, "dp_rank")) {
        u32_read(m, &s->dp_rank);
        saw = SAW_RANK;
    } else if (str_is(name, "sequence")) {
        u64_read(m, &s->sequence);
        saw = SAW_SEQUENCE;
    } else if (str_is(name, "writer_id")) {
        u64_read(m, &s->writer_id);
        saw = SAW_WRITER;
    } else if (str_is(name, "model_name")) {
        name_read(m, &s->model);
    } else if (str_is(name, "routing_group")) {
        name_read(m, &s->group);
    } else {
        (void)msgpack_skip(m);
    }
    return saw;
}

int session_event_decode(struct str payload, struct session_event *ret, struct err *e)
{
    struct session_event s = {.dp_rank = 0};
    struct members members = {0};
    struct msgpack_reader m;
    struct str name;
    unsigned saw = 0;
    int r;

    msgpack_reader_init(&m, payload);
    members_begin_map(&m, &members);
    while (members_next(&m, &members, &name))
        saw |= member_read(&m, name, &s);
    r = msgpack_end(&m, e);
    if (r < 0)
        return err_wrap(e, r, "session binding");
    if (saw != SAW_ALL || s.session.len == 0)
        return err_set(e, -EBADMSG, "session binding lacks a member");
    *ret = s;
    return 0;
}

void session_event_put(struct buf *out, const struct session_event *s)
{
    msgpack_put_map(out, s->model.ptr ? 7 : 5);
    if (s->model.ptr) {
        str_member_put(out, "model_name", s->model);
        str_member_put(out, "routing_group", s->group);
    }
    str_member_put(out, "session_id", s->session);
    u64_member_put(out, "worker_id", s->worker_id);
    u64_member_put(out, "dp_rank", s->dp_rank);
    u64_member_put(out, "sequence", s->sequence);
    u64_member_put(out, "writer_id", s->writer_id);
}
