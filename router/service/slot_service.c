/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The slot tracker (router.md §8.3): `python -m dynamo.slot_tracker`. Keeps account of what requests
 * count for on workers that somebody else chooses. Statuses and members are those of ai-dynamo 1.6.1.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/net/zmq_link.h"
#include "router/sched/sequences.h"
#include "router/service/http_options.h"
#include "router/service/kv_group.h"
#include "router/service/program.h"
#include "router/service/rest.h"
#include "router/service/service_peers.h"

static const struct log_target LG = {"commutator::router::slots"};

enum {
    EXPIRE_EVERY_MS = 1000,
    WORKERS_MAX = 16384,
    RANKS_MAX = 1024,
    REQUESTS_MAX = 1 << 18,
};

struct slot_worker {
    struct list link;
    struct kv_group *group;
    uint64_t worker_id;
    uint32_t dp_start, dp_size;
};

struct slot_request {
    struct list link; /* by last sign of life */
    char *key;        /* group and id */
    struct booking *booking;
    const struct kv_group *group;
    struct worker_rank worker;
    uint64_t touched_ms;
};

struct slot_service {
    struct rest *rest; /* first: service_program_stop_rest() */
    struct loop *loop;
    struct zmq_context *zmq;
    struct service_peers *peers; /* NULL: none */
    struct metric_registry *metrics;
    struct kv_groups groups;
    struct list workers;
    size_t n_workers;
    struct strmap *requests;
    struct list oldest_first;
    uint64_t expiry_ms;
    struct timer *expire;
    struct metric *gauge_requests, *expired;
};

/* --- bodies ----------------------------------------------------------------------------------- */

struct body {
    struct str model_name, routing_group, request_id;
    struct opt_u64 worker_id, block_size, dp_start, dp_size, dp_rank, new_isl_tokens;
    struct u64_list sequence_hashes;
};

#define AT(member) offsetof(struct body, member)
#define GROUP                                                                                      \
    {"model_name", BODY_STR, AT(model_name), true},                                                \
    {                                                                                              \
        "routing_group", BODY_STR, AT(routing_group), false                                        \
    }
#define WORKER                                                                                     \
    {                                                                                              \
        "worker_id", BODY_U64, AT(worker_id), true                                                 \
    }
#define REQUEST                                                                                    \
    {                                                                                              \
        "request_id", BODY_STR, AT(request_id), true                                               \
    }
#define SEQUENCE                                                                                   \
    {"sequence_hashes", BODY_HASHES, AT(sequence_hashes), true},                                   \
    {                                                                                              \
        "new_isl_tokens", BODY_U32, AT(new_isl_tokens), false                                      \
    }

/* Reads the body and finds its group; 0 or the status of the error that was written. */
static int read_call(struct slot_service *s, struct rest_call *c, const struct body_field *table,
                     size_t n, struct body *b, struct kv_group **ret_group)
{
    int status;

    *b = (struct body){.routing_group = STR("default")};
    status = rest_body(c, table, n, b);
    if (status || !ret_group)
        return status;
    *ret_group = kv_groups_find(&s->groups, b->model_name, b->routing_group);
    return *ret_group ? 0
                      : rest_error(c, 404, "no slot tracker for model=%.*s routing_group=%.*s",
                                   STR_ARG(b->model_name), STR_ARG(b->routing_group));
}

/* --- workers ---------------------------------------------------------------------------------- */

static struct slot_worker *find_worker(const struct slot_service *s, const struct kv_group *g,
                                       uint64_t worker_id)
{
    LIST_FOREACH (w, &s->workers, struct slot_worker, link)
        if (w->group == g && w->worker_id == worker_id)
            return w;
    return NULL;
}

static int on_register(void *service, struct rest_call *c)
{
    static const struct body_field table[] = {WORKER,
                                              GROUP,
                                              {"block_size", BODY_U32, AT(block_size), true},
                                              {"dp_start", BODY_U32, AT(dp_start), true},
                                              {"dp_size", BODY_U32, AT(dp_size), true}};
    struct slot_service *s = service;
    struct worker_info info = {.worker_id = 0};
    struct slot_worker *w;
    struct kv_group *g;
    struct body b;
    struct err e;
    int status = read_call(s, c, table, ARRAY_LEN(table), &b, NULL), r;

    if (status)
        return status;
    if (b.dp_size.v == 0 || b.block_size.v == 0)
        return rest_error(c, 400, "%s must be greater than 0",
                          b.dp_size.v ? "block_size" : "dp_size");
    if (b.dp_size.v > RANKS_MAX || b.dp_start.v > UINT32_MAX - b.dp_size.v)
        return rest_error(c, 400, "dp_size must be at most %d", RANKS_MAX);
    r = kv_groups_need(&s->groups, b.model_name, b.routing_group, (uint32_t)b.block_size.v, &g, &e);
    if (r < 0)
        return rest_error(c, r == -EEXIST ? 409 : 503, "%s", e.text);
    if (find_worker(s, g, b.worker_id.v))
        return rest_error(c, 409,
                          "worker %" PRIu64 " already registered for model=%s "
                          "routing_group=%s",
                          b.worker_id.v, g->model, g->name);
    info = (struct worker_info){.worker_id = b.worker_id.v,
                                .dp_start = (uint32_t)b.dp_start.v,
                                .dp_size = (uint32_t)b.dp_size.v};
    if (s->n_workers >= WORKERS_MAX || !scheduler_put_worker(g->scheduler, &info)) {
        if (g->n_workers == 0)
            kv_groups_drop(&s->groups, g);
        return rest_error(c, 503, "no room for another worker");
    }
    w = xcalloc(1, sizeof(*w));
    *w = (struct slot_worker){.group = g,
                              .worker_id = info.worker_id,
                              .dp_start = info.dp_start,
                              .dp_size = info.dp_size};
    list_append(&s->workers, &w->link);
    s->n_workers++;
    g->n_workers++;
    return rest_ok(c, 201);
}

static void request_end(struct slot_service *s, struct slot_request *rq, bool ok)
{
    (void)strmap_remove(s->requests, str_from(rq->key));
    list_remove(&rq->link);
    (void)booking_end(rq->booking, clock_now_ns(), ok);
    free(rq->key);
    free(rq);
}

static void worker_free(struct slot_service *s, struct slot_worker *w)
{
    struct kv_group *g = w->group;

    LIST_FOREACH (rq, &s->oldest_first, struct slot_request, link)
        if (rq->group == g && rq->worker.worker_id == w->worker_id)
            request_end(s, rq, false);
    kv_group_remove_worker(g, w->worker_id);
    list_remove(&w->link);
    s->n_workers--;
    free(w);
    if (--g->n_workers == 0)
        kv_groups_drop(&s->groups, g);
}

static int on_unregister(void *service, struct rest_call *c)
{
    static const struct body_field table[] = {WORKER, GROUP};
    struct slot_service *s = service;
    struct slot_worker *w;
    struct kv_group *g;
    struct body b;
    int status = read_call(s, c, table, ARRAY_LEN(table), &b, &g);

    if (status)
        return status;
    w = find_worker(s, g, b.worker_id.v);
    if (!w)
        return rest_error(c, 404, "worker %" PRIu64 " not found for model=%s routing_group=%s",
                          b.worker_id.v, g->model, g->name);
    worker_free(s, w);
    return rest_ok(c, 200);
}

static void put_group(struct json_put *j, const struct kv_group *g)
{
    json_put_member_cstr(j, "model_name", g->model);
    json_put_member_cstr(j, "routing_group", g->name);
}

static int on_workers(void *service, struct rest_call *c)
{
    const struct slot_service *s = service;
    struct json_put *j = &c->json;

    json_put_array(j);
    LIST_FOREACH (w, &s->workers, struct slot_worker, link) {
        json_put_object(j);
        json_put_member_u64(j, "worker_id", w->worker_id);
        put_group(j, w->group);
        json_put_member_u64(j, "block_size", w->group->block_size);
        json_put_member_u64(j, "dp_start", w->dp_start);
        json_put_member_u64(j, "dp_size", w->dp_size);
        json_put_object_end(j);
    }
    json_put_array_end(j);
    return 200;
}

/* --- requests --------------------------------------------------------------------------------- */

static char *key_of(const struct kv_group *g, struct str id)
{
    return xasprintf("%s%c%.*s", g->key, '\n', STR_ARG(id));
}

static struct slot_request *find_request(const struct slot_service *s, const struct kv_group *g,
                                         struct str id)
{
    AUTO(mem_free) char *key = key_of(g, id);

    return strmap_get(s->requests, str_from(key));
}

static void keep_request(struct slot_service *s, const struct kv_group *g, struct str id,
                         struct worker_rank worker, struct booking *take_booking)
{
    struct slot_request *rq = xcalloc(1, sizeof(*rq));

    *rq = (struct slot_request){.key = key_of(g, id),
                                .booking = take_booking,
                                .group = g,
                                .worker = worker,
                                .touched_ms = loop_now_ms(s->loop)};
    list_append(&s->oldest_first, &rq->link);
    (void)strmap_set(s->requests, str_from(rq->key), rq);
}

/* Decides about the one target that the caller names, or about all of them without booking. */
static int book(struct kv_group *g, const struct body *b, bool query_only,
                struct route_decision *ret_decision, struct booking **ret_booking)
{
    const struct route_request q = {
        .id = b->request_id,
        .local = b->sequence_hashes.ptr, /* there is no index that they could be found in */
        .sequence = b->sequence_hashes.ptr,
        .n_blocks = b->sequence_hashes.len,
        .isl = (uint32_t)MAX(b->new_isl_tokens.v, UINT64_C(1)),
        .no_prefill_tokens = b->new_isl_tokens.v == 0,
        .pinned = !query_only,
        .pin = {b->worker_id.v, (uint32_t)b->dp_rank.v},
        .overlap_weight = NAN,
        .temperature = NAN,
        .query_only = query_only,
        .now_ns = clock_now_ns(),
    };

    return scheduler_route(g->scheduler, &q, ret_decision, ret_booking);
}

static int on_add(void *service, struct rest_call *c)
{
    static const struct body_field table[] = {
        GROUP, REQUEST, WORKER, {"dp_rank", BODY_U32, AT(dp_rank), true}, SEQUENCE};
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    struct slot_service *s = service;
    struct booking *booking = NULL;
    struct kv_group *g;
    struct body b;
    int status = read_call(s, c, table, ARRAY_LEN(table), &b, &g);

    if (status)
        return status;
    if (find_request(s, g, b.request_id))
        return rest_error(c, 409, "request %.*s already exists", STR_ARG(b.request_id));
    if (strmap_len(s->requests) >= REQUESTS_MAX)
        return rest_error(c, 503, "more than %d requests", REQUESTS_MAX);
    if (book(g, &b, false, &d, &booking) != 0)
        return rest_error(c, 404, "worker %" PRIu64 " dp_rank %" PRIu64 " not found", b.worker_id.v,
                          b.dp_rank.v);
    keep_request(s, g, b.request_id, (struct worker_rank){b.worker_id.v, (uint32_t)b.dp_rank.v},
                 booking);
    return rest_ok(c, 201);
}

/* The request that the body names, as *ret_id; NULL with the answer written. */
static struct slot_request *named_request(struct slot_service *s, struct rest_call *c, bool gone_ok,
                                          struct str *ret_id, int *ret_status)
{
    static const struct body_field table[] = {GROUP, REQUEST};
    struct slot_request *rq = NULL;
    struct kv_group *g;
    struct body b;

    *ret_status = read_call(s, c, table, ARRAY_LEN(table), &b, &g);
    if (*ret_status == 0)
        rq = find_request(s, g, b.request_id);
    *ret_id = b.request_id;
    if (*ret_status == 0 && !rq)
        *ret_status = gone_ok ? rest_ok(c, 200)
                              : rest_error(c, 404, "request %.*s not found", STR_ARG(b.request_id));
    return rq;
}

static void request_prefilled(struct slot_service *s, struct slot_request *rq)
{
    booking_first_token(rq->booking, clock_now_ns());
    rq->touched_ms = loop_now_ms(s->loop);
    list_remove(&rq->link);
    list_append(&s->oldest_first, &rq->link);
}

static int on_prefill_complete(void *service, struct rest_call *c)
{
    struct slot_service *s = service;
    struct str id;
    int status;
    struct slot_request *rq = named_request(s, c, false, &id, &status);

    if (!rq)
        return status;
    request_prefilled(s, rq);
    service_peers_tell(s->peers, rq->group, id, rq->worker, SEQUENCE_PREFILL_DONE);
    return rest_ok(c, 200);
}

/* To free what is not there is no error: it may have expired. */
static int on_free(void *service, struct rest_call *c)
{
    struct slot_service *s = service;
    struct str id;
    int status;
    struct slot_request *rq = named_request(s, c, true, &id, &status);

    if (!rq)
        return status;
    service_peers_tell(s->peers, rq->group, id, rq->worker, SEQUENCE_FREE);
    request_end(s, rq, true);
    return rest_ok(c, 200);
}

/* --- what peers tell, and are told --- */

static void on_booked(void *arg, const struct kv_group *g, const struct route_booked *b)
{
    service_peers_tell_placed(((struct slot_service *)arg)->peers, g, b);
}

static enum replica_outcome add_of_peer(struct slot_service *s, const struct kv_group *g,
                                        const struct sequence_event *ev)
{
    const struct worker_rank worker = {ev->worker_id, ev->dp_rank};
    bool room = strmap_len(s->requests) < REQUESTS_MAX;
    struct booking *booking;
    enum replica_outcome outcome = replica_book(g->scheduler, ev, room, clock_now_ns(), &booking);

    if (outcome == REPLICA_APPLIED)
        keep_request(s, g, ev->request_id, worker, booking);
    return outcome;
}

static enum replica_outcome on_peer_event(void *arg, struct kv_group *g,
                                          const struct sequence_event *ev)
{
    struct slot_service *s = arg;
    struct slot_request *rq = find_request(s, g, ev->request_id);

    if (ev->kind == SEQUENCE_ADD)
        return rq ? REPLICA_TWICE : add_of_peer(s, g, ev);
    if (!rq)
        return REPLICA_UNKNOWN_REQUEST;
    if (ev->kind == SEQUENCE_PREFILL_DONE)
        request_prefilled(s, rq);
    else
        request_end(s, rq, true);
    return REPLICA_APPLIED;
}

static int on_peers(void *service, struct rest_call *c)
{
    return service_peers_list(((struct slot_service *)service)->peers, c);
}

static int on_register_peer(void *service, struct rest_call *c)
{
    return service_peers_register(((struct slot_service *)service)->peers, c);
}

static int on_deregister_peer(void *service, struct rest_call *c)
{
    return service_peers_deregister(((struct slot_service *)service)->peers, c);
}

/* --- loads ------------------------------------------------------------------------------------ */

static void put_loads(struct json_put *j, struct arena *a, const struct kv_group *g)
{
    size_t n;
    const struct worker_load *loads = kv_group_loads(g, a, &n);

    for (size_t i = 0; i < n; i++) {
        json_put_object(j);
        put_group(j, g);
        json_put_member_u64(j, "worker_id", loads[i].worker.worker_id);
        json_put_member_u64(j, "dp_rank", loads[i].worker.dp_rank);
        json_put_member_u64(j, "active_prefill_tokens", loads[i].active_prefill_tokens);
        json_put_member_u64(j, "active_decode_blocks", loads[i].active_decode_blocks);
        json_put_object_end(j);
    }
}

static int on_loads(void *service, struct rest_call *c)
{
    const struct slot_service *s = service;
    struct str model = rest_query(c, "model_name"), name = rest_query(c, "routing_group"), key;
    void *group;
    size_t at = 0;

    json_put_array(&c->json);
    while (strmap_next(s->groups.by_key, &at, &key, &group)) {
        const struct kv_group *g = group;

        if ((!model.ptr || str_is(model, g->model)) && (!name.ptr || str_is(name, g->name)))
            put_loads(&c->json, c->arena, g);
    }
    json_put_array_end(&c->json);
    return 200;
}

static int on_potential_loads(void *service, struct rest_call *c)
{
    static const struct body_field table[] = {GROUP, SEQUENCE};
    AUTO(route_decision_done) struct route_decision d = {.n_candidates = 0};
    struct booking *none = NULL;
    struct kv_group *g;
    struct body b;
    int status = read_call(service, c, table, ARRAY_LEN(table), &b, &g);

    if (status)
        return status;
    if (book(g, &b, true, &d, &none) != 0)
        d.n_candidates = 0;
    json_put_array(&c->json);
    for (size_t i = 0; i < d.n_candidates; i++) {
        const struct route_candidate *k = &d.candidates[i];

        json_put_object(&c->json);
        json_put_member_u64(&c->json, "worker_id", k->worker.worker_id);
        json_put_member_u64(&c->json, "dp_rank", k->worker.dp_rank);
        json_put_member_u64(&c->json, "potential_prefill_tokens",
                            k->prefill_tokens + b.new_isl_tokens.v);
        json_put_member_u64(&c->json, "potential_decode_blocks",
                            (uint64_t)k->active_blocks + k->new_blocks);
        json_put_member_u64(&c->json, "active_requests", k->requests);
        json_put_object_end(&c->json);
    }
    json_put_array_end(&c->json);
    return 200;
}

/* --- service ---------------------------------------------------------------------------------- */

static int on_health(void *service, struct rest_call *c)
{
    (void)service;
    return rest_ok(c, 200);
}

static int on_metrics(void *service, struct rest_call *c)
{
    struct slot_service *s = service;

    metric_set(s->gauge_requests, (double)strmap_len(s->requests));
    return rest_metrics(c, s->metrics);
}

static const struct rest_route ROUTES[] = {
    {"POST", "/add", on_add},
    {"POST", "/prefill_complete", on_prefill_complete},
    {"POST", "/free", on_free},
    {"GET", "/loads", on_loads},
    {"POST", "/potential_loads", on_potential_loads},
    {"POST", "/register", on_register},
    {"POST", "/unregister", on_unregister},
    {"GET", "/workers", on_workers},
    {"GET", "/health", on_health},
    {"GET", "/metrics", on_metrics},
    {"GET", "/replica_sync/peers", on_peers},
    {"POST", "/replica_sync/register_peer", on_register_peer},
    {"POST", "/replica_sync/deregister_peer", on_deregister_peer},
};

/* A caller that died: without this its requests would count for ever. */
static void on_expire(void *arg)
{
    struct slot_service *s = arg;
    uint64_t now_ms = loop_now_ms(s->loop);

    LIST_FOREACH (rq, &s->oldest_first, struct slot_request, link) {
        if (s->expiry_ms == 0 || rq->touched_ms + s->expiry_ms > now_ms)
            return;
        request_end(s, rq, false);
        metric_add(s->expired, 1);
    }
}

static void program_done(void *state)
{
    struct slot_service *s = state;

    rest_free(s->rest);
    timer_free(s->expire);
    s->peers = service_peers_free(s->peers);
    zmq_context_free(s->zmq);
    LIST_FOREACH (w, &s->workers, struct slot_worker, link)
        worker_free(s, w);
    strmap_free(s->requests);
    kv_groups_done(&s->groups);
    metric_registry_free(s->metrics);
}

static void init_state(struct slot_service *s, struct loop *l, const struct http_options *o)
{
    static const struct metric_desc requests = {.name = "commutator_slots_requests",
                                                .help = "Requests that are accounted for",
                                                .type = METRIC_GAUGE};
    static const struct metric_desc expired = {.name = "commutator_slots_requests_expired_total",
                                               .help =
                                                   "Requests dropped for want of a sign of life",
                                               .type = METRIC_COUNTER};
    struct route_conf route = o->base.route;

    route.mode = ROUTE_KV;
    s->loop = l;
    s->metrics = metric_registry_new();
    s->gauge_requests = metric_plain(metric_family(s->metrics, &requests));
    s->expired = metric_plain(metric_family(s->metrics, &expired));
    kv_groups_init(&s->groups, &route, s->metrics);
    s->groups.booked = on_booked;
    s->groups.arg = s;
    list_init(&s->workers);
    list_init(&s->oldest_first);
    s->requests = strmap_new();
    s->expiry_ms = route.expiry_ms;
    s->expire = timer_new(l, on_expire, s);
    timer_start_repeat(s->expire, EXPIRE_EVERY_MS);
}

static int start_peers(struct slot_service *s, const struct http_options *o, struct err *e)
{
    const struct service_peers_conf conf = {.loop = s->loop,
                                            .zmq = s->zmq,
                                            .metrics = s->metrics,
                                            .prefix = "commutator_slots",
                                            .host = o->host,
                                            .port = (uint16_t)o->replica_port,
                                            .peers = o->replica_peers,
                                            .groups = &s->groups,
                                            .placed = on_peer_event,
                                            .arg = s};

    return service_peers_new(&s->peers, &conf, e);
}

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct slot_service *s = state;
    const struct http_options *o = conf;
    struct rest_conf rest = {.host = o->host,
                             .port = (uint16_t)o->port,
                             .routes = ROUTES,
                             .n_routes = ARRAY_LEN(ROUTES),
                             .service = s,
                             .prefix = "commutator_slots",
                             .log = &LG};

    int r;

    init_state(s, l, o);
    rest.metrics = s->metrics;
    r = zmq_context_new(&s->zmq, l, e);
    if (r == 0)
        r = start_peers(s, o, e);
    return r < 0 ? r : rest_start(&s->rest, l, &rest, e);
}

const struct service_program SLOTS_PROGRAM = {
    .command = "slots",
    .summary = "keeps account of requests whose workers others choose (HTTP)",
    .spec = slots_options_spec,
    .conf_size = sizeof(struct http_options),
    .state_size = sizeof(struct slot_service),
    .start = program_start,
    .stop = service_program_stop_rest,
    .done = program_done,
};
