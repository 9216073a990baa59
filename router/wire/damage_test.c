/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every captured frame, cut at each place and with bits flipped: refused or survived, never a crash.
 *
 * A document that is cut is always refused. What is accepted with a flipped bit is written, read
 * again and written again: the two texts are the same.
 */
#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "router/wire/captures_test.h"
#include "router/wire/control.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/kv_event.h"
#include "router/wire/sequence_event.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"
#include "router/wire/walk.h"

enum { CUTS = TEST_STEPS(256), FLIPS = TEST_STEPS(256), CUTS_BEYOND = 16 };

/* Reads @in; 0 and what we would write for it in @out, else how it was refused. */
typedef int (*codec_fn)(struct str in, struct buf *out);

struct tally {
    size_t pieces, cut, flipped, accepted;
};

/* --- codecs: read and write again ------------------------------------------------------------- */

static int do_two_part(struct str in, struct buf *out)
{
    struct two_part m;
    size_t used;
    int r = two_part_decode(in, 1 << 20, &m, &used, NULL);

    if (r == 0)
        two_part_put(out, m.header, m.body);
    return r;
}

static int do_frame(struct str in, struct buf *out)
{
    struct tcp_frame f;
    struct two_part m;
    size_t used;
    int r = tcp_frame_decode(in, 1 << 20, &f, &used, NULL);

    if (r == 0)
        r = two_part_decode(f.payload, 1 << 20, &m, &used, NULL);
    return r ? r : tcp_frame_put(out, f.path, f.headers, m.header, m.body, NULL);
}

static int do_control(struct str in, struct buf *out)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct control c;
    int r = control_parse(in, &scratch, &c, NULL);

    if (r == 0)
        control_put(out, &c);
    return r;
}

static int do_handshake(struct str in, struct buf *out)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str subject;
    int r = handshake_parse(in, &scratch, &subject, NULL);

    if (r == 0)
        handshake_put(out, subject);
    return r;
}

static int do_prologue(struct str in, struct buf *out)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str error = STR_NULL;
    int r = prologue_parse(in, &scratch, &error, NULL);

    if (r >= 0)
        prologue_put(out, error);
    return r < 0 ? r : 0;
}

static int do_item(struct str in, struct buf *out)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct wire_item it;
    int r = wire_item_parse(in, &scratch, &it, NULL);

    if (r == 0 && it.final)
        wire_item_put_final(out);
    else if (r == 0)
        wire_item_put_raw(out, it.raw);
    return r;
}

static int do_request(struct str in, struct buf *out)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct engine_request rq;
    int r = engine_request_parse(a, in, &rq, NULL);

    if (r == 0)
        engine_request_put(out, &rq);
    return r;
}

static int do_output(struct str in, struct buf *out)
{
    struct engine_output_reader reader = {0};
    struct engine_output o;
    int r = engine_output_parse(&reader, in, &o, NULL);

    if (r == 0)
        engine_output_put(out, &o);
    engine_output_reader_done(&reader);
    return r;
}

static int do_envelope(struct str in, struct buf *out)
{
    struct event_envelope v;
    int r = event_envelope_decode(in, &v, NULL);

    if (r == 0)
        event_envelope_put(out, &v);
    return r;
}

static int do_event_frame(struct str in, struct buf *out)
{
    struct str envelope;
    int r = event_frame_parse(in, &envelope, NULL);

    if (r == 0)
        event_frame_put(out, envelope);
    return r;
}

static int do_load(struct str in, struct buf *out)
{
    struct active_load load;
    int r = active_load_decode(in, &load, NULL);

    if (r == 0)
        active_load_put(out, &load);
    return r;
}

static int do_rate(struct str in, struct buf *out)
{
    struct kv_hit_rate rate;
    int r = kv_hit_rate_decode(in, &rate, NULL);

    if (r == 0)
        kv_hit_rate_put(out, &rate);
    return r;
}

static void put_kv(void *arg, const struct kv_event *ev)
{
    kv_event_put(arg, ev);
}

static int do_kv(struct str in, struct buf *out)
{
    struct kv_event_reader reader = {0};
    int r = kv_events_decode(&reader, in, put_kv, out, NULL);

    kv_event_reader_done(&reader);
    return r;
}

static void put_kv_json(void *arg, const struct kv_event *ev)
{
    kv_event_put_json(arg, ev);
}

static int do_kv_json(struct str in, struct buf *out)
{
    struct kv_event_reader reader = {0};
    int r = kv_events_parse(&reader, in, put_kv_json, out, NULL);

    kv_event_reader_done(&reader);
    return r;
}

static void put_sequence(void *arg, const struct sequence_event *ev)
{
    sequence_event_put(arg, ev, SEQUENCE_FORM_1_X);
}

static int do_sequence(struct str in, struct buf *out)
{
    struct sequence_event_reader reader = {0};
    int r = sequence_events_decode(&reader, in, put_sequence, out, NULL);

    sequence_event_reader_done(&reader);
    return r;
}

/* --- damage ----------------------------------------------------------------------------------- */

/* A heap copy of just that size, so that a sanitizer sees a step beyond its end. */
static int try_one(codec_fn codec, struct str bytes, struct buf *out)
{
    AUTO(mem_free) char *copy = xmalloc(bytes.len ? bytes.len : 1);

    if (bytes.len)
        memcpy(copy, bytes.ptr, bytes.len);
    buf_clear(out);
    return codec(str_slice(copy, bytes.len), out);
}

static void cut(struct tally *t, codec_fn codec, struct str whole, const char *path)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    size_t step = whole.len > CUTS ? whole.len / CUTS : 1;

    for (size_t n = 0; n < whole.len; n += n + CUTS_BEYOND >= whole.len ? 1 : step) {
        if (try_one(codec, str_head(whole, n), &out) == 0)
            fail_msg("%s: the first %zu of %zu bytes pass for the whole", path, n, whole.len);
        t->cut++;
    }
}

/* Deterministic: the same bits each time, others for each piece. */
static void flip(struct tally *t, codec_fn codec, struct str whole, const char *path)
{
    AUTO(buf_done) struct buf damaged = BUF_NULL;
    AUTO(buf_done) struct buf once = BUF_NULL;
    AUTO(buf_done) struct buf twice = BUF_NULL;
    uint64_t bit = whole.len;

    buf_put_str(&damaged, whole);
    for (size_t i = 0; i < MIN(whole.len * 8, (size_t)FLIPS); i++) {
        size_t at;

        bit =
            whole.len * 8 <= FLIPS ? i : bit * UINT64_C(6364136223846793005) + 1442695040888963407;
        at = (size_t)((whole.len * 8 <= FLIPS ? bit : bit >> 20) % (whole.len * 8));
        buf_data(&damaged)[at / 8] ^= (char)(1u << at % 8);
        t->flipped++;
        if (try_one(codec, buf_str(&damaged), &once) == 0) {
            t->accepted++;
            if (once.len && (try_one(codec, buf_str(&once), &twice) != 0 ||
                             !str_eq(buf_str(&once), buf_str(&twice))))
                fail_msg("%s, bit %zu: what was read does not survive writing:\n%.*s\n%.*s", path,
                         at, STR_ARG(buf_str(&once)), STR_ARG(buf_str(&twice)));
        }
        buf_data(&damaged)[at / 8] ^= (char)(1u << at % 8);
    }
}

static void damage(struct tally *t, codec_fn codec, struct str whole, const char *path)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (whole.len == 0 || try_one(codec, whole, &out) != 0)
        return; /* capture_test judges what is whole */
    t->pieces++;
    cut(t, codec, whole, path);
    flip(t, codec, whole, path);
}

/* --- pieces ----------------------------------------------------------------------------------- */

static bool is_json(struct str s)
{
    return s.len && s.ptr[0] == '{';
}

static void damage_requests(struct tally *t, const char *path, struct str in)
{
    struct tcp_frame f;
    struct two_part m;
    size_t used, n;

    while (tcp_frame_decode(in, 1 << 20, &f, &used, NULL) == 0) {
        damage(t, do_frame, str_head(in, used), path);
        if (two_part_decode(f.payload, 1 << 20, &m, &n, NULL) == 0) {
            damage(t, do_two_part, f.payload, path);
            damage(t, do_control, m.header, path);
            if (is_json(m.body))
                damage(t, do_request, m.body, path);
        }
        in = str_skip(in, used);
    }
}

static void damage_responses(struct tally *t, const char *path, struct str in)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct wire_item it;
    struct two_part m;
    size_t used;

    for (size_t i = 0; two_part_decode(in, 1 << 20, &m, &used, NULL) == 0 && i < 8; i++) {
        damage(t, do_two_part, str_head(in, used), path);
        if (m.header.len && control_word_of(m.header) == WORD_NONE)
            damage(t, i == 0 ? do_handshake : do_prologue, m.header, path);
        if (is_json(m.body)) {
            damage(t, do_item, m.body, path);
            buf_clear(&scratch);
            if (wire_item_parse(m.body, &scratch, &it, NULL) == 0)
                damage(t, do_output, it.data, path);
        }
        in = str_skip(in, used);
    }
}

static void damage_event(struct tally *t, const char *path, struct str in)
{
    static const codec_fn payloads[] = {do_load, do_rate, do_kv, do_sequence};
    struct event_envelope v;

    if (is_json(in)) {
        damage(t, do_kv_json, in, path);
    } else if (event_envelope_decode(in, &v, NULL) == 0) {
        damage(t, do_envelope, in, path);
        for (size_t i = 0; i < ARRAY_LEN(payloads); i++)
            damage(t, payloads[i], v.payload, path);
    }
}

struct publisher {
    struct tally *t;
    const char *path;
};

static void damage_message(void *arg, const struct str *parts)
{
    const struct publisher *p = arg;
    struct str envelope;

    damage(p->t, do_event_frame, parts[ZMTP_PARTS - 1], p->path);
    if (event_frame_parse(parts[ZMTP_PARTS - 1], &envelope, NULL) == 0)
        damage_event(p->t, p->path, envelope);
}

static void pass_over(void *arg, struct str command)
{
    (void)arg;
    (void)command; /* the library's */
}

static void check_file(void *arg, const char *path, struct str content)
{
    struct tally *t = arg;
    struct str p = str_from(path);

    if (!str_ends(p, STR(".bin")))
        return;
    if (str_has(p, STR("/zmtp/")))
        zmtp_walk(content, damage_message, pass_over, &(struct publisher){t, path});
    if (str_has(p, STR("request_plane_client_to_worker")))
        damage_requests(t, path, content);
    else if (str_has(p, STR("response_plane_worker")))
        damage_responses(t, path, content);
    else if (str_has(p, STR("/events-nats/")))
        damage_event(t, path, content);
}

static void test_damage(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *dir = xasprintf("%s/data/wire", shared);
    struct tally t = {0};

    (void)state;
    walk(dir, check_file, &t);
    print_message("%zu pieces, %zu cuts, %zu flips, of which %zu were accepted\n", t.pieces, t.cut,
                  t.flipped, t.accepted);
    assert_true(t.pieces > 1000 && t.cut > 100000 && t.flipped > 100000);
}

int main(void)
{
    return TEST_RUN(T(test_damage));
}
