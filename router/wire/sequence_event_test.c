/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/sequence_event.h"
#include "lib/base/test.h"

#include <errno.h>

#include "router/wire/kv_event.h"

/* Messages of unmodified frontends with --router-replica-sync, core NATS: each one request, added,
 * prefilled and freed. The prompt is the same. */
static const struct {
    enum sequence_event_form form;
    uint64_t router_id, worker_id;
    const char *messages[3];
} CAPTURES[] = {
    {SEQUENCE_FORM_0_9,
     UINT64_C(0x8f199bb36f30ec2d),
     UINT64_C(0x3b4b7e4c299d2b73),
     {"85ac7075626c69736865725f6964cf8f199bb36f30ec2da873657175656e636500ac7075626c69736865645f"
      "6174cf000001a1fe9f7b15a5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c5010384aa726571756573745f6964d92430366532663461332d343433632d343365392d386666"
      "662d336132363639346463383636a6776f726b657282a9776f726b65725f6964cf3b4b7e4c299d2b73a76470"
      "5f72616e6b00a46461746181aa4164645265717565737484ae746f6b656e5f73657175656e636599cfdac90d"
      "d461fafd7bcf8808b0222e531c75cf76b75916da62b810cf34d93d96f6106d85cf151ec7714bbf5ae9cff9ba"
      "b60c95d520e9cf6215a3544131cea2cfd3d852b0bb9c4894cf95e1b36c6853fe3aa369736ccc91a76f766572"
      "6c617000b665787065637465645f6f75747075745f746f6b656e73c0a9726f757465725f6964cf8f199bb36f"
      "30ec2d",
      "85ac7075626c69736865725f6964cf8f199bb36f30ec2da873657175656e636501ac7075626c69736865645f"
      "6174cf000001a1fe9f7b16a5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c48384aa726571756573745f6964d92430366532663461332d343433632d343365392d38666666"
      "2d336132363639346463383636a6776f726b657282a9776f726b65725f6964cf3b4b7e4c299d2b73a764705f"
      "72616e6b00a464617461b44d61726b50726566696c6c436f6d706c65746564a9726f757465725f6964cf8f19"
      "9bb36f30ec2d",
      "85ac7075626c69736865725f6964cf8f199bb36f30ec2da873657175656e636502ac7075626c69736865645f"
      "6174cf000001a1fe9f7b1ba5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c47384aa726571756573745f6964d92430366532663461332d343433632d343365392d38666666"
      "2d336132363639346463383636a6776f726b657282a9776f726b65725f6964cf3b4b7e4c299d2b73a764705f"
      "72616e6b00a464617461a446726565a9726f757465725f6964cf8f199bb36f30ec2d"}},
    {SEQUENCE_FORM_1_X,
     UINT64_C(0x772711bbbc932ef),
     UINT64_C(0x29b177cd7df2fc97),
     {"85ac7075626c69736865725f6964cf0008793ef8266590a873657175656e636500ac7075626c69736865645f"
      "6174cf000001a1fea0e6c4a5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c5016785aa726571756573745f6964d92432373836326634612d316535612d343135622d613835"
      "302d613939363134666535303436a6776f726b657282a9776f726b65725f6964cf29b177cd7df2fc97a76470"
      "5f72616e6b00a46461746181aa4164645265717565737484ae746f6b656e5f73657175656e636599cfdac90d"
      "d461fafd7bcf8808b0222e531c75cf76b75916da62b810cf34d93d96f6106d85cf151ec7714bbf5ae9cff9ba"
      "b60c95d520e9cf6215a3544131cea2cfd3d852b0bb9c4894cf95e1b36c6853fe3ab4747261636b5f70726566"
      "696c6c5f746f6b656e73c3b665787065637465645f6f75747075745f746f6b656e73c0b170726566696c6c5f"
      "6c6f61645f68696e7482d920696e697469616c5f6566666563746976655f70726566696c6c5f746f6b656e73"
      "cc91b965787065637465645f70726566696c6c5f6475726174696f6ec0a9726f757465725f6964cf0772711b"
      "bbc932efa96c6f72615f6e616d65c0",
      "85ac7075626c69736865725f6964cf0008793ef8266590a873657175656e636501ac7075626c69736865645f"
      "6174cf000001a1fea0e6c7a5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c48e85aa726571756573745f6964d92432373836326634612d316535612d343135622d61383530"
      "2d613939363134666535303436a6776f726b657282a9776f726b65725f6964cf29b177cd7df2fc97a764705f"
      "72616e6b00a464617461b44d61726b50726566696c6c436f6d706c65746564a9726f757465725f6964cf0772"
      "711bbbc932efa96c6f72615f6e616d65c0",
      "85ac7075626c69736865725f6964cf0008793ef8266590a873657175656e636502ac7075626c69736865645f"
      "6174cf000001a1fea0e6caa5746f706963b76163746976655f73657175656e6365735f6576656e7473a77061"
      "796c6f6164c47e85aa726571756573745f6964d92432373836326634612d316535612d343135622d61383530"
      "2d613939363134666535303436a6776f726b657282a9776f726b65725f6964cf29b177cd7df2fc97a764705f"
      "72616e6b00a464617461a446726565a9726f757465725f6964cf0772711bbbc932efa96c6f72615f6e616d65"
      "c0"}},
};

static void unhex(const char *hex, struct buf *out)
{
    for (size_t i = 0; hex[i]; i += 2) {
        uint64_t byte;

        assert_true(str_parse_hex64(str_slice(hex + i, 2), &byte));
        buf_put_char(out, (char)byte);
    }
}

struct seen {
    struct sequence_event last; /* views into what was decoded */
    size_t n;
};

static void see(void *arg, const struct sequence_event *ev)
{
    struct seen *s = arg;

    s->last = *ev;
    s->n++;
}

static void captures_decode_and_encode_to_the_same_bytes(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    static const enum sequence_event_kind kinds[] = {SEQUENCE_ADD, SEQUENCE_PREFILL_DONE,
                                                     SEQUENCE_FREE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CAPTURES); i++)
        for (size_t k = 0; k < 3; k++) {
            AUTO(buf_done) struct buf bytes = BUF_NULL;
            AUTO(buf_done) struct buf again = BUF_NULL;
            struct event_envelope v;
            struct seen s = {0};
            struct err e;

            unhex(CAPTURES[i].messages[k], &bytes);
            EXPECT_OK(event_envelope_decode(buf_str(&bytes), &v, &e), &e);
            assert_true(str_is(v.topic, TOPIC_ACTIVE_SEQUENCES));
            EXPECT_OK(sequence_events_decode(&r, v.payload, see, &s, &e), &e);
            assert_int_equal(s.n, 1);
            assert_int_equal(s.last.kind, kinds[k]);
            assert_int_equal(s.last.form, CAPTURES[i].form);
            assert_int_equal(s.last.router_id, CAPTURES[i].router_id);
            assert_int_equal(s.last.worker_id, CAPTURES[i].worker_id);
            assert_int_equal(s.last.request_id.len, 36);
            sequence_event_put(&again, &s.last, CAPTURES[i].form);
            assert_int_equal(again.len, v.payload.len);
            assert_memory_equal(buf_data(&again), v.payload.ptr, v.payload.len);
        }
}

static void an_addition_says_what_it_costs_in_the_words_of_its_generation(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(CAPTURES); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct event_envelope v;
        struct seen s = {0};
        struct err e;

        unhex(CAPTURES[i].messages[0], &bytes);
        EXPECT_OK(event_envelope_decode(buf_str(&bytes), &v, &e), &e);
        EXPECT_OK(sequence_events_decode(&r, v.payload, see, &s, &e), &e);
        assert_int_equal(s.last.n_sequence, 9);
        assert_int_equal(s.last.sequence[0], UINT64_C(0xdac90dd461fafd7b));
        if (CAPTURES[i].form == SEQUENCE_FORM_0_9) {
            assert_true(s.last.isl.set && s.last.overlap_blocks.set && !s.last.prefill_tokens.set);
            assert_int_equal(s.last.isl.v, 145);
            assert_int_equal(s.last.overlap_blocks.v, 0);
        } else {
            assert_true(!s.last.isl.set && s.last.prefill_tokens.set);
            assert_int_equal(s.last.prefill_tokens.v, 145);
        }
    }
}

static void lists_of_events_are_read_but_do_not_nest(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    const struct sequence_event ev = {.request_id = STR("r"), .kind = SEQUENCE_FREE};
    AUTO(buf_done) struct buf one = BUF_NULL;
    struct err e;

    (void)state;
    sequence_event_put(&one, &ev, SEQUENCE_FORM_1_X);
    for (int depth = 0; depth < 2; depth++) {
        AUTO(buf_done) struct buf list = BUF_NULL;
        struct seen s = {0};

        for (int i = 0; i <= depth; i++) {
            buf_put_str(&list, STR("\x81\xa6"
                                   "events"));
            buf_put_char(&list, (char)(i == depth ? 0x92 : 0x91));
        }
        buf_put_str(&list, buf_str(&one));
        buf_put_str(&list, buf_str(&one));
        assert_int_equal(sequence_events_decode(&r, buf_str(&list), see, &s, &e),
                         depth ? -EBADMSG : 0);
        assert_int_equal(s.n, depth ? 0 : 2);
        if (depth == 0) {
            s.n = 0;
            EXPECT_OK(sequence_events_decode(&r, str_skip(buf_str(&list), 8), see, &s, &e), &e);
            assert_int_equal(s.n, 2);
        }
    }
}

static void a_list_for_1_x_over_zmq_holds_the_event(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    const struct sequence_event ev = {.request_id = STR("r"), .kind = SEQUENCE_FREE};
    AUTO(buf_done) struct buf one = BUF_NULL, list = BUF_NULL;
    struct seen s = {0};
    struct err e;

    (void)state;
    sequence_event_put(&one, &ev, SEQUENCE_FORM_1_X);
    sequence_list_put(&list, &ev);
    assert_true(str_starts(buf_str(&list), STR("\x81\xa6"
                                               "events\x91")));
    assert_true(str_eq(str_skip(buf_str(&list), 9), buf_str(&one)));
    EXPECT_OK(sequence_events_decode(&r, buf_str(&list), see, &s, &e), &e);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.last.form, SEQUENCE_FORM_1_X);
}

static void what_is_no_event_is_refused(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    const struct sequence_event good = {.request_id = STR("r"), .kind = SEQUENCE_FREE};
    struct sequence_event long_id = good;
    static const char text[SEQUENCE_EVENT_ID_MAX + 2];
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct seen s = {0};
    struct err e;

    (void)state;
    long_id.request_id = str_slice(text, SEQUENCE_EVENT_ID_MAX + 1);
    sequence_event_put(&out, &long_id, SEQUENCE_FORM_0_9);
    assert_int_equal(sequence_events_decode(&r, buf_str(&out), see, &s, &e), -EBADMSG);
    buf_clear(&out);
    sequence_event_put(&out, &good, SEQUENCE_FORM_0_9);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(sequence_events_decode(&r, str_head(buf_str(&out), n), see, &s, &e),
                         -EBADMSG);
    /* Without its last member it is whole MessagePack and still no event. */
    *buf_data(&out) = (char)0x83;
    assert_int_equal(sequence_events_decode(&r, str_head(buf_str(&out), out.len - 11), see, &s, &e),
                     -EBADMSG);
    assert_int_equal(s.n, 0);
}

static void presence_goes_there_and_back(void **state)
{
    const struct router_presence want = {UINT64_MAX, true};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct router_presence got;
    struct err e;

    (void)state;
    router_presence_put(&out, &want);
    EXPECT_OK(router_presence_decode(buf_str(&out), &got, &e), &e);
    assert_true(got.router_id == want.router_id && got.leaving);
    assert_int_equal(router_presence_decode(STR("\x80"), &got, &e), -EBADMSG);
    assert_int_equal(router_presence_decode(STR("\x93"), &got, &e), -EBADMSG);
}

int main(void)
{
    return TEST_RUN(T(captures_decode_and_encode_to_the_same_bytes),
                    T(an_addition_says_what_it_costs_in_the_words_of_its_generation),
                    T(lists_of_events_are_read_but_do_not_nest),
                    T(a_list_for_1_x_over_zmq_holds_the_event), T(presence_goes_there_and_back),
                    T(what_is_no_event_is_refused));
}
