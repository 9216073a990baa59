/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker side of the request plane (wire.md §4, 6): takes requests, acknowledges them, calls the
 * frontend home and streams items back.
 *
 * A server speaks one plane: TCP, NATS or HTTP. Handlers are registered by endpoint and instance, so
 * several workers of a process share one server; over HTTP, whose URLs name no instance, each
 * endpoint has one handler. A request is acknowledged before its handler runs, and the handler runs when
 * the connection home stands. A request that cannot be parsed, or whose home cannot be reached, is
 * dropped silently after its ack, as the reference does; one that waits for another to end is called home
 * for when its turn comes, first come, first served; one that is to be answered on another
 * response plane is refused instead of acknowledged. One loop; all calls on its thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/wire/plane_address.h"
#include "router/wire/plane_tls.h"
#include "router/wire/trace_context.h"

struct nats_link;
struct plane_server;
struct plane_request;

/* Zero and NULL mean the default in brackets. */
struct plane_server_conf {
    enum plane_kind kind;   /* [PLANE_TCP] */
    struct nats_link *nats; /* of PLANE_NATS: borrowed; subscribe before it is up, publish after */
    /* Of the other two: DYN_TCP_RPC_…, DYN_HTTP_RPC_HOST and _PORT. */
    const char *host;       /* bind and advertise, numeric [any / tcp_local_ip()] */
    uint16_t port;          /* [chosen by the kernel] */
    const char *root;       /* of PLANE_HTTP: DYN_HTTP_RPC_ROOT_PATH ["/v1/rpc"] */
    uint64_t call_home_ms;  /* to connect home [5000] */
    uint64_t linger_ms;     /* wait for the frontend's FIN after the sentinel [10000] */
    size_t frame_max;       /* DYN_TCP_MAX_MESSAGE_SIZE [32 MiB] */
    size_t running_max;     /* requests at once; more wait [7500] */
    size_t waiting_max;     /* acknowledged; more are answered "Server overloaded: …" [none] */
    size_t connections_max; /* from frontends [4096] */
    const struct plane_tls_conf *tls; /* of PLANE_TCP, and of calls home on any; NULL = plain */
};

/*
 * Takes over @rq: ends it, now or later, with one of plane_request_{refuse,finish,abort}().
 * The first call must be plane_request_start() or plane_request_refuse().
 */
typedef void (*plane_serve_fn)(void *arg, struct plane_request *rq);

struct plane_server_stats {
    uint64_t requests, unknown_endpoints, overloaded, bad_requests, home_unreachable, cancelled;
    uint64_t items;
    size_t running, waiting, connections; /* now */
};

MUST_CHECK int plane_server_new(struct plane_server **ret, struct loop *l,
                                const struct plane_server_conf *conf, struct err *e);
/* All requests must have ended; handlers are no longer called. */
struct plane_server *plane_server_free(struct plane_server *s);
DEFINE_CLEANUP(struct plane_server *, plane_server_free)

/* What is served. Its texts are copied where they are kept. */
struct plane_endpoint {
    const char *ns, *component, *name;
    uint64_t instance_id;
    bool long_path; /* over TCP namespace and component stand in it, as in 1.6.1's: for an endpoint
                       that an instance serves in several components */
};

/* "ip:port"; empty on NATS; borrowed. */
const char *plane_server_address(const struct plane_server *s);
enum plane_kind plane_server_kind(const struct plane_server *s);
/* The address in an Endpoint record of plane_server_kind()'s transport. */
void plane_server_put_address(const struct plane_server *s, const struct plane_endpoint *ep,
                              struct buf *out);
/* Replaces a handler of the same. */
void plane_server_register(struct plane_server *s, const struct plane_endpoint *ep,
                           plane_serve_fn fn, void *arg);
/* Later requests are refused in the plane's words; running ones go on. */
void plane_server_unregister(struct plane_server *s, const struct plane_endpoint *ep);
size_t plane_server_running(const struct plane_server *s);
/* Acknowledged, and not begun. */
size_t plane_server_waiting(const struct plane_server *s);
struct plane_server_stats plane_server_stats(const struct plane_server *s);

/* --- one request ------------------------------------------------------------------------------ */

/* Borrowed until the request ends. */
struct str plane_request_id(const struct plane_request *rq);
struct str plane_request_body(const struct plane_request *rq);
/* What the caller said of its trace, as it came: to be read by trace_context_init(). */
struct trace_headers plane_request_trace(const struct plane_request *rq);

struct plane_request_handlers {
    /* "stop", "kill", or the frontend is gone: whatever is sent now goes nowhere. End it. Once. */
    void (*cancelled)(void *arg);
    void (*drained)(void *arg); /* backlog fell to 0; may be NULL */
};
void plane_request_set_handlers(struct plane_request *rq, const struct plane_request_handlers *h,
                                void *arg);
/* Bytes that the frontend has not taken. */
size_t plane_request_backlog(const struct plane_request *rq);

void plane_request_start(struct plane_request *rq); /* prologue {"error":null} */
/* Prologue with an error; the request is over. */
void plane_request_refuse(struct plane_request *rq, struct str text);
/*
 * One item around @data (JSON of an engine output). A frontend that lets 64 MiB pile up is given
 * up: `cancelled` follows.
 */
void plane_request_item(struct plane_request *rq, struct str data);
/* One item whose data is @raw itself, without annotation (recovery queries). */
void plane_request_item_raw(struct plane_request *rq, struct str raw);
void plane_request_error(struct plane_request *rq, struct str text); /* item with event "error" */
/* Final and sentinel; the request is over. */
void plane_request_finish(struct plane_request *rq);
/* Ends without final: the frontend sees a broken stream and may migrate. */
void plane_request_abort(struct plane_request *rq);
