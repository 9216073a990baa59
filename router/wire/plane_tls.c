/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/plane_tls.h"

#include <errno.h>

#include "lib/net/tls_client.h"
#include "lib/net/tls_server.h"

int plane_tls_check(const struct plane_tls_conf *c, struct err *e)
{
    if (!c->cert != !c->key)
        return err_set(e, -EINVAL, "--tcp-tls-cert-path and --tcp-tls-key-path need each other");
    if (!c->client_cert != !c->client_key)
        return err_set(e, -EINVAL,
                       "--tcp-tls-client-cert-path and --tcp-tls-client-key-path need each other");
    if (c->client_ca && !c->cert)
        return err_set(e, -EINVAL,
                       "--tcp-tls-client-ca-cert-path needs --tcp-tls-cert-path: else callers "
                       "would show nothing to what is plain");
    if (c->client_cert && !c->ca && !c->insecure)
        return err_set(e, -EINVAL,
                       "--tcp-tls-client-cert-path needs --tcp-tls-ca-cert-path or "
                       "--tcp-tls-insecure: else calls would be plain");
    return 0;
}

int plane_tls_start(struct plane_tls *ret, struct loop *l, const struct plane_tls_conf *c,
                    struct err *e)
{
    int r = 0;

    *ret = (struct plane_tls){0};
    if (!c)
        return 0;
    r = plane_tls_check(c, e);
    if (r == 0 && c->cert) {
        const struct tls_server_conf conf = {.cert = c->cert,
                                             .key = c->key,
                                             .client_ca = c->client_ca,
                                             .handshake_ms = c->handshake_ms};

        r = tls_server_new(&ret->server, l, &conf, e);
    }
    if (r == 0 && (c->ca || c->insecure)) {
        const struct tls_client_conf conf = {.ca = c->insecure ? NULL : c->ca,
                                             .cert = c->client_cert,
                                             .key = c->client_key,
                                             .name = c->name,
                                             .handshake_ms = c->handshake_ms};

        r = tls_client_new(&ret->client, l, &conf, e);
    }
    return r < 0 ? err_wrap(e, r, "TLS of the request plane") : 0;
}

void plane_tls_done(struct plane_tls *t)
{
    t->server = tls_server_free(t->server);
    t->client = tls_client_free(t->client);
}
