/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     main thread: loop ── watches ──> cache, queues          elector, marker: a thread each
 *                      └── health, metrics                    events: a thread
 *     reconcile threads: queue ──> pass ──> API server; answers ──> cache
 *
 * Order of the end: no news, no new passes, running ones end, events are written, the Lease is given
 * back, and only then is anything freed that a thread had.
 */
#include "operator/reconcile/manager.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/kube/kube_watch.h"
#include "lib/net/http_server.h"
#include "lib/net/loop.h"
#include "operator/ctrl/cache.h"
#include "operator/ctrl/controller.h"
#include "operator/ctrl/elector.h"
#include "operator/ctrl/recorder.h"
#include "operator/ctrl/scope.h"
#include "operator/reconcile/flips.h"
#include "operator/reconcile/reconcile.h"
#include "operator/reconcile/resources.h"
#include "operator/reconcile/sources.h"
#include "operator/reconcile/views.h"

static const struct log_target LG = {"dynamo_operator"};

enum { COUNT_MS = 30000, CONNECTIONS_MAX = 64, HEAD_BYTES = 16384, IDLE_MS = 60000 };
#define DEFAULT_LEASE "dynamo.nvidia.com"

struct manager {
    const struct manager_conf *conf;
    struct kube_config *kube;
    struct loop *loop;
    struct metric_registry *metrics;
    struct cache *cache;
    struct flips *flips;
    struct recorder *recorder;
    struct resources *resources;
    struct kube_watcher *watcher;
    struct sources *sources;
    struct controller *graphs, *components;
    struct elector *elector;
    struct scope_marker *marker;
    struct http_server *metrics_server, *health_server;
    struct timer *count_timer;
    struct metric *leader, *watch_restarts, *events_dropped;
    struct metric_family *cache_objects, *cache_bytes, *requests;
    uint64_t restarts_told, dropped_told;
    char identity[320];
    bool counting, synced, leading, working, stopping;
};

/* --- reconcile threads -------------------------------------------------------------------------------- */

/* As client-go counts them. */
static void count_request(void *arg, const char *method, int status)
{
    struct manager *m = arg;
    AUTO(mem_free) char *code = status ? xasprintf("%d", status) : xstrdup("<error>");
    const char *server = kube_config_server(m->kube), *host = strstr(server, "://");

    metric_add(metric_with(m->requests, code, method, host ? host + 3 : server), 1);
}

static int worker_new(void **ret, void *arg, struct err *e)
{
    struct manager *m = arg;
    struct reconciler *rc = xcalloc(1, sizeof(*rc));
    int r = kube_client_new(&rc->kube, m->kube, e);

    if (r < 0) {
        free(rc);
        return r;
    }
    kube_client_observe(rc->kube, count_request, m);
    rc->cache = m->cache;
    rc->recorder = m->recorder;
    rc->flips = m->flips;
    rc->graphs = controller_queue(m->graphs);
    rc->components = controller_queue(m->components);
    rc->plan = &m->conf->plan;
    *ret = rc;
    return 0;
}

static void worker_free(void *worker)
{
    struct reconciler *rc = worker;

    (void)kube_client_free(rc->kube);
    free(rc);
}

static int reconcile_graph(void *worker, const struct pass *pass, struct err *e)
{
    return graph_reconcile(worker, pass, e);
}

static int reconcile_component(void *worker, const struct pass *pass, struct err *e)
{
    return component_reconcile(worker, pass, e);
}

static uint64_t excluded_ms(void *arg, const char *ns)
{
    struct manager *m = arg;

    if (m->conf->restricted_ns && *m->conf->restricted_ns)
        return 0;
    if (strstr(ns, "ephemeral"))
        return UINT64_C(3600) * 1000;
    return scope_excluded_ms(m->cache, ns, clock_wall_ms());
}

static struct controller *make_controller(struct manager *m, const struct kube_kind *kind,
                                          int (*reconcile)(void *, const struct pass *,
                                                           struct err *))
{
    return controller_new(&(struct controller_conf){.kind = kind,
                                                    .n_workers = m->conf->n_workers,
                                                    .metrics = m->metrics,
                                                    .worker_new = worker_new,
                                                    .worker_free = worker_free,
                                                    .reconcile = reconcile,
                                                    .excluded_ms = excluded_ms,
                                                    .arg = m});
}

/* --- beginning to work -------------------------------------------------------------------------------- */

static void start_if_ready(struct manager *m)
{
    struct err e;

    /* The Lease may come while we leave; it is given back then. */
    if (m->working || m->stopping || !m->synced || !m->leading)
        return;
    m->working = true;
    /* The lists are read: give back the pages that held them. */
    (void)malloc_trim(0);
    if (controller_start(m->graphs, &e) < 0 || controller_start(m->components, &e) < 0) {
        log_error(&LG, "reconcile threads do not start", LOG_STR("why", e.text));
        loop_stop(m->loop);
        return;
    }
    log_info(&LG, "reconciling");
}

static void on_synced(void *arg)
{
    struct manager *m = arg;

    m->synced = true;
    log_info(&LG, "caches filled");
    start_if_ready(m);
}

static void on_leading_posted(void *arg)
{
    struct manager *m = arg;

    m->leading = true;
    metric_set(m->leader, 1);
    log_info(&LG, "leading", LOG_STR("identity", m->identity));
    start_if_ready(m);
}

static void on_leading(void *arg)
{
    struct manager *m = arg;

    loop_post(m->loop, on_leading_posted, m);
}

/* Another operator may be writing already: no orderly end, which would take time. */
static void on_lost(void *arg, const char *why)
{
    (void)arg;
    log_error(&LG, "lease lost, exiting", LOG_STR("why", why));
    _exit(1);
}

/* --- health and metrics -------------------------------------------------------------------------------- */

static void on_healthz(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_respond(x, 200, "text/plain", STR("ok"));
}

/* A standby is ready too: it has seen everything and waits for the Lease. */
static void on_readyz(struct http_exchange *x, void *arg)
{
    struct manager *m = arg;
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (m->synced) {
        http_respond(x, 200, "text/plain", STR("ok"));
        return;
    }
    buf_put_cstr(&text, "not listed yet: ");
    (void)sources_are_synced(m->sources, &text);
    http_respond(x, 503, "text/plain", buf_str(&text));
}

static void measure_cache(void *arg, const struct kube_kind *kind)
{
    struct manager *m = arg;
    struct cache_stats stats = cache_stats(m->cache, kind);

    metric_set(metric_with(m->cache_objects, kind->kind), (double)stats.objects);
    metric_set(metric_with(m->cache_bytes, kind->kind), (double)stats.bytes);
}

static void on_metrics(struct http_exchange *x, void *arg)
{
    struct manager *m = arg;
    AUTO(buf_done) struct buf text = BUF_NULL;
    uint64_t restarts = sources_restarts(m->sources), dropped = recorder_dropped(m->recorder);

    controller_measure(m->graphs);
    controller_measure(m->components);
    sources_each_kind(m->sources, measure_cache, m);
    metric_add(m->watch_restarts, (double)(restarts - m->restarts_told));
    metric_add(m->events_dropped, (double)(dropped - m->dropped_told));
    m->restarts_told = restarts;
    m->dropped_told = dropped;
    metric_print(m->metrics, &text);
    http_respond(x, 200, "text/plain; version=0.0.4", buf_str(&text));
}

static const struct http_route health_routes[] = {
    {.method = "GET", .path = "/healthz", .handle = on_healthz},
    {.method = "GET", .path = "/readyz", .handle = on_readyz},
};
static const struct http_route metrics_routes[] = {
    {.method = "GET", .path = "/metrics", .handle = on_metrics},
};

/* ":8081", "127.0.0.1:8081", "[::1]:8081"; "0" or "" is no server. */
static int serve(struct manager *m, struct http_server **ret, const char *address,
                 const struct http_route *routes, size_t n, struct err *e)
{
    const char *colon = address ? strrchr(address, ':') : NULL;
    AUTO(mem_free) char *host = NULL;
    uint64_t port;

    if (!address || !*address || strcmp(address, "0") == 0)
        return 0;
    if (!colon || !str_parse_u64(str_from(colon + 1), &port) || port > UINT16_MAX)
        return err_set(e, -EINVAL, "'%s' is no address like ':8081'", address);
    host = xstrndup(address, (size_t)(colon - address));
    if (host[0] == '[' && colon[-1] == ']') {
        host[strlen(host) - 1] = '\0';
        memmove(host, host + 1, strlen(host));
    }
    return http_server_start(ret, m->loop,
                             &(struct http_server_conf){.host = *host ? host : "0.0.0.0",
                                                        .port = (uint16_t)port,
                                                        .connections_max = CONNECTIONS_MAX,
                                                        .head_bytes = HEAD_BYTES,
                                                        .body_bytes = HEAD_BYTES,
                                                        .idle_ms = IDLE_MS,
                                                        .routes = routes,
                                                        .n_routes = n,
                                                        .arg = m,
                                                        .metrics = m->metrics},
                             e);
}

static struct metric *own_metric(struct manager *m, enum metric_type type, const char *name,
                                 const char *help)
{
    return metric_plain(
        metric_family(m->metrics, &(struct metric_desc){.name = name, .help = help, .type = type}));
}

static struct metric_family *by_kind(struct manager *m, const char *name, const char *help)
{
    return metric_family(m->metrics, &(struct metric_desc){.name = name,
                                                           .help = help,
                                                           .type = METRIC_GAUGE,
                                                           .labels = {"resource_type"}});
}

static void count(void *arg)
{
    struct manager *m = arg;

    resources_count(m->resources);
}

static void on_counted(void *arg)
{
    struct manager *m = arg;

    m->counting = false;
}

static void on_count_timer(void *arg)
{
    struct manager *m = arg;

    if (m->counting || !m->synced)
        return;
    m->counting = true;
    loop_work(m->loop, count, on_counted, m);
}

/* --- start and end --------------------------------------------------------------------------------------- */

static void on_signal(void *arg)
{
    struct manager *m = arg;

    log_info(&LG, "stopping");
    loop_stop(m->loop);
}

static void set_identity(struct manager *m)
{
    char host[256] = "";

    if (m->conf->identity && *m->conf->identity) {
        (void)snprintf(m->identity, sizeof(m->identity), "%s", m->conf->identity);
        return;
    }
    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(m->identity, sizeof(m->identity), "%s_%016jx", host, (uintmax_t)random_u64());
}

static int start_election(struct manager *m, struct err *e)
{
    const struct manager_conf *conf = m->conf;
    bool restricted = conf->restricted_ns && *conf->restricted_ns;
    struct elector_conf elector = {.ns = conf->lease_ns,
                                   .name = conf->lease_name,
                                   .leading = on_leading,
                                   .lost = on_lost,
                                   .identity = m->identity,
                                   .arg = m};
    struct scope_conf scope = {.ns = conf->restricted_ns,
                               .version = conf->version,
                               .lost = on_lost,
                               .duration_ms = conf->scope_duration_ms,
                               .renew_ms = conf->scope_renew_ms,
                               .arg = m};
    int r;

    if (restricted) {
        r = scope_marker_start(&m->marker, m->kube, &scope, e);
        if (r < 0)
            return r;
    }
    if (!conf->elect) {
        on_leading(m);
        return 0;
    }
    if (!elector.name || !*elector.name)
        elector.name = DEFAULT_LEASE;
    if (!elector.ns || !*elector.ns)
        elector.ns = restricted ? conf->restricted_ns : kube_config_namespace(m->kube);
    return elector_start(&m->elector, m->kube, &elector, e);
}

static void make_parts(struct manager *m)
{
    m->metrics = metric_registry_new();
    m->cache = cache_new(views, views_len);
    m->flips = flips_new();
    m->resources = resources_new(m->metrics, m->cache);
    m->graphs = make_controller(m, &KIND_DGD, reconcile_graph);
    m->components = make_controller(m, &KIND_DCD, reconcile_component);
    m->leader = own_metric(m, METRIC_GAUGE, "leader_election_master_status",
                           "Whether this operator leads.");
    m->watch_restarts = own_metric(m, METRIC_COUNTER, "commutator_watch_restarts_total",
                                   "Watch streams that broke and lists that were repeated.");
    m->events_dropped = own_metric(m, METRIC_COUNTER, "commutator_events_dropped_total",
                                   "Events that were not written because too many waited.");
    m->requests = metric_family(
        m->metrics, &(struct metric_desc){.name = "rest_client_requests_total",
                                          .help = "Requests of passes to the API server.",
                                          .type = METRIC_COUNTER,
                                          .labels = {"code", "method", "host"}});
    m->cache_objects = by_kind(m, "commutator_cache_objects", "Objects in the cache.");
    m->cache_bytes = by_kind(m, "commutator_cache_bytes", "Bytes of their text.");
    set_identity(m);
}

static int start(struct manager *m, struct err *e)
{
    const struct manager_conf *conf = m->conf;
    bool restricted = conf->restricted_ns && *conf->restricted_ns;
    struct sources_conf sources = {.cache = m->cache,
                                   .graphs = controller_queue(m->graphs),
                                   .components = controller_queue(m->components),
                                   .ns = restricted ? conf->restricted_ns : NULL,
                                   .synced = on_synced,
                                   .arg = m};
    int r = kube_config_load(&m->kube, &conf->kube, e);

    if (r == 0)
        r = loop_new(&m->loop, e);
    if (r == 0)
        r = loop_on_signal(m->loop, SIGTERM, on_signal, m, e);
    if (r == 0)
        r = loop_on_signal(m->loop, SIGINT, on_signal, m, e);
    if (r == 0)
        r = recorder_new(&m->recorder, m->kube, "dynamo-operator", m->identity, e);
    if (r == 0)
        r = kube_watcher_new(&m->watcher, m->loop, m->kube, e);
    if (r < 0)
        return r;
    sources.watcher = m->watcher;
    m->sources = sources_start(&sources);
    m->count_timer = timer_new(m->loop, on_count_timer, m);
    timer_start_repeat(m->count_timer, COUNT_MS);
    r = serve(m, &m->health_server, conf->health_address, health_routes, ARRAY_LEN(health_routes),
              e);
    if (r == 0)
        r = serve(m, &m->metrics_server, conf->metrics_address, metrics_routes,
                  ARRAY_LEN(metrics_routes), e);
    return r == 0 ? start_election(m, e) : r;
}

/*
 * All who may still call come to an end before anything they use is freed: watches and requests feed
 * queues, passes of one kind feed the other's, and passes, counting, elector and marker use what is
 * freed last. The loop turns on meanwhile only for what was begun, as its watches and servers are gone.
 */
static void stop(struct manager *m)
{
    struct controller *const controllers[] = {m->graphs, m->components};

    m->stopping = true;
    (void)timer_free(m->count_timer);
    (void)http_server_free(m->health_server);
    (void)http_server_free(m->metrics_server);
    (void)sources_stop(m->sources);
    controllers_stop(controllers, ARRAY_LEN(controllers));
    (void)recorder_free(m->recorder);
    (void)elector_stop(m->elector);
    (void)scope_marker_stop(m->marker);
    loop_settle(m->loop);
    (void)kube_watcher_free(m->watcher);
    (void)loop_free(m->loop);
    (void)controller_free(m->graphs);
    (void)controller_free(m->components);
    (void)kube_config_free(m->kube);
    (void)resources_free(m->resources);
    (void)flips_free(m->flips);
    (void)cache_free(m->cache);
    (void)metric_registry_free(m->metrics);
}

int manager_run(const struct manager_conf *conf, struct err *e)
{
    struct manager m = {.conf = conf};
    int r;

    /*
     * glibc raises its threshold for mapped blocks to the largest block that was ever freed, and a
     * page of a list is large: fixed, such blocks go back to the system when they are freed. Few
     * arenas, as each keeps pages of its own.
     */
    (void)mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    (void)mallopt(M_ARENA_MAX, 2);
    make_parts(&m);
    r = start(&m, e);
    if (r == 0)
        loop_run(m.loop);
    stop(&m);
    return r;
}
