/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of what listens: certificate and key from files, and the two halves of a connection as bytes
 * (OpenSSL inside; no socket, so that tcp.c stays the one who reads and writes).
 *
 * Files are read at the start and again when something changes in their folders, as when Kubernetes
 * renews a mounted secret. What cannot be used then is logged and the old one stays; connections
 * keep what they began with. TLS 1.2 and up, HTTP/1.1 as the only protocol. One loop thread.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct tls_server;
struct tls_session;

struct tls_server_conf {
    const char *cert, *key; /* PEM files; the chain of the certificate behind it */
    const char *client_ca; /* clients must show a certificate of this authority; NULL = need none */
};

/* -EINVAL with the reason when the files cannot be used. */
MUST_CHECK int tls_server_new(struct tls_server **ret, struct loop *l,
                              const struct tls_server_conf *conf, struct err *e);
/* Sessions may outlive it. NULL in, NULL out. */
struct tls_server *tls_server_free(struct tls_server *t);
DEFINE_CLEANUP(struct tls_server *, tls_server_free)
uint64_t
tls_server_reloads(const struct tls_server *t); /* that changed what new clients are shown */

struct tls_session *tls_session_new(struct tls_server *t) __attribute__((returns_nonnull));
struct tls_session *tls_session_free(struct tls_session *s);

enum { TLS_PEER_DONE = 1 };
/*
 * Takes what came and appends what it says to @plain, and what is to be sent for it to @out, also
 * when it fails. 0, TLS_PEER_DONE when nothing more will come, -EPROTO when the peer makes no sense.
 */
MUST_CHECK int tls_session_receive(struct tls_session *s, struct str in, struct buf *plain,
                                   struct buf *out, struct err *e);
/* Moves @plain, as it is to be sent, to @out; before the handshake has ended nothing is moved. */
void tls_session_send(struct tls_session *s, struct buf *plain, struct buf *out);
/* Says that nothing more will be sent; once. */
void tls_session_end(struct tls_session *s, struct buf *out);
