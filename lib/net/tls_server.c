/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tls_server.h"

#include "lib/net/tls_lib.h"

struct tls_server {
    struct tls_context *context;
    uint64_t handshake_ms;
};

/* HTTP/1.1 as the only protocol, to those who name any. */
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

static void complete(SSL_CTX *ctx)
{
    static const unsigned char name[] = "commutator";

    (void)SSL_CTX_set_session_id_context(ctx, name, sizeof(name) - 1);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
}

int tls_server_new(struct tls_server **ret, struct loop *l, const struct tls_server_conf *conf,
                   struct err *e)
{
    const struct tls_files files = {conf->cert, conf->key, conf->client_ca};
    struct tls_context *context;
    int r = tls_context_new(&context, l, TLS_server_method(), complete, &files, e);

    if (r < 0)
        return r;
    *ret = xcalloc(1, sizeof(**ret));
    **ret = (struct tls_server){context, conf->handshake_ms};
    return 0;
}

struct tls_server *tls_server_free(struct tls_server *t)
{
    if (t)
        t->context = tls_context_free(t->context);
    free(t);
    return NULL;
}

uint64_t tls_server_reloads(const struct tls_server *t)
{
    return tls_context_reloads(t->context);
}

uint64_t tls_server_handshake_ms(const struct tls_server *t)
{
    return t->handshake_ms;
}

struct tls_session *tls_server_session(struct tls_server *t)
{
    SSL *ssl = SSL_new(tls_context_now(t->context));

    if (!ssl)
        abort();
    SSL_set_accept_state(ssl);
    return tls_session_of(ssl);
}
