/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that come over HTTP (wire.md §4.9): POST <root>/<endpoint>, answered 202 before anything
 * is read.
 */
#include <errno.h>
#include <string.h>

#include "router/wire/plane_server_inner.h"

static void on_request(struct http_exchange *x, void *arg)
{
    struct plane_server *s = arg;
    const struct http1_request *rq = http_request(x);
    struct str name = str_skip(rq->path, MIN(strlen(s->root) + 1, rq->path.len));
    const struct plane_handler *h = strmap_get(s->handlers, name);
    const char *refusal;

    if (!h) {
        s->stats.unknown_endpoints++;
        http_respond(x, 404, "text/plain; charset=utf-8", STR("Endpoint not found"));
        return;
    }
    refusal = plane_server_refusal(s, rq->body);
    if (!refusal) {
        const struct trace_headers trace = {.parent = http1_header_get(rq, "traceparent"),
                                            .state = http1_header_get(rq, "tracestate"),
                                            .client_id = http1_header_get(rq, "x-request-id"),
                                            .dynamo_id =
                                                http1_header_get(rq, "x-dynamo-request-id")};

        plane_server_begin(s, h, rq->body, &trace);
    }
    http_respond(x, refusal ? 503 : 202, "text/plain; charset=utf-8",
                 refusal ? str_from(refusal) : STR_NULL);
}

int plane_server_http_start(struct plane_server *s, const char *host, struct err *e)
{
    const char *root = s->conf.root && *s->conf.root ? s->conf.root : "/v1/rpc";
    struct http_route route = {.method = "POST", .handle = on_request};
    struct http_server_conf conf = {.host = host,
                                    .port = s->conf.port,
                                    .connections_max = s->conf.connections_max,
                                    .body_bytes = s->conf.frame_max,
                                    .routes = &route,
                                    .n_routes = 1,
                                    .arg = s};

    if (*root != '/')
        return err_set(e, -EINVAL, "the root path '%s' does not begin with '/'", root);
    s->root = xstrdup(root[1] ? root : ""); /* of "/" the endpoints lie at the top */
    s->routes = xasprintf("%s/*", s->root);
    route.path = s->routes;
    return http_server_start(&s->http, s->loop, &conf, e);
}

void plane_server_http_stop(struct plane_server *s)
{
    s->http = http_server_free(s->http);
}
