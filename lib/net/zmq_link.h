/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZeroMQ sockets on our loop (libzmq inside).
 *
 *     libzmq's I/O thread ⇄ its queues (bounded: 100,000 messages each way) ⇄ socket on the loop
 *
 * A socket is used on the loop's thread alone, so nothing here is locked. Sending never blocks:
 * what the queue does not take is dropped and counted. Connecting is in the background and for
 * ever, with back-off from 100 ms to 5 s; `connected` tells when a peer is there, the first time
 * and each time again, which is when a subscriber has missed messages. A message of more than
 * ZMQ_LINK_FRAMES_MAX frames is dropped and counted, a peer that sends a frame larger than
 * ZMQ_LINK_FRAME_BYTES_MAX is disconnected.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

enum { ZMQ_LINK_FRAMES_MAX = 8, ZMQ_LINK_FRAME_BYTES_MAX = 64 << 20 };

enum zmq_kind {
    ZMQ_KIND_PUB,
    ZMQ_KIND_SUB,
    ZMQ_KIND_XPUB, /* receives subscriptions: byte 1 (0 when it ends) and the topic */
    ZMQ_KIND_XSUB, /* sends them */
    ZMQ_KIND_DEALER,
    ZMQ_KIND_ROUTER, /* the first frame names the peer */
};

struct zmq_context; /* of one loop: libzmq's I/O thread */
struct zmq_link;    /* one socket */

/* Frames are borrowed during the call, which may free the link. */
typedef void (*zmq_link_fn)(void *arg, const struct str *frames, size_t n_frames);

struct zmq_link_conf {
    enum zmq_kind kind;
    zmq_link_fn received; /* NULL for PUB */
    /* May be NULL; may free the link. @endpoint as libzmq writes it. */
    void (*connected)(void *arg, struct str endpoint);
    void *arg;
};

struct zmq_link_stats {
    uint64_t received, sent;
    uint64_t dropped_in;  /* too many frames */
    uint64_t dropped_out; /* the queue was full, or nobody is there */
    uint64_t connects;
};

MUST_CHECK int zmq_context_new(struct zmq_context **ret, struct loop *l, struct err *e);
/* After its links. Waits for libzmq's threads, a moment. */
struct zmq_context *zmq_context_free(struct zmq_context *c);
DEFINE_CLEANUP(struct zmq_context *, zmq_context_free)

MUST_CHECK int zmq_link_new(struct zmq_link **ret, struct zmq_context *c,
                            const struct zmq_link_conf *conf, struct err *e);
/* No callback comes after it. What is queued is not sent. */
struct zmq_link *zmq_link_free(struct zmq_link *z);
DEFINE_CLEANUP(struct zmq_link *, zmq_link_free)

/* "tcp://host:port". A link may connect to several. */
MUST_CHECK int zmq_link_connect(struct zmq_link *z, const char *endpoint, struct err *e);
void zmq_link_disconnect(struct zmq_link *z, const char *endpoint);
/* "tcp://host:port", port "*" = a free one, which *ret_port (may be NULL) tells. */
MUST_CHECK int zmq_link_bind(struct zmq_link *z, const char *endpoint, uint16_t *ret_port,
                             struct err *e);
/* SUB only: messages whose first frame begins with @prefix. */
MUST_CHECK int zmq_link_subscribe(struct zmq_link *z, struct str prefix, struct err *e);
/* Copies. 0, or -EAGAIN when it was dropped (counted). */
int zmq_link_send(struct zmq_link *z, const struct str *frames, size_t n_frames);
struct zmq_link_stats zmq_link_stats(const struct zmq_link *z);
