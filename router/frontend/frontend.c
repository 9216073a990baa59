/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/frontend.h"

#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "lib/net/http_server.h"
#include "lib/net/tls_server.h"
#include "router/discovery/event_channels.h"
#include "router/discovery/instances.h"
#include "router/discovery/store.h"
#include "router/frontend/admin.h"
#include "router/frontend/discovery_store.h"
#include "router/openai/api_error.h"
#include "router/frontend/engines.h"
#include "router/frontend/explain.h"
#include "router/frontend/indexes.h"
#include "router/frontend/live_conf.h"
#include "router/frontend/models.h"
#include "router/frontend/replicas.h"
#include "router/frontend/request.h"
#include "router/frontend/routes.h"
#include "router/frontend/routing_report.h"
#include "router/frontend/router_metrics.h"
#include "router/frontend/serving.h"
#include "router/frontend/shared_cache.h"
#include "router/frontend/spans.h"
#include "router/sched/policy.h"
#include "router/sync/kv_events.h"
#include "router/sync/kv_intake.h"
#include "router/sync/load_report.h"
#include "router/wire/event_bus.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"commutator::frontend"};
/* Where users of the reference look for it. */
static const struct log_target LG_PREFILL = {"dynamo_llm::kv_router::prefill_router"};

/* Kubernetes goes on sending for a moment after it has told us to stop (wire.md §9.7). */
enum { HEAD_BYTES = 64 << 10, IDLE_MS = 120000, ACCEPT_GRACE_MS = 5000 };

struct frontend {
    struct loop *loop;
    const struct frontend_conf *conf;
    struct frontend_args args;
    enum discovery discovery;
    struct serving serving;
    struct admin admin;
    struct kube_config *kube;
    struct store *store;
    struct store_hub *nowhere; /* of DISCOVERY_MEM: only engines are served */
    struct instances *instances;
    struct kv_events *events;         /* NULL: they are not followed */
    struct strmap *feeds[POOL_ROLES]; /* set of a pool -> struct kv_feed */
    struct engines *engines;          /* NULL: none are looked for */
    struct indexes *indexes;
    struct models *models;
    struct replicas *replicas;
    bool replica_sync;   /* asked for */
    struct arena *texts; /* paths of routes */
    struct http_server *http;
    struct tls_server *tls; /* NULL: plain HTTP */
    struct live_conf *live;
    struct routing_report *report;
    const struct strmap *overlay; /* while a live configuration is loaded */
    struct strmap *seen;          /* every name that the live source ever had */
    struct timer *stop_timer;
    bool stopping;
    loop_fn stopped;
    void *stopped_arg;
};

/* --- models ------------------------------------------------------------------------------------
 */

static void drop_feed(void *feed)
{
    (void)kv_feed_free(feed);
}

static void drop_pool(void *pool)
{
    (void)pool_unref(pool);
}

static void start_report(struct frontend *f, struct pool *p)
{
    const struct load_report_conf conf = {
        .loop = f->loop, .bus = kv_events_bus(f->events), .scheduler = p->scheduler, .ns = p->ns};
    struct err e;

    if (!p->report && load_report_start(&p->report, &conf, &e) < 0)
        log_error(&LG, "decisions and loads are not published", LOG_STR("model", p->model),
                  LOG_STR("why", e.text));
}

static void start_feed(struct frontend *f, struct pool *p)
{
    const struct kv_feed_conf conf = {p->scheduler, p->ns, p->component, p->endpoint};
    struct kv_feed *fd;
    struct err e;

    if (kv_feed_start(&fd, f->events, &conf, &e) < 0)
        log_error(&LG, "no KV events for this model", LOG_STR("model", p->model),
                  LOG_STR("why", e.text));
    else
        (void)strmap_set(f->feeds[p->role], str_from(p->set), fd);
    start_report(f, p);
}

/* With those that wait for its workers, with what tells of their caches, and with other routers. */
static void adopt(struct frontend *f, struct pool *p)
{
    p->inhibit_ms = f->conf->inhibit_ms;
    pool_admit(p, &f->serving.metrics.admission, f->serving.admission);
    if (p->role != POOL_PREFILL)
        pool_gate(p, f->serving.metrics.programs);
    replicas_add(f->replicas, p);
    if (p->is_stock) {
        engines_pool_added(f->engines, p);
        return;
    }
    p->remote = indexes_remote(f->indexes);
    indexes_add(f->indexes, p->ns, p->component, p->model, p->scheduler);
    pool_share_cache(p, f->conf->mooncake_events);
    if (f->events)
        start_feed(f, p);
}

static void add_model(struct frontend *f, const struct served_model *found)
{
    struct model *m = models_add(f->models, found);

    log_info(&LG, "model found", LOG_STR("model", m->name), LOG_STR("namespace", m->pool->ns),
             LOG_STR("component", m->pool->component));
    adopt(f, m->pool);
}

static void add_prefill(struct frontend *f, const struct served_model *found)
{
    struct pool *p = pool_new(f->loop, found, (uint32_t)f->conf->kv_block_size, &f->serving.route);

    (void)strmap_set(f->serving.prefills, str_from(p->set), p);
    adopt(f, p);
    log_info(&LG_PREFILL, "Prefill router activated successfully", LOG_STR("model", p->model),
             LOG_STR("router_mode", ROUTE_MODE_WORDS[f->serving.route.mode]),
             LOG_STR("namespace", p->ns), LOG_STR("component", p->component));
}

static void let_go(struct frontend *f, struct pool *p)
{
    (void)kv_feed_free(strmap_remove(f->feeds[p->role], str_from(p->set)));
    indexes_remove(f->indexes, p->scheduler);
    replicas_remove(f->replicas, p);
}

static void remove_model(struct frontend *f, struct pool *p)
{
    struct model *m = models_remove(f->models, p->set);

    log_info(&LG, "model gone", LOG_STR("model", p->model), LOG_STR("namespace", p->ns));
    let_go(f, p);
    if (m->is_stock)
        engines_pool_removed(f->engines, m->pool);
    model_drop(m);
}

static void remove_prefill(struct frontend *f, struct pool *p)
{
    (void)strmap_remove(f->serving.prefills, str_from(p->set));
    log_info(&LG_PREFILL, "Prefill router deactivated: its last worker has left",
             LOG_STR("model", p->model));
    let_go(f, p);
    pool_unref(p);
}

/* Where the workers of a model that discovery tells about belong; NULL when it is not known. */
static struct pool *pool_of(const struct frontend *f, const struct served_model *found)
{
    struct str set = str_from(found->set ? found->set : found->name);
    struct model *m;

    if (found->is_prefill)
        return strmap_get(f->serving.prefills, set);
    m = strmap_get(f->serving.models, set);
    return m ? m->pool : NULL;
}

static void feed_worker(struct frontend *f, const struct pool *p, const struct worker *w)
{
    struct kv_feed *fd = strmap_get(f->feeds[p->role], str_from(p->set));
    const struct model_card *card = w->card;

    if (fd)
        kv_feed_put_worker(
            fd, &(struct kv_intake_worker){
                    .worker_id = w->id,
                    .address = w->address,
                    .queries = w->queries,
                    .dp_start = card ? card->dp_start : 0,
                    .dp_size = card ? card->dp_size : 1,
                    .block_size = card ? card->kv_cache_block_size : 0,
                    .askable = (w->queries && w->queries[0]) ||
                               (card && (card->local_indexer || !card->has_local_indexer))});
}

static void put_worker(struct frontend *f, struct pool *p, const struct worker *w, bool is_new)
{
    pool_put_worker(p, w);
    if (w->engine)
        engines_worker_put(f->engines, p, w);
    else
        feed_worker(f, p, w);
    if (is_new)
        log_info(&LG, "worker found", LOG_U64("worker_id", w->id), LOG_STR("model", p->model),
                 LOG_STR("worker_type", POOL_ROLE_WORDS[p->role]), LOG_STR("address", w->address));
}

static void remove_worker(struct frontend *f, struct pool *p, const struct worker *w)
{
    struct kv_feed *fd = strmap_get(f->feeds[p->role], str_from(p->set));
    uint32_t dp_size = w->card ? w->card->dp_size : 1;

    log_info(&LG, "worker gone", LOG_U64("worker_id", w->id), LOG_STR("model", p->model),
             LOG_STR("worker_type", POOL_ROLE_WORDS[p->role]));
    if (w->engine)
        engines_worker_removed(f->engines, p, w);
    else if (fd)
        kv_feed_remove_worker(fd, w->id);
    plane_client_forget(f->serving.plane, pool_worker_address(p, w->id));
    for (uint32_t i = 0; i < dp_size; i++)
        router_metrics_forget(f->serving.router, POOL_ROLE_WORDS[p->role],
                              (struct worker_rank){w->id, (w->card ? w->card->dp_start : 0) + i});
    pool_remove_worker(p, w->id);
}

/* A model is of the source that told of it first: discovery, or the engines' directory. */
static bool is_of_another_source(const struct frontend *f, const struct served_model *found)
{
    const struct model *m = serving_find_model(&f->serving, str_from(found->name));

    if (!m || found->is_prefill || m->is_stock == found->is_stock)
        return false;
    log_error(&LG, "model is served already, by workers of the other kind; ignored",
              LOG_STR("model", m->name),
              LOG_STR("kind", found->is_stock ? "OpenAI server" : "Dynamo"));
    return true;
}

static void on_instances(void *arg, const struct instances_event *ev)
{
    struct frontend *f = arg;
    struct pool *p = ev->model ? pool_of(f, ev->model) : NULL;

    if (ev->change == MODEL_ADDED ? is_of_another_source(f, ev->model) : ev->model && !p)
        return;
    switch (ev->change) {
    case MODEL_ADDED:
        if (ev->model->is_prefill)
            add_prefill(f, ev->model);
        else
            add_model(f, ev->model);
        break;
    case MODEL_REMOVED:
        if (ev->model->is_prefill)
            remove_prefill(f, p);
        else
            remove_model(f, p);
        break;
    case MODEL_CHANGED:
        if (!ev->model->is_prefill)
            models_change(f->models, ev->model);
        break;
    case WORKER_ADDED:
    case WORKER_CHANGED:
        if (p)
            put_worker(f, p, ev->worker, ev->change == WORKER_ADDED);
        break;
    case WORKER_REMOVED:
        if (p)
            remove_worker(f, p, ev->worker);
        break;
    case CHANNEL_ADDED:
    case CHANNEL_REMOVED:
        event_channel_follow(kv_events_bus(f->events), ev->channel, ev->change == CHANNEL_ADDED);
        if (ev->change == CHANNEL_REMOVED)
            replicas_channel_gone(f->replicas, ev->channel);
        break;
    case INDEX_ADDED:
    case INDEX_REMOVED:
        indexes_event(f->indexes, ev);
        break;
    }
}

/* --- KV events ---------------------------------------------------------------------------------
 */

/* Publishers of ours on ZeroMQ: other routers find them by their records. */
static void on_announce(void *arg, const struct event_channel_info *ch, bool there)
{
    struct frontend *f = arg;
    struct err e;

    if (f->store && event_channel_announce(f->store, ch, there, &e) < 0)
        log_warn(&LG, "other routers do not hear this one", LOG_STR("topic", ch->topic),
                 LOG_STR("why", e.text));
}

static int start_events(struct frontend *f, struct err *e)
{
    struct kv_events_conf conf = frontend_conf_events(f->conf, "dynamo-frontend");

    /* Events are followed in every mode, so that a flip to kv meets a warm index. Where nobody can
     * be discovered, nobody publishes. */
    if (f->discovery == DISCOVERY_MEM && !f->replica_sync)
        return 0;
    if (f->events || (!f->serving.route.use_kv_events && !f->replica_sync))
        return 0;
    conf.loop = f->loop;
    conf.plane = f->serving.plane;
    conf.metrics = f->serving.metrics.registry;
    conf.router_id = f->serving.router_id;
    conf.announce = on_announce;
    conf.arg = f;
    return kv_events_start(&f->events, &conf, e);
}

/* Events were switched on while running. */
static void follow_events(struct frontend *f)
{
    AUTO(model_table_unref) struct model_table *t = instances_table(f->instances);
    struct err e;

    if (f->events || (!f->serving.route.use_kv_events && !f->replica_sync))
        return;
    if (start_events(f, &e) < 0) {
        log_error(&LG, "no KV events", LOG_STR("why", e.text));
        return;
    }
    f->admin.events = f->events;
    for (size_t i = 0; i < t->n_channels; i++)
        event_channel_follow(kv_events_bus(f->events), &t->channels[i], true);
    for (size_t i = 0; i < t->n_models; i++) {
        struct pool *p = pool_of(f, &t->models[i]);

        if (!p)
            continue;
        start_feed(f, p);
        for (size_t k = 0; k < t->models[i].n_workers; k++)
            feed_worker(f, p, &t->models[i].workers[k]);
    }
}

/* --- engines without the Dynamo runtime --------------------------------------------------------
 */

static struct pool *engine_pool_of(void *arg, const struct served_model *m)
{
    struct pool *p = pool_of(arg, m);

    return p && p->is_stock ? p : NULL;
}

static int start_engines(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    const struct engines_conf conf = {.loop = f->loop,
                                      .metrics = f->serving.metrics.registry,
                                      .urls = c->engine_urls,
                                      .api_key = c->engine_api_key,
                                      .kube = f->kube,
                                      .kube_ns = c->pod_namespace,
                                      .ns = c->ns,
                                      .model_root = c->model_root,
                                      .event = on_instances,
                                      .pool_of = engine_pool_of,
                                      .arg = f};
    int r;

    if (!c->engine_urls && !f->kube)
        return 0;
    r = engines_start(&f->engines, &conf, e);
    if (r < 0)
        return r;
    f->serving.engines = engines_http(f->engines);
    f->serving.engine_connect_ms = c->connect_ms;
    return 0;
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
    void *value;

    f->serving.route = *route;
    explain_shadow(f->serving.explain, route->shadows);
    for (size_t at = 0; strmap_next(f->serving.models, &at, &name, &value);)
        model_configure(value);
    for (size_t at = 0; strmap_next(f->serving.prefills, &at, &name, &value);)
        pool_configure(value, route);
    indexes_refresh(f->indexes);
}

static void apply_admission(struct frontend *f, struct admission_rules *take_rules)
{
    struct str name;
    void *value;

    for (size_t at = 0; strmap_next(f->serving.models, &at, &name, &value);)
        admission_configure(((struct model *)value)->pool->admission, take_rules);
    for (size_t at = 0; strmap_next(f->serving.prefills, &at, &name, &value);)
        admission_configure(((struct pool *)value)->admission, take_rules);
    admission_rules_free(f->serving.admission);
    f->serving.admission = take_rules;
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
    struct admission_rules *rules = NULL;
    struct tracking_key *tracking;
    struct err e;
    int r;

    remember_names(f, variables);
    f->overlay = variables;
    loading = f;
    r = frontend_conf_load(&fresh, f->args.argc, f->args.argv, overlaid_env, &e);
    loading = NULL;
    f->overlay = NULL;
    if (r == 0)
        r = admission_rules_load(&rules, &fresh.queue, &e);
    if (r == 0)
        r = tracking_load(&tracking, &fresh.tracking, &e);
    if (r < 0) {
        admission_rules_free(rules);
        metric_add(mt->conf_errors, 1);
        log_error(&LG, "routing configuration refused, keeping the one in force",
                  LOG_U64("generation", generation), LOG_STR("why", e.text));
    } else {
        log_info(&LG, "routing configuration in force", LOG_U64("generation", generation),
                 LOG_STR("mode", ROUTE_MODE_WORDS[fresh.route.mode]),
                 LOG_STR("was", ROUTE_MODE_WORDS[f->serving.route.mode]),
                 LOG_STR("policy", ROUTE_POLICY_WORDS[fresh.route.policy]));
        shared_cache_warn(&fresh.route, &f->serving.route);
        apply_route(f, &fresh.route);
        apply_admission(f, rules);
        tracking_free(f->serving.tracking);
        f->serving.tracking = tracking;
        f->replica_sync = fresh.replica_sync;
        follow_events(f);
        replicas_switch(f->replicas, f->replica_sync ? kv_events_bus(f->events) : NULL);
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

/* --- start -------------------------------------------------------------------------------------
 */

static int start_indexes(struct frontend *f, struct err *e)
{
    const struct indexes_conf conf = {.loop = f->loop,
                                      .options = f->conf,
                                      .program = "dynamo-frontend",
                                      .plane = f->serving.plane,
                                      .store = f->store,
                                      .metrics = f->serving.metrics.registry,
                                      .router_id = f->serving.router_id};

    return indexes_start(&f->indexes, &conf, e);
}

static int start_discovery(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    struct instances_conf conf = {.ns_filter = c->ns,
                                  .ns_prefix = c->ns_prefix,
                                  .keep_ms = c->discovery_keep_ms,
                                  .keep_down_ms = c->discovery_keep_down_ms,
                                  .event = on_instances,
                                  .arg = f};
    struct store_ways ways = {.loop = f->loop,
                              .env = f->args.env,
                              /* Only ZeroMQ's publishers and an index need a record. */
                              .publishes = c->event_plane == EVENT_PLANE_ZMQ || c->serve_indexer,
                              .alone = c->engine_urls != NULL};
    int r = store_open(&f->store, &f->kube, &f->nowhere, c, &ways, e);

    if (r == 0)
        r = start_indexes(f, e);
    return r < 0 ? r : instances_new(&f->instances, f->loop, f->store, &conf, e);
}

static int start_plane(struct frontend *f, struct err *e)
{
    const struct plane_client_conf conf = frontend_conf_plane(f->conf, "dynamo-frontend");

    return plane_client_new(&f->serving.plane, f->loop, &conf, e);
}

static int start_http(struct frontend *f, struct err *e)
{
    const struct frontend_conf *c = f->conf;
    size_t n_routes;
    const struct http_route *routes = frontend_routes(c, f->texts, &n_routes);
    struct http_server_conf conf = {.host = c->http_host,
                                    .port = (uint16_t)c->http_port,
                                    .connections_max = c->connections_max,
                                    .head_bytes = HEAD_BYTES,
                                    .body_bytes = c->body_limit_mb << 20,
                                    .idle_ms = IDLE_MS,
                                    .routes = routes,
                                    .n_routes = n_routes,
                                    .arg = &f->admin,
                                    .metrics = f->serving.metrics.registry,
                                    .echo = "x-request-id",
                                    .dated = true,
                                    .on_error = api_error_from_server};
    const struct tls_server_conf keys = {
        .cert = c->tls_cert, .key = c->tls_key, .client_ca = c->tls_client_ca};
    int r = 0;

    if (c->tls_cert) {
        r = tls_server_new(&f->tls, f->loop, &keys, e);
        conf.tls = f->tls;
    }
    return r < 0 ? r : http_server_start(&f->http, f->loop, &conf, e);
}

static int start_explain(struct frontend *f, struct err *e)
{
    struct explain_conf conf = explain_conf_of(f->conf, f->loop, f->serving.metrics.registry);

    return explain_new(&f->serving.explain, &conf, e);
}

static void name_idle(const struct frontend_conf *conf)
{
    AUTO(buf_done) struct buf idle = BUF_NULL;

    frontend_conf_put_idle(conf, &idle);
    if (idle.len)
        log_warn(&LG, "options that have no effect here", LOG_VIEW("options", buf_str(&idle)));
}

static void settle_apis(struct serving *s, const struct frontend_conf *conf)
{
    s->dispatches_calls = conf->dispatch_calls;
    s->dispatches_thoughts = conf->dispatch_thoughts;
    s->anthropic = conf->anthropic;
    s->strips_preamble = conf->strip_preamble;
    s->unsteered = conf->no_nvext;
    s->reads_loosely = conf->reads_loosely;
    s->tells_usage = conf->tells_usage;
    s->keep_alive_ms = conf->keep_alive_ms;
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
    for (size_t role = 0; role < POOL_ROLES; role++)
        f->feeds[role] = strmap_new();
    f->seen = strmap_new();
    f->serving.loop = l;
    f->serving.prefills = strmap_new();
    f->models = models_new(l, &f->serving, conf, args->env);
    f->serving.route = conf->route;
    f->serving.requests_max = conf->requests_max;
    f->replica_sync = conf->replica_sync;
    settle_apis(&f->serving, conf);
    f->serving.enforce_disagg = conf->enforce_disagg;
    f->serving.tracer.records = conf->log_jsonl;
    f->serving.migration_limit = conf->migration_limit;
    f->serving.migration_tokens_max = conf->migration_tokens_max;
    f->serving.router_id = random_u64();
    serving_metrics_init(&f->serving.metrics, conf->metrics_prefix, conf->histograms);
    f->replicas = replicas_new(l, f->serving.metrics.registry, f->serving.router_id);
    f->serving.router = router_metrics_new(f->serving.metrics.registry, f->serving.router_id);
    router_metrics_of_workers(f->serving.router, f->serving.metrics.registry);
    f->serving.overload_status = conf->overload_status == OVERLOAD_529 ? 529 : 503;
    r = admission_rules_load(&f->serving.admission, &conf->queue, e);
    if (r == 0)
        r = tracking_load(&f->serving.tracking, &conf->tracking, e);
    if (r == 0)
        r = tracer_start(&f->serving.tracer, l, f->serving.metrics.registry, conf->otel, args->env,
                         e);
    if (r == 0)
        r = start_explain(f, e);
    if (r == 0)
        r = start_plane(f, e);
    if (r == 0)
        r = start_events(f, e);
    if (r == 0 && f->replica_sync)
        replicas_switch(f->replicas, kv_events_bus(f->events));
    if (r == 0)
        r = start_discovery(f, e);
    if (r == 0)
        r = start_engines(f, e);
    if (r == 0)
        r = start_live_conf(f, e);
    if (r < 0)
        return r;
    f->texts = arena_new();
    f->admin = (struct admin){.models_path = conf->paths[PATH_MODELS],
                              .serving = &f->serving,
                              .instances = f->instances,
                              .events = f->events,
                              .engines = f->engines};
    samples_init(&f->admin.samples, f->serving.metrics.registry);
    r = args->embedded ? 0 : start_http(f, e);
    if (r < 0)
        return r;
    name_idle(conf);
    shared_cache_warn(&conf->route, NULL);
    log_info(&LG, "serving", LOG_STR("host", conf->http_host),
             LOG_U64("port", f->http ? http_server_port(f->http) : 0),
             LOG_STR("mode", ROUTE_MODE_WORDS[conf->route.mode]),
             LOG_BOOL("kv_events", f->events != NULL), LOG_BOOL("tls", f->tls != NULL));
    *ret = TAKE(f);
    return 0;
}

void frontend_measure(struct frontend *f)
{
    admin_measure(&f->admin);
}

struct serving *frontend_serving(struct frontend *f)
{
    return &f->serving;
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
        span_export_flush(f->serving.tracer.export, stopped, f->stopped_arg);
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
    if (f->stopping)
        return;
    f->stopping = true;
    f->stopped = stopped;
    f->stopped_arg = arg;
    indexes_withdraw(f->indexes);
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
    arena_free(f->texts);
    tls_server_free(f->tls);
    live_conf_free(f->live);
    routing_report_free(f->report);
    for (size_t role = 0; role < POOL_ROLES; role++)
        strmap_free_with(f->feeds[role], drop_feed);
    engines_free(f->engines);
    replicas_free(f->replicas);
    instances_free(f->instances);
    if (f->indexes)
        indexes_withdraw(f->indexes);
    f->store = store_free(f->store);
    store_hub_free(f->nowhere);
    loop_settle(f->loop); /* prompts that a pool thread tokenizes, writes to the API server */
    models_free(f->models);
    strmap_free_with(f->serving.prefills, drop_pool);
    indexes_free(f->indexes);
    kv_events_free(f->events);
    plane_client_free(f->serving.plane);
    kube_config_free(f->kube);
    explain_free(f->serving.explain);
    span_export_free(f->serving.tracer.export);
    admission_rules_free(f->serving.admission);
    tracking_free(f->serving.tracking);
    router_metrics_free(f->serving.router);
    serving_metrics_done(&f->serving.metrics);
    strmap_free(f->seen);
    free(f);
    return NULL;
}
