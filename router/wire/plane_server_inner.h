/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the plane server share: requests (plane_server.c) and the three ways that they
 * come (plane_server_tcp.c, plane_server_nats.c, plane_server_http.c).
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/strmap.h"
#include "lib/net/http_server.h"
#include "lib/net/nats_link.h"
#include "lib/net/tcp.h"
#include "router/wire/plane_server.h"

struct plane_handler {
    struct plane_server *server;
    plane_serve_fn fn;
    void *arg;
    uint64_t subscription; /* NATS */
};

struct plane_server {
    struct loop *loop;
    struct plane_server_conf conf;
    char address[PLANE_IP_SIZE + 16];
    struct tcp_listener *listener; /* TCP */
    struct plane_tls tls;
    struct http_server *http; /* HTTP */
    char *root, *routes;      /* HTTP: "/v1/rpc", "/v1/rpc/" and a star */
    struct strmap *handlers;  /* path, subject or endpoint → struct plane_handler */
    struct list conns;        /* TCP */
    struct list requests;
    struct list waiting; /* of them, those whose turn has not come */
    bool letting_in;
    struct buf out; /* the frame being written */
    struct plane_server_stats stats;
};

/* --- plane_server.c --------------------------------------------------------------------------- */

/* Why no request is taken now; NULL = it is, by plane_server_begin() once it is acknowledged. */
const char *plane_server_refusal(struct plane_server *s, struct str payload);
/* Copies @payload and @trace. */
void plane_server_begin(struct plane_server *s, const struct plane_handler *h, struct str payload,
                        const struct trace_headers *trace);
/* Sets s->address from what is configured and @port. */
void plane_server_name(struct plane_server *s, const char *ip, uint16_t port);

/* --- one file each ---------------------------------------------------------------------------- */

MUST_CHECK int plane_server_tcp_start(struct plane_server *s, const char *host, struct err *e);
void plane_server_tcp_stop(struct plane_server *s);

void plane_server_nats_subscribe(struct plane_handler *h, const char *subject);
void plane_server_nats_unsubscribe(struct plane_handler *h);

MUST_CHECK int plane_server_http_start(struct plane_server *s, const char *host, struct err *e);
void plane_server_http_stop(struct plane_server *s);
