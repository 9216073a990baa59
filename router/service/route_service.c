/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-alone router (router.md §6.2, 8.1): registers {ns}.router.generate, which routes and
 * streams, and {ns}.router.best_worker_id, which only selects; follows the workers of one endpoint
 * and their KV events.
 *
 * Workers are known by their model cards, as in the frontend; the block size is an option, as in
 * the reference. One loop thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "router/discovery/event_channels.h"
#include "router/discovery/instances.h"
#include "router/discovery/store.h"
#include "router/frontend/admission.h"
#include "router/frontend/discovery_store.h"
#include "router/frontend/explain.h"
#include "router/frontend/indexes.h"
#include "router/frontend/router_metrics.h"
#include "router/frontend/samples.h"
#include "router/frontend/shared_cache.h"
#include "router/frontend/spans.h"
#include "router/sched/scheduler.h"
#include "router/service/drain.h"
#include "router/service/planes.h"
#include "router/service/program.h"
#include "router/service/route_options.h"
#include "router/service/route_stream.h"
#include "router/service/system_server.h"
#include "router/sync/kv_events.h"
#include "router/sync/kv_intake.h"
#include "router/sync/load_report.h"
#include "router/sync/replica.h"
#include "router/wire/event_bus.h"
#include "router/wire/kv_event.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"commutator::router"};

#define COMPONENT "router"

struct route_service {
    struct loop *loop;
    const struct route_options *o;
    struct metric_registry *metrics;
    struct kube_config *kube;
    struct store *store;
    struct instances *instances;
    struct kv_events *events; /* NULL: they are not followed */
    struct kv_feed *feed;
    struct replica *replica; /* NULL: nothing is shared with other routers */
    struct load_report *report;
    struct indexes *indexes;
    struct planes planes;
    struct system_server *system;
    struct route_pool pool;
    struct admission_rules *rules;
    struct tracer tracer;
    struct admission_metrics queue_metrics;
    struct samples samples;
    char *addresses[ROUTE_ENDPOINTS];
    bool registered;
    struct drain drain;
};

/* --- workers ---------------------------------------------------------------------------------- */

static void set_address(struct route_service *s, uint64_t worker_id, const char *address)
{
    uint64_t *at = map64_put(&s->pool.addresses, worker_id, NULL);

    free((char *)(uintptr_t)*at);
    *at = (uint64_t)(uintptr_t)xstrdup(address);
}

static void put_worker(struct route_service *s, const struct worker *w, bool is_new)
{
    const struct model_card *card = w->card;
    struct worker_info info = {.worker_id = w->id,
                               .dp_start = card->dp_start,
                               .dp_size = card->dp_size,
                               .total_kv_blocks = card->total_kv_blocks,
                               .max_num_seqs = card->max_num_seqs,
                               .max_batched_tokens = card->max_num_batched_tokens,
                               .taints = (const char *const *)card->taints,
                               .n_taints = card->n_taints};

    set_address(s, w->id, w->address);
    s->pool.card_migration_limit = card->migration_limit;
    if (!scheduler_put_worker(s->pool.scheduler, &info))
        log_warn(&LG, "no room for another worker, ignoring", LOG_U64("worker_id", w->id));
    shared_cache_put_worker(s->pool.shared, w->id, &card->hicache);
    admission_wake(s->pool.admission);
    if (s->feed)
        kv_feed_put_worker(
            s->feed,
            &(struct kv_intake_worker){.worker_id = w->id,
                                       .address = w->address,
                                       .queries = w->queries,
                                       .dp_start = card->dp_start,
                                       .dp_size = card->dp_size,
                                       .block_size = card->kv_cache_block_size,
                                       .askable = card->local_indexer || !card->has_local_indexer});
    if (!is_new)
        return;
    log_info(&LG, "worker found", LOG_U64("worker_id", w->id), LOG_STR("address", w->address));
    if (card->kv_cache_block_size && card->kv_cache_block_size != s->o->block_size)
        log_warn(&LG, "the worker's block size is another one: its cache cannot be matched",
                 LOG_U64("worker_id", w->id), LOG_U64("worker", card->kv_cache_block_size),
                 LOG_U64("router", s->o->block_size));
}

static void remove_worker(struct route_service *s, const struct worker *w)
{
    uint64_t address;

    log_info(&LG, "worker gone", LOG_U64("worker_id", w->id));
    if (s->feed)
        kv_feed_remove_worker(s->feed, w->id);
    plane_client_forget(s->pool.plane, str_from(w->address));
    scheduler_remove_worker(s->pool.scheduler, w->id);
    shared_cache_remove_worker(s->pool.shared, w->id);
    admission_wake(s->pool.admission);
    if (map64_remove(&s->pool.addresses, w->id, &address))
        free((char *)(uintptr_t)address);
}

/* Prefill workers are workers like others here: whoever calls this router knows what it wants. */
static bool is_ours(const struct route_service *s, const struct served_model *m)
{
    return strcmp(m->ns, s->o->worker_ns) == 0 && strcmp(m->component, s->o->component) == 0 &&
           strcmp(m->endpoint, s->o->endpoint) == 0;
}

/* Other routers ask for the index by this name, and so does this one. */
static void add_model(struct route_service *s, const struct served_model *m)
{
    if (!s->pool.served)
        s->pool.served = xstrdup(m->name);
    indexes_add(s->indexes, m->ns, m->component, m->name, s->pool.scheduler);
}

static void on_instances(void *arg, const struct instances_event *ev)
{
    struct route_service *s = arg;

    if (ev->change == CHANNEL_REMOVED && s->replica &&
        strcmp(ev->channel->ns, s->o->worker_ns) == 0 &&
        strcmp(ev->channel->component, s->o->component) == 0 &&
        strcmp(ev->channel->topic, TOPIC_ACTIVE_SEQUENCES) == 0)
        replica_publisher_gone(s->replica, ev->channel->publisher_id);
    if (ev->channel)
        event_channel_follow(kv_events_bus(s->events), ev->channel, ev->change == CHANNEL_ADDED);
    if (ev->index)
        indexes_event(s->indexes, ev);
    if (!ev->model || !is_ours(s, ev->model))
        return;
    if (ev->change == MODEL_ADDED)
        add_model(s, ev->model);
    else if (ev->change == MODEL_REMOVED)
        indexes_remove(s->indexes, s->pool.scheduler);
    if (!ev->worker)
        return;
    if (ev->change == WORKER_REMOVED)
        remove_worker(s, ev->worker);
    else
        put_worker(s, ev->worker, ev->change == WORKER_ADDED);
}

/* --- KV events -------------------------------------------------------------------------------- */

static int start_replica(struct route_service *s, struct err *e)
{
    const struct replica_conf conf = {.loop = s->loop,
                                      .bus = kv_events_bus(s->events),
                                      .scheduler = s->pool.scheduler,
                                      .metrics = s->metrics,
                                      .ns = s->o->worker_ns,
                                      .component = s->o->component,
                                      .endpoint = s->o->endpoint,
                                      .router_id = random_u64()};

    return replica_start(&s->replica, &conf, e);
}

static int start_report(struct route_service *s, struct err *e)
{
    const struct load_report_conf conf = {.loop = s->loop,
                                          .bus = kv_events_bus(s->events),
                                          .scheduler = s->pool.scheduler,
                                          .ns = s->o->worker_ns};

    return load_report_start(&s->report, &conf, e);
}

/* Publishers of ours on ZeroMQ: other routers find them by their records. */
static void on_announce(void *arg, const struct event_channel_info *ch, bool there)
{
    struct route_service *s = arg;
    struct err e;

    if (event_channel_announce(s->store, ch, there, &e) < 0)
        log_warn(&LG, "other routers do not hear this one", LOG_STR("topic", ch->topic),
                 LOG_STR("why", e.text));
}

static int start_events(struct route_service *s, struct err *e)
{
    const struct kv_feed_conf feed = {s->pool.scheduler, s->o->worker_ns, s->o->component,
                                      s->o->endpoint};
    struct kv_events_conf conf = frontend_conf_events(&s->o->base, "dynamo-router");
    int r;

    if (!s->o->base.route.use_kv_events && !s->o->base.replica_sync)
        return 0;
    conf.loop = s->loop;
    conf.plane = s->pool.plane;
    conf.metrics = s->metrics;
    conf.announce = on_announce;
    conf.arg = s;
    r = kv_events_start(&s->events, &conf, e);
    if (r == 0 && s->o->base.replica_sync)
        r = start_replica(s, e);
    if (r == 0)
        r = start_report(s, e);
    return r < 0 ? r : kv_feed_start(&s->feed, s->events, &feed, e);
}

/* --- planes ----------------------------------------------------------------------------------- */

static int publish_endpoints(struct route_service *s, struct err *e);

static void on_nats_state(void *arg, bool up)
{
    struct route_service *s = arg;
    struct err e;

    log_info(&LG, up ? "NATS is connected" : "NATS is away: no requests come");
    if (up && s->addresses[0] && !drain_has_begun(&s->drain) && publish_endpoints(s, &e) < 0)
        log_error(&LG, "cannot register", LOG_STR("why", e.text));
}

static int start_planes(struct route_service *s, struct err *e)
{
    int r = planes_start(&s->planes, s->loop, s->o, on_nats_state, s, e);

    s->pool.plane = s->planes.client;
    return r;
}

static void serve_generate(void *arg, struct plane_request *rq)
{
    route_stream_serve(&((struct route_service *)arg)->pool, rq);
}

static void serve_best_worker(void *arg, struct plane_request *rq)
{
    route_best_worker_serve(&((struct route_service *)arg)->pool, rq);
}

static void serve_overlap_scores(void *arg, struct plane_request *rq)
{
    route_overlap_scores_serve(&((struct route_service *)arg)->pool, rq);
}

/* --- discovery -------------------------------------------------------------------------------- */

static struct record record_of(const struct route_service *s, size_t i)
{
    return (struct record){.kind = RECORD_ENDPOINT,
                           .ns = str_from(s->o->ns),
                           .component = STR(COMPONENT),
                           .endpoint = str_from(ROUTE_ENDPOINT_WORDS[i]),
                           .instance_id = s->store->instance_id,
                           .transport = record_transport(plane_server_kind(s->planes.server)),
                           .address = str_from(s->addresses[i])};
}

static void on_published(void *arg, int r, const char *why)
{
    (void)arg;
    if (r < 0)
        log_warn(&LG, "discovery record not written, trying again", LOG_STR("why", why));
}

static struct plane_endpoint endpoint_of(const struct route_service *s, size_t i)
{
    return (struct plane_endpoint){s->o->ns, COMPONENT, ROUTE_ENDPOINT_WORDS[i],
                                   s->store->instance_id, false};
}

static int publish_endpoints(struct route_service *s, struct err *e)
{
    for (size_t i = 0; !s->registered && i < ROUTE_ENDPOINTS; i++) {
        struct record rec = record_of(s, i);
        int r = store_publish(s->store, &rec, e);

        if (r < 0)
            return err_wrap(e, r, "publish %s", ROUTE_ENDPOINT_WORDS[i]);
    }
    s->registered = true;
    return 0;
}

/* Over NATS nobody is to find them before the server knows that we listen. */
static int register_endpoints(struct route_service *s, struct err *e)
{
    static const plane_serve_fn serve[ROUTE_ENDPOINTS] = {serve_generate, serve_best_worker,
                                                          serve_overlap_scores};

    s->store->published = on_published;
    s->pool.instance_id = s->store->instance_id;
    for (size_t i = 0; i < ROUTE_ENDPOINTS; i++) {
        const struct plane_endpoint ep = endpoint_of(s, i);
        AUTO(buf_done) struct buf address = BUF_NULL;

        plane_server_put_address(s->planes.server, &ep, &address);
        s->addresses[i] = str_dup(buf_str(&address));
        plane_server_register(s->planes.server, &ep, serve[i], s);
    }
    return s->planes.nats ? 0 : publish_endpoints(s, e);
}

static void withdraw_endpoints(struct route_service *s)
{
    for (size_t i = 0; i < ROUTE_ENDPOINTS; i++) {
        const struct plane_endpoint ep = endpoint_of(s, i);
        struct record rec = record_of(s, i);

        plane_server_unregister(s->planes.server, &ep);
        if (s->registered)
            store_withdraw(s->store, &rec);
    }
    s->registered = false;
}

static int start_indexes(struct route_service *s, struct err *e)
{
    const struct indexes_conf conf = {.loop = s->loop,
                                      .options = &s->o->base,
                                      .program = "dynamo-router",
                                      .plane = s->pool.plane,
                                      .server = s->planes.server,
                                      .store = s->store,
                                      .metrics = s->metrics,
                                      .router_id = random_u64()};
    int r = indexes_start(&s->indexes, &conf, e);

    if (r == 0)
        s->pool.remote = indexes_remote(s->indexes);
    return r;
}

static const char *env_of_process(const char *name)
{
    return getenv(name);
}

static int open_store(struct route_service *s, struct err *e)
{
    const struct store_ways ways = {
        .loop = s->loop, .env = env_of_process, .publishes = true, .needs_pod = true};

    return store_open(&s->store, &s->kube, NULL, &s->o->base, &ways, e);
}

static int start_discovery(struct route_service *s, struct err *e)
{
    struct instances_conf conf = {.ns_filter = s->o->worker_ns,
                                  .keep_ms = s->o->base.discovery_keep_ms,
                                  .keep_down_ms = s->o->base.discovery_keep_down_ms,
                                  .event = on_instances,
                                  .arg = s};
    int r = instances_new(&s->instances, s->loop, s->store, &conf, e);

    return r < 0 ? err_wrap(e, r, "discovery") : register_endpoints(s, e);
}

/* --- system server ---------------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
    return ((struct route_service *)arg)->registered;
}

static void measure(void *arg)
{
    struct route_service *s = arg;

    char own_id[24];
    const struct sampled_pool of = {.scheduler = s->pool.scheduler,
                                    .shared = s->pool.shared,
                                    .ns = s->o->worker_ns,
                                    .component = s->o->component,
                                    .endpoint = s->o->endpoint,
                                    .model = s->pool.served ? s->pool.served : "unknown",
                                    .worker_type = "decode",
                                    .own_id = own_id};

    (void)snprintf(own_id, sizeof(own_id), "%" PRIx64, s->store->instance_id);
    samples_forget(&s->samples);
    samples_pool(&s->samples, &of, s->pool.measures);
}

static struct metric *series(struct route_service *s, const char *name, const char *help,
                             enum metric_type type)
{
    const struct metric_desc d = {.name = name,
                                  .help = help,
                                  .type = type,
                                  .labels = {"dynamo_namespace", "dynamo_component"}};

    return metric_with(metric_family(s->metrics, &d), s->o->ns, COMPONENT);
}

static void init_metrics(struct route_service *s)
{
    s->metrics = metric_registry_new();
    s->pool.refused =
        series(s, "dynamo_component_errors_total", "Requests that failed", METRIC_COUNTER);
    s->pool.retries = series(s, "commutator_router_retries_total",
                             "Requests sent to another worker", METRIC_COUNTER);
    s->pool.migrations =
        series(s, "commutator_router_migrations_total",
               "Requests whose worker was lost and another went on", METRIC_COUNTER);
    samples_init(&s->samples, s->metrics);
}

/* Series that say who we are. */
static void init_own_metrics(struct route_service *s)
{
    uint64_t id = s->store->instance_id;

    s->pool.measures = router_metrics_new(s->metrics, id);
    for (size_t i = 0; i < ROUTE_ENDPOINTS; i++)
        call_metrics_init(&s->pool.calls[i], s->metrics,
                          &(struct call_labels){.ns = s->o->ns,
                                                .component = COMPONENT,
                                                .endpoint = ROUTE_ENDPOINT_WORDS[i],
                                                .instance_id = id});
}

static int start_system(struct route_service *s, struct err *e)
{
    const struct system_server_conf conf = {.options = &s->o->system,
                                            .ns = s->o->ns,
                                            .component = COMPONENT,
                                            .endpoint = ROUTE_ENDPOINT_WORDS[ROUTE_GENERATE],
                                            .metrics = s->metrics,
                                            .ready = is_ready,
                                            .measure = measure,
                                            .explain = s->pool.explain,
                                            .arg = s};

    return system_server_start(&s->system, s->loop, &conf, e);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_ended(void *arg)
{
    drain_check(&((struct route_service *)arg)->drain);
}

static void cut(void *arg)
{
    route_streams_abort(&((struct route_service *)arg)->pool);
}

static int start_queue(struct route_service *s, struct err *e)
{
    const struct admission_conf conf = {.loop = s->loop,
                                        .scheduler = s->pool.scheduler,
                                        .metrics = &s->queue_metrics,
                                        .model = s->o->endpoint_text,
                                        .worker_type = "decode"};
    int r = admission_rules_load(&s->rules, &s->o->base.queue, e);

    if (r < 0)
        return r;
    admission_metrics_init(&s->queue_metrics, s->metrics, "dynamo_component");
    s->pool.admission = admission_new(&conf, s->rules);
    return 0;
}

static void start_shared(struct route_service *s)
{
    const struct frontend_conf *c = &s->o->base;

    s->pool.shared =
        shared_cache_new(s->loop, s->o->component, (uint32_t)s->o->block_size, c->mooncake_events);
    shared_cache_switch(s->pool.shared, c->route.shared_cache != SHARED_CACHE_NONE);
    shared_cache_warn(&c->route, NULL);
}

static void init_pool(struct route_service *s)
{
    const struct route_options *o = s->o;

    s->pool.scheduler = scheduler_new((uint32_t)o->block_size, &o->base.route);
    s->pool.track_output_blocks = o->base.route.track_output_blocks;
    s->pool.migration_limit = o->base.migration_limit;
    s->pool.migration_tokens_max = o->base.migration_tokens_max;
    s->pool.ended = on_ended;
    s->pool.arg = s;
    s->pool.model = o->component;
    s->pool.ns = o->worker_ns;
    s->pool.own_ns = o->ns;
    s->pool.tracer = &s->tracer;
}

/* --- program ---------------------------------------------------------------------------------- */

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct route_service *s = state;
    const struct route_options *o = conf;
    struct explain_conf explain;
    int r;

    s->loop = s->pool.loop = l;
    s->o = o;
    list_init(&s->pool.streams);
    drain_init(&s->drain, l, &LG, &s->pool.n_streams, cut, s);
    r = route_options_derive(conf, e);
    if (r < 0)
        return r;
    init_pool(s);
    init_metrics(s);
    start_shared(s);
    explain = explain_conf_of(&o->base, l, s->metrics);
    r = explain_new(&s->pool.explain, &explain, e);
    if (r == 0)
        r = tracking_load(&s->pool.tracking, &o->base.tracking, e);
    if (r == 0)
        r = start_queue(s, e);
    if (r == 0)
        r = start_planes(s, e);
    if (r == 0)
        r = tracer_start(&s->tracer, l, s->metrics, o->base.otel, env_of_process, e);
    if (r == 0)
        r = open_store(s, e);
    if (r == 0)
        init_own_metrics(s); /* its id is known */
    if (r == 0)
        r = start_indexes(s, e);
    if (r == 0)
        r = start_events(s, e); /* its publishers have records */
    if (r == 0)
        r = start_discovery(s, e);
    if (r == 0)
        r = start_system(s, e);
    if (r < 0)
        return r;
    log_info(&LG, "serving", LOG_STR("namespace", o->ns), LOG_STR("address", s->addresses[0]),
             LOG_STR("workers", o->endpoint_text), LOG_U64("block_size", o->block_size),
             LOG_BOOL("kv_events", s->events != NULL),
             LOG_U64("system_port", system_server_port(s->system)));
    return 0;
}

static void program_stop(void *state, loop_fn stopped, void *arg)
{
    struct route_service *s = state;

    if (!drain_begin(&s->drain, s->o->base.drain_ms, stopped, arg))
        return;
    withdraw_endpoints(s);
    indexes_withdraw(s->indexes);
}

static void program_done(void *state)
{
    struct route_service *s = state;
    uint64_t id, address;
    size_t at = 0;

    drain_forget(&s->drain); /* what is cut below drains nothing */
    route_streams_abort(&s->pool);
    span_export_free(s->tracer.export);
    system_server_free(s->system);
    explain_free(s->pool.explain);
    instances_free(s->instances);
    replica_free(s->replica);
    load_report_free(s->report);
    kv_feed_free(s->feed);
    kv_events_free(s->events);
    indexes_free(s->indexes);
    planes_done(&s->planes);
    store_free(s->store);
    drain_done(&s->drain);
    loop_settle(s->loop); /* a write to the API server */
    kube_config_free(s->kube);
    while (map64_next(&s->pool.addresses, &at, &id, &address))
        free((char *)(uintptr_t)address);
    map64_done(&s->pool.addresses);
    admission_free(s->pool.admission);
    admission_rules_free(s->rules);
    scheduler_free(s->pool.scheduler);
    shared_cache_free(s->pool.shared);
    free(s->pool.served);
    tracking_free(s->pool.tracking);
    router_metrics_free(s->pool.measures);
    for (size_t i = 0; i < ROUTE_ENDPOINTS; i++)
        free(s->addresses[i]);
    metric_registry_free(s->metrics);
}

static void program_conf_done(void *conf)
{
    route_options_done(conf);
}

const struct service_program ROUTE_PROGRAM = {
    .command = "route",
    .summary = "routes requests of other components to the workers of an endpoint",
    .spec = route_options_spec,
    .conf_size = sizeof(struct route_options),
    .state_size = sizeof(struct route_service),
    .start = program_start,
    .stop = program_stop,
    .done = program_done,
    .conf_done = program_conf_done,
};
