/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/indexes.h"

#include <string.h>

#include "lib/base/log.h"
#include "router/discovery/instances.h"
#include "router/discovery/store.h"
#include "router/frontend/frontend_conf.h"
#include "router/sync/index_server.h"
#include "router/sync/remote_index.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"dynamo_llm::kv_router::indexer"};

struct indexes {
    struct indexes_conf conf;
    struct remote_index *remote;     /* NULL: not asked for */
    struct index_server *served;     /* likewise */
    struct plane_server *own_server; /* NULL: none, or the process has one */
    struct plane_server *server;     /* of whichever */
    struct nats_link *nats;          /* of own_server, on that plane */
};

/* --- ours for others -------------------------------------------------------------------------- */

static void on_announce(void *arg, const struct plane_endpoint *ep, bool there)
{
    struct indexes *x = arg;
    AUTO(buf_done) struct buf address = BUF_NULL;
    struct record rec = {.kind = RECORD_ENDPOINT,
                         .ns = str_from(ep->ns),
                         .component = str_from(ep->component),
                         .endpoint = str_from(ep->name),
                         .instance_id = ep->instance_id,
                         .transport = record_transport(plane_server_kind(x->server))};
    struct err e;

    plane_server_put_address(x->server, ep, &address);
    rec.address = buf_str(&address);
    if (!there)
        store_withdraw(x->conf.store, &rec);
    else if (store_publish(x->conf.store, &rec, &e) < 0)
        log_error(&LG, "other routers will not find this index", LOG_STR("endpoint", ep->name),
                  LOG_STR("why", e.text));
}

static int start_server(struct indexes *x, struct err *e)
{
    const struct frontend_conf *c = x->conf.options;
    const struct plane_client_conf client = frontend_conf_plane(c, x->conf.program);
    struct plane_server_conf conf = {
        .kind = (enum plane_kind)c->request_plane, .host = c->tcp_rpc_host, .tls = &c->plane_tls};
    int r = 0;

    if (x->conf.server) {
        x->server = x->conf.server;
        return 0;
    }
    if (conf.kind == PLANE_NATS)
        r = nats_link_start(&x->nats, x->conf.loop, &client.nats, e);
    conf.nats = x->nats;
    if (r == 0)
        r = plane_server_new(&x->own_server, x->conf.loop, &conf, e);
    x->server = x->own_server;
    return r;
}

static int start_serving(struct indexes *x, struct err *e)
{
    struct index_server_conf conf = {.instance_id = x->conf.store->instance_id,
                                     .metrics = x->conf.metrics,
                                     .announce = on_announce,
                                     .arg = x};
    int r = start_server(x, e);

    if (r < 0)
        return err_wrap(e, r, "--serve-indexer");
    conf.server = x->server;
    x->served = index_server_new(&conf);
    return 0;
}

void indexes_add(struct indexes *x, const char *ns, const char *component, const char *model,
                 struct scheduler *scheduler)
{
    if (x->served && !index_server_add(x->served, ns, component, model, scheduler))
        log_warn(&LG, "the component has an index of that model already, ignoring",
                 LOG_STR("component", component), LOG_STR("model", model));
}

void indexes_remove(struct indexes *x, const struct scheduler *scheduler)
{
    if (x->served)
        index_server_remove(x->served, scheduler);
}

void indexes_refresh(struct indexes *x)
{
    if (x->served)
        index_server_refresh(x->served);
}

void indexes_withdraw(struct indexes *x)
{
    x->served = index_server_free(x->served);
}

/* --- others' ---------------------------------------------------------------------------------- */

struct remote_index *indexes_remote(const struct indexes *x)
{
    return x->remote;
}

void indexes_event(struct indexes *x, const struct instances_event *ev)
{
    struct remote_endpoint ep;

    if (!x->remote || !ev->index)
        return;
    ep = (struct remote_endpoint){ev->index->ns, ev->index->component, ev->index->endpoint,
                                  ev->index->instance_id, ev->index->address};
    if (ev->change == INDEX_ADDED)
        remote_index_put(x->remote, &ep);
    else
        remote_index_gone(x->remote, &ep);
}

/* --- life ------------------------------------------------------------------------------------- */

int indexes_start(struct indexes **ret, const struct indexes_conf *conf, struct err *e)
{
    AUTO(indexes_free) struct indexes *x = xcalloc(1, sizeof(*x));
    const struct remote_index_conf remote = {
        .loop = conf->loop,
        .plane = conf->plane,
        .metrics = conf->metrics,
        .router_id = conf->router_id,
        .deadline_ms = MAX(conf->options->remote_indexer_ms, UINT64_C(1))};
    int r = 0;

    x->conf = *conf;
    if (conf->options->use_remote_indexer) {
        x->remote = remote_index_new(&remote);
        log_info(&LG, "Using remote KV indexer", LOG_U64("timeout_ms", remote.deadline_ms));
    }
    if (conf->options->serve_indexer)
        r = start_serving(x, e);
    if (r == 0)
        *ret = TAKE(x);
    return r;
}

struct indexes *indexes_free(struct indexes *x)
{
    if (!x)
        return NULL;
    index_server_free(x->served);
    remote_index_free(x->remote);
    plane_server_free(x->own_server);
    nats_link_free(x->nats);
    free(x);
    return NULL;
}
