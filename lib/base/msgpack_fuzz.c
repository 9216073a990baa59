/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What msgpack_skip() accepts can be read value by value; written again it is no longer than before
 * (the writer knows the shortest forms) and copies to itself. Floats of 32 bits widen and
 * extensions cannot be written, so values that hold them are only read.
 */
#include "lib/base/msgpack.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct copy {
    struct msgpack_reader r;
    struct buf out;
    bool lossy;
};

static void copy_integer(struct copy *c)
{
    struct msgpack_reader u = c->r, h = c->r;
    uint64_t magnitude, hash;
    int64_t value;

    assert(msgpack_read_hash(&h, &hash));
    if (msgpack_read_u64(&u, &magnitude)) {
        c->r = u;
        assert(hash == magnitude);
        msgpack_put_u64(&c->out, magnitude);
    } else {
        assert(msgpack_read_i64(&c->r, &value) && hash == (uint64_t)value);
        msgpack_put_i64(&c->out, value);
    }
}

static void copy_float(struct copy *c)
{
    const uint8_t *before = c->r.at;
    double f;

    assert(msgpack_read_f64(&c->r, &f));
    msgpack_put_f64(&c->out, f);
    c->lossy |= c->r.at - before != 9;
}

static void copy_text(struct copy *c, bool binary)
{
    struct str s;

    assert(msgpack_read_str(&c->r, &s));
    if (binary)
        msgpack_put_bin(&c->out, s);
    else
        msgpack_put_str(&c->out, s);
}

static void copy_value(struct copy *c)
{
    enum msgpack_kind kind = msgpack_peek(&c->r);
    uint32_t n = 0;
    bool b;

    if (kind == MSGPACK_NIL) {
        assert(msgpack_read_nil(&c->r));
        msgpack_put_nil(&c->out);
    } else if (kind == MSGPACK_BOOL) {
        assert(msgpack_read_bool(&c->r, &b));
        msgpack_put_bool(&c->out, b);
    } else if (kind == MSGPACK_INT) {
        copy_integer(c);
    } else if (kind == MSGPACK_FLOAT) {
        copy_float(c);
    } else if (kind == MSGPACK_STR || kind == MSGPACK_BIN) {
        copy_text(c, kind == MSGPACK_BIN);
    } else if (kind == MSGPACK_ARRAY) {
        assert(msgpack_read_array(&c->r, &n));
        msgpack_put_array(&c->out, n);
    } else if (kind == MSGPACK_MAP) {
        assert(msgpack_read_map(&c->r, &n));
        msgpack_put_map(&c->out, n);
        n *= 2;
    } else {
        assert(kind == MSGPACK_EXT && msgpack_skip(&c->r));
        c->lossy = true;
    }
    while (n-- > 0)
        copy_value(c);
}

static void check(struct str bytes, unsigned rounds)
{
    struct copy c = {.lossy = false};

    msgpack_reader_init(&c.r, bytes);
    if (msgpack_skip(&c.r)) {
        size_t used = (size_t)(c.r.at - c.r.begin);

        c.r.at = c.r.begin;
        copy_value(&c);
        assert(!c.r.error && (size_t)(c.r.at - c.r.begin) == used);
        if (!c.lossy) {
            assert(c.out.len <= used);
            assert(rounds > 1 || (c.out.len == used && str_eq(buf_str(&c.out), bytes)));
            if (rounds > 1)
                check(buf_str(&c.out), rounds - 1);
        }
    }
    buf_done(&c.out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(str_slice(data, size), 2);
    return 0;
}
