/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP server: the only server interface that upper layers see. (HTTP/1.1 on our loop, plain or in TLS.)
 *
 * A handler is called on the loop with the complete request and answers now or later: whole
 * (http_respond) or as a stream (http_stream_begin, http_stream_write…, http_stream_end). The head
 * of a stream leaves together with its first bytes, in one write.
 *
 * An exchange is owned by the server; a handler that answers later keeps the pointer until it has
 * answered or `gone` was called (client left, server stopping), after which it is dead. Views of
 * the request live as long as the exchange. Every answer is on one loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/str.h"
#include "lib/net/http1.h"
#include "lib/net/loop.h"

struct http_server;
struct tls_server;
struct http_exchange;
struct metric_registry;

typedef void (*http_handler)(struct http_exchange *x, void *arg);

struct http_route {
    const char *method; /* NULL = any; GET also takes HEAD, whose answer leaves without a body */
    const char *path;   /* exact, or a prefix when it ends in '*'; the first route that fits */
    http_handler handle;
    size_t body_bytes; /* 0 = the server's limit */
};

struct http_server_conf {
    const char *host;       /* numeric */
    uint16_t port;          /* 0 = a free one */
    struct tls_server *tls; /* HTTPS with these keys, borrowed; NULL = HTTP */
    bool port_shared;       /* several loops of this process listen on it */
    size_t connections_max; /* 0 = 4096; beyond: 503 and close, counted in @metrics */
    size_t head_bytes;      /* 0 = 16 KiB */
    size_t body_bytes;      /* 0 = 1 MiB */
    /* Kept connection without a request, incomplete head, body that stalls; 0 = 60 s. */
    uint64_t idle_ms;
    const struct http_route *routes; /* copied, not the strings */
    size_t n_routes;
    void *arg;                       /* for handlers */
    struct metric_registry *metrics; /* borrowed; NULL = what is refused is not counted */
    const char *echo; /* name of a header that every answer repeats from its request; NULL = none */
    bool dated;       /* every answer says when it was made */
    /* Answers errors that no handler sees (400, 404, 405, 413, 431 …); NULL = plain text. */
    void (*on_error)(struct http_exchange *x, int status, const char *why, void *arg);
};

MUST_CHECK int http_server_start(struct http_server **ret, struct loop *l,
                                 const struct http_server_conf *conf, struct err *e);
uint16_t http_server_port(const struct http_server *s);
/* No new connections; idle ones close; @drained is called when the last exchange has ended. */
void http_server_stop(struct http_server *s, loop_fn drained, void *arg);
struct http_server *http_server_free(struct http_server *s); /* aborts what is left */
size_t http_server_connections(const struct http_server *s);

const struct http1_request *http_request(const struct http_exchange *x);
/* What http_request() says is the body from now on; copied. Views of one set before end here. */
void http_request_set_body(struct http_exchange *x, struct str body);
struct loop *http_exchange_loop(struct http_exchange *x);
/* Called once if the exchange ends before it was answered. */
void http_on_gone(struct http_exchange *x, loop_fn gone, void *arg);
/* Extra response header, before responding; copied. Control bytes in @value become spaces. */
void http_add_header(struct http_exchange *x, const char *name, struct str value);

void http_respond(struct http_exchange *x, int status, const char *content_type, struct str body);
void http_stream_begin(struct http_exchange *x, int status, const char *content_type);
bool http_stream_has_begun(const struct http_exchange *x);
/* Copies. Empty @data sends the head alone. */
void http_stream_write(struct http_exchange *x, struct str data);
void http_stream_end(struct http_exchange *x);
/* Closes without the terminating chunk, so that the client sees a broken stream. */
void http_stream_abort(struct http_exchange *x);
/* Bytes that the client has not taken yet. */
size_t http_stream_backlog(const struct http_exchange *x);
/* Called each time that the backlog has fallen to 0. */
void http_on_drained(struct http_exchange *x, loop_fn drained, void *arg);
/* Called each @ms in which nothing of the answer was written, until it has ended. */
void http_on_silence(struct http_exchange *x, uint64_t ms, loop_fn silent, void *arg);
