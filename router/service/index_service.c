/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index service (router.md §8.2): `python -m dynamo.indexer`. Engines are registered over HTTP or
 * by --workers; one index per model and routing group answers how much of a prompt each worker holds.
 * Statuses and members are those of ai-dynamo 1.6.1, but that /unregister heeds dp_rank.
 */
#include <errno.h>

#include "lib/base/log.h"
#include "lib/net/zmq_link.h"
#include "router/service/access_log.h"
#include "router/service/http_options.h"
#include "router/service/index_state.h"
#include "router/service/peer_recovery.h"
#include "router/service/program.h"

static const struct log_target LG = {"commutator::router::index"};

struct index_service {
    struct rest *rest; /* first: service_program_stop_rest() */
    struct index_state state;
};

static void *group_of_dump(void *arg, struct str model, struct str name, uint32_t block_size)
{
    struct index_state *s = arg;
    struct kv_group *g;
    struct err e;

    if (kv_groups_need(&s->groups, model, name, block_size, &g, &e) == 0)
        return g;
    log_warn(&LG, "a peer's group is not taken over", LOG_STR("why", e.text));
    return NULL;
}

/* --- peers and the rest ----------------------------------------------------------------------- */

static const struct body_field PEER[] = {{"url", BODY_STR, 0, true}};

static int on_register_peer(void *state, struct rest_call *c)
{
    struct index_state *s = state;
    struct str url = STR_NULL;
    int status = rest_body(c, PEER, ARRAY_LEN(PEER), &url);
    struct err e;

    if (status)
        return status;
    return peer_recovery_add(s->peers, url, &e) < 0 ? rest_error(c, 400, "%s", e.text)
                                                    : rest_ok(c, 201);
}

static int on_deregister_peer(void *state, struct rest_call *c)
{
    struct index_state *s = state;
    struct str url = STR_NULL;
    int status = rest_body(c, PEER, ARRAY_LEN(PEER), &url);

    if (status)
        return status;
    return peer_recovery_remove(s->peers, url) ? rest_ok(c, 200)
                                               : rest_error(c, 404, "peer not found");
}

static int on_peers(void *state, struct rest_call *c)
{
    peer_recovery_put(((struct index_state *)state)->peers, &c->json);
    return 200;
}

static int on_dump(void *state, struct rest_call *c)
{
    kv_groups_put_dump(&((struct index_state *)state)->groups, &c->json);
    return 200;
}

static int on_health(void *state, struct rest_call *c)
{
    (void)state;
    return rest_ok(c, 200);
}

/* Log lines go to stderr here, which is whoever's who rotates it. */
static int on_reopen_logs(void *state, struct rest_call *c)
{
    struct index_state *s = state;
    struct err e;

    if (s->access && access_log_reopen(s->access, &e) < 0)
        return rest_error(c, 500, "%s", e.text);
    return rest_ok(c, 200);
}

static int on_metrics(void *state, struct rest_call *c)
{
    struct index_state *s = state;
    size_t listeners[KV_LISTENER_STATUSES] = {0}, workers = 0;
    struct index_source **all;
    size_t n = index_sources_sorted(s, c->arena, &all);

    for (size_t i = 0; i < n; i++) {
        listeners[kv_listener_status(all[i]->listener)]++;
        workers += i == 0 || all[i - 1]->worker_id != all[i]->worker_id ||
                   all[i - 1]->group != all[i]->group;
    }
    metric_set(s->gauge_models, (double)strmap_len(s->groups.by_key));
    metric_set(s->gauge_workers, (double)workers);
    for (size_t i = 0; i < KV_LISTENER_STATUSES; i++)
        metric_set(s->gauge_listeners[i], (double)listeners[i]);
    kv_groups_sample(&s->groups);
    return rest_metrics(c, s->metrics);
}

static const struct rest_route ROUTES[] = {
    {"POST", "/query", index_on_query},
    {"POST", "/query_by_hash", index_on_query_by_hash},
    {"POST", "/register", index_on_register},
    {"POST", "/unregister", index_on_unregister},
    {"GET", "/workers", index_on_workers},
    {"GET", "/dump", on_dump},
    {"POST", "/register_peer", on_register_peer},
    {"POST", "/deregister_peer", on_deregister_peer},
    {"GET", "/peers", on_peers},
    {"POST", "/reopen_logs", on_reopen_logs},
    {"GET", "/health", on_health},
    {"GET", "/metrics", on_metrics},
    /* Where DYN_KV_INDEXER_TEST_ENDPOINTS asks for them. */
    {"POST", "/test/pause_listener", index_on_pause},
    {"POST", "/test/resume_listener", index_on_resume},
};
enum { TEST_ROUTES = 2 };

/* --- start ------------------------------------------------------------------------------------ */

/* "id[:rank]=endpoint" */
static int add_worker(struct index_state *s, const struct http_options *o, struct str text,
                      struct err *e)
{
    struct index_registration rg = {.block_size = OPT_U64(o->block_size),
                                    .model_name = str_from(o->model_name),
                                    .routing_group = str_from(o->routing_group)};
    struct str who, rank = text;
    bool has_endpoint = str_cut(&rank, '=', &who);

    rg.endpoint = rank;
    rank = who;
    rg.dp_rank.set = str_cut(&rank, ':', &who);
    if (!has_endpoint || !str_parse_u64(who, &rg.instance_id.v) ||
        (rg.dp_rank.set && (!str_parse_u64(rank, &rg.dp_rank.v) || rg.dp_rank.v > UINT32_MAX)))
        return err_set(e, -EINVAL, "--workers: '%.*s' is not id[:rank]=tcp://host:port",
                       STR_ARG(text));
    return index_register(s, &rg, e);
}

static int add_workers(struct index_state *s, const struct http_options *o, struct err *e)
{
    struct str rest = str_from(o->workers), one;
    int r = 0;

    if (rest.len && o->block_size == 0)
        return err_set(e, -EINVAL, "--workers needs --block-size");
    for (bool more = rest.len > 0; more && r == 0;) {
        more = str_cut(&rest, ',', &one);
        if (str_trim(one).len)
            r = add_worker(s, o, str_trim(one), e);
    }
    return r;
}

static void init_metrics(struct index_state *s)
{
    const struct metric_desc listeners = {.name = "dynamo_kvindexer_listeners",
                                          .help = "Number of ZMQ listeners by status",
                                          .type = METRIC_GAUGE,
                                          .labels = {"status"}};
    const struct metric_desc models = {.name = "dynamo_kvindexer_models",
                                       .help = "Number of active model+routing-group indexers",
                                       .type = METRIC_GAUGE};
    const struct metric_desc workers = {.name = "dynamo_kvindexer_workers",
                                        .help = "Number of registered worker instances",
                                        .type = METRIC_GAUGE};

    s->metrics = metric_registry_new();
    s->gauge_models = metric_plain(metric_family(s->metrics, &models));
    s->gauge_workers = metric_plain(metric_family(s->metrics, &workers));
    for (size_t i = 0; i < KV_LISTENER_STATUSES; i++)
        s->gauge_listeners[i] = metric_with(metric_family(s->metrics, &listeners),
                                            kv_listener_status_word((enum kv_listener_status)i));
}

static void program_done(void *state)
{
    struct index_service *s = state;

    rest_free(s->rest);
    peer_recovery_free(s->state.peers);
    index_sources_free_all(&s->state);
    kv_groups_done(&s->state.groups);
    zmq_context_free(s->state.zmq);
    access_log_close(s->state.access);
    metric_registry_free(s->state.metrics);
}

static int open_access_log(struct index_state *s, const struct http_options *o, struct err *e)
{
    static const struct metric_desc lost = {.name = "commutator_index_access_log_lost_total",
                                            .help = "Lines that could not be written",
                                            .type = METRIC_COUNTER};

    return o->access_log ? access_log_open(&s->access, o->access_log, o->access_log_local,
                                           metric_plain(metric_family(s->metrics, &lost)), e)
                         : 0;
}

static void on_dump_event(void *group, const struct kv_event *ev)
{
    index_take_dumped(group, ev);
}

static void init_state(struct index_state *s, struct loop *l, const struct http_options *o)
{
    struct route_conf route = o->base.route;

    route.mode = ROUTE_KV;
    s->loop = l;
    list_init(&s->sources);
    init_metrics(s);
    kv_groups_init(&s->groups, &route, s->metrics);
}

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct index_service *s = state;
    const struct http_options *o = conf;
    struct rest_conf rest = {.host = o->host,
                             .port = (uint16_t)o->port,
                             .routes = ROUTES,
                             .n_routes = ARRAY_LEN(ROUTES) - (o->test_endpoints ? 0 : TEST_ROUTES),
                             .service = &s->state,
                             .prefix = "dynamo_kvindexer",
                             .log = &LG};
    const struct peer_recovery_conf peers = {.loop = l,
                                             .urls = o->peers,
                                             .flag = "--peers",
                                             .group = group_of_dump,
                                             .event = on_dump_event,
                                             .arg = &s->state};
    int r;

    init_state(&s->state, l, o);
    rest.metrics = s->state.metrics;
    r = zmq_context_new(&s->state.zmq, l, e);
    if (r == 0)
        r = open_access_log(&s->state, o, e);
    if (r == 0)
        r = peer_recovery_new(&s->state.peers, &peers, e);
    if (r == 0) {
        peer_recovery_ask(s->state.peers);
        r = add_workers(&s->state, o, e);
    }
    rest.access = s->state.access;
    rest.trace_header = o->trace_id_header;
    return r < 0 ? r : rest_start(&s->rest, l, &rest, e);
}

const struct service_program INDEX_PROGRAM = {
    .command = "index",
    .summary = "tells which worker holds how much of a prompt (HTTP)",
    .spec = index_options_spec,
    .conf_size = sizeof(struct http_options),
    .state_size = sizeof(struct index_service),
    .start = program_start,
    .stop = service_program_stop_rest,
    .done = program_done,
};
