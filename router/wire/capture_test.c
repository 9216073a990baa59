/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every captured frame, item and event of the reference decodes, and encodes to the same bytes
 * where we write that form.
 */
#include "lib/base/arena.h"
#include "lib/base/json_pull.h"
#include "router/wire/control.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/kv_event.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"
#include "router/wire/walk.h"

struct tally {
    size_t files, frames, same, items, outputs, events, envelopes, acks, cut;
    struct engine_output_reader reader;
    struct kv_event_reader events_in;
};

static void same(struct tally *t, struct str want, const struct buf *got, const char *path)
{
    if (!str_eq(want, buf_str(got)))
        fail_msg("%s:\nwant %.*s\ngot  %.*s", path, STR_ARG(want), STR_ARG(buf_str(got)));
    t->same++;
}

static bool is_msgpack(struct str body)
{
    return body.len && body.ptr[0] != '{';
}

/* --- request plane ---------------------------------------------------------------------------- */

static void check_engine_request(struct tally *t, const char *path, struct str body)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_request rq;
    struct err e;

    if (!str_has(body, STR("\"sampling_options\"")))
        return; /* a recovery query */
    EXPECT_OK(engine_request_parse(a, body, &rq, &e), &e);
    assert_true(rq.n_token_ids > 0);
    assert_true(rq.model.len > 0);
    engine_request_put(&out, &rq);
    if (str_has(str_from(path), STR("/0.9.0/")))
        same(t, body, &out, path);
}

static void check_request(struct tally *t, const char *path, struct tcp_frame *f)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf again = BUF_NULL;
    struct two_part m;
    struct control c;
    struct err e;
    size_t used;

    EXPECT_OK(two_part_decode(f->payload, 1 << 20, &m, &used, &e), &e);
    assert_int_equal(used, f->payload.len);
    EXPECT_OK(control_parse(m.header, &scratch, &c, &e), &e);
    assert_int_equal(c.id.len, 36);
    assert_int_equal(c.subject.len, 36);
    if (!c.payload_codec.len) {
        control_put(&again, &c);
        same(t, m.header, &again, path);
    }
    if (!is_msgpack(m.body))
        check_engine_request(t, path, m.body);
}

static void check_request_plane(struct tally *t, const char *path, struct str in)
{
    while (in.len) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct tcp_frame f;
        struct two_part m;
        struct err e;
        size_t used, n;
        int r = tcp_frame_decode(in, 1 << 20, &f, &used, &e);

        if (r == TCP_FRAME_MORE && str_has(str_from(path), STR("first-16k")))
            return;
        EXPECT_OK(r, &e);
        check_request(t, path, &f);
        EXPECT_OK(two_part_decode(f.payload, 1 << 20, &m, &n, &e), &e);
        EXPECT_OK(tcp_frame_put(&out, f.path, f.headers, m.header, m.body, &e), &e);
        same(t, str_head(in, used), &out, path);
        in = str_skip(in, used);
        t->frames++;
    }
}

static void check_acks(struct tally *t, const char *path, struct str in)
{
    (void)path;
    while (in.len) {
        struct str text;
        struct err e;
        size_t used;

        EXPECT_OK(tcp_ack_decode(in, &text, &used, &e), &e);
        assert_int_equal(text.len, 0);
        in = str_skip(in, used);
        t->acks++;
    }
}

/* --- response plane --------------------------------------------------------------------------- */

static void count_event(void *arg, const struct kv_event *ev)
{
    struct tally *t = arg;

    assert_true(ev->worker_id != 0);
    t->events++;
}

static void check_item(struct tally *t, const char *path, struct str body)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_output o;
    struct wire_item it;
    struct err e;

    EXPECT_OK(wire_item_parse(body, &scratch, &it, &e), &e);
    t->items++;
    if (it.final) {
        wire_item_put_final(&out);
        same(t, body, &out, path);
        return;
    }
    assert_false(it.is_error);
    if (!it.data.len) {
        EXPECT_OK(kv_events_parse(&t->events_in, it.raw, count_event, t, &e), &e);
        wire_item_put_raw(&out, it.raw);
        same(t, body, &out, path);
        return;
    }
    wire_item_put(&out, it.data);
    same(t, body, &out, path);
    EXPECT_OK(engine_output_parse(&t->reader, it.data, &o, &e), &e);
    assert_true(o.n_token_ids > 0 || o.finish != FINISH_NONE);
    buf_clear(&out);
    engine_output_put(&out, &o);
    if (str_has(str_from(path), STR("/0.9.0/")))
        same(t, it.data, &out, path);
    t->outputs++;
}

static void check_header(struct tally *t, const char *path, struct str header, size_t i_frame)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str s;
    struct err e;

    if (control_word_of(header) != WORD_NONE)
        return;
    if (i_frame == 0) {
        EXPECT_OK(handshake_parse(header, &scratch, &s, &e), &e);
        handshake_put(&out, s);
    } else {
        EXPECT_OK(prologue_parse(header, &scratch, &s, &e), &e);
        prologue_put(&out, STR_NULL);
    }
    same(t, header, &out, path);
}

static void check_response_plane(struct tally *t, const char *path, struct str in)
{
    for (size_t i = 0; in.len; i++) {
        struct two_part m;
        struct err e;
        size_t used;
        int r = two_part_decode(in, 1 << 20, &m, &used, &e);

        if (r == TWO_PART_MORE && str_has(str_from(path), STR("first-16k"))) {
            t->cut++;
            return;
        }
        EXPECT_OK(r, &e);
        if (m.header.len)
            check_header(t, path, m.header, i);
        else if (!is_msgpack(m.body))
            check_item(t, path, m.body);
        in = str_skip(in, used);
        t->frames++;
    }
}

/* Six or more acknowledgements in a row were taken for an empty two-part message by the capture. */
static bool is_acks(struct str path, struct str content)
{
    return str_has(path, STR("frontend_to_worker")) && content.len >= TWO_PART_HEAD &&
           load_u64be(content.ptr) == 0;
}

static void check_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;
    struct str p = str_from(path);

    if (!str_ends(p, STR(".bin")))
        return;
    t->files++;
    if (str_has(p, STR("request_plane_client_to_worker")))
        check_request_plane(t, path, content);
    else if (str_has(p, STR("request_plane_ack_worker")) || is_acks(p, content))
        check_acks(t, path, content);
    else if (str_has(p, STR("response_plane_")))
        check_response_plane(t, path, content);
}

static void test_planes(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_file, &t);
    print_message("%zu files, %zu frames, %zu acks, %zu items, %zu outputs, %zu events, %zu equal, "
                  "%zu cut\n",
                  t.files, t.frames, t.acks, t.items, t.outputs, t.events, t.same, t.cut);
    assert_true(t.frames > 500 && t.acks > 50 && t.items > 300 && t.outputs > 200);
    engine_output_reader_done(&t.reader);
    kv_event_reader_done(&t.events_in);
}

/* --- events ----------------------------------------------------------------------------------- */

struct rewrite {
    struct tally *t;
    struct buf msgpack, json;
};

static void rewrite_event(void *arg, const struct kv_event *ev)
{
    struct rewrite *rw = arg;

    count_event(rw->t, ev);
    kv_event_put(&rw->msgpack, ev);
    kv_event_put_json(&rw->json, ev);
    assert_int_equal(ev->tier, KV_TIER_DEVICE);
}

static void check_envelope(struct tally *t, const char *path, struct str bytes)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    bool old = str_has(str_from(path), STR("/0.9.0/"));
    struct rewrite rw = {.t = t};
    struct event_envelope v;
    struct active_load load;
    struct kv_hit_rate rate;
    struct err e;

    EXPECT_OK(event_envelope_decode(bytes, &v, &e), &e);
    event_envelope_put(&out, &v);
    same(t, bytes, &out, path);
    t->envelopes++;
    buf_clear(&out);
    if (str_is(v.topic, TOPIC_KV_METRICS)) {
        EXPECT_OK(active_load_decode(v.payload, &load, &e), &e);
        active_load_put(&out, &load);
        if (old || load.kv_used_blocks.set)
            same(t, v.payload, &out, path);
    } else if (str_is(v.topic, TOPIC_KV_HIT_RATE)) {
        EXPECT_OK(kv_hit_rate_decode(v.payload, &rate, &e), &e);
        kv_hit_rate_put(&out, &rate);
        same(t, v.payload, &out, path);
    } else if (str_is(v.topic, TOPIC_KV_EVENTS)) {
        EXPECT_OK(kv_events_decode(&t->events_in, v.payload, rewrite_event, &rw, &e), &e);
        if (old)
            same(t, v.payload, &rw.msgpack, path);
    }
    buf_done(&rw.msgpack);
    buf_done(&rw.json);
}

/* One frame of ZMTP 3.1 at the front of @in: its body; false when it is not all there. */
static bool zmtp_frame(struct str *in, struct str *ret_body, bool *ret_command)
{
    enum { LONG = 2, COMMAND = 4 };
    unsigned char flags = in->len ? (unsigned char)in->ptr[0] : 0;
    size_t head = flags & LONG ? 9 : 2;
    uint64_t len;

    if (in->len < head)
        return false;
    len = flags & LONG ? load_u64be(in->ptr + 1) : (unsigned char)in->ptr[1];
    if (in->len - head < len)
        return false;
    *ret_command = flags & COMMAND;
    *ret_body = str_slice(in->ptr + head, (size_t)len);
    *in = str_skip(*in, head + (size_t)len);
    return true;
}

/* What publishers sent over ZeroMQ: topic, publisher, sequence, framed envelope (wire.md §7.4). */
static void check_zmtp(struct tally *t, const char *path, struct str in)
{
    enum { GREETING = 64, PARTS = 4 };
    struct str parts[PARTS], frame, envelope;
    size_t n = 0;
    bool command;
    struct err e;

    if (in.len < GREETING || !str_has(str_head(in, 256), STR("PUB")))
        return; /* of a subscriber */
    in = str_skip(in, GREETING);
    while (zmtp_frame(&in, &frame, &command)) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        if (command)
            continue;
        parts[n++] = frame;
        if (n < PARTS)
            continue;
        n = 0;
        assert_int_equal(parts[1].len, 8);
        assert_int_equal(parts[2].len, 8);
        EXPECT_OK(event_frame_parse(parts[3], &envelope, &e), &e);
        event_frame_put(&out, envelope);
        same(t, parts[3], &out, path);
        check_envelope(t, path, envelope);
    }
}

static void check_json_event(struct tally *t, const char *path, struct str json)
{
    struct rewrite rw = {.t = t};
    struct err e;

    EXPECT_OK(kv_events_parse(&t->events_in, json, rewrite_event, &rw, &e), &e);
    same(t, json, &rw.json, path);
    buf_done(&rw.msgpack);
    buf_done(&rw.json);
}

static void check_event_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;
    struct str p = str_from(path);

    if (!str_ends(p, STR(".bin")) || content.len == 0)
        return;
    if (str_has(p, STR("_zmtp."))) {
        t->files++;
        check_zmtp(t, path, content);
        return;
    }
    if (!str_has(p, STR("/events-nats/")))
        return;
    t->files++;
    if ((uint8_t)content.ptr[0] == 0x85)
        check_envelope(t, path, content);
    else if (str_has(p, STR("/kv-events-")) && content.ptr[0] == '{')
        check_json_event(t, path, content);
}

static void test_events(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_event_file, &t);
    print_message("%zu files, %zu envelopes, %zu kv events, %zu equal\n", t.files, t.envelopes,
                  t.events, t.same);
    assert_true(t.envelopes > 30 && t.events > 30);
    kv_event_reader_done(&t.events_in);
}

int main(void)
{
    return TEST_RUN(T(test_planes), T(test_events));
}
