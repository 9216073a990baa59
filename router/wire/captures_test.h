/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: what is in files of ../shared/data/wire that no reader of ours takes as they are. They fail the test
 * for what they do not expect.
 */
#pragma once

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/base/msgpack.h"
#include "lib/base/test.h"

/* --- ZMTP 3.1, of one direction of a connection ----------------------------------------------- */

enum { ZMTP_GREETING = 64, ZMTP_PARTS = 4 };

/* One frame at the front of @in: its body; false when it is not all there. */
static inline bool zmtp_frame(struct str *in, struct str *ret_body, bool *ret_command)
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

/* Messages of a publisher, each of four parts, and the commands of either side. */
static inline __attribute__((unused)) void
zmtp_walk(struct str in, void (*on_message)(void *arg, const struct str *parts),
          void (*on_command)(void *arg, struct str body), void *arg)
{
    struct str parts[ZMTP_PARTS], frame;
    bool command;
    size_t n = 0;

    assert_true(in.len >= ZMTP_GREETING);
    in = str_skip(in, ZMTP_GREETING);
    while (zmtp_frame(&in, &frame, &command)) {
        if (command) {
            on_command(arg, frame);
            continue;
        }
        parts[n++] = frame;
        if (n == ZMTP_PARTS) {
            on_message(arg, parts);
            n = 0;
        }
    }
}

/* --- messages.jsonl: what a subscriber of NATS to everything heard ----------------------------- */

static inline __attribute__((unused)) void
messages_walk(struct str lines, void (*on_message)(void *arg, struct str subject, struct str bytes),
              void *arg)
{
    struct str line;

    for (bool more = true; more;) {
        AUTO(buf_done) struct buf bytes = BUF_NULL;
        struct str subject, hex;

        more = str_cut(&lines, '\n', &line);
        if (!line.len)
            continue;
        subject = json_pull_member(line, "subject");
        hex = json_pull_member(line, "hex");
        assert_true(subject.len > 2 && hex.len >= 2);
        for (size_t i = 1; i + 2 < hex.len; i += 2) {
            uint64_t byte;

            assert_true(str_parse_hex64(str_slice(hex.ptr + i, 2), &byte));
            buf_put_char(&bytes, (char)byte);
        }
        on_message(arg, str_slice(subject.ptr + 1, subject.len - 2), buf_str(&bytes));
    }
}

/* --- MessagePack of the request plane, as programs of 1.x speak it with each other --------------- */

/* 16 bytes are a UUID, which is text in JSON. */
static inline void json_put_binary(struct json_put *j, struct str bytes)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    assert_int_equal(bytes.len, 16);
    for (size_t i = 0; i < bytes.len; i++)
        buf_printf(&text, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                   (unsigned char)bytes.ptr[i]);
    json_put_str(j, buf_str(&text));
}

static inline void json_put_packed_number(struct json_put *j, struct msgpack_reader *r)
{
    bool negative = *r->at >= 0xe0 || (*r->at >= 0xd0 && *r->at <= 0xd3);
    uint64_t u = 0;
    int64_t i = 0;
    double f = 0;

    if (msgpack_peek(r) == MSGPACK_FLOAT) {
        assert_true(msgpack_read_f64(r, &f));
        json_put_f64(j, f);
    } else if (negative) {
        assert_true(msgpack_read_i64(r, &i));
        json_put_i64(j, i);
    } else {
        assert_true(msgpack_read_u64(r, &u));
        json_put_u64(j, u);
    }
}

/* The next value, as JSON. */
static inline void json_put_packed(struct json_put *j, struct msgpack_reader *r)
{
    enum msgpack_kind kind = msgpack_peek(r);
    struct str s = STR_NULL;
    uint32_t n = 0;
    bool b = false;

    switch (kind) {
    case MSGPACK_NIL:
        assert_true(msgpack_read_nil(r));
        json_put_null(j);
        break;
    case MSGPACK_BOOL:
        assert_true(msgpack_read_bool(r, &b));
        json_put_bool(j, b);
        break;
    case MSGPACK_INT:
    case MSGPACK_FLOAT:
        json_put_packed_number(j, r);
        break;
    case MSGPACK_STR:
    case MSGPACK_BIN:
        assert_true(msgpack_read_str(r, &s));
        if (kind == MSGPACK_STR)
            json_put_str(j, s);
        else
            json_put_binary(j, s);
        break;
    case MSGPACK_ARRAY:
        assert_true(msgpack_read_array(r, &n));
        json_put_array(j);
        while (n-- > 0)
            json_put_packed(j, r);
        json_put_array_end(j);
        break;
    case MSGPACK_MAP:
        assert_true(msgpack_read_map(r, &n));
        json_put_object(j);
        while (n-- > 0) {
            assert_true(msgpack_read_str(r, &s));
            json_put_key_str(j, s);
            json_put_packed(j, r);
        }
        json_put_object_end(j);
        break;
    case MSGPACK_NONE:
    case MSGPACK_EXT:
    default:
        fail_msg("MessagePack of kind %d", (int)kind);
    }
}

static inline __attribute__((unused)) void json_of_packed(struct buf *out, struct str bytes)
{
    struct json_put j = json_put_on(out);
    struct msgpack_reader r;

    msgpack_reader_init(&r, bytes);
    json_put_packed(&j, &r);
    assert_int_equal(msgpack_end(&r, NULL), 0);
}
