/* SPDX-License-Identifier: Apache-2.0 */
/* TLS of both clients: whom they trust, and that they can show a certificate of their own. */
#include "lib/net/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>

#include "lib/base/test.h"
#include "lib/net/http_answer_test.h"
#include "lib/net/tls_identity_test.h"

enum { GIVE_UP_MS = 90000 };

/* --- a server that asks for a certificate and answers "trusted" ------------------------------- */

struct tls_server {
    SSL_CTX *ctx;
    int fd;
    uint16_t port;
    pthread_t thread;
};

static void serve_one(struct tls_server *s, int fd)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\ntrusted";
    SSL *ssl = SSL_new(s->ctx);
    char request[4096];
    size_t n = 0, got;

    (void)SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        while (n < sizeof(request) &&
               SSL_read_ex(ssl, request + n, sizeof(request) - n, &got) == 1) {
            n += got;
            if (str_ends(str_slice(request, n), STR("\r\n\r\n"))) {
                (void)SSL_write(ssl, answer, sizeof(answer) - 1);
                break;
            }
        }
        (void)SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    (void)close(fd);
}

static void *server_run(void *arg)
{
    struct tls_server *s = arg;
    int fd;

    while ((fd = accept(s->fd, NULL, NULL)) >= 0)
        serve_one(s, fd);
    return NULL;
}

static void server_start(struct tls_server *s, const struct identity *id)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);

    s->ctx = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate(s->ctx, id->cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(s->ctx, id->key), 1);
    assert_int_equal(X509_STORE_add_cert(SSL_CTX_get_cert_store(s->ctx), id->cert), 1);
    SSL_CTX_set_verify(s->ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s->fd, 16), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &len), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, server_run, s), 0);
}

static void server_stop(struct tls_server *s)
{
    (void)shutdown(s->fd, SHUT_RDWR); /* ends accept() */
    (void)pthread_join(s->thread, NULL);
    (void)close(s->fd);
    SSL_CTX_free(s->ctx);
}

/* --- both clients ---------------------------------------------------------------------------- */

static void call_on_loop(const struct http_client_conf *conf, const char *url,
                         struct http_answer *ret)
{
    struct http_call_spec spec = {.method = "GET",
                                  .url = url,
                                  .data = http_answer_data,
                                  .done = http_answer_done,
                                  .arg = ret};
    uint64_t give_up_ns = clock_now_ns() + GIVE_UP_MS * 1000000ull;
    struct http_client *c = NULL;
    struct loop *l = NULL;
    struct err e;

    EXPECT_OK(loop_new(&l, &e), &e);
    EXPECT_OK(http_client_new(&c, l, conf, &e), &e);
    (void)http_client_start(c, &spec);
    while (!ret->dones && clock_now_ns() < give_up_ns)
        loop_run_once(l, 100);
    assert_int_equal(ret->dones, 1);
    http_client_free(c);
    loop_free(l);
}

static void call_blocking(const struct http_client_conf *conf, const char *url,
                          struct http_answer *ret)
{
    struct http_call_spec spec = {.method = "GET", .url = url, .total_ms = GIVE_UP_MS};
    struct http_sync *s = NULL;
    struct err e;

    EXPECT_OK(http_sync_new(&s, conf, &e), &e);
    ret->error = http_sync_call(s, &spec, 100, &ret->status, &ret->body, &e);
    http_sync_free(s);
}

static void expect(const struct http_client_conf *conf, uint16_t port, bool trusted)
{
    AUTO(mem_free) char *url = xasprintf("https://127.0.0.1:%u/", port);
    void (*const calls[])(const struct http_client_conf *, const char *,
                          struct http_answer *) = {call_on_loop, call_blocking};

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        struct http_answer r = {0};

        calls[i](conf, url, &r);
        assert_int_equal(r.error == 0, trusted);
        assert_int_equal(r.status, trusted ? 200 : 0);
        assert_string_equal(buf_cstr(&r.body), trusted ? "trusted" : "");
        buf_done(&r.body);
    }
}

static void test_trust(void **state)
{
    struct identity id, stranger;
    struct tls_server s;
    struct http_client_conf conf = {0};

    (void)state;
    identity_init(&id, "server");
    identity_init(&stranger, "stranger");
    server_start(&s, &id);
    conf.cert_pem = buf_str(&id.cert_pem);
    conf.key_pem = buf_str(&id.key_pem);
    expect(&conf, s.port, false); /* the system does not know this authority */
    conf.ca_pem = buf_str(&stranger.cert_pem);
    expect(&conf, s.port, false);
    conf.insecure = true;
    expect(&conf, s.port, true);
    conf.insecure = false;
    conf.ca_pem = buf_str(&id.cert_pem);
    expect(&conf, s.port, true);
    conf.cert_pem = conf.key_pem = STR_NULL; /* the server wants to know us */
    expect(&conf, s.port, false);
    conf.cert_pem = buf_str(&stranger.cert_pem);
    conf.key_pem = buf_str(&stranger.key_pem);
    expect(&conf, s.port, false);
    server_stop(&s);
    identity_done(&id);
    identity_done(&stranger);
}

static void test_ca_from_a_file(void **state)
{
    char path[] = "/tmp/http_tls_test.XXXXXX";
    struct http_client_conf conf = {.ca_file = path};
    struct identity id;
    struct tls_server s;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    identity_init(&id, "server");
    server_start(&s, &id);
    assert_int_equal(write(fd, buf_data(&id.cert_pem), id.cert_pem.len), id.cert_pem.len);
    conf.cert_pem = buf_str(&id.cert_pem);
    conf.key_pem = buf_str(&id.key_pem);
    expect(&conf, s.port, true);
    (void)close(fd);
    (void)unlink(path);
    server_stop(&s);
    identity_done(&id);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return TEST_RUN(T(test_trust), T(test_ca_from_a_file));
}
