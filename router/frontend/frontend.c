/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/frontend.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "lib/net/http_server.h"
#include "lib/net/nats_link.h"
#include "router/discovery/instances.h"
#include "router/discovery/store.h"
#include "router/frontend/admin.h"
#include "router/frontend/api_error.h"
#include "router/frontend/live_conf.h"
#include "router/frontend/request.h"
#include "router/frontend/routing_report.h"
#include "router/frontend/serving.h"
#include "router/sync/kv_intake.h"
#include "router/sync/kv_recovery.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"commutator::frontend"};

/* Kubernetes goes on sending for a moment after it has told us to stop (wire.md §9.7). */
enum { HEAD_BYTES = 64 << 10, IDLE_MS = 120000, ACCEPT_GRACE_MS = 5000 };

/* What feeds one model's scheduler. */
struct feed {
    struct kv_intake *intake;
    struct kv_recovery *recovery;
};

struct frontend {
    struct loop *loop;
    const struct frontend_conf *conf;
    struct frontend_args args;
    enum discovery discovery;
    struct serving serving;
    struct admin admin;
    struct kube_config *kube;
    struct store *store;
    struct instances *instances;
    struct nats_link *nats;
    struct strmap *feeds; /* model name -> struct feed */
    struct http_server *http;
    struct live_conf *live;
    struct routing_report *report;
    const struct strmap *overlay; /* while a live configuration is loaded */
    struct strmap *seen;          /* every name that the live source ever had */
    struct timer *stop_timer;
    loop_fn stopped;
    void *stopped_arg;
};

/* --- models ------------------------------------------------------------------------------------
 */

static struct feed *feed_free(struct feed *fd)
{
    if (!fd)
        return NULL;
    kv_intake_free(fd->intake);
    kv_recovery_free(fd->recovery);
    free(fd);
    return NULL;
}

static void drop_feed(void *feed)
{
    (void)feed_free(feed);
}

static void drop_model(void *model)
{
    (void)model_unref(model);
}

static void on_gap(void *arg, uint64_t worker_id, uint32_t dp_rank)
{
    struct feed *fd = arg;

    (void)dp_rank;
    kv_recovery_ask(fd->recovery, worker_id);
}

static void start_feed(struct frontend *f, struct model *m)
{
    struct feed *fd = xcalloc(1, sizeof(*fd));
    struct kv_intake_conf conf = {.loop = f->loop,
                                  .nats = f->nats,
                                  .scheduler = m->scheduler,
                                  .metrics = f->serving.metrics.registry,
                                  .ns = m->ns,
                                  .component = m->component,
                                  .endpoint = m->endpoint,
                                  .gap = on_gap,
                                  .arg = fd};
    struct err e;

    if (kv_intake_start(&fd->intake, &conf, &e) < 0) {
        log_error(&LG, "no KV events for this model", LOG_STR("model", m->name),
                  LOG_STR("why", e.text));
        free(fd);
        return;
    }
    fd->recovery = kv_recovery_new(&(struct kv_recovery_conf){.loop = f->loop,
                                                              .plane = f->serving.plane,
                                                              .intake = fd->intake,
                                                              .scheduler = m->scheduler});
    (void)strmap_set(f->feeds, str_from(m->name), fd);
}

static void model_is_ready(void *arg, struct model *m)
{
    struct frontend *f = arg;

    if (m->state == MODEL_READY)
        serving_metrics_card(&f->serving.metrics, m);
}

static void add_model(struct frontend *f, const struct served_model *found)
{
    struct model_conf conf = {.loop = f->loop,
                              .model_root = f->conf->model_root,
                              .block_size = (uint32_t)f->conf->kv_block_size,
                              .route = &f->serving.route,
                              .ready = model_is_ready,
                              .arg = f};
    struct model *m = model_new(found, &conf);

    log_info(&LG, "model found", LOG_STR("model", m->name), LOG_STR("namespace", m->ns),
             LOG_STR("component", m->component));
    (void)strmap_set(f->serving.models, str_from(m->name), m);
    if (f->nats)
        start_feed(f, m);
}

static void remove_model(struct frontend *f, const char *name)
{
    struct model *m = strmap_remove(f->serving.models, str_from(name));

    log_info(&LG, "model gone", LOG_STR("model", name));
    feed_free(strmap_remove(f->feeds, str_from(name)));
    model_unref(m);
}

static void feed_worker(struct frontend *f, const char *model, const struct worker *w)
{
    struct feed *fd = strmap_get(f->feeds, str_from(model));
    bool indexed = w->card && (w->card->local_indexer || !w->card->has_local_indexer);

    if (!fd)
        return;
    kv_recovery_put_worker(fd->recovery, w->id, w->address);
    if (indexed)
        kv_recovery_ask(fd->recovery, w->id); /* what it cached before we came */
}

static void put_worker(struct frontend *f, struct model *m, const struct worker *w, bool is_new)
{
    model_put_worker(m, w);
    if (!is_new)
        return;
    log_info(&LG, "worker found", LOG_U64("worker_id", w->id), LOG_STR("model", m->name),
             LOG_STR("address", w->address));
    feed_worker(f, m->name, w);
}

static void remove_worker(struct frontend *f, struct model *m, const struct worker *w)
{
    struct feed *fd = strmap_get(f->feeds, str_from(m->name));

    log_info(&LG, "worker gone", LOG_U64("worker_id", w->id), LOG_STR("model", m->name));
    if (fd) {
        kv_recovery_remove_worker(fd->recovery, w->id);
        kv_intake_forget(fd->intake, w->id);
    }
    plane_client_forget(f->serving.plane, model_worker_address(m, w->id));
    model_remove_worker(m, w->id);
}

static void on_instances(void *arg, const struct instances_event *ev)
{
    struct frontend *f = arg;
    struct model *m = ev->model ? serving_find_model(&f->serving, str_from(ev->model->name)) : NULL;

    if (ev->model && ev->model->is_prefill)
        return; /* disaggregated prefill is not served yet: decode workers compute prompts
                   themselves */
    switch (ev->change) {
    case MODEL_ADDED:
        add_model(f, ev->model);
        break;
    case MODEL_REMOVED:
        remove_model(f, ev->model->name);
        break;
    case WORKER_ADDED:
    case WORKER_CHANGED:
        if (m)
            put_worker(f, m, ev->worker, ev->change == WORKER_ADDED);
        break;
    case WORKER_REMOVED:
        if (m)
            remove_worker(f, m, ev->worker);
        break;
    case CHANNEL_ADDED:
    case CHANNEL_REMOVED:
        break;
    }
}

/* --- NATS --------------------------------------------------------------------------------------
 */

static void on_nats(void *arg, bool up)
{
    struct frontend *f = arg;
    struct str model;
    void *fd;
    size_t at = 0;

    if (!up) {
        log_warn(&LG, "NATS is not reachable, routing goes on with what is known");
        return;
    }
    log_info(&LG, "NATS connected");
    /* A worker that stays silent from now on would never show that its events were missed. */
    while (strmap_next(f->feeds, &at, &model, &fd))
        kv_recovery_ask_again(((struct feed *)fd)->recovery);
}

static int start_nats(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct nats_link_conf conf = {.servers = c->nats_server,
                                  .user = c->nats_user,
                                  .password = c->nats_password,
                                  .token = c->nats_token,
                                  .credentials_file = c->nats_credentials,
                                  .name = "dynamo-frontend",
                                  .state = on_nats,
                                  .arg = f};

    /* Events are followed in every mode, so that a flip to kv meets a warm index. */
    if (f->nats || !f->serving.route.use_kv_events)
        return 0;
    if (strcmp(c->event_plane, "nats") != 0)
        return err_set(e, -ENOTSUP, "--event-plane: '%s' is not served yet; use nats",
                       c->event_plane);
    return nats_link_start(&f->nats, f->loop, &conf, e);
}

/* Events were switched on while running. */
static void follow_events(struct frontend *f)
{
    AUTO(model_table_unref) struct model_table *t = instances_table(f->instances);
    struct str name;
    struct err e;
    void *model;
    size_t at = 0;

    if (f->nats || !f->serving.route.use_kv_events)
        return;
    if (start_nats(f, &e) < 0) {
        log_error(&LG, "no KV events", LOG_STR("why", e.text));
        return;
    }
    f->admin.nats = f->nats;
    while (strmap_next(f->serving.models, &at, &name, &model))
        start_feed(f, model);
    for (size_t i = 0; i < t->n_models; i++)
        for (size_t k = 0; !t->models[i].is_prefill && k < t->models[i].n_workers; k++)
            feed_worker(f, t->models[i].name, &t->models[i].workers[k]);
}

/* --- live configuration ------------------------------------------------------------------------
 */

/* conf_load() calls back without an argument; only one load runs at a time, on one thread. */
static _Thread_local const struct frontend *loading;

/* A live value comes first; a name that the live source had and dropped is unset. */
static const char *overlaid_env(const char *name)
{
    struct str key = str_from(name);
    const char *value;

    if (!frontend_conf_is_routing(key))
        return loading->args.env(name);
    value = strmap_get(loading->overlay, key);
    if (value)
        return value;
    return strmap_get(loading->seen, key) ? NULL : loading->args.env(name);
}

static void apply_route(struct frontend *f, const struct route_conf *route)
{
    struct str name;
    void *model;
    size_t at = 0;

    f->serving.route = *route;
    while (strmap_next(f->serving.models, &at, &name, &model))
        model_configure(model);
}

static void remember_names(struct frontend *f, const struct strmap *variables)
{
    struct str name;
    void *value;
    size_t at = 0;

    while (strmap_next(variables, &at, &name, &value))
        (void)strmap_set(f->seen, name, f);
}

static void on_live_conf(void *arg, const struct strmap *variables, uint64_t generation)
{
    struct frontend *f = arg;
    struct serving_metrics *mt = &f->serving.metrics;
    struct frontend_conf fresh = {0};
    struct err e;
    int r;

    remember_names(f, variables);
    f->overlay = variables;
    loading = f;
    r = conf_load(&FRONTEND_CONF_SPEC, &fresh, f->args.argc, f->args.argv, overlaid_env, &e);
    loading = NULL;
    f->overlay = NULL;
    if (r < 0) {
        metric_add(mt->conf_errors, 1);
        log_error(&LG, "routing configuration refused, keeping the one in force",
                  LOG_U64("generation", generation), LOG_STR("why", e.text));
    } else {
        log_info(&LG, "routing configuration in force", LOG_U64("generation", generation),
                 LOG_STR("mode", ROUTE_MODE_WORDS[fresh.route.mode]),
                 LOG_STR("was", ROUTE_MODE_WORDS[f->serving.route.mode]));
        apply_route(f, &fresh.route);
        follow_events(f);
        metric_add(mt->conf_changes, 1);
        metric_set(mt->conf_generation, (double)generation);
    }
    if (f->report)
        routing_report_put(f->report, generation, ROUTE_MODE_WORDS[f->serving.route.mode],
                           r < 0 ? e.text : "");
    conf_done(&FRONTEND_CONF_SPEC, &fresh);
}

static int start_live_conf(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct live_conf_spec spec = {.loop = f->loop,
                                  .kube = f->kube,
                                  .ns = c->pod_namespace,
                                  .config_map = f->kube ? c->routing_config_map : NULL,
                                  .file = c->routing_file,
                                  .changed = on_live_conf,
                                  .arg = f};

    if (spec.config_map && c->pod_name && c->pod_uid)
        f->report = routing_report_new(
            &(struct routing_report_conf){f->loop, f->kube, spec.ns, c->pod_name, c->pod_uid});
    return live_conf_start(&f->live, &spec, e);
}

/* --- routes ------------------------------------------------------------------------------------
 */

static void chat(struct http_exchange *x, void *arg)
{
    request_serve(&((struct frontend *)arg)->serving, x, API_CHAT);
}

static void completions(struct http_exchange *x, void *arg)
{
    request_serve(&((struct frontend *)arg)->serving, x, API_COMPLETIONS);
}

#define ADMIN_ROUTE(name)                                                                          \
    static void route_##name(struct http_exchange *x, void *arg)                                   \
    {                                                                                              \
        admin_##name(x, &((struct frontend *)arg)->admin);                                         \
    }
ADMIN_ROUTE(models)
ADMIN_ROUTE(health)
ADMIN_ROUTE(live)
ADMIN_ROUTE(metrics)
ADMIN_ROUTE(busy_threshold_get)
ADMIN_ROUTE(busy_threshold_post)

static const struct http_route ROUTES[] = {
    {"POST", "/v1/chat/completions", chat, 0},
    {"POST", "/v1/completions", completions, 0},
    {"GET", "/v1/models", route_models, 1024},
    {"GET", "/health", route_health, 1024},
    {"GET", "/live", route_live, 1024},
    {"GET", "/metrics", route_metrics, 1024},
    {"GET", "/busy_threshold", route_busy_threshold_get, 1024},
    {"POST", "/busy_threshold", route_busy_threshold_post, 65536},
};

/* --- start -------------------------------------------------------------------------------------
 */

static int start_kube(struct frontend *f, struct err *e)
{
    const char *(*env)(const char *) = f->args.env;
    struct kube_config_env where = {env("KUBECONFIG"), env("KUBERNETES_SERVICE_HOST"),
                                    env("KUBERNETES_SERVICE_PORT")};

    return kube_config_load(&f->kube, &where, e);
}

static int start_discovery(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct instances_conf conf = {.ns_filter = c->ns, .event = on_instances, .arg = f};
    int r = 0;

    switch (f->discovery) {
    case DISCOVERY_KUBERNETES:
        r = start_kube(f, e);
        if (r == 0)
            r = store_kube_new(&f->store, f->loop,
                               &(struct store_kube_conf){f->kube, c->pod_namespace, NULL, NULL}, e);
        break;
    case DISCOVERY_FILE:
        r = store_file_new(&f->store, f->loop, c->file_kv, e);
        break;
    case DISCOVERY_MEM:
    case DISCOVERY_ETCD:
        return err_set(
            e, -ENOTSUP,
            "discovery: etcd and mem are not served yet; set DYN_DISCOVERY_BACKEND=kubernetes "
            "or --store-kv file");
    }
    return r < 0 ? r : instances_new(&f->instances, f->loop, f->store, &conf, e);
}

static int start_plane(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct plane_client_conf conf = {.advertise_ip = c->pod_ip ? c->pod_ip : c->tcp_rpc_host,
                                     .connect_ms = c->connect_ms,
                                     .ack_ms = c->ack_ms,
                                     .call_home_ms = c->call_home_ms,
                                     .first_item_ms = c->first_token_ms,
                                     .pool_max = c->pool_max};

    if (strcmp(c->request_plane, "tcp") != 0)
        return err_set(e, -ENOTSUP, "--request-plane: '%s' is not served yet; use tcp",
                       c->request_plane);
    return plane_client_new(&f->serving.plane, f->loop, &conf, e);
}

static int start_http(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct http_server_conf conf = {.host = c->http_host,
                                    .port = (uint16_t)c->http_port,
                                    .connections_max = c->connections_max,
                                    .head_bytes = HEAD_BYTES,
                                    .body_bytes = c->body_limit_mb << 20,
                                    .idle_ms = IDLE_MS,
                                    .routes = ROUTES,
                                    .n_routes = ARRAY_LEN(ROUTES),
                                    .arg = f,
                                    .on_error = api_error_from_server};

    return http_server_start(&f->http, f->loop, &conf, e);
}

/* Options that are read for compatibility and change nothing yet: said once, never silently. */
static void name_what_has_no_effect(const struct frontend_conf *c)
{
    if (c->replica_sync)
        log_warn(&LG,
                 "--router-replica-sync has no effect yet: each replica books its own requests");
    if (c->enforce_disagg)
        log_warn(&LG, "--enforce-disagg has no effect yet: prefill workers are not used");
    if (c->reset_states)
        log_warn(&LG, "--router-reset-states has no effect: no state is kept in JetStream");
}

int frontend_start(struct frontend **ret, struct loop *l, const struct frontend_conf *conf,
                   const struct frontend_args *args, struct err *e)
{
    AUTO(frontend_free) struct frontend *f = xcalloc(1, sizeof(*f));
    int r;

    f->loop = l;
    f->conf = conf;
    f->args = *args;
    f->discovery = frontend_conf_discovery(conf);
    f->feeds = strmap_new();
    f->seen = strmap_new();
    f->serving.loop = l;
    f->serving.models = strmap_new();
    f->serving.route = conf->route;
    f->serving.requests_max = conf->requests_max;
    serving_metrics_init(&f->serving.metrics, conf->metrics_prefix);
    name_what_has_no_effect(conf);

    r = start_plane(f, e);
    if (r == 0)
        r = start_nats(f, e);
    if (r == 0)
        r = start_discovery(f, e);
    if (r == 0)
        r = start_live_conf(f, e);
    if (r < 0)
        return r;
    f->admin = (struct admin){&f->serving, f->instances, f->nats};
    r = start_http(f, e);
    if (r < 0)
        return r;
    log_info(&LG, "serving", LOG_STR("host", conf->http_host), LOG_U64("port", frontend_port(f)),
             LOG_STR("mode", ROUTE_MODE_WORDS[conf->route.mode]),
             LOG_BOOL("kv_events", f->nats != NULL));
    *ret = TAKE(f);
    return 0;
}

uint16_t frontend_port(const struct frontend *f)
{
    return http_server_port(f->http);
}

/* --- stop --------------------------------------------------------------------------------------
 */

static void drained(void *arg)
{
    struct frontend *f = arg;
    loop_fn stopped = f->stopped;

    f->stop_timer = timer_free(f->stop_timer);
    f->stopped = NULL;
    if (stopped)
        stopped(f->stopped_arg);
}

static void drain(void *arg)
{
    struct frontend *f = arg;

    log_info(&LG, "draining", LOG_U64("requests", f->serving.n_requests));
    timer_free(f->stop_timer);
    f->stop_timer = timer_new(f->loop, drained, f); /* the deadline */
    timer_start(f->stop_timer, f->conf->drain_ms);
    http_server_stop(f->http, drained, f);
}

void frontend_stop(struct frontend *f, loop_fn stopped, void *arg)
{
    if (f->stopped)
        return;
    f->stopped = stopped;
    f->stopped_arg = arg;
    f->serving.stopping = f->discovery != DISCOVERY_KUBERNETES;
    if (f->serving.stopping) {
        drain(f);
        return;
    }
    f->stop_timer = timer_new(f->loop, drain, f);
    timer_start(f->stop_timer, ACCEPT_GRACE_MS);
}

struct frontend *frontend_free(struct frontend *f)
{
    if (!f)
        return NULL;
    timer_free(f->stop_timer);
    http_server_free(f->http); /* ends requests, which end their streams and bookings */
    live_conf_free(f->live);
    routing_report_free(f->report);
    strmap_free_with(f->feeds, drop_feed);
    instances_free(f->instances);
    store_free(f->store);
    nats_link_free(f->nats);
    strmap_free_with(f->serving.models, drop_model);
    plane_client_free(f->serving.plane);
    kube_config_free(f->kube);
    serving_metrics_done(&f->serving.metrics);
    strmap_free(f->seen);
    free(f);
    return NULL;
}
