/* SPDX-License-Identifier: Apache-2.0 */
/* Events must not depend on how the bytes arrive, and what was written must be read back. */
#include "lib/net/sse.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { LINE_MAX_BYTES = 256 };

static void put_events(struct sse_reader *r, struct buf *out)
{
    struct sse_event e;

    while (sse_reader_next(r, &e))
        buf_printf(out, "%zu.%zu.%zu:%.*s%.*s%.*s\n", e.event.len, e.data.len, e.comment.len,
                   STR_ARG(e.event), STR_ARG(e.data), STR_ARG(e.comment));
}

static void read_in_steps(struct str in, size_t step, struct buf *out)
{
    AUTO(sse_reader_free) struct sse_reader *r = sse_reader_new(LINE_MAX_BYTES);

    for (; in.len; in = str_skip(in, step)) {
        sse_reader_feed(r, str_head(in, step));
        put_events(r, out);
    }
    buf_put_cstr(out, sse_reader_failed(r) ? "failed" : "");
}

static void write_and_read(struct str data)
{
    AUTO(sse_reader_free) struct sse_reader *r = sse_reader_new(data.len + 16);
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct sse_event e;
    bool got;

    data = str_head(data, MIN(str_index(data, '\n'), str_index(data, '\r')));
    sse_put_data(&out, data);
    sse_reader_feed(r, buf_str(&out));
    got = sse_reader_next(r, &e);
    assert(got && str_eq(e.data, data) && !e.event.len && !e.comment.len);
    (void)got;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    AUTO(buf_done) struct buf whole = BUF_NULL;
    AUTO(buf_done) struct buf cut = BUF_NULL;
    struct str in = str_skip(str_slice(bytes, size), 1);

    if (size < 1)
        return 0;
    read_in_steps(in, size, &whole);
    read_in_steps(in, 1 + bytes[0] % 16, &cut);
    assert(str_eq(buf_str(&whole), buf_str(&cut)));
    write_and_read(in);
    return 0;
}
