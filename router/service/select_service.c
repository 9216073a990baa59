/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The selection service (router.md §8.3): `python -m dynamo.select_service`. Its workers are
 * registered over HTTP, their KV events come from the engines themselves.
 */
#include "lib/base/log.h"
#include "lib/net/zmq_link.h"
#include "router/frontend/explain.h"
#include "router/service/http_options.h"
#include "router/service/peer_recovery.h"
#include "router/service/program.h"
#include "router/service/select_state.h"
#include "router/service/selection_cache.h"
#include "router/service/service_peers.h"

static const struct log_target LG = {"commutator::router::select"};

enum { EXPIRE_EVERY_MS = 1000 };

struct select_service {
    struct rest *rest; /* first: service_program_stop_rest() */
    struct select_state state;
    struct timer *expire;
};

/* --- small routes ----------------------------------------------------------------------------- */

static int on_health(void *state, struct rest_call *c)
{
    (void)state;
    return rest_ok(c, 200);
}

static int on_dump(void *state, struct rest_call *c)
{
    kv_groups_put_dump(&((struct select_state *)state)->groups, &c->json);
    return 200;
}

static int on_metrics(void *state, struct rest_call *c)
{
    struct select_state *s = state;

    metric_set(s->gauge_workers, (double)s->workers.len);
    metric_set(s->gauge_schedulable, (double)select_workers_schedulable(s));
    metric_set(s->gauge_reservations, (double)strmap_len(s->reservations));
    metric_set(s->gauge_pending, (double)selection_cache_stats(s->pending).entries);
    kv_groups_sample(&s->groups);
    return rest_metrics(c, s->metrics);
}

static int on_replica_list(void *state, struct rest_call *c)
{
    return service_peers_list(((struct select_state *)state)->replicas, c);
}

static int on_replica_register(void *state, struct rest_call *c)
{
    return service_peers_register(((struct select_state *)state)->replicas, c);
}

static int on_replica_deregister(void *state, struct rest_call *c)
{
    return service_peers_deregister(((struct select_state *)state)->replicas, c);
}

static const struct rest_route ROUTES[] = {
    {"POST", "/select", select_select},
    {"POST", "/select_and_reserve", select_select_and_reserve},
    {"POST", "/reservations", select_reserve},
    {"POST", "/reservations/{}/prefill_complete", select_prefill_complete},
    {"POST", "/reservations/{}/output_block", select_output_block},
    {"DELETE", "/reservations/{}", select_release},
    {"POST", "/workers", select_workers_post},
    {"GET", "/workers", select_workers_get},
    {"PATCH", "/workers/{}", select_workers_patch},
    {"DELETE", "/workers/{}", select_workers_delete},
    {"GET", "/loads", select_loads},
    {"POST", "/potential_loads", select_potential_loads},
    {"POST", "/overlap_scores", select_overlap_scores},
    {"GET", "/dump", on_dump},
    {"GET", "/health", on_health},
    {"GET", "/ready", select_ready},
    {"GET", "/metrics", on_metrics},
    {"GET", "/replica_sync/peers", on_replica_list},
    {"POST", "/replica_sync/register_peer", on_replica_register},
    {"POST", "/replica_sync/deregister_peer", on_replica_deregister},
};

/* --- start ------------------------------------------------------------------------------------ */

static struct metric *plain(struct select_state *s, const char *name, const char *help,
                            enum metric_type type)
{
    return metric_plain(
        metric_family(s->metrics, &(struct metric_desc){.name = name, .help = help, .type = type}));
}

static void init_state(struct select_state *s, struct loop *l, const struct http_options *o)
{
    struct route_conf route = o->base.route;

    route.mode = ROUTE_KV;
    s->loop = l;
    s->metrics = metric_registry_new();
    kv_groups_init(&s->groups, &route, s->metrics);
    s->reservations = strmap_new();
    s->waiting = strmap_new();
    list_init(&s->oldest_first);
    s->expiry_ms = route.expiry_ms;
    s->pending = selection_cache_new(
        &(struct selection_cache_conf){o->cache_ttl_ms, o->cache_entries, o->cache_bytes});
    s->gauge_workers = plain(s, "commutator_select_workers", "Workers registered", METRIC_GAUGE);
    s->gauge_schedulable = plain(s, "commutator_select_schedulable_workers",
                                 "Workers that can be chosen", METRIC_GAUGE);
    s->gauge_reservations =
        plain(s, "commutator_select_reservations", "Reservations that are held", METRIC_GAUGE);
    s->gauge_pending = plain(s, "commutator_select_pending_selections",
                             "Selections that may yet be reserved", METRIC_GAUGE);
    s->expired = plain(s, "commutator_select_reservations_expired_total",
                       "Reservations dropped for want of a sign of life", METRIC_COUNTER);
}

static int start_queue(struct select_state *s, const struct http_options *o, struct err *e)
{
    int r = admission_rules_load(&s->rules, &o->base.queue, e);

    if (r < 0)
        return r;
    admission_metrics_init(&s->queue_metrics, s->metrics, "dynamo_component");
    s->groups.rules = s->rules;
    s->groups.queue_metrics = &s->queue_metrics;
    s->groups.loop = s->loop;
    return 0;
}

/* A peer's groups matter where workers of ours are in them. */
static void *group_of_dump(void *arg, struct str model, struct str name, uint32_t block_size)
{
    struct select_state *s = arg;
    struct kv_group *g = kv_groups_find(&s->groups, model, name);

    return g && g->block_size == block_size ? g : NULL;
}

static void on_dump_event(void *group, const struct kv_event *ev)
{
    kv_group_apply(group, ev);
}

static void on_expire(void *arg)
{
    select_reservations_expire(&((struct select_service *)arg)->state);
}

static void program_done(void *state)
{
    struct select_service *s = state;

    rest_free(s->rest);
    timer_free(s->expire);
    peer_recovery_free(s->state.peers);
    s->state.replicas = service_peers_free(s->state.replicas);
    select_reservations_free_all(&s->state);
    explain_free(s->state.explain);
    select_workers_free_all(&s->state);
    strmap_free(s->state.reservations);
    strmap_free(s->state.waiting);
    kv_groups_done(&s->state.groups);
    admission_rules_free(s->state.rules);
    selection_cache_free(s->state.pending);
    zmq_context_free(s->state.zmq);
    metric_registry_free(s->state.metrics);
    tracking_free(s->state.tracking);
}

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct select_service *s = state;
    struct http_options *o = conf;
    struct rest_conf rest = {.host = o->host,
                             .port = (uint16_t)o->port,
                             .routes = ROUTES,
                             .n_routes = ARRAY_LEN(ROUTES),
                             .service = &s->state,
                             .prefix = "commutator_select",
                             .log = &LG};
    const struct peer_recovery_conf peers = {.loop = l,
                                             .urls = o->peers,
                                             .flag = "--indexer-peers",
                                             .group = group_of_dump,
                                             .event = on_dump_event,
                                             .arg = &s->state};
    struct explain_conf explain;
    int r = select_options_derive(o, e);

    init_state(&s->state, l, o);
    rest.metrics = s->state.metrics;
    explain = explain_conf_of(&o->base, l, s->state.metrics);
    s->expire = timer_new(l, on_expire, s);
    timer_start_repeat(s->expire, EXPIRE_EVERY_MS);
    if (r == 0)
        r = start_queue(&s->state, o, e);
    if (r == 0)
        r = zmq_context_new(&s->state.zmq, l, e);
    if (r == 0)
        r = select_replicas_start(&s->state, o, e);
    if (r == 0)
        r = tracking_load(&s->state.tracking, &o->base.tracking, e);
    if (r == 0)
        r = explain_new(&s->state.explain, &explain, e);
    if (r == 0)
        r = peer_recovery_new(&s->state.peers, &peers, e);
    rest.explain = s->state.explain;
    return r < 0 ? r : rest_start(&s->rest, l, &rest, e);
}

const struct service_program SELECT_PROGRAM = {
    .command = "select",
    .summary = "chooses workers for gateways, and keeps account of their load (HTTP)",
    .spec = select_options_spec,
    .conf_size = sizeof(struct http_options),
    .state_size = sizeof(struct select_service),
    .start = program_start,
    .stop = service_program_stop_rest,
    .done = program_done,
};
