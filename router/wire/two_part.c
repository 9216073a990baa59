/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/two_part.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "lib/base/err.h"

int two_part_decode(struct str in, size_t max, struct two_part *ret, size_t *ret_used,
                    struct err *e)
{
    uint64_t header, body;

    if (in.len < TWO_PART_HEAD)
        return TWO_PART_MORE;
    header = load_u64be(in.ptr);
    body = load_u64be(in.ptr + 8);
    /* Compared one by one: the sum of two foreign lengths may wrap. */
    if (header > max || body > max - header || max - header - body < TWO_PART_HEAD)
        return err_set(e, -EMSGSIZE, "message of %" PRIu64 " + %" PRIu64 " bytes, limit %zu",
                       header, body, max);
    if (in.len - TWO_PART_HEAD < header + body)
        return TWO_PART_MORE;

    ret->header = str_slice(in.ptr + TWO_PART_HEAD, header);
    ret->body = str_slice(in.ptr + TWO_PART_HEAD + header, body);
    *ret_used = TWO_PART_HEAD + header + body;
    return 0;
}

static void put_head(struct buf *out, size_t header, size_t body)
{
    buf_put_u64be(out, header);
    buf_put_u64be(out, body);
    buf_put_u64be(out, 0);
}

void two_part_put(struct buf *out, struct str header, struct str body)
{
    put_head(out, header.len, body.len);
    buf_put_str(out, header);
    buf_put_str(out, body);
}

size_t two_part_begin_body(struct buf *out)
{
    put_head(out, 0, 0);
    return out->len;
}

void two_part_end_body(struct buf *out, size_t mark)
{
    uint64_t n = out->len - mark;
    uint8_t *at = (uint8_t *)buf_data(out) + mark - TWO_PART_HEAD + 8;

    assert(mark >= TWO_PART_HEAD && mark <= out->len);
    for (int i = 7; i >= 0; i--, n >>= 8)
        at[i] = (uint8_t)n;
}
