/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Core NATS publish and subscribe (nats.c inside), callbacks on our loop.
 *
 * All calls are made on the loop's thread; no lock is held in one that may talk to the server. The
 * library's own threads only post messages into the loop, through a bounded queue; what does not
 * fit is dropped and counted. Connecting is in the background: start succeeds without a server,
 * and the link reconnects for ever, with back-off; `state` says when it is up or down. Publishing
 * while down is dropped and counted (KV events are recoverable, see wire.md §7). Nothing but the end
 * of a link waits for the server: a thread of the link subscribes, and sends from a bounded queue
 * (nats_outbox.h), in the order of the calls as far as an answer could tell.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct nats_link;

/* PEM files, read at the start; NULL = unset. In force where the server asks for TLS, or its URL
 * begins with tls://. */
struct nats_tls {
    const char *ca;         /* authorities of the server; NULL = those of the system */
    const char *cert, *key; /* shown to the server */
    bool unverified;        /* anybody may be the server: for development */
};

struct nats_link_conf {
    const char *servers; /* comma list, "nats://host:4222" */
    /* NULL = unset. The first that is set counts, a user with a password; none = user/user. */
    const char *user, *password, *token;
    const char *nkey; /* seed of a user's NKey: signs what the server asks */
    const char *credentials_file;
    const char *name; /* client name shown by the server */
    struct nats_tls tls;
    size_t queue_max;  /* messages between its threads and the loop; 0 = 65536 */
    bool not_to_self;  /* what it publishes does not come back to its subscriptions */
    bool each_at_once; /* sends message by message, not a millisecond later with others */
    void (*state)(void *arg, bool up); /* may be NULL */
    void *arg;
};

struct nats_link_stats {
    uint64_t received, published, dropped_in, dropped_out, reconnects;
    bool up;
};

/* What arrived; views, valid during the call. */
struct nats_message {
    struct str subject, reply, payload;
    unsigned status; /* of a message that the server made itself (503: nobody there); else 0 */
    void *origin;    /* the library's message; NULL = it has no headers */
};
/* The value of its first header of that name, as it is written; STR_NULL = none. */
struct str nats_message_header(const struct nats_message *m, const char *name);

struct nats_header {
    const char *name, *value;
};

/* What is to leave. */
struct nats_outgoing {
    const char *subject, *reply; /* reply may be NULL */
    const struct nats_header *headers;
    size_t n_headers;
    struct str payload;
};

typedef void (*nats_link_fn)(void *arg, const struct nats_message *m);

MUST_CHECK int nats_link_start(struct nats_link **ret, struct loop *l,
                               const struct nats_link_conf *conf, struct err *e);
/* Sends what was published, for a second at most, and stops the library's threads for this link; no
 * callback comes after it. Returns within seconds: threads that a server holds up in the handshake are
 * left behind, and end when it lets go of the connection. */
struct nats_link *nats_link_free(struct nats_link *n);
/* Survives reconnects, and precedes what is published after it. Returns an id for
 * nats_link_unsubscribe(), after which no callback comes. Wildcards allowed. -EINVAL: no subject. */
MUST_CHECK int nats_link_subscribe(struct nats_link *n, const char *subject, nats_link_fn fn,
                                   void *arg, uint64_t *ret_id, struct err *e);
void nats_link_unsubscribe(struct nats_link *n, uint64_t id);
/* Copies, to be sent in this order. 0, -ENOTCONN when the link is down, -EMSGSIZE above the server's
 * max_payload, -ENOBUFS when too much waits for a server that does not read (all counted). */
int nats_link_publish(struct nats_link *n, const char *subject, struct str payload);
int nats_link_send(struct nats_link *n, const struct nats_outgoing *out);
struct nats_link_stats nats_link_stats(const struct nats_link *n);
