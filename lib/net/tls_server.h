/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of what listens: certificate and key from files, which are read at the start and again when
 * they change (connections keep what they began with). TLS 1.2 and up. One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"
#include "lib/net/tls_session.h"

struct tls_server;

struct tls_server_conf {
    const char *cert, *key; /* PEM files; the chain of the certificate behind it */
    const char *client_ca; /* clients must show a certificate of this authority; NULL = need none */
    uint64_t handshake_ms; /* connections whose handshake takes longer are closed; 0 = no limit */
};

/* -EINVAL with the reason when the files cannot be used. */
MUST_CHECK int tls_server_new(struct tls_server **ret, struct loop *l,
                              const struct tls_server_conf *conf, struct err *e);
/* Sessions may outlive it. NULL in, NULL out. */
struct tls_server *tls_server_free(struct tls_server *t);
DEFINE_CLEANUP(struct tls_server *, tls_server_free)
uint64_t
tls_server_reloads(const struct tls_server *t); /* that changed what new clients are shown */
uint64_t tls_server_handshake_ms(const struct tls_server *t);

struct tls_session *tls_server_session(struct tls_server *t) __attribute__((returns_nonnull));
