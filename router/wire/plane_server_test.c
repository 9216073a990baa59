/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server against bytes that no client of ours sends; requests are plane_test.c's.
 */
#include "router/wire/plane_server.h"
#include "router/wire/tcp_frame.h"

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"
#include "router/wire/plane_address.h"

struct rig {
    struct loop *loop;
    struct plane_server *server;
    struct tcp *conn;
    struct buf answer;
    bool closed;
};

static void on_received(void *arg, struct str data)
{
    buf_put_str(&((struct rig *)arg)->answer, data);
}

static void on_closed(void *arg, int error)
{
    (void)error;
    ((struct rig *)arg)->closed = true;
}

static void serve(void *arg, struct plane_request *rq)
{
    (void)arg;
    plane_request_abort(rq);
}

static void rig_init(struct rig *rig, const struct plane_server_conf *conf)
{
    struct err e;

    *rig = (struct rig){0};
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(plane_server_new(&rig->server, rig->loop, conf, &e), &e);
    plane_server_register(rig->server, &(struct plane_endpoint){.name = "g", .instance_id = 0xa},
                          serve, NULL);
}

static void rig_done(struct rig *rig)
{
    rig->conn = tcp_close(rig->conn);
    rig->server = plane_server_free(rig->server);
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
    buf_done(&rig->answer);
}

static void connect_to(struct rig *rig)
{
    static const struct tcp_handlers on = {.received = on_received, .closed = on_closed};
    struct plane_address a;
    struct err e;

    rig->conn = tcp_close(rig->conn);
    rig->closed = false;
    buf_clear(&rig->answer);
    EXPECT_OK(plane_address_parse(str_from(plane_server_address(rig->server)), &a, &e), &e);
    EXPECT_OK(tcp_connect(&rig->conn, rig->loop, a.ip, a.port, &on, rig, &e), &e);
}

/* Told in words; what cannot be followed any more is closed, the rest stays open. */
static void test_garbage(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *want;
        bool closes;
    } cases[] = {
        {"\0\0", 2, "Read error: ", true},
        {"\xff\xff", 2, "Read error: ", true},
        {"\0\1a\0\0\xff\xff\xff\xff", 9, "Read error: ", true},
        {"\0\1\xff\0\0\0\0\0\0", 9, "Invalid endpoint path", false},
        {"\0\1a\0\0\0\0\0\0", 9, "Unknown endpoint: a", false},
    };
    const struct plane_server_conf conf = {.host = "127.0.0.1"};
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        connect_to(&rig);
        tcp_write(rig.conn, str_slice(cases[i].bytes, cases[i].n));
        LOOP_UNTIL(rig.loop, str_has(buf_str(&rig.answer), str_from(cases[i].want)));
        if (cases[i].closes) {
            LOOP_UNTIL(rig.loop, rig.closed);
            continue;
        }
        buf_clear(&rig.answer);
        tcp_write(rig.conn, str_slice(cases[i].bytes, cases[i].n)); /* and again */
        LOOP_UNTIL(rig.loop, str_has(buf_str(&rig.answer), str_from(cases[i].want)));
    }
    rig_done(&rig);
}

/* Acknowledged, then dropped without a word: nobody could be told. */
static void test_unusable_request(void **state)
{
    const struct plane_server_conf conf = {.host = "127.0.0.1"};
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    connect_to(&rig);
    tcp_write(rig.conn, str_slice("\0\3a/g\0\0\0\0\0\2{}", 13));
    LOOP_UNTIL(rig.loop, rig.answer.len == 4);
    assert_memory_equal(buf_data(&rig.answer), "\0\0\0\0", 4);
    LOOP_UNTIL(rig.loop, plane_server_stats(rig.server).bad_requests == 1);
    assert_int_equal(plane_server_running(rig.server), 0);
    assert_false(rig.closed);
    rig_done(&rig);
}

/* As 1.6.1's frontend asks with --response-plane quic: refused, or it would wait without an end. */
static void test_another_response_plane(void **state)
{
    static const char control[] =
        "{\"id\":\"a\",\"request_type\":\"single_in\",\"response_type\":\"many_out\",\"connection_"
        "info\":"
        "{\"transport\":\"quic-response\",\"info\":\"{\\\"address\\\":\\\"127.0.0.1:1\\\"}\"}}";
    const struct plane_server_conf conf = {.host = "127.0.0.1"};
    AUTO(buf_done) struct buf frame = BUF_NULL;
    struct rig rig;
    struct err e;

    (void)state;
    rig_init(&rig, &conf);
    EXPECT_OK(tcp_frame_put(&frame, STR("a/g"), STR("{}"), STR(control), STR("{}"), &e), &e);
    connect_to(&rig);
    tcp_write(rig.conn, buf_str(&frame));
    LOOP_UNTIL(rig.loop, str_has(buf_str(&rig.answer), STR("Server unavailable: response plane")));
    assert_int_equal(plane_server_stats(rig.server).requests, 0);
    assert_int_equal(plane_server_stats(rig.server).bad_requests, 1);
    rig_done(&rig);
}

static void test_connection_limit(void **state)
{
    const struct plane_server_conf conf = {.host = "127.0.0.1", .connections_max = 1};
    struct tcp *first;
    struct rig rig;

    (void)state;
    rig_init(&rig, &conf);
    connect_to(&rig);
    LOOP_UNTIL(rig.loop, plane_server_stats(rig.server).connections == 1);
    first = TAKE(rig.conn);
    connect_to(&rig);
    LOOP_UNTIL(rig.loop, rig.closed);
    first = tcp_close(first);
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_garbage), T(test_unusable_request), T(test_another_response_plane),
                    T(test_connection_limit));
}
