/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack: a bounded pull reader and a writer for the event plane.
 *
 * The reader never allocates: it hands out views into the input. Depth is limited to
 * MSGPACK_DEPTH; counts are checked against the bytes that are left before anything believes them.
 * The first error sticks. Signed integers of 64 bits read as u64 bit for bit where
 * msgpack_read_hash says so (engines publish hashes as signed numbers).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum { MSGPACK_DEPTH = 32 };

enum msgpack_kind {
    MSGPACK_NONE, /* error or end of input */
    MSGPACK_NIL,
    MSGPACK_BOOL,
    MSGPACK_INT, /* any integer */
    MSGPACK_FLOAT,
    MSGPACK_STR,
    MSGPACK_BIN,
    MSGPACK_ARRAY,
    MSGPACK_MAP,
    MSGPACK_EXT,
};

struct msgpack_reader {
    const uint8_t *begin, *at, *end;
    const char *error; /* static text, NULL while all is well */
};

void msgpack_reader_init(struct msgpack_reader *r, struct str bytes);
enum msgpack_kind msgpack_peek(struct msgpack_reader *r);
/* Counts: the caller then reads that many elements (map: key, value pairs). */
MUST_CHECK bool msgpack_read_array(struct msgpack_reader *r, uint32_t *ret_n);
MUST_CHECK bool msgpack_read_map(struct msgpack_reader *r, uint32_t *ret_n);
MUST_CHECK bool msgpack_read_u64(struct msgpack_reader *r, uint64_t *ret);
MUST_CHECK bool msgpack_read_i64(struct msgpack_reader *r, int64_t *ret);
/* Any 64-bit integer; a negative one bit for bit. */
MUST_CHECK bool msgpack_read_hash(struct msgpack_reader *r, uint64_t *ret);
MUST_CHECK bool msgpack_read_f64(struct msgpack_reader *r, double *ret);
MUST_CHECK bool msgpack_read_bool(struct msgpack_reader *r, bool *ret);
MUST_CHECK bool msgpack_read_str(struct msgpack_reader *r, struct str *ret); /* str or bin */
/* True and consumed when the next value is nil. */
bool msgpack_read_nil(struct msgpack_reader *r);
bool msgpack_skip(struct msgpack_reader *r);
void msgpack_fail(struct msgpack_reader *r, const char *what);
/* 0 when everything was read without error; -EBADMSG with offset and reason else. */
MUST_CHECK int msgpack_end(struct msgpack_reader *r, struct err *e);

void msgpack_put_nil(struct buf *out);
void msgpack_put_bool(struct buf *out, bool v);
void msgpack_put_u64(struct buf *out, uint64_t v); /* shortest form */
void msgpack_put_i64(struct buf *out, int64_t v);
void msgpack_put_f64(struct buf *out, double v);
void msgpack_put_str(struct buf *out, struct str s);
void msgpack_put_cstr(struct buf *out, const char *s);
void msgpack_put_bin(struct buf *out, struct str bytes);
void msgpack_put_array(struct buf *out, uint32_t n);
void msgpack_put_map(struct buf *out, uint32_t n);
