/* SPDX-License-Identifier: Apache-2.0 */
/* HTTPS: whom it answers, what it shows them, and that it shows something else once the files change. */
#include "lib/net/tls_server.h"

#include <errno.h>
#include <signal.h>

#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/http_answer_test.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"
#include "lib/net/tls_identity_test.h"

enum { PATIENCE_MS = 90000, LARGE = 3 << 20 };

struct rig {
    char dir[32];
    struct identity id, other;
    struct loop *loop;
    struct tls_server *tls;
    struct http_server *http;
};

static void put_file(const struct rig *g, const char *name, struct str text)
{
    free(identity_put(g->dir, name, text));
}

static int tls_start(struct rig *g, const char *client_ca, struct err *e)
{
    AUTO(mem_free) char *cert = xasprintf("%s/cert", g->dir);
    AUTO(mem_free) char *key = xasprintf("%s/key", g->dir);
    AUTO(mem_free) char *ca = client_ca ? xasprintf("%s/%s", g->dir, client_ca) : NULL;

    return tls_server_new(&g->tls, g->loop,
                          &(struct tls_server_conf){.cert = cert, .key = key, .client_ca = ca}, e);
}

/* Says back what it is told; /large that much of it. */
static void answer(struct http_exchange *x, void *arg)
{
    AUTO(mem_free) char *large = NULL;

    (void)arg;
    if (!str_is(http_request(x)->path, "/large")) {
        http_respond(x, 200, "text/plain", http_request(x)->body);
        return;
    }
    large = xcalloc(1, LARGE);
    http_stream_begin(x, 200, "text/plain");
    http_stream_write(x, str_slice(large, LARGE));
    http_stream_end(x);
}

static void rig_init(struct rig *g, const char *client_ca)
{
    static const struct http_route route = {.path = "/*", .handle = answer};
    struct http_server_conf conf = {.host = "127.0.0.1",
                                    .body_bytes = LARGE,
                                    .idle_ms = PATIENCE_MS,
                                    .routes = &route,
                                    .n_routes = 1};
    struct err e;

    *g = (struct rig){.dir = "/tmp/tls_server_test.XXXXXX"};
    assert_non_null(mkdtemp(g->dir));
    identity_init(&g->id, "server");
    identity_init(&g->other, "other");
    put_file(g, "cert", buf_str(&g->id.cert_pem));
    put_file(g, "key", buf_str(&g->id.key_pem));
    put_file(g, "ca", buf_str(&g->other.cert_pem));
    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&g->loop, &e), &e);
    EXPECT_OK(tls_start(g, client_ca, &e), &e);
    conf.tls = g->tls;
    EXPECT_OK(http_server_start(&g->http, g->loop, &conf, &e), &e);
}

static void rig_done(struct rig *g)
{
    static const char *const names[] = {"cert", "key", "ca"};

    http_server_free(g->http);
    tls_server_free(g->tls);
    loop_free(g->loop);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        AUTO(mem_free) char *path = xasprintf("%s/%s", g->dir, names[i]);

        (void)unlink(path);
    }
    assert_int_equal(rmdir(g->dir), 0);
    identity_done(&g->id);
    identity_done(&g->other);
}

/* 0, or why it failed. */
static int call(struct rig *g, const struct http_client_conf *conf, const char *path,
                struct str body, struct buf *ret_body)
{
    AUTO(mem_free)
    char *url = xasprintf("https://127.0.0.1:%u%s", http_server_port(g->http), path);
    AUTO(http_client_free) struct http_client *c = NULL;
    struct http_answer r = {.dones = 0};
    struct http_call_spec spec = {.method = "POST",
                                  .url = url,
                                  .body = body,
                                  .data = http_answer_data,
                                  .done = http_answer_done,
                                  .arg = &r};
    struct err e;

    EXPECT_OK(http_client_new(&c, g->loop, conf, &e), &e);
    (void)http_client_start(c, &spec);
    LOOP_UNTIL(g->loop, r.dones);
    if (r.error == 0)
        assert_int_equal(r.status, 200);
    buf_done(ret_body);
    *ret_body = r.body;
    return r.error;
}

static void it_answers_who_trusts_it(void **state)
{
    AUTO(mem_free) char *large = xcalloc(1, LARGE);
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct http_client_conf conf = {.connections_max = 1};
    struct rig g;

    (void)state;
    rig_init(&g, NULL);
    conf.ca_pem = buf_str(&g.id.cert_pem);
    assert_int_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    assert_true(str_is(buf_str(&body), "hello"));
    assert_int_equal(call(&g, &conf, "/", str_slice(large, LARGE), &body), 0);
    assert_int_equal(body.len, LARGE);
    assert_int_equal(call(&g, &conf, "/large", STR("?"), &body), 0);
    assert_int_equal(body.len, LARGE);
    conf.ca_pem = buf_str(&g.other.cert_pem);
    assert_int_not_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    rig_done(&g);
}

static void it_may_want_to_know_clients(void **state)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct http_client_conf conf = {0};
    struct rig g;

    (void)state;
    rig_init(&g, "ca");
    conf.ca_pem = buf_str(&g.id.cert_pem);
    assert_int_not_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    conf.cert_pem = buf_str(&g.id.cert_pem); /* of another authority */
    conf.key_pem = buf_str(&g.id.key_pem);
    assert_int_not_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    conf.cert_pem = buf_str(&g.other.cert_pem);
    conf.key_pem = buf_str(&g.other.key_pem);
    assert_int_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    rig_done(&g);
}

static void it_shows_what_the_files_hold_now(void **state)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct http_client_conf conf = {0};
    uint64_t end_ns = clock_now_ns() + PATIENCE_MS * UINT64_C(1000000);
    struct rig g;

    (void)state;
    rig_init(&g, NULL);
    conf.ca_pem = buf_str(&g.other.cert_pem);
    put_file(&g, "cert", STR("no certificate"));
    put_file(&g, "cert", buf_str(&g.other.cert_pem)); /* not of this key: not yet */
    put_file(&g, "key", buf_str(&g.other.key_pem));
    while (tls_server_reloads(g.tls) == 0) {
        assert_true(clock_now_ns() < end_ns);
        loop_run_once(g.loop, 100);
    }
    assert_int_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    conf.ca_pem = buf_str(&g.id.cert_pem);
    assert_int_not_equal(call(&g, &conf, "/", STR("hello"), &body), 0);
    rig_done(&g);
}

static void it_does_not_begin_with_bad_files(void **state)
{
    struct tls_server *good;
    struct rig g;
    struct err e;

    (void)state;
    rig_init(&g, NULL);
    good = g.tls;
    assert_int_equal(tls_start(&g, "missing", &e), -EINVAL);
    put_file(&g, "key", buf_str(&g.other.key_pem));
    assert_int_equal(tls_start(&g, NULL, &e), -EINVAL);
    assert_non_null(strstr(e.text, "TLS key"));
    put_file(&g, "cert", STR("garbage"));
    assert_int_equal(tls_start(&g, NULL, &e), -EINVAL);
    assert_non_null(strstr(e.text, "TLS certificate"));
    assert_ptr_equal(g.tls, good);
    rig_done(&g);
}

/* --- who does not speak TLS ------------------------------------------------------------------- */

struct raw {
    struct tcp *conn;
    bool over;
    struct buf in;
};

static void on_raw(void *arg, struct str data)
{
    buf_put_str(&((struct raw *)arg)->in, data);
}

static void on_raw_closed(void *arg, int error)
{
    (void)error;
    ((struct raw *)arg)->over = true;
}

static void who_speaks_no_tls_is_shown_the_door(void **state)
{
    static const struct tcp_handlers on = {.received = on_raw, .closed = on_raw_closed};
    struct raw r = {.over = false};
    struct rig g;
    struct err e;

    (void)state;
    rig_init(&g, NULL);
    EXPECT_OK(tcp_connect(&r.conn, g.loop, "127.0.0.1", http_server_port(g.http), &on, &r, &e), &e);
    tcp_write(r.conn, STR("GET / HTTP/1.1\r\nhost: a\r\n\r\n"));
    LOOP_UNTIL(g.loop, r.over);
    assert_null(strstr(buf_cstr(&r.in), "200 OK"));
    tcp_close(r.conn);
    buf_done(&r.in);
    rig_done(&g);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return TEST_RUN(T(it_answers_who_trusts_it), T(it_may_want_to_know_clients),
                    T(it_shows_what_the_files_hold_now), T(it_does_not_begin_with_bad_files),
                    T(who_speaks_no_tls_is_shown_the_door));
}
