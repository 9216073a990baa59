/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-part message: the unit of the request and response planes (wire.md §4.2).
 *
 *     u64 header length H | u64 body length B | u64 checksum, 0 | H bytes | B bytes (big-endian)
 *
 * Header only = control, body only = payload, both = request. The checksum is written as 0 and not
 * looked at, as release builds do. The decoder works on whatever has arrived and hands out views
 * into it. Pure, thread safe.
 */
#pragma once

#include <stddef.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum {
    TWO_PART_HEAD = 24,
    TWO_PART_MORE = 1, /* outcome: the message is not complete yet */
};

struct two_part {
    struct str header;
    struct str body;
};

/*
 * Decodes the first message of @in. 0: *ret and the bytes that it took; TWO_PART_MORE; -EMSGSIZE
 * when the lengths announce more than @max bytes in all, known as soon as the head is there.
 */
MUST_CHECK int two_part_decode(struct str in, size_t max, struct two_part *ret, size_t *ret_used,
                               struct err *e);

void two_part_put(struct buf *out, struct str header, struct str body);
/* A payload that is written in place: begin, append it to @out, end with what begin returned. */
size_t two_part_begin_body(struct buf *out);
void two_part_end_body(struct buf *out, size_t mark);
