/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http1.h"

#include "lib/base/test.h"

#define HOST "Host: a\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST

static const struct http1_limits limits = {.head_bytes = 16384, .body_bytes = 1000};

/* What one call, or a row of calls, made of the bytes. */
struct outcome {
    int result;
    size_t used;
    size_t continues;
    struct http1_request request;
    char *text; /* the request, printed */
};

static char *print_request(const struct http1_request *q)
{
    struct buf out = BUF_NULL;

    buf_printf(&out, "%.*s %.*s ?%.*s 1.%d %s%s", STR_ARG(q->method), STR_ARG(q->path),
               STR_ARG(q->query), q->minor, q->keep_alive ? "keep" : "close",
               q->expects_continue ? " continue" : "");
    for (size_t i = 0; i < q->n_headers; i++)
        buf_printf(&out, " [%.*s=%.*s]", STR_ARG(q->headers[i].name), STR_ARG(q->headers[i].value));
    buf_printf(&out, " {%.*s}", STR_ARG(q->body));
    return buf_take_cstr(&out);
}

/* Feeds @bytes in steps that end at each of @cuts, always from a fresh copy, as a moved buffer. */
static struct outcome feed(struct str bytes, const size_t *cuts, size_t n_cuts)
{
    AUTO(http1_parser_free) struct http1_parser *p = http1_parser_new(&limits);
    struct outcome o = {.result = HTTP1_MORE};

    for (size_t i = 0; i <= n_cuts && o.result == HTTP1_MORE; i++) {
        struct str part = str_head(bytes, i < n_cuts ? cuts[i] : bytes.len);
        AUTO(mem_free) char *copy = str_dup(part);
        bool wants = false;

        o.result = http1_parse(p, str_slice(copy, part.len), &o.request, &o.used, &wants);
        o.continues += wants;
        if (o.result == HTTP1_COMPLETE)
            o.text = print_request(&o.request);
    }
    return o;
}

static int parse_all(struct str bytes)
{
    struct outcome o = feed(bytes, NULL, 0);

    free(o.text);
    return o.result;
}

static void test_requests_are_understood(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / ? 1.1 keep [Host=a] {}"},
        {"\r\n\r\nGET /x?y=1&z HTTP/1.1\r\nhost:a:80\r\n\r\n",
         "GET /x ?y=1&z 1.1 keep [host=a:80] {}"},
        {"GET /? HTTP/1.1\r\nHost:\r\n\r\n", "GET / ? 1.1 keep [Host=] {}"},
        {"GET / HTTP/1.0\r\n\r\n", "GET / ? 1.0 close {}"},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
         "GET / ? 1.0 keep [Connection=Keep-Alive] {}"},
        {"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
         "GET / ? 1.1 close [Host=a] [Connection=x, Close] {}"},
        {"GET / HTTP/1.1\r\nHost: a\r\nX:  \t b c\t \r\nEmpty:\r\n\r\n",
         "GET / ? 1.1 keep [Host=a] [X=b c] [Empty=] {}"},
        {"GET http://a.b:80/p?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET /p ?q 1.1 keep [Host=a] {}"},
        {"GET http://a HTTP/1.1\r\nHost: a\r\n\r\n", "GET / ? 1.1 keep [Host=a] {}"},
        {"GET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET / ?q 1.1 keep [Host=a] {}"},
        {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * ? 1.1 keep [Host=a] {}"},
        {POST "Content-Length: 0\r\n\r\n", "POST / ? 1.1 keep [Host=a] [Content-Length=0] {}"},
        {POST "Content-Length: 5\r\n\r\nhello",
         "POST / ? 1.1 keep [Host=a] [Content-Length=5] {hello}"},
        {POST "Expect: 100-Continue\r\nContent-Length: 2\r\n\r\nhi",
         "POST / ? 1.1 keep continue [Host=a] [Expect=100-Continue] [Content-Length=2] {hi}"},
        {POST "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
         "POST / ? 1.1 keep [Host=a] [Transfer-Encoding=Chunked] {}"},
        {POST "Transfer-Encoding: chunked\r\n\r\n"
              "3\r\nabc\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\nTrailer: t\r\nB:\r\n\r\n",
         "POST / ? 1.1 keep [Host=a] [Transfer-Encoding=chunked] {abc0123456789}"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str in = str_from(cases[i].in);
        struct outcome o = feed(in, NULL, 0);

        if (o.result != HTTP1_COMPLETE)
            fail_msg("%s: %d", cases[i].in, o.result);
        assert_string_equal(o.text, cases[i].want);
        assert_int_equal(o.used, in.len);
        free(o.text);
    }
}

static const struct {
    int want;
    const char *in;
} refusals[] = {
    /* request line */
    {-400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
    {-400, "GET /\r\nHost: a\r\n\r\n"},
    {-400, " GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET / http/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET / HTTP/1.\r\nHost: a\r\n\r\n"},
    {-400, "GET / HTTP/11.1\r\nHost: a\r\n\r\n"},
    {-400, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET x HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET * HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "GET /\tx HTTP/1.1\r\nHost: a\r\n\r\n"},
    {-400, "\x16\x03\x01"}, /* TLS to the wrong port, told before any line end */
    {-400, "\n"},
    {-505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n"},
    {-505, "PRI * HTTP/2.0\r\n\r\n"},
    /* header lines */
    {-400, "GET / HTTP/1.1\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
    {-400, "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost : a\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\n\tfolded\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\n Host: a\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\nNoColon\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\nX: \x1b[0m\r\n\r\n"},
    {-400, "GET / HTTP/1.1\nHost: a\n\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\n\r\n"},
    {-400, "GET / HTTP/1.1\r\nHost: a\r\n\n"},
    /* framing: what request smuggling is made of */
    {-400, POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
    {-400, POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"},
    {-400, POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"},
    {-400, POST "Content-Length: 5, 5\r\n\r\nhello"},
    {-400, POST "Content-Length: +5\r\n\r\nhello"},
    {-400, POST "Content-Length: -5\r\n\r\nhello"},
    {-400, POST "Content-Length: 5 5\r\n\r\nhello"},
    {-400, POST "Content-Length: 0x5\r\n\r\nhello"},
    {-400, POST "Content-Length: 5.0\r\n\r\nhello"},
    {-400, POST "Content-Length:\r\n\r\n"},
    {-400, POST "Content-Length : 5\r\n\r\nhello"},
    {-400, POST "Content-Length\t: 5\r\n\r\nhello"},
    {-400, POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n"},
    {-400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding:\x0b"
                "chunked\r\n\r\n0\r\n\r\n"},
    {-501, POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
    {-501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
    {-501, POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"},
    {-501, POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"},
    {-501, POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"},
    /* chunks */
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n 5\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n0\r\n: x\r\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n"},
    {-400, POST "Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n"},
    /* sizes */
    {-413, POST "Content-Length: 1001\r\n\r\n"},
    {-413, POST "Content-Length: 99999999999999999999999999\r\n\r\n"},
    {-413, POST "Transfer-Encoding: chunked\r\n\r\n3e9\r\n"},
    {-413, POST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n3e8\r\n"},
    {-413, POST "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        int got = parse_all(str_from(refusals[i].in));

        if (got != refusals[i].want)
            fail_msg("%d instead of %d: %s", got, refusals[i].want, refusals[i].in);
    }
    assert_int_equal(parse_all(STR("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n")), -400);
    assert_int_equal(parse_all(STR("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n")), -400);
}

static void put_many(struct buf *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_put_cstr(out, s);
}

static void test_limits_of_the_head(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;

    (void)state;
    buf_put_cstr(&b, "GET /");
    put_many(&b, "x", HTTP1_TARGET_MAX - 1);
    buf_put_cstr(&b, " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(parse_all(buf_str(&b)), HTTP1_COMPLETE);

    buf_clear(&b);
    buf_put_cstr(&b, "GET /");
    put_many(&b, "x", HTTP1_TARGET_MAX);
    buf_put_cstr(&b, " HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_int_equal(parse_all(buf_str(&b)), -414);

    buf_clear(&b);
    buf_put_cstr(&b, "GET /");
    put_many(&b, "x", limits.head_bytes);
    assert_int_equal(parse_all(buf_str(&b)), -414);

    buf_clear(&b);
    buf_put_cstr(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    put_many(&b, "x", limits.head_bytes);
    assert_int_equal(parse_all(buf_str(&b)), -431);

    buf_clear(&b);
    put_many(&b, "\r\n", limits.head_bytes); /* empty lines are not for ever */
    assert_true(parse_all(buf_str(&b)) < 0);

    buf_clear(&b);
    buf_put_cstr(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    put_many(&b, "X: y\r\n", HTTP1_HEADERS_MAX - 1);
    buf_put_cstr(&b, "\r\n");
    assert_int_equal(parse_all(buf_str(&b)), HTTP1_COMPLETE);
    b.len -= 2;
    buf_put_cstr(&b, "One: more\r\n\r\n");
    assert_int_equal(parse_all(buf_str(&b)), -431);
}

/* Chunks of one byte cost five bytes of framing each: more framing than limits allow is refused. */
static void test_framing_is_bounded(void **state)
{
    struct http1_limits small = {.head_bytes = 200, .body_bytes = 1000};
    AUTO(http1_parser_free) struct http1_parser *p = http1_parser_new(&small);
    AUTO(buf_done) struct buf b = BUF_NULL;
    struct http1_request q;
    bool wants;
    size_t used;

    (void)state;
    buf_put_cstr(&b, POST "Transfer-Encoding: chunked\r\n\r\n");
    put_many(&b, "1\r\nx\r\n", 300);
    assert_int_equal(http1_parse(p, buf_str(&b), &q, &used, &wants), -413);
    /* And a refused connection stays refused. */
    assert_int_equal(http1_parse(p, STR("GET / HTTP/1.0\r\n\r\n"), &q, &used, &wants), -413);
}

static const char *const samples[] = {
    "\r\nGET /a?b HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n",
    POST "Content-Length: 10\r\n\r\n0123456789",
    POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
    POST "Transfer-Encoding: chunked\r\n\r\n3;e=1\r\nabc\r\nB\r\n01234567890\r\n0\r\nT: u\r\n\r\n",
    POST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
    POST "Transfer-Encoding: chunked\r\n\r\n3e9\r\nabc",
    "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/3.0\r\n\r\n",
};

static void expect_same(struct outcome a, struct outcome b, const char *what, size_t cut)
{
    if (a.result != b.result || (a.text && strcmp(a.text, b.text) != 0))
        fail_msg("%s cut at %zu: %d %s, whole: %d %s", what, cut, b.result, b.text ? b.text : "",
                 a.result, a.text ? a.text : "");
    if (a.result == HTTP1_COMPLETE)
        assert_int_equal(a.used, b.used);
}

static void test_cuts_do_not_matter(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        struct str in = str_from(samples[i]);
        struct outcome whole = feed(in, NULL, 0);
        size_t every[512];
        struct outcome bytewise;

        for (size_t at = 0; at < in.len; at++) {
            struct outcome cut = feed(in, &at, 1);

            expect_same(whole, cut, samples[i], at);
            free(cut.text);
            every[at] = at + 1;
        }
        bytewise = feed(in, every, in.len);
        expect_same(whole, bytewise, samples[i], 0);
        assert_true(bytewise.continues <= 1);
        free(bytewise.text);
        free(whole.text);
    }
}

static void test_continue_is_wanted_once(void **state)
{
    struct str in = STR(POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
    size_t cuts[] = {10, in.len - 3, in.len - 2, in.len - 1};
    struct outcome o = feed(in, cuts, ARRAY_LEN(cuts));

    (void)state;
    assert_int_equal(o.result, HTTP1_COMPLETE);
    assert_int_equal(o.continues, 1);
    free(o.text);
    o = feed(in, NULL, 0); /* the body is there already */
    assert_int_equal(o.continues, 0);
    free(o.text);
}

static void test_pipelined_requests_come_one_at_a_time(void **state)
{
    AUTO(http1_parser_free) struct http1_parser *p = http1_parser_new(&limits);
    struct str in = STR(POST "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" POST
                             "Content-Length: 1\r\n\r\nb"
                             "GET /c HTTP/1.1\r\n" HOST "\r\nGET /d");
    const char *const bodies[] = {"a", "b", ""};
    struct http1_request q;
    size_t used;
    bool wants;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
        assert_int_equal(http1_parse(p, in, &q, &used, &wants), HTTP1_COMPLETE);
        assert_true(str_is(q.body, bodies[i]));
        in = str_skip(in, used);
    }
    assert_true(str_is(q.path, "/c"));
    assert_int_equal(http1_parse(p, in, &q, &used, &wants), HTTP1_MORE);
}

static size_t limit_by_path(void *arg, const struct http1_request *head)
{
    (*(int *)arg)++;
    return str_is(head->path, "/big") ? 5000 : 1;
}

static void test_body_limit_by_request(void **state)
{
    int asked = 0;
    struct http1_limits by_path = {16384, 1000, limit_by_path, &asked};
    AUTO(http1_parser_free) struct http1_parser *p = http1_parser_new(&by_path);
    struct http1_request q;
    size_t used;
    bool wants;

    (void)state;
    assert_int_equal(http1_parse(p,
                                 STR("PUT /big HTTP/1.1\r\n" HOST "Content-Length: 5000\r\n\r\n"),
                                 &q, &used, &wants),
                     HTTP1_MORE);
    assert_true(http1_in_body(p));
    assert_int_equal(asked, 1);
    p = http1_parser_free(p);
    p = http1_parser_new(&by_path);
    assert_int_equal(http1_parse(p, STR("PUT /x HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\n"), &q,
                                 &used, &wants),
                     -413);
}

static void test_header_lookup(void **state)
{
    struct http1_request q = {.n_headers = 2};

    (void)state;
    q.headers[0] = (struct http1_header){STR("X-A"), STR("1")};
    q.headers[1] = (struct http1_header){STR("x-a"), STR("2")};
    assert_true(str_is(http1_header_get(&q, "x-A"), "1"));
    assert_null(http1_header_get(&q, "x").ptr);
}

static void test_query_lookup(void **state)
{
    static const struct {
        const char *query, *key, *want; /* NULL = absent */
    } cases[] = {
        {"a=1&b=2", "b", "2"},   {"a=1", "b", NULL},
        {"", "a", NULL},         {"a", "a", ""},
        {"a=", "a", ""},         {"ab=1&a=2", "a", "2"},
        {"a=1&a=2", "a", "1"},   {"a=x%20y+z", "a", "x y z"},
        {"a=%4a%4B", "a", "JK"}, {"a=%4", "a", "%4"},
        {"a=%", "a", "%"},       {"a=%zz", "a", "%zz"},
        {"a=b=c", "a", "b=c"},   {"&&a=1", "a", "1"},
        {"a=%00", "a", ""},
    };
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        bool found;

        buf_clear(&out);
        buf_put_cstr(&out, "old");
        found = http_query_get(str_from(cases[i].query), cases[i].key, &out);
        assert_int_equal(found, cases[i].want != NULL);
        assert_string_equal(buf_cstr(&out), found ? cases[i].want : "old");
    }
    assert_int_equal(out.len, 1); /* the last one held a zero byte, which C strings hide */
}

int main(void)
{
    return TEST_RUN(T(test_requests_are_understood), T(test_refusals), T(test_limits_of_the_head),
                    T(test_framing_is_bounded), T(test_cuts_do_not_matter),
                    T(test_continue_is_wanted_once), T(test_pipelined_requests_come_one_at_a_time),
                    T(test_body_limit_by_request), T(test_header_lookup), T(test_query_lookup));
}
