/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Core NATS publish and subscribe (nats.c inside), callbacks on our loop.
 *
 * The library's own threads only post messages into the loop, through a bounded queue; what does
 * not fit is dropped and counted. Connecting is in the background: start succeeds without a server,
 * and the link reconnects for ever, with back-off; `state` says when it is up or down. Publishing
 * while down is dropped and counted (KV events are recoverable, see wire.md §7).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

struct nats_link;

struct nats_link_conf {
    const char *servers;                                    /* comma list, "nats://host:4222" */
    const char *user, *password, *token, *credentials_file; /* NULL = unset; none set = user/user */
    const char *name;                                       /* client name shown by the server */
    size_t queue_max;                  /* messages between its threads and the loop; 0 = 65536 */
    void (*state)(void *arg, bool up); /* may be NULL */
    void *arg;
};

struct nats_link_stats {
    uint64_t received, published, dropped_in, dropped_out, reconnects;
    bool up;
};

typedef void (*nats_link_fn)(void *arg, struct str subject, struct str payload);

MUST_CHECK int nats_link_start(struct nats_link **ret, struct loop *l,
                               const struct nats_link_conf *conf, struct err *e);
/* Stops the library's threads for this link; no callback comes after it. */
struct nats_link *nats_link_free(struct nats_link *n);
/* Survives reconnects. Returns an id for nats_link_unsubscribe(). Wildcards allowed. */
MUST_CHECK int nats_link_subscribe(struct nats_link *n, const char *subject, nats_link_fn fn,
                                   void *arg, uint64_t *ret_id, struct err *e);
void nats_link_unsubscribe(struct nats_link *n, uint64_t id);
/* Copies. 0, or -ENOTCONN when the link is down (counted). */
int nats_link_publish(struct nats_link *n, const char *subject, struct str payload);
struct nats_link_stats nats_link_stats(const struct nats_link *n);
