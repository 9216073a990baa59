/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/tls_client.h"

#include <arpa/inet.h>
#include <openssl/x509v3.h>

#include "lib/net/tls_lib.h"

struct tls_client {
    struct tls_context *context;
    char *name;
    uint64_t handshake_ms;
};

static void complete(SSL_CTX *ctx)
{
    (void)SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
}

int tls_client_new(struct tls_client **ret, struct loop *l, const struct tls_client_conf *conf,
                   struct err *e)
{
    const struct tls_files files = {conf->cert, conf->key, conf->ca};
    struct tls_context *context;
    int r = tls_context_new(&context, l, TLS_client_method(), complete, &files, e);

    if (r < 0)
        return r;
    *ret = xcalloc(1, sizeof(**ret));
    **ret =
        (struct tls_client){context, conf->name ? xstrdup(conf->name) : NULL, conf->handshake_ms};
    return 0;
}

struct tls_client *tls_client_free(struct tls_client *t)
{
    if (!t)
        return NULL;
    t->context = tls_context_free(t->context);
    free(t->name);
    free(t);
    return NULL;
}

uint64_t tls_client_handshake_ms(const struct tls_client *t)
{
    return t->handshake_ms;
}

static bool is_address(const char *name)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

/* SSL_set_tlsext_host_name() without its cast, which clang does not like. It copies. */
static bool set_name(SSL *ssl, const char *name)
{
    return SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                    (void *)(uintptr_t)name) == 1;
}

/* Addresses are not named in the greeting (RFC 6066, 3), and verified as such. */
static bool expect(SSL *ssl, const char *name)
{
    if (is_address(name))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return set_name(ssl, name) && SSL_set1_host(ssl, name) == 1;
}

struct tls_session *tls_client_session(struct tls_client *t, const char *ip)
{
    SSL *ssl = SSL_new(tls_context_now(t->context));

    if (!ssl || !expect(ssl, t->name ? t->name : ip))
        abort();
    SSL_set_connect_state(ssl);
    return tls_session_of(ssl);
}
