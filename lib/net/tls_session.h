/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One side of a TLS connection as bytes in and bytes out (OpenSSL inside; no socket, so that tcp.c
 * stays the one who reads and writes). Made by tls_server.h and tls_client.h, which it may outlive.
 * One thread at a time.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/str.h"

struct tls_session;

struct tls_session *tls_session_free(struct tls_session *s); /* NULL in, NULL out */

/* What the side that calls says first; nothing for the other one. */
void tls_session_begin(struct tls_session *s, struct buf *out);
/* Whether the handshake has ended well. */
bool tls_session_is_up(const struct tls_session *s);

enum { TLS_PEER_DONE = 1 };
/*
 * Takes what came and appends what it says to @plain, and what is to be sent for it to @out, also
 * when it fails. 0, TLS_PEER_DONE when nothing more will come, -EPROTO when the peer makes no sense
 * or is not whom it must be.
 */
MUST_CHECK int tls_session_receive(struct tls_session *s, struct str in, struct buf *plain,
                                   struct buf *out, struct err *e);
/* Moves @plain, as it is to be sent, to @out; before the handshake has ended nothing is moved. */
void tls_session_send(struct tls_session *s, struct buf *plain, struct buf *out);
/* Says that nothing more will be sent; once. */
void tls_session_end(struct tls_session *s, struct buf *out);
