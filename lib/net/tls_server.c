/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tls_server.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "lib/base/log.h"
#include "lib/net/fswatch.h"

static const struct log_target LG = {"commutator::net::tls"};

enum { READ_BYTES = 16384, WATCHED_MAX = 3 };

struct tls_server {
    SSL_CTX *ctx;
    char *cert, *key, *client_ca;
    struct fswatch *watches[WATCHED_MAX];
    struct loop *loop;
    bool reload_due;
    uint64_t reloads;
};

struct tls_session {
    SSL *ssl;
    BIO *in, *out; /* the session's */
    bool ended;
};

/* --- keys ------------------------------------------------------------------------------------- */

/* Of several reasons the first one: the others follow from it. */
static int openssl_error(struct err *e, const char *what, const char *file)
{
    char text[256];
    unsigned long code = ERR_get_error();

    ERR_error_string_n(code, text, sizeof(text));
    ERR_clear_error();
    return err_set(e, -EINVAL, "%s '%s': %s", what, file, code ? text : "it cannot be used");
}

static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned int n, void *arg)
{
    static const unsigned char known[] = "\x08http/1.1";
    unsigned char *chosen;
    int r = SSL_select_next_proto(&chosen, ret_len, known, sizeof(known) - 1, offered, n);

    (void)ssl;
    (void)arg;
    *ret = chosen;
    /* Who offers only others may still understand. */
    return r == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

static int files_load(SSL_CTX *ctx, const struct tls_server *t, struct err *e)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, t->cert) != 1)
        return openssl_error(e, "TLS certificate", t->cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, t->key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return openssl_error(e, "TLS key", t->key);
    if (t->client_ca) {
        if (SSL_CTX_load_verify_locations(ctx, t->client_ca, NULL) != 1)
            return openssl_error(e, "authority of TLS clients", t->client_ca);
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    return 0;
}

static int ctx_load(SSL_CTX **ret, const struct tls_server *t, struct err *e)
{
    static const unsigned char name[] = "commutator";
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    int r;

    if (!ctx)
        return openssl_error(e, "TLS", "OpenSSL");
    (void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    (void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_id_context(ctx, name, sizeof(name) - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    r = files_load(ctx, t, e);
    if (r < 0) {
        SSL_CTX_free(ctx);
        return r;
    }
    *ret = ctx;
    return 0;
}

static bool same_certificate(const SSL_CTX *a, const SSL_CTX *b)
{
    return X509_cmp(SSL_CTX_get0_certificate(a), SSL_CTX_get0_certificate(b)) == 0;
}

static void reload(void *arg)
{
    struct tls_server *t = arg;
    SSL_CTX *fresh;
    struct err e;

    t->reload_due = false;
    if (ctx_load(&fresh, t, &e) < 0) {
        log_warn(&LG, "changed TLS files cannot be used, keeping the old ones",
                 LOG_STR("why", e.text));
        return;
    }
    if (!same_certificate(fresh, t->ctx)) {
        t->reloads++;
        log_info(&LG, "new TLS certificate in force", LOG_STR("file", t->cert));
    }
    SSL_CTX_free(t->ctx);
    t->ctx = fresh;
}

/* Certificate and key change one after the other: what is between them fails and is tried again. */
static void on_file(void *arg, const char *name, bool gone)
{
    struct tls_server *t = arg;

    (void)name;
    (void)gone;
    if (t->reload_due)
        return;
    t->reload_due = true;
    loop_defer(t->loop, reload, t);
}

static int watch(struct tls_server *t, const char *file, struct fswatch **ret, struct err *e)
{
    AUTO(mem_free) char *dir = xstrdup(file);
    char *slash = strrchr(dir, '/');

    if (slash)
        slash[slash == dir] = '\0';
    return fswatch_start(ret, t->loop, slash ? dir : ".", on_file, t, e);
}

int tls_server_new(struct tls_server **ret, struct loop *l, const struct tls_server_conf *conf,
                   struct err *e)
{
    AUTO(tls_server_free) struct tls_server *t = xcalloc(1, sizeof(*t));
    const char *const files[WATCHED_MAX] = {conf->cert, conf->key, conf->client_ca};
    int r;

    t->loop = l;
    t->cert = xstrdup(conf->cert);
    t->key = xstrdup(conf->key);
    t->client_ca = conf->client_ca ? xstrdup(conf->client_ca) : NULL;
    r = ctx_load(&t->ctx, t, e);
    for (size_t i = 0; i < WATCHED_MAX && r == 0; i++)
        if (files[i])
            r = watch(t, files[i], &t->watches[i], e);
    if (r < 0)
        return r;
    *ret = TAKE(t);
    return 0;
}

static void server_free(void *arg)
{
    struct tls_server *t = arg;

    SSL_CTX_free(t->ctx);
    free(t->cert);
    free(t->key);
    free(t->client_ca);
    free(t);
}

struct tls_server *tls_server_free(struct tls_server *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < WATCHED_MAX; i++)
        t->watches[i] = fswatch_stop(t->watches[i]);
    loop_defer(t->loop, server_free, t); /* behind a reload that is due */
    return NULL;
}

uint64_t tls_server_reloads(const struct tls_server *t)
{
    return t->reloads;
}

/* --- sessions --------------------------------------------------------------------------------- */

struct tls_session *tls_session_new(struct tls_server *t)
{
    struct tls_session *s = xcalloc(1, sizeof(*s));

    s->ssl = SSL_new(t->ctx);
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    if (!s->ssl || !s->in || !s->out)
        abort();
    SSL_set_bio(s->ssl, s->in, s->out);
    SSL_set_accept_state(s->ssl);
    return s;
}

struct tls_session *tls_session_free(struct tls_session *s)
{
    if (!s)
        return NULL;
    SSL_free(s->ssl);
    free(s);
    return NULL;
}

static void take_out(struct tls_session *s, struct buf *out)
{
    char *bytes;
    long n = BIO_get_mem_data(s->out, &bytes);

    if (n > 0)
        buf_put(out, bytes, (size_t)n);
    (void)BIO_reset(s->out);
}

/* Reads until there is nothing more. */
static int read_all(struct tls_session *s, struct buf *plain, struct err *e)
{
    char bytes[READ_BYTES];
    size_t n;

    ERR_clear_error();
    while (SSL_read_ex(s->ssl, bytes, sizeof(bytes), &n) == 1)
        buf_put(plain, bytes, n);
    switch (SSL_get_error(s->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return 0;
    case SSL_ERROR_ZERO_RETURN:
        return TLS_PEER_DONE;
    default:
        s->ended = true; /* an alert has said so */
        (void)openssl_error(e, "TLS", "peer");
        return -EPROTO;
    }
}

int tls_session_receive(struct tls_session *s, struct str in, struct buf *plain, struct buf *out,
                        struct err *e)
{
    int r;

    if (BIO_write(s->in, in.ptr, (int)in.len) != (int)in.len)
        abort();
    r = read_all(s, plain, e);
    take_out(s, out);
    return r;
}

void tls_session_send(struct tls_session *s, struct buf *plain, struct buf *out)
{
    size_t n;

    if (!plain->len || s->ended || !SSL_is_init_finished(s->ssl))
        return;
    ERR_clear_error();
    /* Into memory: all of it, or the session is broken. */
    if (SSL_write_ex(s->ssl, buf_data(plain), plain->len, &n) == 1)
        take_out(s, out);
    buf_clear(plain);
}

void tls_session_end(struct tls_session *s, struct buf *out)
{
    if (s->ended || !SSL_is_init_finished(s->ssl))
        return;
    s->ended = true;
    ERR_clear_error();
    (void)SSL_shutdown(s->ssl);
    take_out(s, out);
}
