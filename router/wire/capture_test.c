/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every captured frame, item and event of the reference decodes, and encodes to the same bytes
 * where we write that form.
 */
#include "lib/base/arena.h"
#include "lib/base/json_tree.h"
#include "router/sync/kv_answer.h"
#include "router/wire/captures_test.h"
#include "router/wire/control.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/kv_event.h"
#include "router/wire/sequence_event.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"
#include "router/wire/walk.h"

struct tally {
    size_t files, frames, same, items, outputs, events, envelopes, acks, cut, requests, sequences,
        subscriptions, of_nats;
    const char *path; /* of the file that is read */
    struct engine_output_reader reader;
    struct kv_event_reader events_in;
    struct sequence_event_reader sequences_in;
};

static void tally_done(struct tally *t)
{
    engine_output_reader_done(&t->reader);
    kv_event_reader_done(&t->events_in);
    sequence_event_reader_done(&t->sequences_in);
}

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

/* Whatever @theirs says stands in @mine, too; null says nothing. */
static void check_said(const char *path, const struct json *theirs, const struct json *mine)
{
    JSON_FOREACH (member, theirs) {
        const struct json *m = json_get(mine, json_key(member));

        if (json_is_null(member))
            continue;
        if (!m)
            fail_msg("%s: %s is lost", path, json_key(member));
        if (json_is_object(member))
            check_said(path, member, m);
        else if (!json_equal(member, m))
            fail_msg("%s: %s is another", path, json_key(member));
    }
}

static void check_engine_request(struct tally *t, const char *path, struct str body)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(json_free) struct json *theirs = NULL;
    AUTO(json_free) struct json *mine = NULL;
    struct engine_request rq;
    struct err e;

    if (!str_has(body, STR("\"sampling_options\""))) {
        assert_true(str_has(body, STR("\"start_event_id\""))); /* a recovery query */
        return;
    }
    EXPECT_OK(engine_request_parse(a, body, &rq, &e), &e);
    assert_true(rq.n_token_ids > 0);
    assert_true(rq.model.len > 0);
    engine_request_put(&out, &rq);
    t->requests++;
    EXPECT_OK(json_parse_wide(&theirs, body, &e), &e);
    EXPECT_OK(json_parse_wide(&mine, buf_str(&out), &e), &e);
    check_said(path, theirs, mine);
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
    if (is_msgpack(m.body)) {
        AUTO(buf_done) struct buf json = BUF_NULL;

        assert_true(str_is(c.payload_codec, "msgpack"));
        json_of_packed(&json, m.body);
        check_engine_request(t, path, buf_str(&json));
    } else {
        check_engine_request(t, path, m.body);
    }
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
        struct kv_answer answer;

        EXPECT_OK(kv_answer_parse(it.raw, &answer, &e), &e);
        assert_true(answer.kind == KV_ANSWER_DUMP || answer.kind == KV_ANSWER_EVENTS);
        EXPECT_OK(kv_events_parse(&t->events_in, answer.events, count_event, t, &e), &e);
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
        if (m.header.len) {
            check_header(t, path, m.header, i);
        } else if (is_msgpack(m.body)) {
            AUTO(buf_done) struct buf json = BUF_NULL;

            json_of_packed(&json, m.body);
            check_item(t, path, buf_str(&json));
        } else {
            check_item(t, path, m.body);
        }
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
    else /* test_events */
        assert_true(str_has(p, STR("/zmtp/")) || str_has(p, STR("/events-nats/")) ||
                    str_has(p, STR("/bootstrap/")));
}

static void test_planes(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_file, &t);
    print_message(
        "%zu files, %zu frames, %zu requests, %zu acks, %zu items, %zu outputs, %zu events, "
        "%zu equal, %zu cut\n",
        t.files, t.frames, t.requests, t.acks, t.items, t.outputs, t.events, t.same, t.cut);
    assert_true(t.frames > 500 && t.acks > 50 && t.items > 300 && t.outputs > 200);
    assert_true(t.requests > 60);
    tally_done(&t);
}

/* --- events ----------------------------------------------------------------------------------- */

struct rewrite {
    struct tally *t;
    bool lists; /* of sequence events, of one each */
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

static void rewrite_sequence(void *arg, const struct sequence_event *ev)
{
    struct rewrite *rw = arg;

    if (rw->lists)
        sequence_list_put(&rw->msgpack, ev);
    else
        sequence_event_put(&rw->msgpack, ev, ev->form);
    rw->t->sequences++;
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
    } else if (str_is(v.topic, TOPIC_ACTIVE_SEQUENCES)) {
        rw.lists = str_has(str_head(v.payload, 8), STR("events"));
        EXPECT_OK(sequence_events_decode(&t->sequences_in, v.payload, rewrite_sequence, &rw, &e),
                  &e);
        same(t, v.payload, &rw.msgpack, path);
    } else if (!str_is(v.topic, "forward-pass-metrics")) { /* for planners: nobody here asks */
        fail_msg("%s: topic %.*s", path, STR_ARG(v.topic));
    }
    buf_done(&rw.msgpack);
    buf_done(&rw.json);
}

/* What publishers sent over ZeroMQ: topic, publisher, sequence, framed envelope (wire.md §7.4). */
static void check_parts(void *arg, const struct str *parts)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct tally *t = arg;
    struct event_envelope v;
    struct str envelope;
    struct err e;

    EXPECT_OK(event_frame_parse(parts[3], &envelope, &e), &e);
    event_frame_put(&out, envelope);
    same(t, parts[3], &out, t->path);
    check_envelope(t, t->path, envelope);
    EXPECT_OK(event_envelope_decode(envelope, &v, &e), &e);
    assert_true(str_eq(parts[0], v.topic));
    assert_int_equal(parts[1].len, 8);
    assert_true(load_u64be(parts[1].ptr) == v.publisher_id);
    assert_int_equal(parts[2].len, 8);
    assert_true(load_u64be(parts[2].ptr) == v.sequence);
}

/* The word and its length come first: the library's business, but topics are what we subscribe to, too. */
static void check_command(void *arg, struct str body)
{
    struct tally *t = arg;
    struct str topic;

    if (str_starts(body, STR("\5READY")))
        return;
    assert_true(str_starts(body, STR("\11SUBSCRIBE")));
    topic = str_skip(body, strlen("?SUBSCRIBE"));
    assert_true(str_is(topic, TOPIC_KV_EVENTS) || str_is(topic, TOPIC_KV_METRICS) ||
                str_is(topic, TOPIC_ACTIVE_SEQUENCES));
    t->subscriptions++;
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

static void check_message(void *arg, struct str subject, struct str bytes)
{
    struct tally *t = arg;

    if (bytes.len && (uint8_t)bytes.ptr[0] == 0x85) {
        check_envelope(t, t->path, bytes);
    } else if (str_ends(subject, STR("-kv-events.kv-events"))) {
        check_json_event(t, t->path, bytes);
    } else { /* of JetStream's API, which its library speaks */
        if (!str_starts(subject, STR("$JS.")) && !str_starts(subject, STR("_INBOX.")))
            fail_msg("%s: subject %.*s", t->path, STR_ARG(subject));
        t->of_nats++;
    }
}

/* Where the server had a stream, it was one by the name that we give it. */
static void check_streams(struct str state)
{
    AUTO(buf_done) struct buf name = BUF_NULL;

    event_stream_put(&name, "dynamo", "backend");
    assert_true(!str_has(state, STR("\"stream_detail\"")) || str_has(state, buf_str(&name)));
}

static void check_event_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;
    struct str p = str_from(path);

    t->path = path;
    t->files++;
    if (str_has(p, STR("_zmtp.")) && str_ends(p, STR(".bin")))
        zmtp_walk(content, check_parts, check_command, t);
    else if (str_ends(p, STR("/events-nats/messages.jsonl")))
        messages_walk(content, check_message, t);
    else if (str_ends(p, STR("/jetstream-state.json")))
        check_streams(content);
    else if (!str_has(p, STR("/events-nats/")) || !str_ends(p, STR(".bin")))
        t->files--;
    else if ((uint8_t)content.ptr[0] == 0x85)
        check_envelope(t, path, content);
    else if (str_has(p, STR("/kv-events-")))
        check_json_event(t, path, content);
    else /* of JetStream's API */
        assert_true(str_has(content, STR("\"io.nats.jetstream.api.v1.account_info_response\"")));
}

static void test_events(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_event_file, &t);
    print_message("%zu files, %zu envelopes, %zu kv events, %zu of sequences, %zu subscriptions, "
                  "%zu of NATS, %zu equal\n",
                  t.files, t.envelopes, t.events, t.sequences, t.subscriptions, t.of_nats, t.same);
    assert_true(t.envelopes > 30 && t.events > 30 && t.sequences > 8 && t.subscriptions > 4);
    tally_done(&t);
}

/* --- every file ------------------------------------------------------------------------------- */

/* Who reads them: whatever of the path is of none of these has no reader. */
static const struct {
    const char *part, *end, *reader;
} READERS[] = {
    {"/request-plane/", ".bin", __FILE__},
    {"/response-plane/", ".bin", __FILE__},
    {"/zmtp/", ".bin", __FILE__},
    {"/events-nats/", ".bin", __FILE__},
    {"/events-nats/", "/messages.jsonl", __FILE__},
    {"/events-nats/", "/jetstream-state.json", __FILE__},
    {"/discovery/kv-store", "", "router/discovery/records_test.c"},
    {"/discovery/", "/etcd-keys.jsonl", "router/discovery/records_test.c"},
    {"/discovery/", "/etcd-leases.txt", "router/discovery/records_test.c"},
    {"/kubernetes/", "/kube-api-requests.jsonl", "router/discovery/kube_join_test.c"},
    {"/kubernetes-live/", "/endpointslices.json", "router/discovery/kube_join_test.c"},
    {"/kubernetes-live/", "/dynamoworkermetadatas.json", "router/discovery/kube_join_test.c"},
    {"/kubernetes-live/", "/frontend-metrics.txt", "e2e/test_explain.py"},
    {"/kubernetes-live/", "/worker-metrics.txt", "e2e/test_metric_names.py"},
    {"/kubernetes-live/", ".json", "router/openai/captured_http_test.c"},
    {"/kubernetes-live/", ".txt", "router/openai/captured_http_test.c"},
    {"/http/", "/frontend-GET-metrics.txt", "e2e/test_explain.py"},
    {"/http/", "-system-GET-metrics.txt", "e2e/test_metric_names.py"},
    {"/http/", "", "router/openai/captured_http_test.c"},
    {"/0.9.0/disagg/bootstrap/", ".bin", "worker/bootstrap_test.c"},
    {"/1.x/disagg/bootstrap/", ".bin", NULL}, /* of their mockers only: worker/README.md */
    {"/README.md", "", NULL},
    {"", ".log", NULL},
};

/* "007_….txt" is "007_….bin", or "007_….first-16k.bin", in words. */
static bool is_annotation(struct str path)
{
    static const char *const ends[] = {".bin", ".first-16k.bin"};
    struct str stem = str_head(path, path.len - MIN(path.len, strlen(".txt")));
    bool found = false;

    for (size_t i = 0; i < ARRAY_LEN(ends) && str_ends(path, STR(".txt")); i++) {
        AUTO(mem_free) char *twin = xasprintf("%.*s%s", STR_ARG(stem), ends[i]);

        found |= access(twin, R_OK) == 0;
    }
    return found;
}

static void check_claimed(void *arg, const char *path, struct str content)
{
    struct str p = str_from(path);
    size_t *n = arg, i = 0;

    (void)content;
    ++*n;
    if (is_annotation(p))
        return;
    while (i < ARRAY_LEN(READERS) &&
           !(str_has(p, str_from(READERS[i].part)) && str_ends(p, str_from(READERS[i].end))))
        i++;
    if (i == ARRAY_LEN(READERS))
        fail_msg("nobody reads %s", path);
}

static void test_every_file_has_a_reader(void **state)
{
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", test_shared());
    size_t n = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(READERS); i++)
        if (READERS[i].reader && access(READERS[i].reader, R_OK) != 0)
            fail_msg("there is no %s", READERS[i].reader);
    walk(dir, check_claimed, &n);
    assert_true(n > 1000);
}

int main(void)
{
    return TEST_RUN(T(test_planes), T(test_events), T(test_every_file_has_a_reader));
}
