/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/sequence_event.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/msgpack.h"
#include "router/wire/members.h"

enum { SAW_REQUEST = 1, SAW_WORKER = 2, SAW_DATA = 4, SAW_ROUTER = 8, SAW_ALL = 15 };

void sequence_event_reader_done(struct sequence_event_reader *r)
{
    free(r->sequence);
    *r = (struct sequence_event_reader){0};
}

/* --- reading -----------------------------------------------------------------------------------
 */

static void worker_read(struct msgpack_reader *m, struct sequence_event *ev)
{
    struct members s = {0};
    struct str name;
    bool has_id = false;

    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (str_is(name, "worker_id"))
            has_id = msgpack_read_u64(m, &ev->worker_id);
        else if (str_is(name, "dp_rank"))
            u32_read(m, &ev->dp_rank);
        else
            (void)msgpack_skip(m);
    }
    if (!has_id)
        msgpack_fail(m, "worker lacks worker_id");
}

static void blocks_read(struct sequence_event_reader *r, struct msgpack_reader *m,
                        struct sequence_event *ev)
{
    uint32_t n;

    if (msgpack_read_nil(m) || !msgpack_read_array(m, &n))
        return;
    if (n > SEQUENCE_EVENT_BLOCKS_MAX) {
        msgpack_fail(m, "too many blocks");
        return;
    }
    if (n > r->cap || !r->sequence) {
        r->cap = MAX((size_t)n, (size_t)64);
        r->sequence = xreallocarray(r->sequence, r->cap, sizeof(*r->sequence));
    }
    ev->sequence = r->sequence;
    ev->n_sequence = n;
    for (uint32_t i = 0; i < n && !m->error; i++)
        hash_read(m, &r->sequence[i]);
}

static void hint_read(struct msgpack_reader *m, struct sequence_event *ev)
{
    struct members s = {0};
    struct str name;

    if (msgpack_read_nil(m))
        return;
    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (str_is(name, "initial_effective_prefill_tokens"))
            opt_read(m, &ev->prefill_tokens);
        else
            (void)msgpack_skip(m);
    }
}

static void add_read(struct sequence_event_reader *r, struct msgpack_reader *m,
                     struct sequence_event *ev)
{
    struct members s = {0};
    struct str name;

    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (str_is(name, "token_sequence"))
            blocks_read(r, m, ev);
        else if (str_is(name, "isl"))
            opt_read(m, &ev->isl);
        else if (str_is(name, "overlap"))
            opt_read(m, &ev->overlap_blocks);
        else if (str_is(name, "expected_output_tokens"))
            opt_read(m, &ev->expected_output_tokens);
        else if (str_is(name, "prefill_load_hint"))
            hint_read(m, ev);
        else
            (void)msgpack_skip(m);
    }
}

/* A word, or a map of one: {"AddRequest": …} */
static void data_read(struct sequence_event_reader *r, struct msgpack_reader *m,
                      struct sequence_event *ev)
{
    bool is_map = msgpack_peek(m) == MSGPACK_MAP;
    struct str tag = STR_NULL;
    uint32_t n = 1;

    if (is_map && !msgpack_read_map(m, &n))
        return;
    if (n != 1 || !msgpack_read_str(m, &tag)) {
        msgpack_fail(m, "event data is no variant");
    } else if (is_map && str_is(tag, "AddRequest")) {
        ev->kind = SEQUENCE_ADD;
        add_read(r, m, ev);
    } else if (!is_map && str_is(tag, "Free")) {
        ev->kind = SEQUENCE_FREE;
    } else if (!is_map && str_is(tag, "MarkPrefillCompleted")) {
        ev->kind = SEQUENCE_PREFILL_DONE;
    } else {
        msgpack_fail(m, "unknown event data");
    }
}

/* One member of an event; what it was, for the check that none is missing. */
static unsigned member_read(struct sequence_event_reader *r, struct msgpack_reader *m,
                            struct str name, struct sequence_event *ev)
{
    if (str_is(name, "request_id")) {
        str_read(m, &ev->request_id);
        return SAW_REQUEST;
    }
    if (str_is(name, "worker")) {
        worker_read(m, ev);
        return SAW_WORKER;
    }
    if (str_is(name, "data")) {
        data_read(r, m, ev);
        return SAW_DATA;
    }
    if (str_is(name, "router_id")) {
        u64_read(m, &ev->router_id);
        return SAW_ROUTER;
    }
    if (str_is(name, "lora_name"))
        ev->form = SEQUENCE_FORM_1_X;
    (void)msgpack_skip(m);
    return 0;
}

struct decode {
    struct sequence_event_reader *reader;
    struct msgpack_reader m;
    sequence_event_fn fn;
    void *arg;
};

static void events_read(struct decode *d);

/* @alone: it may be {"events":[…]} instead. Not so inside of a list, or lists could nest. */
static void event_read(struct decode *d, bool alone)
{
    struct sequence_event ev = {0};
    struct msgpack_reader *m = &d->m;
    struct members s = {0};
    struct str name;
    unsigned saw = 0;

    members_begin_map(m, &s);
    while (members_next(m, &s, &name)) {
        if (alone && s.n == 1 && str_is(name, "events")) {
            events_read(d);
            return;
        }
        saw |= member_read(d->reader, m, name, &ev);
    }
    if (m->error)
        return;
    if (saw != SAW_ALL)
        msgpack_fail(m, "event lacks request, worker, data or router");
    else if (ev.request_id.len == 0 || ev.request_id.len > SEQUENCE_EVENT_ID_MAX)
        msgpack_fail(m, "request id is empty or too long");
    else
        d->fn(d->arg, &ev);
}

static void events_read(struct decode *d)
{
    uint32_t n;

    if (!msgpack_read_array(&d->m, &n))
        return;
    if (n > SEQUENCE_EVENT_BATCH_MAX)
        msgpack_fail(&d->m, "too many events in one message");
    while (n-- && !d->m.error)
        event_read(d, false);
}

int sequence_events_decode(struct sequence_event_reader *r, struct str payload,
                           sequence_event_fn fn, void *arg, struct err *e)
{
    struct decode d = {.reader = r, .fn = fn, .arg = arg};

    if (payload.len > SEQUENCE_EVENT_BYTES_MAX)
        return err_set(e, -EMSGSIZE, "sequence event of %zu bytes", payload.len);
    msgpack_reader_init(&d.m, payload);
    if (msgpack_peek(&d.m) == MSGPACK_ARRAY)
        events_read(&d);
    else
        event_read(&d, true);
    return msgpack_end(&d.m, e);
}

/* --- writing -----------------------------------------------------------------------------------
 */

static void hint_put(struct buf *out, struct opt_u64 prefill_tokens)
{
    msgpack_put_cstr(out, "prefill_load_hint");
    if (!prefill_tokens.set) {
        msgpack_put_nil(out);
        return;
    }
    msgpack_put_map(out, 2);
    u64_member_put(out, "initial_effective_prefill_tokens", prefill_tokens.v);
    opt_member_put(out, "expected_prefill_duration", (struct opt_u64){0});
}

static void add_put(struct buf *out, const struct sequence_event *ev, enum sequence_event_form form)
{
    msgpack_put_map(out, 1);
    msgpack_put_cstr(out, "AddRequest");
    msgpack_put_map(out, 4);
    msgpack_put_cstr(out, "token_sequence");
    if (ev->sequence)
        msgpack_put_array(out, (uint32_t)ev->n_sequence);
    else
        msgpack_put_nil(out);
    for (size_t i = 0; ev->sequence && i < ev->n_sequence; i++)
        msgpack_put_u64(out, ev->sequence[i]);
    if (form == SEQUENCE_FORM_0_9) {
        u64_member_put(out, "isl", ev->isl.v);
        u64_member_put(out, "overlap", ev->overlap_blocks.v);
        opt_member_put(out, "expected_output_tokens", ev->expected_output_tokens);
    } else {
        bool_member_put(out, "track_prefill_tokens", ev->prefill_tokens.set);
        opt_member_put(out, "expected_output_tokens", ev->expected_output_tokens);
        hint_put(out, ev->prefill_tokens);
    }
}

void sequence_event_put(struct buf *out, const struct sequence_event *ev,
                        enum sequence_event_form form)
{
    msgpack_put_map(out, form == SEQUENCE_FORM_0_9 ? 4 : 5);
    str_member_put(out, "request_id", ev->request_id);
    msgpack_put_cstr(out, "worker");
    msgpack_put_map(out, 2);
    u64_member_put(out, "worker_id", ev->worker_id);
    u64_member_put(out, "dp_rank", ev->dp_rank);
    msgpack_put_cstr(out, "data");
    switch (ev->kind) {
    case SEQUENCE_ADD:
        add_put(out, ev, form);
        break;
    case SEQUENCE_PREFILL_DONE:
        msgpack_put_cstr(out, "MarkPrefillCompleted");
        break;
    case SEQUENCE_FREE:
        msgpack_put_cstr(out, "Free");
        break;
    }
    u64_member_put(out, "router_id", ev->router_id);
    if (form == SEQUENCE_FORM_1_X)
        opt_member_put(out, "lora_name", (struct opt_u64){0});
}

void sequence_list_put(struct buf *out, const struct sequence_event *ev)
{
    msgpack_put_map(out, 1);
    msgpack_put_cstr(out, "events");
    msgpack_put_array(out, 1);
    sequence_event_put(out, ev, SEQUENCE_FORM_1_X);
}

/* --- presence ----------------------------------------------------------------------------------
 */

int router_presence_decode(struct str payload, struct router_presence *ret, struct err *e)
{
    struct router_presence p = {0};
    struct members s = {0};
    struct msgpack_reader m;
    bool has_id = false;
    struct str name;
    int r;

    msgpack_reader_init(&m, payload);
    members_begin_map(&m, &s);
    while (members_next(&m, &s, &name)) {
        if (str_is(name, "router_id"))
            has_id = msgpack_read_u64(&m, &p.router_id);
        else if (!str_is(name, "leaving") || !msgpack_read_bool(&m, &p.leaving))
            (void)msgpack_skip(&m);
    }
    r = msgpack_end(&m, e);
    if (r < 0)
        return err_wrap(e, r, "router presence");
    if (!has_id)
        return err_set(e, -EBADMSG, "router presence lacks router_id");
    *ret = p;
    return 0;
}

void router_presence_put(struct buf *out, const struct router_presence *p)
{
    msgpack_put_map(out, 2);
    u64_member_put(out, "router_id", p->router_id);
    bool_member_put(out, "leaving", p->leaving);
}
