/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the plane client share: streams (plane_client.c), the ways to workers
 * (plane_link.c: pooled TCP connections, plane_nats.c, plane_http.c), and connections that workers
 * make to us (plane_home.c).
 *
 * A stream has a way from its start to the ack and a home from the handshake to its end; the
 * handshake may overtake the ack, as they come on different connections. Whatever ends is unlinked
 * at once and freed at the end of the turn, so that callbacks may end anything.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/strmap.h"
#include "lib/net/http_client.h"
#include "lib/net/tcp.h"
#include "router/wire/plane_address.h"
#include "router/wire/plane_client.h"

struct plane_link;
struct plane_home;
struct plane_nats;
struct plane_pool;

/* What the deadline of a stream is for. */
enum plane_wait { WAIT_CONNECT, WAIT_ACK, WAIT_HOME, WAIT_ITEM, WAIT_NEXT };

struct plane_stream {
    struct plane_client *client;
    struct list in_client;
    struct list in_queue; /* of the pool or of NATS, while there is no connection to give */
    const struct plane_handlers *on;
    void *arg;
    char subject[UUID_TEXT_SIZE];
    enum plane_kind kind;
    struct plane_pool *pool;          /* tcp: until the ack */
    struct plane_link *link;          /* tcp: from connecting to the ack */
    char *nats_subject;               /* nats */
    struct nats_header *nats_headers; /* into nats_values */
    struct buf nats_values;
    size_t n_nats_headers;
    struct http_call *http;  /* http: until the ack */
    struct buf refusal;      /* http: the answer's body */
    struct plane_home *home; /* from the handshake on */
    struct buf frame;        /* until the ack */
    struct timer *deadline;
    uint64_t first_by_ms;  /* loop time; 0 = no limit */
    uint64_t last_item_ms; /* loop time of the last item, or of the end of a pause */
    enum plane_wait wait;
    bool acked, started, item_seen, paused, dead;
    bool resent;                /* a reused connection broke under it once */
    enum plane_failure failure; /* of a failure that is reported at the end of the turn */
    char *failure_text;
};

struct plane_client {
    struct loop *loop;
    struct plane_client_conf conf;
    char address[PLANE_IP_SIZE + 16];
    struct tcp_listener *listener;
    struct plane_tls tls;
    struct strmap *pools;     /* "ip port" → struct plane_pool */
    struct plane_nats *nats;  /* NULL until needed */
    struct http_client *http; /* NULL until needed */
    struct strmap *subjects;  /* → struct plane_stream that waits for its call home */
    struct list streams;
    struct list homes;
    struct list limited; /* homes with a deadline, soonest first */
    struct timer *sweep; /* runs while `limited` is not empty */
    size_t n_homes;
    struct plane_stats stats;
};

/* --- plane_client.c: streams ------------------------------------------------------------------ */

void plane_stream_expect(struct plane_stream *s, enum plane_wait wait); /* sets the deadline */
/* Reports and ends. Not from within plane_client_send(). */
void plane_stream_fail(struct plane_stream *s, enum plane_failure kind, const char *text);
void plane_stream_fail_later(struct plane_stream *s, enum plane_failure kind, const char *text);
void plane_stream_finish(struct plane_stream *s);
void plane_stream_acked(struct plane_stream *s);
/* The connection home ended before the final item. */
void plane_stream_broken(struct plane_stream *s);

/* --- plane_link.c ----------------------------------------------------------------------------- */

/* Finds or makes a connection and sends the frame; failures are reported later. */
void plane_pool_send(struct plane_client *c, struct plane_stream *s, const struct plane_address *a);
/* Takes the stream off its link or queue. @drop: a link that still owes an ack is closed. */
void plane_link_detach(struct plane_stream *s, bool drop);
void plane_pools_free(struct plane_client *c);
void plane_pool_forget(struct plane_client *c, const struct plane_address *a);

/* --- plane_nats.c ----------------------------------------------------------------------------- */

/* Connects, when that has not begun. */
MUST_CHECK int plane_nats_need(struct plane_client *c, struct err *e);
/* Publishes the payload in s->frame, now or when NATS is up; failures are reported later. */
void plane_nats_send(struct plane_client *c, struct plane_stream *s, const struct plane_call *call,
                     struct str subject);
void plane_nats_headers_free(struct plane_stream *s);
void plane_nats_free(struct plane_client *c);

/* --- plane_http.c ----------------------------------------------------------------------------- */

void plane_http_send(struct plane_client *c, struct plane_stream *s, const struct plane_call *call,
                     struct str url);
/* The answer is of no interest any more. */
void plane_http_detach(struct plane_stream *s);
void plane_http_free(struct plane_client *c);

/* --- plane_home.c ----------------------------------------------------------------------------- */

void plane_home_accept(void *client, struct tcp *take_conn);
/* Parts home and stream. @kill: tells the worker to stop and closes; else drains to the sentinel.
 */
void plane_home_detach(struct plane_stream *s, bool kill);
void plane_home_pause(struct plane_home *h);
void plane_home_resume(struct plane_home *h);
void plane_homes_free(struct plane_client *c);
void plane_homes_sweep(void *client);
