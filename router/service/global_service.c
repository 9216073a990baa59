/* SPDX-License-Identifier: Apache-2.0 */
/* `dynamo-router global`: towards frontends a worker, towards the routers of pools a frontend. */
#include <math.h>
#include <stdlib.h>

#include "lib/net/file.h"
#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "router/discovery/card.h"
#include "router/discovery/model_cache.h"
#include "router/discovery/store.h"
#include "router/discovery/worker_records.h"
#include "router/frontend/discovery_store.h"
#include "router/service/drain.h"
#include "router/service/global_options.h"
#include "router/service/global_stream.h"
#include "router/service/planes.h"
#include "router/service/pool_routers.h"
#include "router/service/program.h"
#include "router/service/system_server.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"commutator::global_router"};

enum { POOLS_FILE_MAX = 16 << 20, BLOCK_SIZE = 16 };

static const char *const ENDPOINTS[POOL_KINDS] = {"prefill_generate", "decode_generate",
                                                  "generate"};

struct global_service {
    struct loop *loop;
    const struct global_options *o;
    struct metric_registry *metrics;
    struct kube_config *kube;
    struct store *store;
    struct planes planes;
    struct pools *pools;
    struct global_pools shared;
    struct worker_records records[POOL_KINDS]; /* of the kinds that the file has */
    struct model_card *cards[POOL_KINDS];
    char *model_folder;
    struct hub_hold *model_hold; /* keeps it there */
    struct system_server *system;
    bool registered;
    struct drain drain;
};

static bool serves(const struct global_service *s, size_t kind)
{
    return s->pools->sets[kind].n > 0;
}

/* --- pools and model -------------------------------------------------------------------------- */

static int read_pools(struct global_service *s, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    const char *path = s->o->pools_file;
    int r = file_read(path, POOLS_FILE_MAX, &text, e);

    if (r == 0)
        r = pools_parse(&s->pools, buf_str(&text), e);
    if (r < 0)
        return err_wrap(e, r, "--config %s", path);
    s->shared.pools = s->pools;
    return 0;
}

static const char *env_of_process(const char *name)
{
    return getenv(name);
}

/* Blocks, as start-up may: nothing is served without its files. */
static int find_model(struct global_service *s, struct err *e)
{
    const struct frontend_conf *c = &s->o->route.base;
    AUTO(mem_free) char *hub_cache = model_hub_cache(env_of_process);
    const struct model_places places = {.hub_cache = hub_cache,
                                        .endpoint = c->hf_endpoint,
                                        .token = c->hf_token,
                                        .offline = c->hf_offline,
                                        .kept_bytes = c->model_cache_mb << 20};

    return model_folder_get(&places, c->model_path ? c->model_path : c->model_name,
                            &s->model_folder, &s->model_hold, e);
}

static int build_card(struct global_service *s, size_t kind, struct err *e)
{
    const struct model_card_spec spec = {.dir = s->model_folder,
                                         .name = s->o->route.base.model_name,
                                         .kv_cache_block_size = BLOCK_SIZE,
                                         .flags = kind == POOL_PREFILL ? MODEL_PREFILL : 0,
                                         .is_decode = kind == POOL_DECODE};
    int r = model_card_build(&s->cards[kind], &spec, e);

    return r < 0 ? err_wrap(e, r, "model card of '%s'", s->model_folder) : 0;
}

/* --- discovery -------------------------------------------------------------------------------- */

static void serve_prefill(void *arg, struct plane_request *rq)
{
    global_stream_serve(&((struct global_service *)arg)->shared, POOL_PREFILL, rq);
}

static void serve_decode(void *arg, struct plane_request *rq)
{
    global_stream_serve(&((struct global_service *)arg)->shared, POOL_DECODE, rq);
}

static void serve_agg(void *arg, struct plane_request *rq)
{
    global_stream_serve(&((struct global_service *)arg)->shared, POOL_AGG, rq);
}

static struct plane_endpoint endpoint_of(const struct global_service *s, size_t kind)
{
    return (struct plane_endpoint){s->o->route.ns, s->o->component, ENDPOINTS[kind],
                                   s->store->instance_id, false};
}

static int publish(struct global_service *s, struct err *e)
{
    int r = 0;

    for (size_t i = 0; r == 0 && !s->registered && i < POOL_KINDS; i++)
        if (serves(s, i))
            r = worker_records_publish(&s->records[i], s->store, e);
    s->registered = r == 0;
    return r;
}

static void on_published(void *arg, int r, const char *why)
{
    (void)arg;
    if (r < 0)
        log_warn(&LG, "discovery record not written, trying again", LOG_STR("why", why));
}

/* Over NATS nobody is to find us before the server knows that we listen. */
static int register_endpoints(struct global_service *s, struct err *e)
{
    static const plane_serve_fn serve[POOL_KINDS] = {serve_prefill, serve_decode, serve_agg};
    int r = 0;

    s->store->published = on_published;
    for (size_t i = 0; r == 0 && i < POOL_KINDS; i++) {
        const struct plane_endpoint ep = endpoint_of(s, i);

        if (!serves(s, i))
            continue;
        r = build_card(s, i, e);
        if (r < 0)
            break;
        call_metrics_init(&s->shared.calls[i], s->metrics,
                          &(struct call_labels){.ns = ep.ns,
                                                .component = ep.component,
                                                .endpoint = ep.name,
                                                .type = POOL_KIND_WORDS[i],
                                                .instance_id = ep.instance_id});
        plane_server_register(s->planes.server, &ep, serve[i], s);
        s->records[i] = (struct worker_records){.plane = s->planes.server,
                                                .ns = ep.ns,
                                                .component = ep.component,
                                                .endpoint = ep.name,
                                                .worker_id = ep.instance_id};
        worker_records_add_endpoint(&s->records[i], ep.name);
        worker_records_add_card(&s->records[i], s->cards[i]);
    }
    return r == 0 && !s->planes.nats ? publish(s, e) : r;
}

static void withdraw_endpoints(struct global_service *s)
{
    for (size_t i = 0; i < POOL_KINDS; i++) {
        const struct plane_endpoint ep = endpoint_of(s, i);

        if (!serves(s, i))
            continue;
        plane_server_unregister(s->planes.server, &ep);
        if (s->registered)
            worker_records_withdraw(&s->records[i], s->store);
    }
    s->registered = false;
}

static void on_nats_state(void *arg, bool up)
{
    struct global_service *s = arg;
    struct err e;

    log_info(&LG, up ? "NATS is connected" : "NATS is away: no requests come");
    if (up && s->store && s->shared.routers && !drain_has_begun(&s->drain) && publish(s, &e) < 0)
        log_error(&LG, "cannot register", LOG_STR("why", e.text));
}

static int open_store(struct global_service *s, struct err *e)
{
    const struct store_ways ways = {
        .loop = s->loop, .env = env_of_process, .publishes = true, .needs_pod = true};

    return store_open(&s->store, &s->kube, NULL, &s->o->route.base, &ways, e);
}

/* --- system server ---------------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
    return ((struct global_service *)arg)->registered;
}

static void measure(void *arg)
{
    (void)arg;
}

static struct metric *series(struct global_service *s, const char *name, const char *help,
                             enum metric_type type)
{
    const struct metric_desc d = {.name = name,
                                  .help = help,
                                  .type = type,
                                  .labels = {"dynamo_namespace", "dynamo_component"}};

    return metric_with(metric_family(s->metrics, &d), s->o->route.ns, s->o->component);
}

static struct metric_family *by_pool(struct global_service *s, const char *name, const char *help)
{
    const struct metric_desc d = {
        .name = name, .help = help, .type = METRIC_COUNTER, .labels = {"kind", "namespace"}};

    return metric_family(s->metrics, &d);
}

static void init_metrics(struct global_service *s)
{
    struct global_pools *g = &s->shared;

    s->metrics = metric_registry_new();
    g->refused = series(s, "dynamo_component_errors_total", "Requests that failed", METRIC_COUNTER);
    g->sent = by_pool(s, "commutator_global_router_sent_total",
                      "Requests handed to the router of a pool");
    g->failed = by_pool(s, "commutator_global_router_failed_total",
                        "Of them, those that failed before their first item");
}

static int start_system(struct global_service *s, struct err *e)
{
    const struct route_options *o = &s->o->route;
    const struct system_server_conf conf = {
        .options = &o->system,
        .ns = o->ns,
        .component = s->o->component,
        .endpoint = ENDPOINTS[pools_are_agg(s->pools) ? POOL_AGG : POOL_DECODE],
        .metrics = s->metrics,
        .ready = is_ready,
        .measure = measure,
        .arg = s};

    return system_server_start(&s->system, s->loop, &conf, e);
}

/* --- life ------------------------------------------------------------------------------------- */

static void on_ended(void *arg)
{
    drain_check(&((struct global_service *)arg)->drain);
}

static void cut(void *arg)
{
    global_streams_abort(&((struct global_service *)arg)->shared);
}

static struct opt_f64 target_of(double ms)
{
    return (struct opt_f64){!isnan(ms), isnan(ms) ? 0 : ms};
}

static void init(struct global_service *s, struct loop *l, const struct global_options *o)
{
    s->loop = l;
    s->o = o;
    drain_init(&s->drain, l, &LG, &s->shared.n_streams, cut, s);
    s->shared.ttft_ms = target_of(o->ttft_ms);
    s->shared.itl_ms = target_of(o->itl_ms);
    s->shared.ended = on_ended;
    s->shared.arg = s;
    list_init(&s->shared.streams);
    init_metrics(s);
}

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct global_service *s = state;
    struct global_options *o = conf;
    int r;

    list_init(&s->shared.streams);
    r = global_options_derive(o, e);
    if (r < 0)
        return r;
    init(s, l, o);
    r = read_pools(s, e);
    if (r == 0)
        r = find_model(s, e);
    if (r == 0)
        r = planes_start(&s->planes, l, &o->route, on_nats_state, s, e);
    s->shared.plane = s->planes.client;
    if (r == 0)
        r = open_store(s, e);
    if (r == 0)
        r = pool_routers_new(&s->shared.routers, s->store, s->planes.client, e);
    if (r == 0)
        r = register_endpoints(s, e);
    if (r == 0)
        r = start_system(s, e);
    if (r < 0)
        return r;
    log_info(&LG, "serving", LOG_STR("namespace", o->route.ns), LOG_STR("component", o->component),
             LOG_STR("model", o->route.base.model_name), LOG_STR("pools", o->pools_file),
             LOG_STR("address", plane_server_address(s->planes.server)),
             LOG_U64("system_port", system_server_port(s->system)));
    return 0;
}

static void program_stop(void *state, loop_fn stopped, void *arg)
{
    struct global_service *s = state;

    if (drain_begin(&s->drain, s->o->route.base.drain_ms, stopped, arg))
        withdraw_endpoints(s);
}

static void program_done(void *state)
{
    struct global_service *s = state;

    if (!s->loop)
        return;              /* refused before it began */
    drain_forget(&s->drain); /* what is cut below drains nothing */
    global_streams_abort(&s->shared);
    system_server_free(s->system);
    pool_routers_free(s->shared.routers);
    planes_done(&s->planes);
    store_free(s->store);
    drain_done(&s->drain);
    loop_settle(s->loop); /* a write to the API server */
    kube_config_free(s->kube);
    for (size_t i = 0; i < POOL_KINDS; i++) {
        worker_records_done(&s->records[i]);
        model_card_unref(s->cards[i]);
    }
    pools_free(s->pools);
    free(s->model_folder);
    hub_hold_free(s->model_hold);
    metric_registry_free(s->metrics);
}

static void program_conf_done(void *conf)
{
    global_options_done(conf);
}

const struct service_program GLOBAL_PROGRAM = {
    .command = "global",
    .summary = "hands requests to the routers of pools, by what their users want",
    .spec = global_options_spec,
    .conf_size = sizeof(struct global_options),
    .state_size = sizeof(struct global_service),
    .start = program_start,
    .stop = program_stop,
    .done = program_done,
    .conf_done = program_conf_done,
};
