/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frontend side of the request plane (wire.md §4): sends requests to workers over TCP, NATS or HTTP,
 * as each one's address says, and receives their response streams on connections that the workers
 * open to us.
 *
 *     send ── connect or reuse ── frame ── ack ── worker calls home ── prologue ── items ── final
 *        └──────── failure here: retry elsewhere is safe ──────────────────────┘└─ not safe ─┘
 *
 * TCP connections to a worker are pooled per address and carry one unacknowledged frame at a time.
 * NATS and the HTTP client are set up when the first worker is there that needs them. A stream that
 * has called home is accepted, even if the acknowledgement itself is still on its way or gets lost.
 * Response streams are keyed by subject, not by request id. Everything that a peer can grow is
 * bounded: streams, connections per address, frame size, and bytes waiting in a paused stream (by
 * not reading its socket).
 *
 * One client per loop, with a call-home listener of its own, so that a stream lives and dies on
 * one thread. All calls on that thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "lib/net/nats_link.h"
#include "router/wire/control.h"
#include "router/wire/plane_tls.h"

struct plane_client;
struct plane_stream;

enum { PLANE_CALL_HEADERS_MAX = 8 };

/* Zero and NULL mean the default in brackets. */
struct plane_client_conf {
    const char *advertise_ip; /* what workers dial: numeric [tcp_local_ip()] */
    const char *listen_host;  /* ["0.0.0.0", or "::" when advertise_ip is IPv6] */
    uint16_t listen_port;     /* [chosen by the kernel] */
    uint64_t connect_ms;      /* DYN_TCP_CONNECT_TIMEOUT [5000] */
    uint64_t ack_ms;          /* DYN_TCP_REQUEST_TIMEOUT, from frame to ack [5000] */
    uint64_t nats_ack_ms;     /* DYN_NATS_REQUEST_TIMEOUT_SECS [10000] */
    uint64_t http_ack_ms;     /* DYN_HTTP_REQUEST_TIMEOUT [5000] */
    uint64_t call_home_ms;    /* from ack to handshake [10000] */
    uint64_t first_item_ms;   /* from plane_client_send() to first item; 0 = no limit */
    uint64_t gap_ms;          /* between two items, while not paused; 0 = no limit */
    size_t pool_max;          /* connections per address, DYN_TCP_POOL_SIZE [100] */
    size_t streams_max;       /* in flight [65536] */
    size_t frame_max;         /* bytes of one response frame or request [32 MiB] */
    struct nats_link_conf
        nats; /* `servers`, credentials, `name`: borrowed while the client lives */
    const struct plane_tls_conf *tls; /* of TCP requests and of what workers call; NULL = plain */
    bool nats_early; /* connect at once, not with the first request that needs it */
};

enum plane_failure {
    PLANE_OVERLOADED,  /* our own limits; nothing was sent */
    PLANE_BAD_ADDRESS, /* the record's transport cannot be read; nothing was sent */
    PLANE_UNREACHABLE, /* connect failed, the connection broke before the ack, nobody responds */
    PLANE_NO_ACK,      /* ack_ms passed */
    PLANE_REFUSED, /* a non-empty ack: "Unknown endpoint: …", "Server overloaded: …"; no 2xx */
    PLANE_NO_CALL_HOME,  /* call_home_ms passed */
    PLANE_NO_FIRST_ITEM, /* first_item_ms passed */
    PLANE_BROKEN_EARLY,  /* the stream ended before its first item */
    PLANE_TOO_LARGE,     /* the request is above frame_max or NATS' max_payload; nothing was sent */
    PLANE_ENGINE,        /* the engine's own refusal: error prologue; @text is its words */
    PLANE_BROKEN,        /* "Stream ended before generation completed": after the first item */
    PLANE_STALLED,       /* gap_ms passed */
    PLANE_PROTOCOL,      /* the worker sent what the grammar does not allow */
};

/* Whether no item was delivered and another worker may get the request (all before PLANE_TOO_LARGE). */
bool plane_failure_is_retryable(enum plane_failure kind);
/* Whether the worker is to blame, so that it had better be left alone for a while. */
bool plane_failure_is_workers(enum plane_failure kind);
/* Whether a worker was lost after its first item: what it had not said, another one may. */
bool plane_failure_is_migratable(enum plane_failure kind);
const char *plane_failure_name(enum plane_failure kind); /* "no_call_home": for metrics and logs */

/*
 * Exactly one of `finished` and `failed` is called, last, unless the stream is cancelled; never
 * from within plane_client_send(). The handle is dead when they are called. An item with is_error
 * is delivered like any other: the stream goes on and usually finishes.
 */
struct plane_handlers {
    void (*accepted)(void *arg); /* ack received; may be NULL */
    void (*started)(void *arg);  /* prologue received: generate() returned; may be NULL */
    void (*item)(void *arg, const struct wire_item *item); /* borrowed during the call */
    void (*finished)(void *arg);
    void (*failed)(void *arg, enum plane_failure kind, const char *text);
    /* After a batch of items from one read: time to flush what they led to; may be NULL. */
    void (*batch_end)(void *arg);
};

/* What PLANE_BROKEN says, and what the reference migrates on (wire.md §4.6). */
#define PLANE_BROKEN_TEXT "Stream ended before generation completed"

/* The value has no control characters. */
struct plane_header {
    const char *name;
    struct str value;
};

struct plane_call {
    struct str address; /* of the instance: text of plane_address.h */
    struct str id;      /* request id, known to the engine */
    struct str body;    /* JSON payload */
    /* Beside those that every request has: request-id, x-frontend-send-ts-ns, as of 1.6.1. */
    const struct plane_header *headers;
    size_t n_headers; /* at most PLANE_CALL_HEADERS_MAX */
};

struct plane_stats {
    uint64_t sent, finished, cancelled;
    uint64_t failed[PLANE_PROTOCOL + 1]; /* by enum plane_failure */
    uint64_t unknown_subjects;           /* calls home that nobody waited for */
    uint64_t items, item_bytes;
    size_t streams, connections; /* now */
};

MUST_CHECK int plane_client_new(struct plane_client **ret, struct loop *l,
                                const struct plane_client_conf *conf, struct err *e);
/* Cancels what is in flight, without callbacks. */
struct plane_client *plane_client_free(struct plane_client *c);
DEFINE_CLEANUP(struct plane_client *, plane_client_free)

/* Copies what @call holds; @h must stay valid. Never fails: a failure comes by callback. */
struct plane_stream *plane_client_send(struct plane_client *c, const struct plane_call *call,
                                       const struct plane_handlers *h, void *arg)
    __attribute__((returns_nonnull));
/*
 * Ends the stream: "kill" to the worker, then close. No callback after it; the handle is dead.
 * Allowed in callbacks. NULL in, NULL out.
 */
struct plane_stream *plane_stream_cancel(struct plane_stream *s);
/* Back-pressure: a paused stream delivers nothing and its socket is not read. Allowed in callbacks.
 */
void plane_stream_pause(struct plane_stream *s);
void plane_stream_resume(struct plane_stream *s);

/* "ip:port" that workers call; borrowed. */
const char *plane_client_address(const struct plane_client *c);
struct plane_stats plane_client_stats(const struct plane_client *c);
/* Closes idle connections to @address (an instance that left). */
void plane_client_forget(struct plane_client *c, struct str address);
