/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/sse.h"

#include "lib/base/test.h"

enum { LINE_MAX_BYTES = 64 };

static void test_writing(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    sse_put_data(&out, STR("{\"a\":1}"));
    sse_put_data(&out, STR_NULL);
    assert_string_equal(buf_cstr(&out), "data: {\"a\":1}\n\ndata: \n\n");
}

/* Everything that reading @in in steps of @step gives, as "event|data|comment;", "!" on failure. */
static char *read_all(struct str in, size_t step)
{
    AUTO(sse_reader_free) struct sse_reader *r = sse_reader_new(LINE_MAX_BYTES);
    struct buf out = BUF_NULL;
    struct sse_event e;

    for (size_t at = 0; at < in.len; at += step) {
        AUTO(mem_free) char *copy = str_dup(str_head(str_skip(in, at), step));

        sse_reader_feed(r, str_slice(copy, MIN(step, in.len - at)));
        while (sse_reader_next(r, &e))
            buf_printf(&out, "%.*s|%.*s|%.*s;", STR_ARG(e.event), STR_ARG(e.data),
                       STR_ARG(e.comment));
    }
    if (sse_reader_failed(r))
        buf_put_char(&out, '!');
    return buf_take_cstr(&out);
}

static void test_reading(void **state)
{
#define SIXTY "012345678901234567890123456789012345678901234567890123456789"
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"data: a\n\n", "|a|;"},
        {"data:a\n\n", "|a|;"},
        {"data:  a\n\n", "| a|;"},
        {"data: a\r\n\r\n", "|a|;"},
        {"data: a\r\r", "|a|;"},
        {"data: a\r\ndata: b\r\n\r\n", "|a\nb|;"},
        {"data: a\r\n\ndata: b\r\r\n", "|a|;|b|;"},
        {"data: a\ndata: b\ndata\n\n", "|a\nb\n|;"},
        {"data\n\n", "||;"},
        {"data:\ndata:\n\n", "|\n|;"},
        {"\n\n\n", ""},
        {": ping\n\n", "||ping;"},
        {":\n\n", ""},
        {"event: error\n: it broke\n: badly\n\n", "error||it broke\nbadly;"},
        {"event: a\nevent: b\ndata: x\n\n", "b|x|;"},
        {"event: a\n\n", "a||;"},
        {"id: 7\nretry: 10\nfoo\nDATA: no\n\n", ""},
        {"data: a:b: c\n\n", "|a:b: c|;"},
        {"\xef\xbb\xbf"
         "data: a\n\n",
         "|a|;"},
        {"\xef\xbb"
         "data: a\n\n",
         ""},
        {"data: unfinished\n", ""},
        {"data: [DONE]\n\ndata: a", "|[DONE]|;"},
        {"data: " SIXTY "\n\n", "!"}, /* 66 bytes of line */
        {SIXTY "012345", "!"},
        {"data: 01234567890123456789\ndata: 01234567890123456789\ndata: 01234567890123456789\n"
         "data: xxxx\n\n",
         "!"}, /* each line is short enough, the event is not */
        {"data: a\n\ndata: " SIXTY "\n\ndata: b\n\n", "|a|;!"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *want = cases[i].want;
        struct str in = str_from(cases[i].in);

        for (size_t step = 1; step <= in.len; step++) {
            AUTO(mem_free) char *got = read_all(in, step);

            if (strcmp(got, want) != 0)
                fail_msg("in steps of %zu: %s\ngot:  %s\nwant: %s", step, in.ptr, got, want);
        }
    }
}

static void test_what_is_written_is_read(void **state)
{
    AUTO(sse_reader_free) struct sse_reader *r = sse_reader_new(1 << 20);
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct sse_event e;

    (void)state;
    sse_put_data(&out, STR(" leading: space\t"));
    buf_put_cstr(&out, "event: error\n: a\n: b\n\n");
    sse_reader_feed(r, buf_str(&out));
    assert_true(sse_reader_next(r, &e));
    assert_true(str_is(e.data, " leading: space\t"));
    assert_true(sse_reader_next(r, &e));
    assert_true(str_is(e.event, "error"));
    assert_true(str_is(e.comment, "a\nb"));
    assert_false(sse_reader_next(r, &e));
}

int main(void)
{
    return TEST_RUN(T(test_writing), T(test_reading), T(test_what_is_written_is_read));
}
