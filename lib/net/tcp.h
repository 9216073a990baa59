/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Non-blocking TCP connections and listeners on a loop. TCP_NODELAY always.
 *
 * Writes are gathered: everything written in one turn leaves with one writev at its end. A
 * connection that is not read from (tcp_pause) pushes back on its peer; tcp_backlog() says how much
 * of ours the peer has not taken.
 *
 * The owner frees a connection with tcp_close() (may be called in its own callbacks; memory goes
 * after the turn; no callback comes after it). `closed` is called once, when the peer or an error
 * ended the connection; the owner then still calls tcp_close().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct tcp;
struct tcp_listener;
struct tls_client;
struct tls_server;

struct tcp_handlers {
    void (*connected)(void *arg);                 /* outgoing only */
    void (*received)(void *arg, struct str data); /* borrowed during the call */
    void (*drained)(void *arg);           /* backlog fell to 0 after it was above; may be NULL */
    void (*peer_done)(void *arg);         /* FIN received; may be NULL: then counts as closed */
    void (*closed)(void *arg, int error); /* 0 = orderly, -errno otherwise */
};

/* Numeric address and port. Connects; outcome comes by callback. */
MUST_CHECK int tcp_connect(struct tcp **ret, struct loop *l, const char *ip, uint16_t port,
                           const struct tcp_handlers *h, void *arg, struct err *e);
/* As tcp_connect(), and speaks TLS: `connected` is when the other side has proven who it is. @t NULL: plain. */
MUST_CHECK int tcp_connect_tls(struct tcp **ret, struct loop *l, const char *ip, uint16_t port,
                               struct tls_client *t, const struct tcp_handlers *h, void *arg,
                               struct err *e);
struct tcp *
tcp_close(struct tcp *c); /* NULL in, NULL out; unsent bytes are sent first, for at most 5 s */
struct tcp *tcp_abort(struct tcp *c); /* closes at once, dropping unsent bytes */
void tcp_set_handlers(struct tcp *c, const struct tcp_handlers *h, void *arg);
/* An accepted connection speaks TLS, before its handlers are set: they see what is said inside.
 * @t NULL: plain. */
void tcp_start_tls(struct tcp *c, struct tls_server *t);
/* Copies. No effect once closed. */
void tcp_write(struct tcp *c, struct str data);
/* FIN after all that was written. */
void tcp_shutdown(struct tcp *c);
size_t tcp_backlog(const struct tcp *c);
void tcp_pause(struct tcp *c);
void tcp_resume(struct tcp *c);
/* "ip:port" of the other side; IPv6 bracketed. Borrowed. */
const char *tcp_peer(const struct tcp *c);
/* Why it ended, in words, during `closed` with its @error. Borrowed. */
const char *tcp_why(const struct tcp *c, int error);

typedef void (*tcp_accept_fn)(void *arg, struct tcp *take_conn);
/* @port 0 takes a free one. @host numeric, "0.0.0.0" or "::". */
MUST_CHECK int tcp_listen(struct tcp_listener **ret, struct loop *l, const char *host,
                          uint16_t port, tcp_accept_fn accepted, void *arg, struct err *e);
/* As tcp_listen(), on a port that several loops of this process listen on (SO_REUSEPORT): the
 * kernel spreads the connections. */
MUST_CHECK int tcp_listen_shared(struct tcp_listener **ret, struct loop *l, const char *host,
                                 uint16_t port, tcp_accept_fn accepted, void *arg, struct err *e);
struct tcp_listener *tcp_listener_close(struct tcp_listener *s);
uint16_t tcp_listener_port(const struct tcp_listener *s);
/*
 * Lets this process have as many descriptors as it may: a request in flight takes two at a worker and
 * two at a frontend. For main(), before threads are made.
 */
void tcp_raise_limit(void);
/*
 * The address others reach this host by: source address of the kernel's route to 192.0.2.0 (IPv4),
 * the IPv6 equivalent, else 127.0.0.1. At least 46 bytes. (wire.md §2.1)
 */
void tcp_local_ip(char *ret_text, size_t size);
