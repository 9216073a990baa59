/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tls_session.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <stdlib.h>

#include "lib/net/tls_lib.h"

enum { READ_BYTES = 16384 };

struct tls_session {
    SSL *ssl;
    BIO *in, *out; /* the session's */
    bool ended;
};

struct tls_session *tls_session_of(SSL *take_ssl)
{
    struct tls_session *s = xcalloc(1, sizeof(*s));

    s->ssl = take_ssl;
    s->in = BIO_new(BIO_s_mem());
    s->out = BIO_new(BIO_s_mem());
    if (!s->ssl || !s->in || !s->out)
        abort();
    SSL_set_bio(s->ssl, s->in, s->out);
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

void tls_session_begin(struct tls_session *s, struct buf *out)
{
    if (SSL_is_server(s->ssl))
        return;
    ERR_clear_error();
    (void)SSL_do_handshake(s->ssl); /* wants an answer; what may fail fails again with that */
    take_out(s, out);
}

bool tls_session_is_up(const struct tls_session *s)
{
    return SSL_is_init_finished(s->ssl) && !s->ended;
}

/* Of several reasons the first one: the others follow from it. */
static int broken(struct tls_session *s, struct err *e)
{
    const char *why = ERR_reason_error_string(ERR_get_error());
    bool verifies = SSL_get_verify_mode(s->ssl) != SSL_VERIFY_NONE;
    long verified = verifies ? SSL_get_verify_result(s->ssl) : X509_V_OK;

    ERR_clear_error();
    s->ended = true; /* an alert has said so */
    why = why ? why : "the peer makes no sense";
    if (verified == X509_V_OK)
        return err_set(e, -EPROTO, "TLS: %s", why);
    return err_set(e, -EPROTO, "TLS: %s: %s", why, X509_verify_cert_error_string(verified));
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
        return broken(s, e);
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

    if (!plain->len || !tls_session_is_up(s))
        return;
    ERR_clear_error();
    /* Into memory: all of it, or the session is broken. */
    if (SSL_write_ex(s->ssl, buf_data(plain), plain->len, &n) == 1)
        take_out(s, out);
    buf_clear(plain);
}

void tls_session_end(struct tls_session *s, struct buf *out)
{
    if (!tls_session_is_up(s))
        return;
    s->ended = true;
    ERR_clear_error();
    (void)SSL_shutdown(s->ssl);
    take_out(s, out);
}
