/* SPDX-License-Identifier: Apache-2.0 */
/* A request must not depend on how its bytes arrive, and stays within the bytes and limits given.
 */
#include "lib/net/http1.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const struct http1_limits limits = {.head_bytes = 1024, .body_bytes = 512};

static void print(const struct http1_request *q, size_t used, struct buf *out)
{
    assert(q->n_headers <= HTTP1_HEADERS_MAX);
    assert(q->body.len <= limits.body_bytes);
    buf_printf(out, "%zu %d%d%d %.*s %.*s %.*s {%.*s}", used, q->minor, q->keep_alive,
               q->expects_continue, STR_ARG(q->method), STR_ARG(q->path), STR_ARG(q->query),
               STR_ARG(q->body));
    for (size_t i = 0; i < q->n_headers; i++) {
        struct str value = q->headers[i].value;

        /* What smuggles lines into logs and upstream requests. */
        assert(str_index(value, '\n') == value.len && str_index(value, '\r') == value.len);
        buf_printf(out, " %.*s=%.*s", STR_ARG(q->headers[i].name), STR_ARG(value));
    }
    buf_put_char(out, '\n');
}

/* Parses requests until one is refused or incomplete; prints them and that last result. */
static void parse_in_steps(struct str in, size_t step, struct buf *out)
{
    AUTO(http1_parser_free) struct http1_parser *p = http1_parser_new(&limits);
    size_t given = MIN(step, in.len);
    int result = HTTP1_MORE;

    for (;;) {
        AUTO(mem_free) char *copy = str_dup(str_head(in, given)); /* bounds are the allocation's */
        struct http1_request q;
        bool wants = false;
        size_t used = 0;

        result = http1_parse(p, str_slice(copy, given), &q, &used, &wants);
        if (result < 0)
            break;
        if (result == HTTP1_COMPLETE) {
            assert(used > 0 && used <= given);
            print(&q, used, out);
            in = str_skip(in, used);
            given = MIN(given - used, in.len);
        } else if (given == in.len) {
            break;
        } else {
            given = MIN(given + step, in.len);
        }
    }
    buf_printf(out, "%d", result);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    AUTO(buf_done) struct buf whole = BUF_NULL;
    AUTO(buf_done) struct buf cut = BUF_NULL;
    AUTO(buf_done) struct buf value = BUF_NULL;
    struct str in = str_skip(str_slice(bytes, size), 1);

    if (size < 1)
        return 0;
    parse_in_steps(in, size, &whole);
    parse_in_steps(in, 1 + bytes[0] % 64, &cut);
    assert(str_eq(buf_str(&whole), buf_str(&cut)));
    if (http_query_get(in, "a", &value))
        assert(value.len <= in.len);
    return 0;
}
