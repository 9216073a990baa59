/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/engine_events.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/kube/kube_config.h"
#include "lib/net/nats_link.h"
#include "router/discovery/event_channels.h"
#include "router/discovery/instances.h"
#include "router/epp/own_thread.h"
#include "router/epp/task.h"
#include "router/frontend/discovery_store.h"
#include "router/frontend/frontend_conf.h"
#include "router/kv/block_hash.h"
#include "router/sync/event_publisher.h"
#include "router/wire/event_bus.h"

static const struct log_target LG = {"commutator::epp::events"};

enum { PATIENCE_MS = 5000, ODD_BLOCKS_TOLD = 3 };

struct engine_events {
    char *ns, *component, *endpoint;
    uint32_t block_size;
    const char *(*env)(const char *name);
    struct own_thread own;
    atomic_uint odd_blocks; /* of another size, told so far */

    /* Of the loop's thread. */
    struct frontend_conf conf;
    struct store *store;
    struct kube_config *kube;
    struct store_hub *nowhere;
    struct instances *instances;
    struct nats_link *nats;
    struct event_bus *bus;
    struct event_publisher *publisher;
    uint64_t worker_id;
    bool knows_model, takes_events;
};

/* --- what is waited for ------------------------------------------------------------------------ */

static void look(struct engine_events *v)
{
    if (!v->knows_model || !v->takes_events)
        return;
    log_info(&LG, "ready to tell KV events", LOG_STR("namespace", v->ns),
             LOG_STR("component", v->component), LOG_U64("worker_id", v->worker_id));
    own_thread_up(&v->own);
}

static void on_instances(void *arg, const struct instances_event *ev)
{
    struct engine_events *v = arg;

    if (ev->channel)
        event_channel_follow(v->bus, ev->channel, ev->change == CHANNEL_ADDED);
    if (ev->change != MODEL_ADDED || v->knows_model)
        return;
    v->knows_model = true;
    look(v);
}

static void begin(void *arg)
{
    struct engine_events *v = arg;

    v->takes_events = true;
    look(v);
}

static void on_nats_state(void *arg, bool up)
{
    struct engine_events *v = arg;

    log_info(&LG, up ? "NATS is connected" : "NATS is away");
    if (!up || !v->publisher)
        return;
    event_publisher_link_up(v->publisher);
    if (v->endpoint)
        begin(v); /* else when the stream is there */
}

/* --- start ------------------------------------------------------------------------------------- */

static bool on_zmq(const struct engine_events *v)
{
    return v->conf.event_plane == EVENT_PLANE_ZMQ;
}

static int read_conf(struct engine_events *v, struct err *e)
{
    char name[] = "dynamo-engine-events";
    char *const argv[] = {name, NULL};
    int r = frontend_conf_load(&v->conf, 1, argv, v->env, e);

    return r < 0 ? r : log_setup(v->conf.log_filter, v->conf.log_jsonl, e);
}

/* In Kubernetes it is the engine's own record that would be written: only for what nobody finds else, and
 * by a pod that knows itself. */
static int open_store(struct engine_events *v, struct err *e)
{
    const struct store_ways ways = {.loop = v->own.loop,
                                    .env = v->env,
                                    .publishes = on_zmq(v) || v->endpoint,
                                    .needs_pod = v->endpoint != NULL};

    return store_open(&v->store, &v->kube, &v->nowhere, &v->conf, &ways, e);
}

static int read_worker(struct engine_events *v, struct err *e)
{
    const char *text = v->env("COMMUTATOR_WORKER_ID");

    v->worker_id = v->store->instance_id;
    if (v->conf.pod_name)
        v->worker_id = instance_id_of_pod(str_from(v->conf.pod_name));
    else if (text && *text && !str_parse_u64(str_from(text), &v->worker_id))
        return err_set(e, -EINVAL, "COMMUTATOR_WORKER_ID '%s' is no number", text);
    return 0;
}

static void on_announce(void *arg, const struct event_channel_info *ch, bool there)
{
    struct engine_events *v = arg;
    struct err e;

    if (v->store && event_channel_announce(v->store, ch, there, &e) < 0)
        log_warn(&LG, "routers do not hear of this engine", LOG_STR("why", e.text));
}

static int start_bus(struct engine_events *v, struct err *e)
{
    struct nats_link_conf nats = frontend_conf_events(&v->conf, "dynamo-engine").nats;
    struct event_bus_conf bus = {.loop = v->own.loop,
                                 .host = v->conf.tcp_rpc_host,
                                 .brokers = v->conf.zmq_brokers,
                                 .find_brokers = v->conf.zmq_find_brokers,
                                 .announce = on_announce,
                                 .arg = v};
    int r = 0;

    nats.state = on_nats_state;
    nats.arg = v;
    if (!on_zmq(v))
        r = nats_link_start(&v->nats, v->own.loop, &nats, e);
    bus.nats = v->nats;
    return r < 0 ? r : event_bus_new(&v->bus, &bus, e);
}

static int start_publisher(struct engine_events *v, struct err *e)
{
    const struct event_publisher_conf conf = {
        .bus = v->bus,
        .ns = v->ns,
        .component = v->component,
        .endpoint = v->endpoint,
        .worker_id = v->worker_id,
        .kv = true,
        .loop = v->own.loop,
        .stream_nats = v->endpoint ? NULL : v->nats,
        .stream_max_age_s = v->conf.stream_max_age_ms / 1000,
        .ready = begin,
        .arg = v,
    };

    return event_publisher_new(&v->publisher, &conf, e);
}

/* Routers of 1.4 and later hear only who stands in discovery as a source of events. */
static int tell_source(struct engine_events *v, struct err *e)
{
    AUTO(buf_done) struct buf metadata = BUF_NULL;
    const struct event_source source = {.ns = v->ns,
                                        .component = v->component,
                                        .endpoint = v->endpoint,
                                        .worker_id = v->worker_id,
                                        .publisher_id = v->worker_id};
    struct record rec;

    if (!v->endpoint)
        return 0;
    record_of_source(&rec, &metadata, &source);
    return store_publish(v->store, &rec, e);
}

static int start(struct engine_events *v, struct err *e)
{
    const struct instances_conf found = {.event = on_instances, .arg = v};
    int r = read_conf(v, e);

    if (r == 0)
        r = open_store(v, e);
    if (r == 0)
        r = read_worker(v, e);
    if (r == 0)
        r = start_bus(v, e);
    if (r == 0)
        r = start_publisher(v, e);
    if (r == 0)
        r = tell_source(v, e);
    if (r == 0)
        r = instances_new(&v->instances, v->own.loop, v->store, &found, e);
    if (r == 0 && on_zmq(v))
        begin(v);
    return r;
}

static void *live(void *arg)
{
    struct engine_events *v = arg;
    struct err e;
    int r = start(v, &e);

    if (r < 0)
        own_thread_fail(&v->own, r, &e);
    else
        loop_run(v->own.loop);
    v->publisher = event_publisher_free(v->publisher);
    instances_free(v->instances);
    v->store = store_free(v->store);
    store_hub_free(v->nowhere);
    event_bus_free(v->bus);
    nats_link_free(v->nats);
    loop_settle(v->own.loop); /* a write to the API server */
    kube_config_free(v->kube);
    conf_done(&FRONTEND_CONF_SPEC, &v->conf);
    return NULL;
}

/* --- life -------------------------------------------------------------------------------------- */

static struct engine_events *release(struct engine_events *v)
{
    free(v->ns);
    free(v->component);
    free(v->endpoint);
    free(v);
    return NULL;
}

int engine_events_new(struct engine_events **ret, const struct engine_events_conf *conf,
                      struct err *e)
{
    struct engine_events *v = xcalloc(1, sizeof(*v));
    int r;

    v->ns = xstrdup(conf->ns);
    v->component = xstrdup(conf->component);
    v->endpoint = conf->endpoint ? xstrdup(conf->endpoint) : NULL;
    v->block_size = conf->block_size;
    v->env = conf->env;
    r = own_thread_start(&v->own, live, v, e);
    if (r < 0)
        release(v);
    else
        *ret = v;
    return r;
}

int engine_events_wait(struct engine_events *v, struct err *e)
{
    return own_thread_wait(&v->own, e);
}

void engine_events_cancel(struct engine_events *v)
{
    own_thread_cancel(&v->own);
}

struct engine_events *engine_events_free(struct engine_events *v)
{
    if (!v)
        return NULL;
    own_thread_join(&v->own);
    return release(v);
}

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

bool engine_events_is_of(const struct engine_events *v, const struct engine_events_conf *conf)
{
    return same(v->ns, conf->ns) && same(v->component, conf->component) &&
           same(v->endpoint, conf->endpoint) && v->block_size == conf->block_size;
}

uint64_t engine_events_worker(const struct engine_events *v)
{
    return v->worker_id;
}

/* --- telling ----------------------------------------------------------------------------------- */

/* Copies: whoever tells may have left when the loop comes to it. */
struct telling {
    struct task task;
    struct engine_events *events;
    struct kv_event event;
    struct kv_block *blocks;
    uint64_t *removed;
    bool lost;
};

static void telling_free(struct task *t)
{
    struct telling *one = (struct telling *)t;

    free(one->blocks);
    free(one->removed);
    free(one);
}

static void tell(struct task *t)
{
    struct telling *one = (struct telling *)t;
    struct event_publisher *p = one->events->publisher;
    uint64_t dropped = p ? event_publisher_dropped(p) : 0;

    one->event.worker_id = one->events->worker_id;
    if (p)
        event_publisher_kv(p, &one->event);
    one->lost = !p || event_publisher_dropped(p) > dropped;
}

static struct telling *telling_new(struct engine_events *v, uint64_t event_id,
                                   enum kv_event_kind kind)
{
    struct telling *one = xcalloc(1, sizeof(*one));

    task_init(&one->task, tell, telling_free);
    one->events = v;
    one->event.event_id = event_id;
    one->event.kind = kind;
    return one;
}

static int send(struct telling *one, struct err *e)
{
    int r = 0;

    if (!task_do(&one->task, one->events->own.loop, PATIENCE_MS))
        r = err_set(e, -ETIMEDOUT, "the event has not left yet");
    else if (one->lost)
        r = err_set(e, -EIO, "the event could not leave");
    task_unref(&one->task);
    return r;
}

/* Blocks before the first that is of another size. */
static size_t whole_blocks(struct engine_events *v, const struct engine_stored *s)
{
    size_t n = 0;

    while (n < s->n_blocks && s->block_tokens[n] == v->block_size)
        n++;
    if (n < s->n_blocks && atomic_fetch_add(&v->odd_blocks, 1) < ODD_BLOCKS_TOLD)
        log_warn(&LG, "a block of another size, and what is behind it, are not told",
                 LOG_U64("tokens", s->block_tokens[n]), LOG_U64("block_size", v->block_size));
    return n;
}

/* One without any block keeps the count of events: routers look for what is missing in it. */
int engine_events_stored(struct engine_events *v, const struct engine_stored *s, struct err *e)
{
    const uint64_t seed = block_hash_seed(s->lora_name, STR_NULL);
    struct telling *one;
    size_t n;

    if (s->n_blocks > KV_EVENT_BLOCKS_MAX)
        return err_set(e, -EMSGSIZE, "%zu blocks are too many for one event", s->n_blocks);
    n = whole_blocks(v, s);
    one = telling_new(v, s->event_id, KV_STORED);
    one->blocks = xcalloc(n + 1, sizeof(*one->blocks));
    for (size_t i = 0; i < n; i++) {
        one->blocks[i].block_hash = s->block_hashes[i];
        (void)block_hash_local_seeded(seed, s->tokens + i * v->block_size, v->block_size,
                                      v->block_size, &one->blocks[i].tokens_hash);
    }
    one->event.parent_hash = s->parent_hash;
    one->event.blocks = one->blocks;
    one->event.n_blocks = n;
    return send(one, e);
}

int engine_events_removed(struct engine_events *v, uint64_t event_id, const uint64_t *block_hashes,
                          size_t n_blocks, struct err *e)
{
    struct telling *one;

    if (n_blocks > KV_EVENT_BLOCKS_MAX)
        return err_set(e, -EMSGSIZE, "%zu blocks are too many for one event", n_blocks);
    one = telling_new(v, event_id, KV_REMOVED);
    one->removed = xcalloc(n_blocks + 1, sizeof(*one->removed));
    if (n_blocks)
        memcpy(one->removed, block_hashes, n_blocks * sizeof(*block_hashes));
    one->event.removed = one->removed;
    one->event.n_removed = n_blocks;
    return send(one, e);
}
