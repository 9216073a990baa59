/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_server_test.h"

enum { LARGE = 32 << 20 };

/* Both ends of one connection and what happened to each. */
struct end {
    struct rig *rig;
    struct tcp *conn;
    struct buf got;
    uint64_t received_calls, received_bytes;
    int connected, drained, fin, closed, error;
    bool echo, close_on_data, close_on_fin;
};

struct rig {
    struct loop *loop;
    struct tcp_listener *listener;
    struct end client, server;
};

static void on_connected(void *arg)
{
    ((struct end *)arg)->connected++;
}

static void on_received(void *arg, struct str data)
{
    struct end *x = arg;

    x->received_calls++;
    x->received_bytes += data.len;
    if (x->got.len < 4096)
        buf_put_str(&x->got, str_head(data, 4096));
    if (x->echo)
        tcp_write(x->conn, data);
    if (x->close_on_data)
        x->conn = tcp_close(x->conn);
}

static void on_drained(void *arg)
{
    ((struct end *)arg)->drained++;
}

static void on_fin(void *arg)
{
    struct end *x = arg;

    x->fin++;
    if (x->close_on_fin)
        x->conn = tcp_close(x->conn);
}

static void on_closed(void *arg, int error)
{
    struct end *x = arg;

    x->closed++;
    x->error = error;
    x->conn = tcp_close(x->conn);
}

static const struct tcp_handlers handlers = {on_connected, on_received, on_drained, NULL,
                                             on_closed};
static const struct tcp_handlers half_close = {on_connected, on_received, on_drained, on_fin,
                                               on_closed};

static void on_accept(void *arg, struct tcp *take_conn)
{
    struct rig *r = arg;

    assert_null(r->server.conn);
    r->server.conn = take_conn;
    tcp_set_handlers(take_conn, &handlers, &r->server);
}

static void rig_open_at(struct rig *r, const char *host, const char *ip)
{
    struct err e;

    *r = (struct rig){0};
    r->client.rig = r->server.rig = r;
    EXPECT_OK(loop_new(&r->loop, &e), &e);
    EXPECT_OK(tcp_listen(&r->listener, r->loop, host, 0, on_accept, r, &e), &e);
    EXPECT_OK(tcp_connect(&r->client.conn, r->loop, ip, tcp_listener_port(r->listener), &handlers,
                          &r->client, &e),
              &e);
    LOOP_UNTIL(r->loop, r->client.connected && r->server.conn);
}

static void rig_open(struct rig *r)
{
    rig_open_at(r, "127.0.0.1", "127.0.0.1");
}

static void rig_close(struct rig *r)
{
    tcp_abort(r->client.conn);
    tcp_abort(r->server.conn);
    tcp_listener_close(r->listener);
    loop_free(r->loop);
    buf_done(&r->client.got);
    buf_done(&r->server.got);
}

static void test_echo_and_orderly_close(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    r.server.echo = true;
    tcp_write(r.client.conn, STR("hello"));
    LOOP_UNTIL(r.loop, r.client.received_bytes == 5);
    assert_string_equal(buf_cstr(&r.client.got), "hello");
    assert_int_equal(tcp_backlog(r.client.conn), 0);
    r.client.conn = tcp_close(r.client.conn);
    LOOP_UNTIL(r.loop, r.server.closed);
    assert_int_equal(r.server.error, 0);
    assert_int_equal(r.client.closed, 0); /* it closed itself */
    rig_close(&r);
}

static void test_ipv6_and_peer_names(void **state)
{
    struct rig r;

    (void)state;
    rig_open_at(&r, "::1", "::1");
    assert_true(str_starts(str_from(tcp_peer(r.client.conn)), STR("[::1]:")));
    assert_true(str_starts(str_from(tcp_peer(r.server.conn)), STR("[::1]:")));
    rig_close(&r);
    rig_open_at(&r, "::", "127.0.0.1"); /* both families */
    assert_true(str_starts(str_from(tcp_peer(r.client.conn)), STR("127.0.0.1:")));
    rig_close(&r);
}

/* A thousand writes of one turn are one segment for the peer: it reads them in one go. */
static void test_writes_of_a_turn_leave_together(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    for (int i = 0; i < 1000; i++)
        tcp_write(r.client.conn, STR("0123456789"));
    assert_int_equal(tcp_backlog(r.client.conn), 10000);
    LOOP_UNTIL(r.loop, r.server.received_bytes == 10000);
    assert_int_equal(r.server.received_calls, 1);
    assert_int_equal(r.client.drained, 1);
    rig_close(&r);
}

static void test_a_paused_peer_pushes_back(void **state)
{
    AUTO(mem_free) char *bytes = xcalloc(1, LARGE);
    struct rig r;
    size_t held;

    (void)state;
    rig_open(&r);
    tcp_pause(r.server.conn);
    tcp_write(r.client.conn, str_slice(bytes, LARGE));
    for (int i = 0; i < 20; i++)
        loop_run_once(r.loop, 1);
    held = tcp_backlog(r.client.conn);
    assert_true(held > 0 && held < LARGE);
    assert_int_equal(r.client.drained, 0);
    assert_int_equal(r.server.received_bytes, 0);
    tcp_write(r.client.conn, STR("tail"));
    assert_int_equal(tcp_backlog(r.client.conn), held + 4);
    tcp_resume(r.server.conn);
    LOOP_UNTIL(r.loop, r.server.received_bytes == LARGE + 4);
    LOOP_UNTIL(r.loop, r.client.drained == 1);
    assert_int_equal(tcp_backlog(r.client.conn), 0);
    rig_close(&r);
}

static void test_close_sends_what_is_left(void **state)
{
    AUTO(mem_free) char *bytes = xcalloc(1, LARGE);
    struct rig r;

    (void)state;
    rig_open(&r);
    tcp_pause(r.server.conn);
    tcp_write(r.client.conn, str_slice(bytes, LARGE));
    r.client.conn = tcp_close(r.client.conn);
    for (int i = 0; i < 5; i++)
        loop_run_once(r.loop, 1);
    tcp_resume(r.server.conn);
    LOOP_UNTIL(r.loop, r.server.closed);
    assert_int_equal(r.server.received_bytes, LARGE);
    assert_int_equal(r.client.closed + r.client.drained, 0); /* no callback after tcp_close() */
    rig_close(&r);
}

static void test_close_inside_a_callback(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    r.server.close_on_data = true;
    tcp_write(r.client.conn, STR("x"));
    LOOP_UNTIL(r.loop, r.client.closed);
    assert_int_equal(r.client.error, 0);
    assert_int_equal(r.server.closed, 0);
    rig_close(&r);
}

static void test_half_close_both_ways(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    tcp_set_handlers(r.server.conn, &half_close, &r.server);
    tcp_set_handlers(r.client.conn, &half_close, &r.client);
    tcp_write(r.client.conn, STR("ask"));
    tcp_shutdown(r.client.conn);
    tcp_write(r.client.conn, STR("too late"));
    LOOP_UNTIL(r.loop, r.server.fin);
    assert_string_equal(buf_cstr(&r.server.got), "ask");
    assert_int_equal(r.server.closed, 0);
    tcp_write(r.server.conn, STR("answer"));
    tcp_shutdown(r.server.conn);
    LOOP_UNTIL(r.loop, r.client.closed && r.server.closed);
    assert_string_equal(buf_cstr(&r.client.got), "answer");
    assert_int_equal(r.client.fin, 1);
    assert_int_equal(r.client.error, 0);
    assert_int_equal(r.server.error, 0);
    rig_close(&r);
}

/* Without peer_done a FIN ends the connection, yet what was written before it still leaves. */
static void test_answer_survives_a_half_closed_client(void **state)
{
    struct rig r;

    (void)state;
    rig_open(&r);
    r.server.echo = true;
    tcp_set_handlers(r.client.conn, &half_close, &r.client);
    tcp_write(r.client.conn, STR("ask"));
    tcp_shutdown(r.client.conn);
    LOOP_UNTIL(r.loop, r.client.fin);
    assert_string_equal(buf_cstr(&r.client.got), "ask");
    assert_int_equal(r.server.closed, 1);
    rig_close(&r);
}

static void test_reset_is_an_error(void **state)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    struct sockaddr_in a = {.sin_family = AF_INET};
    struct rig r;
    int fd;

    (void)state;
    rig_open(&r);
    r.server.conn = tcp_abort(r.server.conn);
    LOOP_UNTIL(r.loop, r.client.closed);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_port = htons(tcp_listener_port(r.listener));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    LOOP_UNTIL(r.loop, r.server.conn);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    (void)close(fd);
    LOOP_UNTIL(r.loop, r.server.closed);
    assert_int_equal(r.server.error, -ECONNRESET);
    rig_close(&r);
}

static void test_connection_refused(void **state)
{
    struct rig r;
    uint16_t nobodys = (uint16_t)nats_test_port();
    struct err e;

    (void)state;
    rig_open(&r);
    r.client.conn = tcp_close(r.client.conn);
    loop_run_once(r.loop, 1);
    EXPECT_OK(tcp_connect(&r.client.conn, r.loop, "127.0.0.1", nobodys, &handlers, &r.client, &e),
              &e);
    tcp_write(r.client.conn, STR("never sent"));
    LOOP_UNTIL(r.loop, r.client.closed);
    assert_int_equal(r.client.error, -ECONNREFUSED);
    rig_close(&r);
}

static void test_abort_while_connecting(void **state)
{
    struct rig r;
    struct err e;

    (void)state;
    rig_open(&r);
    r.client.conn = tcp_abort(r.client.conn);
    LOOP_UNTIL(r.loop, r.server.closed);
    r.client.connected = 0;
    EXPECT_OK(tcp_connect(&r.client.conn, r.loop, "127.0.0.1", tcp_listener_port(r.listener),
                          &handlers, &r.client, &e),
              &e);
    r.client.conn = tcp_abort(r.client.conn);
    for (int i = 0; i < 5; i++)
        loop_run_once(r.loop, 1);
    assert_int_equal(r.client.connected, 0);
    assert_int_equal(r.client.closed, 0);
    rig_close(&r);
}

static void test_addresses_are_numeric(void **state)
{
    static const char *const bad[] = {"localhost", "", "127.0.0.1:80", "[::1]", "1.2.3.256"};
    struct rig r;
    struct err e;

    (void)state;
    rig_open(&r);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct tcp *c = NULL;

        assert_int_equal(tcp_connect(&c, r.loop, bad[i], 80, &handlers, NULL, &e), -EINVAL);
        assert_true(str_has(str_from(e.text), STR("numeric")));
    }
    rig_close(&r);
}

static void test_listening_twice(void **state)
{
    struct tcp_listener *second = NULL;
    struct rig r;
    struct err e;

    (void)state;
    rig_open(&r);
    assert_int_equal(
        tcp_listen(&second, r.loop, "127.0.0.1", tcp_listener_port(r.listener), on_accept, &r, &e),
        -EADDRINUSE);
    assert_null(second);
    rig_close(&r);
}

static void test_listening_shared(void **state)
{
    struct tcp_listener *a = NULL, *b = NULL;
    struct rig r;
    struct err e;

    (void)state;
    rig_open(&r);
    EXPECT_OK(tcp_listen_shared(&a, r.loop, "127.0.0.1", 0, on_accept, &r, &e), &e);
    EXPECT_OK(tcp_listen_shared(&b, r.loop, "127.0.0.1", tcp_listener_port(a), on_accept, &r, &e),
              &e);
    tcp_listener_close(a);
    tcp_listener_close(b);
    rig_close(&r);
}

static void test_local_ip_is_an_address(void **state)
{
    char text[46];
    struct in6_addr a;

    (void)state;
    tcp_local_ip(text, sizeof(text));
    assert_true(inet_pton(AF_INET, text, &a) == 1 || inet_pton(AF_INET6, text, &a) == 1);
}

int main(void)
{
    return TEST_RUN(T(test_echo_and_orderly_close), T(test_ipv6_and_peer_names),
                    T(test_writes_of_a_turn_leave_together), T(test_a_paused_peer_pushes_back),
                    T(test_close_sends_what_is_left), T(test_close_inside_a_callback),
                    T(test_half_close_both_ways), T(test_answer_survives_a_half_closed_client),
                    T(test_reset_is_an_error), T(test_connection_refused),
                    T(test_abort_while_connecting), T(test_addresses_are_numeric),
                    T(test_listening_twice), T(test_listening_shared),
                    T(test_local_ip_is_an_address));
}
