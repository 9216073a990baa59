/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/service_event.h"
#include "lib/base/test.h"

#include <errno.h>

#include "router/wire/session_event.h"

/* What an unmodified selection service of 1.6.1 told of one reservation with a session. */
static const char PLACED[] =
    "84aa6d6f64656c5f6e616d65a16dad726f7574696e675f67726f7570a764656661756c74aa626c6f636b5f7369"
    "7a6504a56576656e7485aa726571756573745f6964a172a6776f726b657282a9776f726b65725f696401a76470"
    "5f72616e6b00a46461746181aa4164645265717565737484ae746f6b656e5f73657175656e636593cf7ee2cbed"
    "c694ab46cf83fb702f20e2ad65cfebe58e326790467bb4747261636b5f70726566696c6c5f746f6b656e73c3b6"
    "65787065637465645f6f75747075745f746f6b656e73c0b170726566696c6c5f6c6f61645f68696e7482d92069"
    "6e697469616c5f6566666563746976655f70726566696c6c5f746f6b656e730db965787065637465645f707265"
    "66696c6c5f6475726174696f6ec0a9726f757465725f6964cf1c0a1b551ad056bca96c6f72615f6e616d65c0";
static const char FREED[] =
    "84aa6d6f64656c5f6e616d65a16dad726f7574696e675f67726f7570a764656661756c74aa626c6f636b5f7369"
    "7a6504a56576656e7485aa726571756573745f6964a172a6776f726b657282a9776f726b65725f696401a76470"
    "5f72616e6b00a464617461a446726565a9726f757465725f6964cf1c0a1b551ad056bca96c6f72615f6e616d65"
    "c0";
static const char BOUND[] =
    "87aa6d6f64656c5f6e616d65a16dad726f7574696e675f67726f7570a764656661756c74aa73657373696f6e5f"
    "6964a473657373a9776f726b65725f696401a764705f72616e6b00a873657175656e6365cf18ea87bdaf7e0c54"
    "a97772697465725f6964cf1c0a1b551ad056bc";
/* And a frontend of 1.6.1, the payload of its envelope. */
static const char BOUND_OF_FRONTEND[] =
    "85aa73657373696f6e5f6964a27331a9776f726b65725f6964cfd86ea5d653256f77a764705f72616e6b00a873"
    "657175656e6365cf18ea881b6127892ca97772697465725f6964cf697fe3fe85246d1c";

static void unhex(const char *hex, struct buf *out)
{
    for (size_t i = 0; hex[i]; i += 2) {
        uint64_t byte;

        assert_true(str_parse_hex64(str_slice(hex + i, 2), &byte));
        buf_put_char(out, (char)byte);
    }
}

static void assert_same(const struct buf *a, const struct buf *b)
{
    assert_int_equal(a->len, b->len);
    assert_memory_equal(buf_data(a), buf_data(b), a->len);
}

static void placements_of_the_reference_are_read_and_written_alike(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    const char *captures[] = {PLACED, FREED};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        AUTO(buf_done) struct buf again = BUF_NULL;
        struct service_sequence s;
        struct err e;

        unhex(captures[i], &bytes);
        EXPECT_OK(service_sequence_decode(&r, buf_str(&bytes), &s, &e), &e);
        assert_true(str_is(s.model, "m") && str_is(s.group, "default"));
        assert_int_equal(s.block_size, 4);
        assert_true(str_is(s.event.request_id, "r"));
        assert_int_equal(s.event.worker_id, 1);
        assert_int_equal(s.event.router_id, UINT64_C(0x1c0a1b551ad056bc));
        assert_int_equal(s.event.kind, i == 0 ? SEQUENCE_ADD : SEQUENCE_FREE);
        if (i == 0) {
            assert_int_equal(s.event.n_sequence, 3);
            assert_int_equal(s.event.prefill_tokens.v, 13);
        }
        service_sequence_put(&again, &s);
        assert_same(&again, &bytes);
    }
}

static void what_is_no_placement_is_refused(void **state)
{
    AUTO(sequence_event_reader_done) struct sequence_event_reader r = {0};
    AUTO(buf_done) struct buf bytes = BUF_NULL;
    struct service_sequence s;
    struct err e;

    (void)state;
    unhex(FREED, &bytes);
    for (size_t n = 0; n < bytes.len; n++)
        assert_int_equal(service_sequence_decode(&r, str_head(buf_str(&bytes), n), &s, &e),
                         -EBADMSG);
    *buf_data(&bytes) = (char)0x83; /* whole, but for the event */
    assert_int_equal(service_sequence_decode(&r, str_head(buf_str(&bytes), 46), &s, &e), -EBADMSG);
    /* Two events, or none, where one belongs. */
    assert_int_equal(service_sequence_decode(&r,
                                             STR("\x84\xaamodel_name\xa1"
                                                 "m\xadrouting_group\xa1g\xaa"
                                                 "block_size\x04\xa5"
                                                 "event\x90"),
                                             &s, &e),
                     -EBADMSG);
}

static void bindings_of_the_reference_are_read_and_written_alike(void **state)
{
    const char *captures[] = {BOUND, BOUND_OF_FRONTEND};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(captures); i++) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        AUTO(buf_done) struct buf again = BUF_NULL;
        struct session_event s;
        struct err e;

        unhex(captures[i], &bytes);
        EXPECT_OK(session_event_decode(buf_str(&bytes), &s, &e), &e);
        assert_true(str_is(s.session, i ? "s1" : "sess"));
        assert_true(i ? s.model.ptr == NULL : str_is(s.model, "m") && str_is(s.group, "default"));
        assert_int_equal(s.worker_id, i ? UINT64_C(0xd86ea5d653256f77) : 1);
        assert_int_equal(s.dp_rank, 0);
        assert_int_equal(s.sequence,
                         i ? UINT64_C(0x18ea881b6127892c) : UINT64_C(0x18ea87bdaf7e0c54));
        assert_int_equal(s.writer_id,
                         i ? UINT64_C(0x697fe3fe85246d1c) : UINT64_C(0x1c0a1b551ad056bc));
        session_event_put(&again, &s);
        assert_same(&again, &bytes);
        for (size_t n = 0; n < bytes.len; n++)
            assert_int_equal(session_event_decode(str_head(buf_str(&bytes), n), &s, &e), -EBADMSG);
    }
}

static void bindings_have_a_session_of_bounded_length(void **state)
{
    static const char text[SESSION_EVENT_NAME_MAX + 2];
    struct session_event s = {.session = STR(""), .worker_id = 1}, got;
    struct err e;

    (void)state;
    for (size_t n = 0; n <= SESSION_EVENT_NAME_MAX + 1; n += SESSION_EVENT_NAME_MAX / 2) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;

        s.session = str_slice(text, n ? n + 1 : 0);
        session_event_put(&bytes, &s);
        assert_int_equal(session_event_decode(buf_str(&bytes), &got, &e),
                         n && n < SESSION_EVENT_NAME_MAX ? 0 : -EBADMSG);
    }
}

int main(void)
{
    return TEST_RUN(T(placements_of_the_reference_are_read_and_written_alike),
                    T(what_is_no_placement_is_refused),
                    T(bindings_of_the_reference_are_read_and_written_alike),
                    T(bindings_have_a_session_of_bounded_length));
}
