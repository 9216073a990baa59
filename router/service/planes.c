/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/planes.h"

#include "router/service/route_options.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"

enum { RUNNING_MAX = 16384 };

int planes_start(struct planes *p, struct loop *l, const struct route_options *o,
                 void (*nats_state)(void *arg, bool up), void *arg, struct err *e)
{
    const struct frontend_conf *c = &o->base;
    const struct plane_client_conf client = frontend_conf_plane(c, "dynamo-router");
    bool http = c->request_plane == PLANE_HTTP;
    struct nats_link_conf nats = client.nats;
    struct plane_server_conf server = {.kind = (enum plane_kind)c->request_plane,
                                       .host =
                                           http && o->http_host ? o->http_host : c->tcp_rpc_host,
                                       .port = (uint16_t)(http ? o->http_port : o->tcp_port),
                                       .root = o->http_root,
                                       .running_max = RUNNING_MAX,
                                       .tls = &c->plane_tls};
    int r = response_plane_check(c->response_plane, e);

    nats.state = nats_state;
    nats.arg = arg;
    if (r == 0 && server.kind == PLANE_NATS)
        r = nats_link_start(&p->nats, l, &nats, e);
    server.nats = p->nats;
    if (r == 0)
        r = plane_client_new(&p->client, l, &client, e);
    return r < 0 ? r : plane_server_new(&p->server, l, &server, e);
}

void planes_done(struct planes *p)
{
    p->server = plane_server_free(p->server);
    p->client = plane_client_free(p->client);
    p->nats = nats_link_free(p->nats);
}
