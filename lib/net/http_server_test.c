/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_server.h"

#include <errno.h>
#include <time.h>

#include "lib/base/metric.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"

enum { FLOOD = 24 << 20 };

static struct loop *loop;
static struct http_server *server;

/* What the handlers left for the test to see. */
static struct http_exchange *pending;
static int gone, drained, handled, stopped;

/* --- handlers -------------------------------------------------------------------------------- */

static void on_gone(void *arg)
{
    assert_ptr_equal(arg, pending);
    pending = NULL;
    gone++;
}

static void on_drained(void *arg)
{
    (void)arg;
    drained++;
}

static void on_stopped(void *arg)
{
    (void)arg;
    stopped++;
}

static void handle_echo(struct http_exchange *x, void *arg)
{
    const struct http1_request *q = http_request(x);

    (void)arg;
    handled++;
    http_add_header(x, "x-path", q->path);
    http_respond(x, 200, "text/plain", q->body);
}

/* Answers all but the first byte of what came, cut off in two steps of which the second reads the first. */
static void handle_cut(struct http_exchange *x, void *arg)
{
    const struct http1_request *q = http_request(x);

    http_request_set_body(x, q->body);
    http_request_set_body(x, str_slice(q->body.ptr + 1, q->body.len - 1));
    handle_echo(x, arg);
}

/* Keeps the exchange for the test to answer. */
static void handle_later(struct http_exchange *x, void *arg)
{
    (void)arg;
    handled++;
    assert_null(pending);
    pending = x;
    http_on_gone(x, on_gone, x);
    http_on_drained(x, on_drained, x);
}

static void handle_no_content(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_respond(x, 204, NULL, STR_NULL);
}

static void handle_stream(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_stream_begin(x, 200, "text/event-stream");
    http_stream_write(x, STR("one"));
    http_stream_write(x, STR("0123456789abcdef"));
    http_stream_end(x);
}

static void handle_injected(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_add_header(x, "x-echo", STR("a\r\nx-evil: 1"));
    http_respond(x, 200, NULL, STR_NULL);
}

static const struct http_route routes[] = {
    {"GET", "/echo", handle_echo, 0},         {"POST", "/echo", handle_echo, 0},
    {"POST", "/small", handle_echo, 4},       {"GET", "/later", handle_later, 0},
    {"GET", "/none", handle_no_content, 0},   {"GET", "/stream", handle_stream, 0},
    {"GET", "/injected", handle_injected, 0}, {NULL, "/any/*", handle_echo, 0},
    {"POST", "/cut", handle_cut, 0},
};

static struct http_server_conf conf_default(void)
{
    return (struct http_server_conf){
        .host = "127.0.0.1",
        .head_bytes = 9000,
        .body_bytes = FLOOD,
        .idle_ms = 60000,
        .routes = routes,
        .n_routes = ARRAY_LEN(routes),
    };
}

static void setup(struct http_server_conf conf)
{
    struct err e;

    pending = NULL;
    gone = drained = handled = stopped = 0;
    EXPECT_OK(loop_new(&loop, &e), &e);
    EXPECT_OK(http_server_start(&server, loop, &conf, &e), &e);
}

static void teardown(void)
{
    server = http_server_free(server);
    loop = loop_free(loop);
}

/* --- a client that speaks bytes -------------------------------------------------------------- */

struct client {
    struct tcp *tcp;
    struct buf got;
    int reads, error;
    bool closed;
};

static void client_received(void *arg, struct str data)
{
    struct client *c = arg;

    c->reads++;
    buf_put_str(&c->got, data);
}

static void client_closed(void *arg, int error)
{
    struct client *c = arg;

    c->error = error;
    c->closed = true;
    c->tcp = tcp_close(c->tcp);
}

static void client_connected(void *arg)
{
    (void)arg;
}

static void client_open(struct client *c, struct str bytes)
{
    static const struct tcp_handlers h = {
        .connected = client_connected, .received = client_received, .closed = client_closed};
    struct err e;

    *c = (struct client){0};
    EXPECT_OK(tcp_connect(&c->tcp, loop, "127.0.0.1", http_server_port(server), &h, c, &e), &e);
    tcp_write(c->tcp, bytes);
}

/* Until the server closes. */
static void client_talk(struct client *c, struct str bytes)
{
    client_open(c, bytes);
    LOOP_UNTIL(loop, c->closed);
}

static void client_close(struct client *c)
{
    c->tcp = tcp_close(c->tcp);
    buf_done(&c->got);
}

static bool got(struct client *c, const char *text)
{
    return str_has(buf_str(&c->got), str_from(text));
}

static void expect_got(struct client *c, const char *text)
{
    if (!str_is(buf_str(&c->got), text))
        fail_msg("got: %s\nwant: %s", buf_cstr(&c->got), text);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define GET_CLOSE(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

/* Sends @bytes, waits for the server to close, and compares everything that came. */
static void expect_exchange(struct str bytes, const char *want)
{
    struct client c;

    client_talk(&c, bytes);
    expect_got(&c, want);
    client_close(&c);
}

/* --- tests ----------------------------------------------------------------------------------- */

static void test_a_header_may_be_echoed(void **state)
{
    struct http_server_conf conf = conf_default();

    (void)state;
    conf.echo = "x-id";
    setup(conf);
    expect_exchange(STR("GET /echo HTTP/1.1\r\nHost: a\r\nX-Id: a\tb\r\nConnection: close\r\n\r\n"),
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-path: /echo\r\nx-id: a b\r\n"
                    "content-length: 0\r\nconnection: close\r\n\r\n");
    expect_exchange(STR(GET_CLOSE("/echo")), "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
                                             "x-path: /echo\r\ncontent-length: 0\r\n"
                                             "connection: close\r\n\r\n");
    teardown();
}

static void test_an_answer_may_have_a_date(void **state)
{
    struct http_server_conf conf = conf_default();
    struct client c;
    struct tm told = {0};
    const char *date;

    (void)state;
    conf.dated = true;
    setup(conf);
    client_talk(&c, STR(GET_CLOSE("/echo")));
    date = strstr(buf_cstr(&c.got), "\r\ndate: ");
    assert_non_null(date);
    date = strptime(date, "\r\ndate: %a, %d %b %Y %H:%M:%S GMT\r\n", &told);
    assert_non_null(date);
    assert_true(str_starts(str_from(date), STR("content-length: ")));
    assert_in_range(clock_wall_ms() / 1000 - (uint64_t)timegm(&told), 0, 60);
    client_close(&c);
    teardown();
}

#define POSTED(path, more)                                                                         \
    "POST " path " HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" more "\r\none"
#define ECHOED(path, more)                                                                         \
    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-path: " path "\r\ncontent-length: " more

static void test_whole_answers(void **state)
{
    (void)state;
    setup(conf_default());
    expect_exchange(STR(GET_CLOSE("/echo?q")), "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n"
                                               "x-path: /echo\r\ncontent-length: 0\r\n"
                                               "connection: close\r\n\r\n");
    expect_exchange(STR("POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                        "Content-Length: 5\r\n\r\nhello"),
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-path: /echo\r\n"
                    "content-length: 5\r\nconnection: close\r\n\r\nhello");
    expect_exchange(STR("POST /any/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\n!!!\r\n0\r\n\r\n"),
                    "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-path: /any/x\r\n"
                    "content-length: 5\r\nconnection: close\r\n\r\nhi!!!");
    expect_exchange(
        STR(POSTED("/cut", "") POSTED("/echo", "") POSTED("/cut", "Connection: close\r\n")),
        ECHOED("/cut", "2\r\n\r\nne") ECHOED("/echo", "3\r\n\r\none")
            ECHOED("/cut", "2\r\nconnection: close\r\n\r\nne"));
    expect_exchange(STR("HEAD /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    "transfer-encoding: chunked\r\nconnection: close\r\n\r\n");
    expect_exchange(STR(GET_CLOSE("/none")),
                    "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
    expect_exchange(STR(GET_CLOSE("/injected")),
                    "HTTP/1.1 200 OK\r\nx-echo: a  x-evil: 1\r\ncontent-length: 0\r\n"
                    "connection: close\r\n\r\n");
    teardown();
}

static void test_http_1_0(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    expect_exchange(STR("GET /stream HTTP/1.0\r\n\r\n"),
                    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    "connection: close\r\n\r\none0123456789abcdef");
    client_open(&c, STR("GET /any/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    LOOP_UNTIL(loop, got(&c, "connection: keep-alive\r\n\r\n"));
    assert_int_equal(http_server_connections(server), 1);
    client_close(&c);
    teardown();
}

static void test_stream_leaves_in_one_write(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/stream")));
    LOOP_UNTIL(loop, got(&c, "0\r\n\r\n"));
    assert_int_equal(c.reads, 1);
    expect_got(&c, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                   "transfer-encoding: chunked\r\n\r\n"
                   "3\r\none\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    client_close(&c);
    teardown();
}

static void test_head_waits_for_the_first_bytes(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, "text/event-stream");
    assert_true(http_stream_backlog(pending) > 0);
    for (int i = 0; i < 3; i++)
        loop_run_once(loop, 1);
    assert_int_equal(c.got.len, 0);
    http_stream_write(pending, STR("first"));
    LOOP_UNTIL(loop, c.reads);
    assert_true(got(&c, "\r\n\r\n5\r\nfirst\r\n"));
    assert_int_equal(c.reads, 1);
    LOOP_UNTIL(loop, drained);
    http_stream_end(pending);
    pending = NULL;
    LOOP_UNTIL(loop, got(&c, "0\r\n\r\n"));
    client_close(&c);
    teardown();
}

static void test_an_empty_write_sends_the_head(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    http_stream_write(pending, STR_NULL);
    LOOP_UNTIL(loop, got(&c, "chunked\r\n\r\n"));
    http_stream_end(pending);
    pending = NULL;
    LOOP_UNTIL(loop, got(&c, "\r\n\r\n0\r\n\r\n"));
    client_close(&c);
    teardown();
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/any/1") GET("/later") GET("/any/2") GET_CLOSE("/any/3")));
    LOOP_UNTIL(loop, pending && got(&c, "/any/1"));
    for (int i = 0; i < 3; i++)
        loop_run_once(loop, 1);
    assert_int_equal(handled, 2); /* the third waits for the second's answer */
    assert_true(str_is(http_request(pending)->path, "/later"));
    http_respond(pending, 200, NULL, STR("middle"));
    pending = NULL;
    LOOP_UNTIL(loop, c.closed);
    assert_true(got(&c, "content-length: 6\r\n\r\nmiddleHTTP/1.1 200 OK\r\n"));
    assert_true(got(&c, "x-path: /any/3"));
    assert_int_equal(handled, 4);
    client_close(&c);
    teardown();
}

static void put_many(struct buf *out, char byte, size_t n)
{
    memset(buf_reserve(out, n), byte, n);
    buf_commit(out, n);
}

static void test_a_pipeline_is_not_read_without_end(void **state)
{
    AUTO(buf_done) struct buf flood = BUF_NULL;
    struct client c;

    (void)state;
    setup(conf_default());
    buf_put_cstr(&flood, GET("/later"));
    while (flood.len < FLOOD) { /* few and large: it is the bytes that matter */
        buf_put_cstr(&flood, "GET /none HTTP/1.1\r\nHost: a\r\nx-pad: ");
        put_many(&flood, 'p', 8000);
        buf_put_cstr(&flood, "\r\n\r\n");
    }
    buf_put_cstr(&flood, GET_CLOSE("/any/last"));
    client_open(&c, buf_str(&flood));
    LOOP_UNTIL(loop, pending);
    for (int i = 0; i < 20; i++)
        loop_run_once(loop, 1);
    assert_true(tcp_backlog(c.tcp) > 0); /* the rest stays with the client */
    http_respond(pending, 200, NULL, STR_NULL);
    pending = NULL;
    LOOP_UNTIL(loop, c.closed);
    assert_true(got(&c, "x-path: /any/last"));
    client_close(&c);
    teardown();
}

static void test_errors_that_no_handler_sees(void **state)
{
    static const struct {
        const char *send, *status, *also;
    } cases[] = {
        {GET_CLOSE("/nowhere"), "404 Not Found", "not found"},
        {"PUT /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "405 Method Not Allowed",
         "allow: GET, POST\r\n"},
        {"rubbish\r\n\r\n", "400 Bad Request", "connection: close"},
        {"GET / HTTP/3.0\r\n\r\n", "505 HTTP Version Not Supported", "connection: close"},
        {"POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
         "413 Payload Too Large", "connection: close"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n",
         "413 Payload Too Large", "connection: close"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", "501 Not Implemented",
         "connection: close"},
        {"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"
         "0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n",
         "400 Bad Request", "connection: close"},
    };

    (void)state;
    setup(conf_default());
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct client c;

        client_talk(&c, str_from(cases[i].send));
        assert_true(str_starts(str_skip(buf_str(&c.got), 9), str_from(cases[i].status)));
        assert_true(got(&c, cases[i].also));
        client_close(&c);
    }
    assert_int_equal(handled, 0);
    teardown();
}

static void test_heads_too_large(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    struct client c;

    (void)state;
    setup(conf_default());
    buf_put_cstr(&b, "GET /");
    put_many(&b, 'x', 10000);
    client_talk(&c, buf_str(&b));
    assert_true(got(&c, " 414 URI Too Long"));
    client_close(&c);
    buf_clear(&b);
    buf_put_cstr(&b, "GET / HTTP/1.1\r\nX: ");
    put_many(&b, 'x', 10000);
    client_talk(&c, buf_str(&b));
    assert_true(got(&c, " 431 Request Header Fields Too Large"));
    client_close(&c);
    teardown();
}

/* The refusal reaches a client that is still busy sending its body. */
static void test_refusal_is_seen_behind_a_large_body(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    struct client c;

    (void)state;
    setup(conf_default());
    buf_put_cstr(&b, "POST /small HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n");
    put_many(&b, 'x', 16777216);
    client_talk(&c, buf_str(&b));
    assert_true(got(&c, " 413 Payload Too Large"));
    assert_int_equal(c.error, 0); /* no reset, which could overtake the answer */
    client_close(&c);
    teardown();
}

static void stays_open(void *arg)
{
    (void)arg;
}

static void test_a_refused_client_may_not_stay(void **state)
{
    static const struct tcp_handlers h = {
        .received = client_received, .peer_done = stays_open, .closed = client_closed};
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR("rubbish\r\n\r\n"));
    tcp_set_handlers(c.tcp, &h, &c);
    LOOP_UNTIL(loop, got(&c, " 400 Bad Request"));
    assert_int_equal(http_server_connections(server), 1); /* we could still be sending */
    LOOP_UNTIL(loop, http_server_connections(server) == 0);
    client_close(&c);
    teardown();
}

static void answers_in_json(struct http_exchange *x, int status, const char *why, void *arg)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    assert_ptr_equal(arg, &routes);
    buf_printf(&body, "{\"%d\":\"%s\"}", status, why);
    http_respond(x, status, "application/json", buf_str(&body));
}

static void *routes_arg(void)
{
    return (void *)(uintptr_t)&routes;
}

static void test_on_error_shapes_refusals(void **state)
{
    struct http_server_conf conf = conf_default();

    (void)state;
    conf.on_error = answers_in_json;
    conf.arg = routes_arg();
    setup(conf);
    expect_exchange(STR(GET_CLOSE("/nowhere")),
                    "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\n"
                    "content-length: 19\r\nconnection: close\r\n\r\n{\"404\":\"not found\"}");
    expect_exchange(STR("(\r\n"), "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
                                  "content-length: 27\r\nconnection: close\r\n\r\n"
                                  "{\"400\":\"malformed request\"}");
    teardown();
}

static void test_expect_continue(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Length: 2\r\n\r\n"));
    LOOP_UNTIL(loop, c.reads);
    expect_got(&c, "HTTP/1.1 100 Continue\r\n\r\n");
    tcp_write(c.tcp, STR("hi"));
    LOOP_UNTIL(loop, got(&c, "\r\n\r\nhi"));
    assert_true(got(&c, "Continue\r\n\r\nHTTP/1.1 200 OK"));
    client_close(&c);
    /* What would be refused is not asked for. */
    client_open(&c, STR("POST /small HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
                        "Content-Length: 20\r\n\r\n"));
    LOOP_UNTIL(loop, c.closed);
    assert_true(str_starts(buf_str(&c.got), STR("HTTP/1.1 413")));
    client_close(&c);
    teardown();
}

static void test_a_client_that_leaves_is_noticed(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/later"))); /* before any answer */
    LOOP_UNTIL(loop, pending);
    c.tcp = tcp_close(c.tcp);
    LOOP_UNTIL(loop, gone == 1);
    assert_int_equal(http_server_connections(server), 0);
    client_close(&c);

    client_open(&c, STR(GET("/later"))); /* in the middle of a stream */
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    http_stream_write(pending, STR("x"));
    LOOP_UNTIL(loop, c.reads);
    c.tcp = tcp_close(c.tcp);
    LOOP_UNTIL(loop, gone == 2);
    client_close(&c);

    client_open(&c, STR(GET("/later"))); /* after the answer: nobody is to be told */
    LOOP_UNTIL(loop, pending);
    http_respond(pending, 200, NULL, STR_NULL);
    c.tcp = tcp_close(c.tcp);
    LOOP_UNTIL(loop, http_server_connections(server) == 0);
    assert_int_equal(gone, 2);
    client_close(&c);
    teardown();
}

static void test_abort_breaks_the_stream(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    http_stream_write(pending, STR("part"));
    http_stream_abort(pending);
    LOOP_UNTIL(loop, c.closed);
    assert_true(got(&c, "4\r\npart\r\n"));
    assert_false(got(&c, "0\r\n\r\n"));
    assert_int_equal(gone, 0); /* the handler knows */
    client_close(&c);
    teardown();
}

static void test_back_pressure(void **state)
{
    AUTO(buf_done) struct buf chunk = BUF_NULL;
    struct client c;
    size_t written = 0;

    (void)state;
    setup(conf_default());
    put_many(&chunk, 'x', 65536);
    client_open(&c, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    tcp_pause(c.tcp);
    http_stream_begin(pending, 200, NULL);
    while (written < FLOOD) {
        http_stream_write(pending, buf_str(&chunk));
        written += chunk.len;
        loop_run_once(loop, 0);
    }
    assert_true(http_stream_backlog(pending) > 0);
    drained = 0;
    tcp_resume(c.tcp);
    LOOP_UNTIL(loop, drained);
    assert_int_equal(http_stream_backlog(pending), 0);
    LOOP_UNTIL(loop, c.got.len > written);
    client_close(&c);
    LOOP_UNTIL(loop, gone);
    teardown();
}

static void test_too_many_connections(void **state)
{
    AUTO(metric_registry_free) struct metric_registry *metrics = metric_registry_new();
    struct http_server_conf conf = conf_default();
    AUTO(buf_done) struct buf shown = BUF_NULL;
    struct client a, b;

    (void)state;
    conf.connections_max = 1;
    conf.metrics = metrics;
    setup(conf);
    client_open(&a, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    client_open(&b, STR_NULL);
    LOOP_UNTIL(loop, b.closed);
    assert_true(str_starts(buf_str(&b.got), STR("HTTP/1.1 503 Service Unavailable\r\n")));
    metric_print(metrics, &shown);
    assert_non_null(strstr(buf_cstr(&shown), "\ncommutator_http_connections_refused_total 1\n"));
    assert_int_equal(http_server_connections(server), 1);
    client_close(&a);
    client_close(&b);
    LOOP_UNTIL(loop, gone);
    client_open(&a, STR(GET("/echo"))); /* there is room again */
    LOOP_UNTIL(loop, got(&a, "200 OK"));
    client_close(&a);
    teardown();
}

static void test_stalling_clients_are_let_go(void **state)
{
    struct http_server_conf conf = conf_default();
    struct client silent, head, body, kept;

    (void)state;
    conf.idle_ms = 1000; /* a busy machine must not take what was sent for silence */
    setup(conf);
    client_open(&silent, STR_NULL);
    client_open(&head, STR("GET /echo HTTP/1.1\r\nHos"));
    client_open(&body, STR("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"));
    client_open(&kept, STR(GET("/none")));
    LOOP_UNTIL(loop, silent.closed && head.closed && body.closed && kept.closed);
    assert_int_equal(silent.got.len, 0);
    assert_true(str_starts(buf_str(&head.got), STR("HTTP/1.1 408 Request Timeout\r\n")));
    assert_true(str_starts(buf_str(&body.got), STR("HTTP/1.1 408 Request Timeout\r\n")));
    expect_got(&kept, "HTTP/1.1 204 No Content\r\n\r\n");
    client_close(&silent);
    client_close(&head);
    client_close(&body);
    client_close(&kept);
    teardown();
}

static void test_a_slow_answer_is_not_a_stall(void **state)
{
    struct http_server_conf conf = conf_default();
    uint64_t until_ns = clock_now_ns() + 1500000000;
    struct client c;

    (void)state;
    conf.idle_ms = 1000; /* likewise */
    setup(conf);
    client_open(&c, STR(GET("/later")));
    while (clock_now_ns() < until_ns)
        loop_run_once(loop, 5);
    assert_non_null(pending);
    http_respond(pending, 200, NULL, STR("at last"));
    LOOP_UNTIL(loop, got(&c, "at last"));
    client_close(&c);
    teardown();
}

static void test_stop_lets_exchanges_end(void **state)
{
    struct client idle, busy, late;
    struct err e;

    (void)state;
    setup(conf_default());
    client_open(&idle, STR(GET("/none")));
    client_open(&busy, STR(GET("/later")));
    LOOP_UNTIL(loop, idle.reads && pending);
    http_server_stop(server, on_stopped, NULL);
    LOOP_UNTIL(loop, idle.closed);
    assert_int_equal(stopped, 0);
    assert_int_equal(gone, 0);
    late = (struct client){0};
    EXPECT_OK(tcp_connect(&late.tcp, loop, "127.0.0.1", http_server_port(server),
                          &(struct tcp_handlers){.closed = client_closed}, &late, &e),
              &e);
    LOOP_UNTIL(loop, late.closed); /* refused by the kernel */
    http_respond(pending, 200, NULL, STR("bye"));
    LOOP_UNTIL(loop, busy.closed && stopped == 1);
    assert_true(got(&busy, "connection: close\r\n\r\nbye"));
    client_close(&idle);
    client_close(&busy);
    client_close(&late);
    teardown();
    assert_int_equal(stopped, 1);
}

static void test_stop_of_an_idle_server(void **state)
{
    (void)state;
    setup(conf_default());
    http_server_stop(server, on_stopped, NULL);
    assert_int_equal(stopped, 0); /* never inside the call */
    LOOP_UNTIL(loop, stopped == 1);
    teardown();
}

static void test_free_tells_the_handlers(void **state)
{
    struct client c;

    (void)state;
    setup(conf_default());
    client_open(&c, STR(GET("/later")));
    LOOP_UNTIL(loop, pending);
    server = http_server_free(server);
    assert_int_equal(gone, 1);
    LOOP_UNTIL(loop, c.closed);
    client_close(&c);
    teardown();
}

static void test_port_in_use(void **state)
{
    struct http_server_conf conf = conf_default();
    struct http_server *second = NULL;
    struct err e;

    (void)state;
    setup(conf);
    conf.port = http_server_port(server);
    assert_int_equal(http_server_start(&second, loop, &conf, &e), -EADDRINUSE);
    assert_true(str_has(str_from(e.text), STR("HTTP server: listen on 127.0.0.1")));
    teardown();
}

int main(void)
{
    return TEST_RUN(
        T(test_whole_answers), T(test_a_header_may_be_echoed), T(test_an_answer_may_have_a_date),
        T(test_http_1_0), T(test_stream_leaves_in_one_write),
        T(test_head_waits_for_the_first_bytes), T(test_an_empty_write_sends_the_head),
        T(test_pipelined_requests_are_answered_in_order),
        T(test_a_pipeline_is_not_read_without_end), T(test_errors_that_no_handler_sees),
        T(test_heads_too_large), T(test_refusal_is_seen_behind_a_large_body),
        T(test_a_refused_client_may_not_stay), T(test_on_error_shapes_refusals),
        T(test_expect_continue), T(test_a_client_that_leaves_is_noticed),
        T(test_abort_breaks_the_stream), T(test_back_pressure), T(test_too_many_connections),
        T(test_stalling_clients_are_let_go), T(test_a_slow_answer_is_not_a_stall),
        T(test_stop_lets_exchanges_end), T(test_stop_of_an_idle_server),
        T(test_free_tells_the_handlers), T(test_port_in_use));
}
