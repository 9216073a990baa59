/* SPDX-License-Identifier: Apache-2.0 */
/* TLS between two connections of ours: who is trusted, what passes, and what is said of failures. */
#include "lib/net/tls_client.h"

#include <errno.h>
#include <signal.h>

#include "lib/base/log.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"
#include "lib/net/tls_identity_test.h"
#include "lib/net/tls_server.h"

enum { LARGE = 3 << 20, SHORT_MS = 50 };

/* One side of the connection, and what it saw. */
struct end {
    struct rig *rig;
    struct tcp *conn;
    struct buf got;
    int connected, closed, error;
    bool echo;
    char why[256];
};

enum { OWN, OTHER, CLIENT, N_IDS };

struct rig {
    char dir[32];
    struct identity ids[N_IDS];
    char *certs[N_IDS], *keys[N_IDS];
    struct loop *loop;
    struct tls_server *server_tls; /* NULL: what listens is plain */
    struct tls_client *client_tls;
    struct tcp_listener *listener;
    struct end client, server;
};

static void on_connected(void *arg)
{
    struct end *x = arg;

    assert_int_equal(x->got.len, 0);
    x->connected++;
}

static void on_received(void *arg, struct str data)
{
    struct end *x = arg;

    buf_put_str(&x->got, data);
    if (x->echo)
        tcp_write(x->conn, data);
}

static void on_closed(void *arg, int error)
{
    struct end *x = arg;

    x->closed++;
    x->error = error;
    (void)snprintf(x->why, sizeof(x->why), "%s", tcp_why(x->conn, error));
}

static const struct tcp_handlers handlers = {
    .connected = on_connected, .received = on_received, .closed = on_closed};

static void on_accept(void *arg, struct tcp *take_conn)
{
    struct rig *g = arg;

    tcp_close(g->server.conn);
    g->server.conn = take_conn;
    tcp_start_tls(take_conn, g->server_tls);
    tcp_set_handlers(take_conn, &handlers, &g->server);
}

static void rig_init(struct rig *g)
{
    static const char *const names[N_IDS] = {"own", "other", "client"};
    struct err e;

    *g = (struct rig){.dir = "/tmp/tls_client_test.XXXXXX"};
    g->client.rig = g->server.rig = g;
    assert_non_null(mkdtemp(g->dir));
    assert_int_equal(log_setup("off", false, NULL), 0);
    for (size_t i = 0; i < N_IDS; i++) {
        AUTO(mem_free) char *key = xasprintf("%s.key", names[i]);

        identity_init_of(&g->ids[i], names[i], i == OTHER ? "DNS:worker.example" : "IP:127.0.0.1");
        g->certs[i] = identity_put(g->dir, names[i], buf_str(&g->ids[i].cert_pem));
        g->keys[i] = identity_put(g->dir, key, buf_str(&g->ids[i].key_pem));
    }
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    EXPECT_OK(tcp_listen(&g->listener, g->loop, "127.0.0.1", 0, on_accept, g, &e), &e);
}

static void end_done(struct end *x)
{
    x->conn = tcp_close(x->conn);
    buf_done(&x->got);
    *x = (struct end){.rig = x->rig};
}

static void rig_done(struct rig *g)
{
    end_done(&g->client);
    end_done(&g->server);
    tcp_listener_close(g->listener);
    tls_server_free(g->server_tls);
    tls_client_free(g->client_tls);
    loop_free(g->loop);
    for (size_t i = 0; i < N_IDS; i++) {
        assert_int_equal(unlink(g->certs[i]) | unlink(g->keys[i]), 0);
        free(g->certs[i]);
        free(g->keys[i]);
        identity_done(&g->ids[i]);
    }
    assert_int_equal(rmdir(g->dir), 0);
}

static void serve(struct rig *g, const struct tls_server_conf *conf)
{
    struct err e;

    g->server_tls = tls_server_free(g->server_tls);
    EXPECT_OK(tls_server_new(&g->server_tls, g->loop, conf, &e), &e);
}

/* Calls anew; the connection before is gone. */
static void dial(struct rig *g, const struct tls_client_conf *conf)
{
    struct err e;

    end_done(&g->client);
    end_done(&g->server);
    g->client_tls = tls_client_free(g->client_tls);
    EXPECT_OK(tls_client_new(&g->client_tls, g->loop, conf, &e), &e);
    EXPECT_OK(tcp_connect_tls(&g->client.conn, g->loop, "127.0.0.1", tcp_listener_port(g->listener),
                              g->client_tls, &handlers, &g->client, &e),
              &e);
}

static void what_is_said_arrives(void **state)
{
    AUTO(mem_free) char *large = xcalloc(1, LARGE);
    struct rig g;

    (void)state;
    rig_init(&g);
    serve(&g, &(struct tls_server_conf){.cert = g.certs[OWN], .key = g.keys[OWN]});
    dial(&g, &(struct tls_client_conf){.ca = g.certs[OWN]});
    g.server.echo = true;
    tcp_write(g.client.conn, STR("early")); /* waits until it is known who listens */
    LOOP_UNTIL(g.loop, g.client.got.len == 5);
    assert_int_equal(g.client.connected, 1);
    assert_true(str_is(buf_str(&g.client.got), "early"));
    tcp_write(g.client.conn, str_slice(large, LARGE));
    LOOP_UNTIL(g.loop, g.client.got.len == 5 + LARGE);
    tcp_shutdown(g.client.conn);
    LOOP_UNTIL(g.loop, g.server.closed);
    assert_int_equal(g.server.error, 0);
    assert_int_equal(g.server.connected, 1);
    rig_done(&g);
}

/* Nothing of what was to be sent is. */
static void check_refused(struct rig *g, const struct tls_client_conf *conf, const char *why)
{
    dial(g, conf);
    tcp_write(g->client.conn, STR("secret"));
    LOOP_UNTIL(g->loop, g->client.closed && g->server.closed);
    assert_int_equal(g->client.connected, 0);
    assert_int_equal(g->client.error, -EPROTO);
    assert_non_null(strstr(g->client.why, why));
    assert_int_equal(g->server.got.len, 0);
}

static void check_taken(struct rig *g, const struct tls_client_conf *conf)
{
    dial(g, conf);
    tcp_write(g->client.conn, STR("hello"));
    LOOP_UNTIL(g->loop, g->server.got.len == 5);
    assert_int_equal(g->client.connected, 1);
}

static void who_listens_must_be_known(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    serve(&g, &(struct tls_server_conf){.cert = g.certs[OWN], .key = g.keys[OWN]});
    check_refused(&g, &(struct tls_client_conf){.ca = g.certs[OTHER]}, "self-signed certificate");
    check_refused(&g, &(struct tls_client_conf){.ca = g.certs[OWN], .name = "worker.example"},
                  "hostname mismatch");
    check_taken(&g, &(struct tls_client_conf){.ca = NULL});
    serve(&g, &(struct tls_server_conf){.cert = g.certs[OTHER], .key = g.keys[OTHER]});
    check_refused(&g, &(struct tls_client_conf){.ca = g.certs[OTHER]}, "IP address mismatch");
    check_taken(&g, &(struct tls_client_conf){.ca = g.certs[OTHER], .name = "worker.example"});
    rig_done(&g);
}

static void who_calls_may_have_to_be_known(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    serve(&g, &(struct tls_server_conf){
                  .cert = g.certs[OWN], .key = g.keys[OWN], .client_ca = g.certs[CLIENT]});
    dial(&g, &(struct tls_client_conf){.ca = g.certs[OWN]});
    tcp_write(g.client.conn, STR("hello"));
    LOOP_UNTIL(g.loop, g.client.closed && g.server.closed);
    assert_int_equal(g.server.got.len, 0);
    assert_non_null(strstr(g.server.why, "peer did not return a certificate"));
    check_taken(&g, &(struct tls_client_conf){
                        .ca = g.certs[OWN], .cert = g.certs[CLIENT], .key = g.keys[CLIENT]});
    rig_done(&g);
}

static void changed_files_are_read(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    serve(&g, &(struct tls_server_conf){.cert = g.certs[OWN], .key = g.keys[OWN]});
    check_refused(&g, &(struct tls_client_conf){.ca = g.certs[OTHER]}, "self-signed certificate");
    free(identity_put(g.dir, "other", buf_str(&g.ids[OWN].cert_pem)));
    while (!g.server.got.len) {
        struct err e;

        end_done(&g.client);
        end_done(&g.server);
        EXPECT_OK(tcp_connect_tls(&g.client.conn, g.loop, "127.0.0.1",
                                  tcp_listener_port(g.listener), g.client_tls, &handlers, &g.client,
                                  &e),
                  &e);
        tcp_write(g.client.conn, STR("hello"));
        LOOP_UNTIL(g.loop, g.client.closed || g.server.got.len);
    }
    rig_done(&g);
}

static void a_handshake_has_an_end(void **state)
{
    static const struct tls_client_conf limited = {.handshake_ms = SHORT_MS};
    struct tls_server_conf conf = {.handshake_ms = SHORT_MS};
    struct rig g;
    struct err e;

    (void)state;
    rig_init(&g);
    dial(&g, &limited); /* what listens says nothing */
    LOOP_UNTIL(g.loop, g.client.closed);
    assert_int_equal(g.client.error, -ETIMEDOUT);
    assert_non_null(strstr(g.client.why, "handshake"));
    conf.cert = g.certs[OWN];
    conf.key = g.keys[OWN];
    serve(&g, &conf);
    end_done(&g.client);
    end_done(&g.server);
    EXPECT_OK(tcp_connect(&g.client.conn, g.loop, "127.0.0.1", tcp_listener_port(g.listener),
                          &handlers, &g.client, &e),
              &e);
    LOOP_UNTIL(g.loop, g.client.connected && g.server.closed); /* who calls says nothing */
    assert_int_equal(g.server.error, -ETIMEDOUT);
    rig_done(&g);
}

static void who_speaks_no_tls_is_told_from_who_does(void **state)
{
    struct rig g;

    (void)state;
    rig_init(&g);
    dial(&g, &(struct tls_client_conf){.ca = NULL});
    g.server.echo = true; /* its greeting comes back to it */
    LOOP_UNTIL(g.loop, g.client.closed);
    assert_int_equal(g.client.error, -EPROTO);
    assert_int_equal(g.client.connected, 0);
    rig_done(&g);
}

static void it_does_not_begin_with_bad_files(void **state)
{
    struct tls_client *none = NULL;
    struct rig g;
    struct err e;

    (void)state;
    rig_init(&g);
    assert_int_equal(tls_client_new(&none, g.loop, &(struct tls_client_conf){.ca = "/missing"}, &e),
                     -EINVAL);
    assert_int_equal(
        tls_client_new(&none, g.loop,
                       &(struct tls_client_conf){.cert = g.certs[OWN], .key = g.keys[OTHER]}, &e),
        -EINVAL);
    assert_non_null(strstr(e.text, "TLS key"));
    assert_null(none);
    rig_done(&g);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return TEST_RUN(T(what_is_said_arrives), T(who_listens_must_be_known),
                    T(who_calls_may_have_to_be_known), T(changed_files_are_read),
                    T(a_handshake_has_an_end), T(who_speaks_no_tls_is_told_from_who_does),
                    T(it_does_not_begin_with_bad_files));
}
