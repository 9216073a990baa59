/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events of an engine, read from its own publisher (router.md §2.7), told to routers of Dynamo on
 * NATS as those of one worker: for engines behind other frontends.
 *
 *     engine PUB, replay ─▶ engine_source per rank ─▶ event_publisher ─▶ NATS
 *
 * Reading begins when NATS takes events, so that what a replay brings is not lost. After an outage
 * that has cost events, ranks with a replay are cleared and read anew. Routers of 1.4 and later hear
 * only who stands in discovery as a source of events, so one record per rank is published there; those
 * of 0.9.0 look there for one endpoint of the worker. Then what was told is kept, for a router that asks
 * the one or the other for it because it missed some or came late. No outage costs anything then.
 */
#include <errno.h>
#include <inttypes.h>

#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "lib/net/nats_link.h"
#include "lib/net/zmq_link.h"
#include "router/discovery/records.h"
#include "router/discovery/store.h"
#include "router/frontend/frontend_conf.h"
#include "router/service/program.h"
#include "router/service/route_options.h"
#include "router/service/system_options.h"
#include "router/service/system_server.h"
#include "router/sync/engine_source.h"
#include "router/sync/event_memory.h"
#include "router/sync/event_publisher.h"
#include "router/wire/event_bus.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"commutator::router::bridge"};

enum { RANKS_MAX = 64 };
#define QUERY_ENDPOINT "worker_kv_indexer_query"          /* 0.9.0: of all ranks */
#define SOURCE_ENDPOINT "worker_kv_query_source_%" PRIx64 /* since 1.4: of one publisher */

/* --- options ---------------------------------------------------------------------------------- */

/* Which routers hear it. */
enum publish_as {
    AS_STREAM,    /* 0.9.0, worker without a local indexer: JetStream */
    AS_COMPONENT, /* 0.9.0 with one: core NATS, to the component */
    AS_ENDPOINT,  /* 1.x: core NATS, to the endpoint */
};
static const char *const PUBLISH_AS[] = {"stream", "component", "endpoint", NULL};

/* Where sources of events are told of; others have none that we publish to. */
enum bridge_discovery { TOLD_NOWHERE, TOLD_FILE, TOLD_KUBERNETES };
static const char *const DISCOVERIES[] = {"none", "file", "kubernetes", NULL};

struct bridge_options {
    struct frontend_conf base; /* first: the frontend's rows address it by offset */
    char *endpoint_text, *worker_text;
    char *events, *replay, *topic;
    uint64_t block_size, dp_start, dp_size;
    int publish_as; /* enum publish_as */
    int discovery;  /* enum bridge_discovery */
    struct system_options system;
};

#define AT(member) offsetof(struct bridge_options, member)

/* clang-format off: a table is read by columns */
static const struct conf_field OWN[] = {
    {"kv-events", NULL, "COMMUTATOR_BRIDGE_KV_EVENTS", NULL, CONF_STR, AT(events), NULL, 0, 0, NULL,
     "the engine's publisher, tcp://host:port of rank 0; required"},
    {"kv-replay", NULL, "COMMUTATOR_BRIDGE_KV_REPLAY", NULL, CONF_STR, AT(replay), NULL, 0, 0, NULL,
     "its replay socket; without it what is missed stays missed"},
    {"kv-topic", NULL, NULL, NULL, CONF_STR, AT(topic), NULL, 0, 0, NULL,
     "hear only topics that begin so"},
    {"block-size", NULL, NULL, NULL, CONF_U64, AT(block_size), "16", 1, 65536, NULL,
     "tokens of the engine's KV blocks"},
    {"endpoint", NULL, NULL, NULL, CONF_STR, AT(endpoint_text), "dynamo.backend.generate", 0, 0,
     NULL, "whose events they are: namespace.component.endpoint"},
    {"worker-id", NULL, NULL, NULL, CONF_STR, AT(worker_text), NULL, 0, 0, NULL,
     "instance id of the worker (default: that of the pod POD_NAME)"},
    {"data-parallel-start-rank", NULL, NULL, NULL, CONF_U64, AT(dp_start), "0", 0, 65535, NULL,
     "rank of the first publisher"},
    {"data-parallel-size", NULL, NULL, NULL, CONF_U64, AT(dp_size), "1", 1, RANKS_MAX, NULL,
     "ranks; ports count up"},
    {"publish-as", NULL, NULL, NULL, CONF_ENUM, AT(publish_as), "stream", 0, 0, PUBLISH_AS,
     "stream | component | endpoint: JetStream, as workers of 0.9.0; core NATS, as those with a "
     "local "
     "indexer; as those of 1.x"},
    {"store-kv", "discovery-backend", "DYN_DISCOVERY_BACKEND", "DYN_STORE_KV", CONF_ENUM,
     AT(discovery), "none", 0, 0, DISCOVERIES,
     "none | file | kubernetes: where routers find whom to ask for what they missed (not with "
     "--publish-as stream), and those of 1.4 the source itself; in Kubernetes it is written into "
     "the "
     "record of this pod, which nobody else may write"},
#include "router/service/system_options.inc"
};
/* clang-format on */

/* Of the frontend's. */
static const char *const SHARED[] = {
    "DYN_FILE_KV",
    "DYN_NATS_STREAM_MAX_AGE",
    "NATS_SERVER",
    "NATS_AUTH_USERNAME",
    "NATS_AUTH_PASSWORD",
    "NATS_AUTH_TOKEN",
    "POD_NAME",
    "POD_UID",
    "POD_NAMESPACE",
    "DYN_LOG",
    "DYN_LOGGING_JSONL",
    "NATS_AUTH_CREDENTIALS_FILE",
    "NATS_AUTH_NKEY",
    "NATS_TLS_CA_CERT_PATH",
    "NATS_TLS_INSECURE",
    "NATS_TLS_CLIENT_CERT_PATH",
    "NATS_TLS_CLIENT_KEY_PATH",
    "DYN_TCP_RPC_HOST",
};

static bool is_shared(const struct conf_field *f)
{
    for (size_t i = 0; i < ARRAY_LEN(SHARED); i++)
        if (str_is(str_from(f->env), SHARED[i]))
            return true;
    return false;
}

static const struct conf_spec *program_spec(void)
{
    static struct conf_field fields[ARRAY_LEN(OWN) + ARRAY_LEN(SHARED)];
    static struct conf_spec spec = {
        .program = "dynamo-router bridge",
        .summary = "Tells the KV events of an engine (vLLM, SGLang) to routers of Dynamo, on NATS.",
        .fields = fields,
    };

    if (spec.n_fields > 0)
        return &spec;
    for (size_t i = 0; i < ARRAY_LEN(OWN); i++)
        fields[spec.n_fields++] = OWN[i];
    for (size_t i = 0; i < FRONTEND_CONF_SPEC.n_fields; i++)
        if (is_shared(&FRONTEND_CONF_SPEC.fields[i]) && spec.n_fields < ARRAY_LEN(fields))
            fields[spec.n_fields++] = FRONTEND_CONF_SPEC.fields[i];
    return &spec;
}

/* --- the service ------------------------------------------------------------------------------ */

struct bridge {
    struct loop *loop;
    const struct bridge_options *o;
    char *ns, *component, *endpoint;
    uint64_t worker_id;
    struct zmq_context *zmq;
    struct nats_link *nats;
    struct event_bus *bus;
    struct kube_config *kube;
    struct store *store;         /* NULL: told nowhere */
    struct plane_server *server; /* NULL: nobody can ask */
    struct system_server *system;
    struct metric_registry *metrics;
    struct metric *sent, *dropped, *batches, *gaps, *lost, *restarts, *connected, *queries;
    uint64_t n_queries;
    struct rank {
        struct bridge *bridge;
        struct event_publisher *publisher;
        struct event_memory *memory; /* NULL: nobody can ask */
        char *query_endpoint;        /* likewise; one for all ranks where routers are of 0.9.0 */
        bool reading;
        uint64_t dropped_then; /* when reading began anew */
        struct engine_source *source;
        uint64_t n_events;                 /* numbered so far */
        struct engine_source_stats before; /* of the sources that were replaced */
    } ranks[RANKS_MAX];
};

static void on_event(void *arg, const struct kv_event *ev, uint64_t sent_ms)
{
    struct rank *rk = arg;
    struct kv_event numbered = *ev;

    (void)sent_ms;
    /* They go on counting when the source is another. 1.x begins with 1: 0 is "nothing yet"; for 0.9.0
     * a first 1 says that one was missed. */
    numbered.event_id = rk->n_events++ + (rk->bridge->o->publish_as == AS_ENDPOINT);
    if (rk->memory)
        event_memory_push(rk->memory, &numbered);
    event_publisher_kv(rk->publisher, &numbered);
}

static void add_stats(struct engine_source_stats *sum, const struct rank *rk)
{
    const struct engine_source_stats now =
        rk->source ? engine_source_stats(rk->source) : (struct engine_source_stats){0};

    sum->batches += rk->before.batches + now.batches;
    sum->replayed += rk->before.replayed + now.replayed;
    sum->gaps += rk->before.gaps + now.gaps;
    sum->lost += rk->before.lost + now.lost;
    sum->restarts += rk->before.restarts + now.restarts;
}

static int start_rank(struct bridge *b, uint32_t i, struct err *e)
{
    AUTO(mem_free) char *events = engine_endpoint_of_rank(b->o->events, i);
    AUTO(mem_free) char *replay = b->o->replay ? engine_endpoint_of_rank(b->o->replay, i) : NULL;
    struct rank *rk = &b->ranks[i];
    const struct engine_source_conf conf = {.loop = b->loop,
                                            .zmq = b->zmq,
                                            .endpoint = events,
                                            .replay = replay,
                                            .topic = b->o->topic,
                                            .worker_id = b->worker_id,
                                            .dp_rank = (uint32_t)(b->o->dp_start + i),
                                            .block_size = (uint32_t)b->o->block_size,
                                            .event = on_event,
                                            .arg = rk};

    rk->bridge = b;
    return engine_source_start(&rk->source, &conf, e);
}

/* What was told is forgotten, and all that the engine still has told again. */
static void read_anew(struct bridge *b, uint32_t i)
{
    struct rank *rk = &b->ranks[i];
    const struct kv_event cleared = {.worker_id = b->worker_id,
                                     .dp_rank = (uint32_t)(b->o->dp_start + i),
                                     .kind = KV_CLEARED,
                                     .tier = KV_TIER_DEVICE};
    struct engine_source_stats sum = {0};
    struct err e;

    add_stats(&sum, rk);
    rk->before = sum;
    rk->source = engine_source_free(rk->source);
    on_event(rk, &cleared, 0);
    if (start_rank(b, i, &e) < 0)
        log_error(&LG, "engine is not heard any more", LOG_STR("why", e.text));
}

/* NATS takes the rank's events from now on. */
static void begin(void *arg)
{
    struct rank *rk = arg;
    struct bridge *b = rk->bridge;
    uint32_t i = (uint32_t)(rk - b->ranks);
    uint64_t lost = event_publisher_dropped(rk->publisher) - rk->dropped_then;
    const struct kv_event *newest = rk->memory ? event_memory_newest(rk->memory) : NULL;
    struct err e;

    if (!rk->reading && start_rank(b, i, &e) < 0)
        log_error(&LG, "engine is not heard", LOG_STR("why", e.text));
    else if (rk->reading && lost)
        log_warn(&LG, "events were lost while NATS was away", LOG_U64("dp_rank", i),
                 LOG_U64("events", lost), LOG_BOOL("told_again", newest || b->o->replay));
    if (rk->reading && lost && newest) /* its number shows routers that they missed some */
        event_publisher_kv(rk->publisher, newest);
    else if (rk->reading && lost && b->o->replay)
        read_anew(b, i);
    rk->reading = true;
    rk->dropped_then += lost;
}

static void on_nats_state(void *arg, bool up)
{
    struct bridge *b = arg;

    log_info(&LG, up ? "NATS is connected" : "NATS is away");
    for (uint32_t i = 0; up && i < b->o->dp_size; i++) {
        if (!b->ranks[i].publisher)
            continue;
        event_publisher_link_up(b->ranks[i].publisher);
        if (b->o->publish_as != AS_STREAM)
            begin(&b->ranks[i]); /* else when the stream is there */
    }
}

/* --- metrics ---------------------------------------------------------------------------------- */

static bool is_ready(void *arg)
{
    const struct bridge *b = arg;

    for (uint32_t i = 0; i < b->o->dp_size; i++)
        if (!b->ranks[i].source || !engine_source_connected(b->ranks[i].source))
            return false;
    return nats_link_stats(b->nats).up;
}

static void measure(void *arg)
{
    struct bridge *b = arg;
    struct engine_source_stats sum = {0};
    uint64_t sent = 0, dropped = 0;

    for (uint32_t i = 0; i < b->o->dp_size; i++) {
        add_stats(&sum, &b->ranks[i]);
        sent += event_publisher_sent(b->ranks[i].publisher);
        dropped += event_publisher_dropped(b->ranks[i].publisher);
    }
    metric_set(b->sent, (double)sent);
    metric_set(b->dropped, (double)dropped);
    metric_set(b->batches, (double)sum.batches);
    metric_set(b->gaps, (double)sum.gaps);
    metric_set(b->lost, (double)sum.lost);
    metric_set(b->restarts, (double)sum.restarts);
    metric_set(b->queries, (double)b->n_queries);
    metric_set(b->connected, is_ready(b));
}

static struct metric *number(struct bridge *b, enum metric_type type, const char *name,
                             const char *help)
{
    const struct metric_desc desc = {.name = name, .help = help, .type = type};

    return metric_plain(metric_family(b->metrics, &desc));
}

static void make_metrics(struct bridge *b)
{
    b->metrics = metric_registry_new();
    b->sent = number(b, METRIC_COUNTER, "commutator_bridge_events_sent_total", "Events told");
    b->dropped = number(b, METRIC_COUNTER, "commutator_bridge_events_dropped_total",
                        "Events that NATS did not take");
    b->batches = number(b, METRIC_COUNTER, "commutator_bridge_batches_total",
                        "Batches of the engine, live or replayed");
    b->gaps = number(b, METRIC_COUNTER, "commutator_bridge_gaps_total",
                     "Jumps of the engine's sequence number");
    b->lost = number(b, METRIC_COUNTER, "commutator_bridge_gaps_lost_total",
                     "Jumps whose batches could not be had again");
    b->restarts = number(b, METRIC_COUNTER, "commutator_bridge_engine_restarts_total",
                         "Times that the engine was another than before");
    b->queries = number(b, METRIC_COUNTER, "commutator_bridge_queries_total",
                        "Routers' questions for what they missed");
    b->connected =
        number(b, METRIC_GAUGE, "commutator_bridge_ready", "Whether engine and NATS are there");
}

/* --- life ------------------------------------------------------------------------------------- */

static int read_identity(struct bridge *b, struct err *e)
{
    const struct bridge_options *o = b->o;
    struct endpoint_name n;
    int r = endpoint_name_parse(o->endpoint_text, &n, e);

    if (r < 0)
        return r;
    b->ns = str_dup(n.ns);
    b->component = str_dup(n.component);
    b->endpoint = str_dup(n.endpoint);
    if (!o->events)
        return err_set(e, -EINVAL, "--kv-events is needed: tcp://host:port of the engine");
    if (!o->worker_text && !o->base.pod_name)
        return err_set(e, -EINVAL, "--worker-id or POD_NAME is needed");
    if (!o->worker_text)
        b->worker_id = instance_id_of_pod(str_from(o->base.pod_name));
    else if (!str_parse_u64(str_from(o->worker_text), &b->worker_id))
        return err_set(e, -EINVAL, "--worker-id: '%s' is no number", o->worker_text);
    return 0;
}

static int start_nats(struct bridge *b, struct err *e)
{
    struct nats_link_conf nats = frontend_conf_events(&b->o->base, "dynamo-bridge").nats;
    struct event_bus_conf bus = {.loop = b->loop};
    int r;

    nats.state = on_nats_state;
    nats.arg = b;
    r = nats_link_start(&b->nats, b->loop, &nats, e);
    bus.nats = b->nats;
    if (r == 0)
        r = event_bus_new(&b->bus, &bus, e);
    return r < 0 ? err_wrap(e, r, "NATS") : 0;
}

/* Each rank is a publisher of its own: 1.x tells ranks apart by that. */
static uint64_t publisher_id(const struct bridge *b, uint32_t rank)
{
    return b->worker_id + rank;
}

static int start_publisher(struct bridge *b, uint32_t i, struct err *e)
{
    const struct bridge_options *o = b->o;
    const struct event_publisher_conf conf = {
        .bus = b->bus,
        .ns = b->ns,
        .component = b->component,
        .endpoint = o->publish_as == AS_ENDPOINT ? b->endpoint : NULL,
        .worker_id = publisher_id(b, i),
        .kv = true,
        .loop = b->loop,
        .stream_nats = o->publish_as == AS_STREAM ? b->nats : NULL,
        .stream_max_age_s = o->base.stream_max_age_ms / 1000,
        .ready = begin,
        .arg = &b->ranks[i],
    };

    b->ranks[i].bridge = b;
    return event_publisher_new(&b->ranks[i].publisher, &conf, e);
}

/* --- recovery queries ------------------------------------------------------------------------- */

static void answer(struct plane_request *request, const struct buf *out)
{
    plane_request_start(request);
    plane_request_item_raw(request, out->len ? buf_str(out)
                                             : STR("{\"Error\":\"no such worker or rank here\"}"));
    plane_request_finish(request);
}

/* False when it makes no sense, which was said. */
static bool take_query(struct bridge *b, struct plane_request *request, struct kv_query *ret)
{
    struct err e;

    b->n_queries++;
    if (kv_query_parse(plane_request_body(request), ret, &e) == 0)
        return true;
    plane_request_refuse(request, str_from(e.text));
    return false;
}

/* Of one rank. */
static void on_source_query(void *arg, struct plane_request *request)
{
    struct rank *rk = arg;
    struct bridge *b = rk->bridge;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct kv_query q;

    if (!take_query(b, request, &q))
        return;
    if (q.worker_id == b->worker_id &&
        (!q.dp_rank.set || q.dp_rank.v == b->o->dp_start + (uint64_t)(rk - b->ranks)))
        event_memory_answer(rk->memory, &q, true, &out);
    answer(request, &out);
}

static void dump_all(struct bridge *b, struct buf *out)
{
    struct event_memory *memories[RANKS_MAX];

    for (size_t i = 0; i < b->o->dp_size; i++)
        memories[i] = b->ranks[i].memory;
    event_memory_dump(memories, b->o->dp_size, out);
}

/* Of the worker; 0.9.0 names no rank. */
static void on_worker_query(void *arg, struct plane_request *request)
{
    struct bridge *b = arg;
    AUTO(buf_done) struct buf out = BUF_NULL;
    uint64_t i = 0;
    struct kv_query q;

    if (!take_query(b, request, &q))
        return;
    if (q.dp_rank.set)
        i = q.dp_rank.v - b->o->dp_start;
    if (q.worker_id == b->worker_id && !q.dp_rank.set && b->o->dp_size > 1)
        dump_all(b, &out);
    else if (q.worker_id == b->worker_id && i < b->o->dp_size)
        event_memory_answer(b->ranks[i].memory, &q, false, &out);
    answer(request, &out);
}

static struct plane_endpoint query_endpoint(const struct bridge *b, const struct rank *rk)
{
    return (struct plane_endpoint){b->ns, b->component, rk->query_endpoint, b->worker_id, false};
}

static int start_answering(struct bridge *b, struct err *e)
{
    const struct plane_server_conf conf = {.host = b->o->base.tcp_rpc_host,
                                           .tls = &b->o->base.plane_tls};
    int r = plane_server_new(&b->server, b->loop, &conf, e);

    for (uint32_t i = 0; i < b->o->dp_size && r == 0; i++) {
        struct rank *rk = &b->ranks[i];
        struct plane_endpoint ep;

        rk->memory = event_memory_new();
        rk->query_endpoint = b->o->publish_as == AS_ENDPOINT
                                 ? xasprintf(SOURCE_ENDPOINT, publisher_id(b, i))
                                 : xstrdup(QUERY_ENDPOINT);
        ep = query_endpoint(b, rk);
        if (b->o->publish_as == AS_ENDPOINT)
            plane_server_register(b->server, &ep, on_source_query, rk);
        else if (i == 0)
            plane_server_register(b->server, &ep, on_worker_query, b);
    }
    return r;
}

/* --- discovery -------------------------------------------------------------------------------- */

/* Who answers for the rank; views into @address and @b. */
static struct record record_of_endpoint(const struct bridge *b, uint32_t i, struct buf *address)
{
    const struct plane_endpoint ep = query_endpoint(b, &b->ranks[i]);

    plane_server_put_address(b->server, &ep, address);
    return (struct record){.kind = RECORD_ENDPOINT,
                           .ns = str_from(b->ns),
                           .component = str_from(b->component),
                           .endpoint = str_from(ep.name),
                           .instance_id = b->worker_id,
                           .transport = record_transport(plane_server_kind(b->server)),
                           .address = buf_str(address)};
}

static int tell_endpoint(struct bridge *b, struct err *e)
{
    AUTO(buf_done) struct buf address = BUF_NULL;
    const struct record rec = record_of_endpoint(b, 0, &address);

    return store_publish(b->store, &rec, e);
}

static int tell_source(struct bridge *b, uint32_t i, struct err *e)
{
    AUTO(buf_done) struct buf metadata = BUF_NULL, address = BUF_NULL;
    const struct record recovery = record_of_endpoint(b, i, &address);
    const struct event_source source = {.ns = b->ns,
                                        .component = b->component,
                                        .endpoint = b->endpoint,
                                        .worker_id = b->worker_id,
                                        .dp_rank = (uint32_t)(b->o->dp_start + i),
                                        .publisher_id = publisher_id(b, i),
                                        .recovery = &recovery};
    struct record rec;

    record_of_source(&rec, &metadata, &source);
    return store_publish(b->store, &rec, e);
}

static int open_store(struct bridge *b, struct err *e)
{
    const struct bridge_options *o = b->o;
    const struct kube_config_env env = {getenv("KUBECONFIG"), getenv("KUBERNETES_SERVICE_HOST"),
                                        getenv("KUBERNETES_SERVICE_PORT")};
    struct store_kube_conf kube = {
        .ns = o->base.pod_namespace, .pod_name = o->base.pod_name, .pod_uid = o->base.pod_uid};
    int r;

    if (o->discovery == TOLD_FILE)
        return store_file_new(&b->store, b->loop, o->base.file_kv, e);
    if (!o->base.pod_name || !o->base.pod_uid)
        return err_set(e, -EINVAL, "Kubernetes discovery needs POD_NAME and POD_UID");
    r = kube_config_load(&b->kube, &env, e);
    kube.config = b->kube;
    return r < 0 ? r : store_kube_new(&b->store, b->loop, &kube, e);
}

static int tell_discovery(struct bridge *b, struct err *e)
{
    bool as_source = b->o->publish_as == AS_ENDPOINT;
    int r;

    if (b->o->discovery == TOLD_NOWHERE && as_source)
        log_warn(&LG, "routers of 1.4 and later do not hear this bridge: no discovery is named");
    if (b->o->discovery == TOLD_NOWHERE || b->o->publish_as == AS_STREAM)
        return 0;
    r = open_store(b, e);
    if (r == 0)
        r = start_answering(b, e);
    if (r == 0 && !as_source)
        r = tell_endpoint(b, e);
    for (uint32_t i = 0; i < b->o->dp_size && r == 0 && as_source; i++)
        r = tell_source(b, i, e);
    return r < 0 ? err_wrap(e, r, "discovery") : 0;
}

static int start_system(struct bridge *b, struct err *e)
{
    const struct system_server_conf conf = {.options = &b->o->system,
                                            .ns = b->ns,
                                            .component = b->component,
                                            .endpoint = b->endpoint,
                                            .metrics = b->metrics,
                                            .ready = is_ready,
                                            .measure = measure,
                                            .arg = b};

    return system_server_start(&b->system, b->loop, &conf, e);
}

static void program_done(void *state)
{
    struct bridge *b = state;

    system_server_free(b->system);
    plane_server_free(b->server); /* its handlers end each request at once */
    for (size_t i = 0; i < RANKS_MAX; i++) {
        engine_source_free(b->ranks[i].source);
        event_publisher_free(b->ranks[i].publisher);
        event_memory_free(b->ranks[i].memory);
        free(b->ranks[i].query_endpoint);
    }
    store_free(b->store);
    event_bus_free(b->bus);
    nats_link_free(b->nats);
    zmq_context_free(b->zmq);
    loop_settle(b->loop); /* a write to the API server */
    kube_config_free(b->kube);
    metric_registry_free(b->metrics);
    free(b->ns);
    free(b->component);
    free(b->endpoint);
}

static int program_start(void *state, struct loop *l, void *conf, struct err *e)
{
    struct bridge_options *o = conf;
    struct bridge *b = state;
    int r = system_options_derive(&o->system, SYSTEM_PORT_MAX, e);

    if (r < 0)
        return r;
    b->loop = l;
    b->o = o;
    make_metrics(b);
    r = read_identity(b, e);
    if (r == 0)
        r = zmq_context_new(&b->zmq, l, e);
    if (r == 0)
        r = start_nats(b, e);
    for (uint32_t i = 0; i < o->dp_size && r == 0; i++)
        r = start_publisher(b, i, e);
    if (r == 0)
        r = tell_discovery(b, e);
    if (r == 0)
        r = start_system(b, e);
    if (r < 0)
        return r;
    log_info(&LG, "bridging", LOG_STR("kv_events", o->events), LOG_U64("worker_id", b->worker_id),
             LOG_STR("endpoint", o->endpoint_text),
             LOG_STR("publish_as", PUBLISH_AS[o->publish_as]),
             LOG_U64("system_port", system_server_port(b->system)));
    return 0;
}

static void program_stop(void *state, loop_fn stopped, void *arg)
{
    (void)state;
    stopped(arg); /* nothing waits */
}

const struct service_program BRIDGE_PROGRAM = {
    .command = "bridge",
    .summary = "tells the KV events of an engine to routers of Dynamo, on NATS",
    .spec = program_spec,
    .conf_size = sizeof(struct bridge_options),
    .state_size = sizeof(struct bridge),
    .start = program_start,
    .stop = program_stop,
    .done = program_done,
};
