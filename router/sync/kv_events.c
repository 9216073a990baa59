/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_events.h"

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sched/scheduler.h"
#include "router/sync/event_blocks.h"
#include "router/sync/index_keeper.h"
#include "router/sync/kv_intake.h"
#include "router/sync/kv_stream.h"
#include "router/wire/event_bus.h"
#include "router/wire/kv_snapshot.h"

static const struct log_target LG = {"dynamo_llm::kv_router"};

/* Ids of instances have 53 bits where Kubernetes gives them; ours looks the same. */
#define ROUTER_ID_MASK UINT64_C(0x1FFFFFFFFFFFFF)

struct kv_events {
    struct kv_events_conf conf;
    struct nats_link *nats;
    struct event_bus *bus;
    struct list feeds;
};

struct kv_feed {
    struct list link;
    struct kv_events *events;
    struct kv_feed_conf conf;
    struct kv_intake *intake;
    struct index_keeper *keeper; /* NULL: the index is not kept */
    struct kv_stream *stream;    /* NULL: every worker has a local indexer */
    struct map64 workers;        /* id -> whether it has a local indexer */
    struct timer *choose;        /* at the end of the turn that brought workers */
    bool chosen;
};

/* --- links ---------------------------------------------------------------------------------------- */

static void on_nats(void *arg, bool up)
{
    struct kv_events *v = arg;

    if (!up) {
        log_warn(&LG, "NATS is not reachable, routing goes on with what is known");
        return;
    }
    log_info(&LG, "NATS connected");
    LIST_FOREACH (fd, &v->feeds, struct kv_feed, link) {
        /* A worker that stays silent from now on would never show that its events were missed. */
        if (!v->conf.zmq)
            kv_intake_check(fd->intake);
        if (fd->stream)
            kv_stream_link_up(fd->stream);
    }
}

static int use_nats(struct kv_events *v, struct err *e)
{
    struct nats_link_conf conf = v->conf.nats;

    conf.state = on_nats;
    conf.arg = v;
    conf.not_to_self = true;  /* what this router tells of itself it knows */
    conf.each_at_once = true; /* few, and far between: waking one more thread costs more */
    return v->nats ? 0 : nats_link_start(&v->nats, v->conf.loop, &conf, e);
}

int kv_events_start(struct kv_events **ret, const struct kv_events_conf *conf, struct err *e)
{
    AUTO(kv_events_free) struct kv_events *v = xcalloc(1, sizeof(*v));
    struct event_bus_conf bus = {.loop = conf->loop,
                                 .brokers = conf->brokers,
                                 .find_brokers = conf->find_brokers,
                                 .not_to_self = true,
                                 .announce = conf->announce,
                                 .arg = conf->arg};
    int r = 0;

    v->conf = *conf;
    if (!conf->router_id)
        v->conf.router_id = random_u64() & ROUTER_ID_MASK;
    list_init(&v->feeds);
    if (!conf->zmq)
        r = use_nats(v, e);
    bus.nats = v->nats;
    if (r == 0)
        r = event_bus_new(&v->bus, &bus, e);
    if (r < 0)
        return err_wrap(e, r, "KV events");
    *ret = TAKE(v);
    return 0;
}

struct kv_events *kv_events_free(struct kv_events *v)
{
    if (!v)
        return NULL;
    event_bus_free(v->bus);
    nats_link_free(v->nats);
    free(v);
    return NULL;
}

struct event_bus *kv_events_bus(const struct kv_events *v)
{
    return v ? v->bus : NULL;
}

struct nats_link *kv_events_nats(const struct kv_events *v)
{
    return v ? v->nats : NULL;
}

/* --- JetStream ------------------------------------------------------------------------------------ */

static void on_stream_event(void *arg, struct str json)
{
    kv_intake_json(((struct kv_feed *)arg)->intake, json);
}

static void on_snapshot_event(void *arg, const struct kv_event *ev)
{
    struct scheduler *s = ((struct kv_feed *)arg)->conf.scheduler;
    struct worker_rank w = {ev->worker_id, ev->dp_rank};

    /* Its ids count the snapshot's events, so that they say nothing about order. */
    if (ev->kind == KV_STORED)
        (void)!scheduler_store(s, w, event_parent(ev), event_blocks(ev), ev->n_blocks);
}

static void on_snapshot(void *arg, struct str bytes)
{
    AUTO(kv_event_reader_done) struct kv_event_reader reader = {0};
    struct err e;

    if (kv_snapshot_decode(&reader, bytes, on_snapshot_event, arg, &e) < 0)
        log_warn(&LG, "the rest of the snapshot cannot be read", LOG_STR("why", e.text));
}

struct dump {
    struct worker_rank worker;
    struct buf events;
    uint64_t n;
};

static void dump_blocks(void *arg, const uint64_t *parent, const struct prefix_block *blocks,
                        size_t n)
{
    struct dump *d = arg;
    struct kv_event ev = {.worker_id = d->worker.worker_id,
                          .dp_rank = d->worker.dp_rank,
                          .event_id = d->n++,
                          .kind = KV_STORED,
                          .blocks = blocks_of_event(blocks),
                          .n_blocks = n};

    if (parent)
        ev.parent_hash = OPT_U64(*parent);
    kv_snapshot_event_put(&d->events, &ev);
}

/* Nobody would take back the blocks of a worker that has left: it is not told of. */
static void put_snapshot(void *arg, struct buf *out)
{
    const struct kv_feed *fd = arg;
    struct scheduler *s = fd->conf.scheduler;
    struct dump d = {.n = 0};

    for (uint32_t slot = 0; slot < scheduler_slots_end(s); slot++)
        if (scheduler_rank_at(s, slot, &d.worker) && map64_find(&fd->workers, d.worker.worker_id))
            prefix_index_each(scheduler_index(s), slot, dump_blocks, &d);
    kv_snapshot_begin_put(out, d.n);
    buf_put_str(out, buf_str(&d.events));
    buf_done(&d.events);
}

static int join_stream(struct kv_feed *fd, struct err *e)
{
    struct kv_events *v = fd->events;
    struct kv_stream_conf conf = {.loop = v->conf.loop,
                                  .ns = fd->conf.ns,
                                  .component = fd->conf.component,
                                  .router_id = v->conf.router_id,
                                  .max_age_s = v->conf.stream_max_age_s,
                                  .reset = v->conf.reset_states,
                                  .event = on_stream_event,
                                  .snapshot_threshold = v->conf.snapshot_threshold,
                                  .restore = on_snapshot,
                                  .dump = put_snapshot,
                                  .arg = fd};
    int r = use_nats(v, e);

    conf.nats = v->nats;
    return r < 0 ? r : kv_stream_start(&fd->stream, &conf, e);
}

static size_t without_indexer(const struct kv_feed *fd)
{
    uint64_t id, has;
    size_t at = 0, n = 0;

    while (map64_next(&fd->workers, &at, &id, &has))
        n += !has;
    return n;
}

static void choose(void *arg)
{
    struct kv_feed *fd = arg;
    size_t n = fd->workers.len;
    bool stream = without_indexer(fd) > 0;
    struct err e;

    if (fd->stream || n == 0 || (fd->chosen && !stream))
        return;
    if (!fd->chosen)
        log_emitf(&LG, LOG_INFO, NULL, 0, "Found %zu worker(s), starting KV event subscriber", n);
    if (stream) {
        log_info(&LG, "Not all workers have local_indexer enabled, using JetStream subscription");
        if (fd->events->conf.zmq)
            log_warn(&LG, "events of workers without local_indexer come by NATS, although the "
                          "event plane is zmq");
        if (join_stream(fd, &e) < 0)
            log_error(&LG, "no KV events of workers without local_indexer", LOG_STR("why", e.text));
    } else {
        log_emitf(&LG, LOG_INFO, NULL, 0,
                  "All %zu workers have local_indexer enabled, using NATS Core subscription", n);
    }
    if (!fd->chosen)
        log_info(&LG, "KV Routing initialized");
    fd->chosen = true;
}

/* --- feeds ---------------------------------------------------------------------------------------- */

int kv_feed_start(struct kv_feed **ret, struct kv_events *v, const struct kv_feed_conf *conf,
                  struct err *e)
{
    AUTO(kv_feed_free) struct kv_feed *fd = xcalloc(1, sizeof(*fd));
    const struct kv_intake_conf intake = {.loop = v->conf.loop,
                                          .bus = v->bus,
                                          .plane = v->conf.plane,
                                          .scheduler = conf->scheduler,
                                          .metrics = v->conf.metrics,
                                          .ns = conf->ns,
                                          .component = conf->component,
                                          .endpoint = conf->endpoint};
    int r;

    fd->events = v;
    fd->conf = *conf;
    fd->choose = timer_new(v->conf.loop, choose, fd);
    list_append(&v->feeds, &fd->link);
    r = kv_intake_start(&fd->intake, &intake, e);
    if (r < 0)
        return r;
    if (v->conf.index_folder)
        fd->keeper =
            index_keeper_new(&(struct index_keeper_conf){.loop = v->conf.loop,
                                                         .scheduler = conf->scheduler,
                                                         .intake = fd->intake,
                                                         .metrics = v->conf.metrics,
                                                         .folder = v->conf.index_folder,
                                                         .ns = conf->ns,
                                                         .component = conf->component,
                                                         .endpoint = conf->endpoint,
                                                         .period_ms = v->conf.index_period_ms});
    *ret = TAKE(fd);
    return 0;
}

struct kv_feed *kv_feed_free(struct kv_feed *fd)
{
    if (!fd)
        return NULL;
    list_remove(&fd->link);
    timer_free(fd->choose);
    kv_stream_free(fd->stream);
    index_keeper_free(fd->keeper);
    kv_intake_free(fd->intake);
    map64_done(&fd->workers);
    free(fd);
    return NULL;
}

void kv_feed_put_worker(struct kv_feed *fd, const struct kv_intake_worker *w)
{
    *map64_put(&fd->workers, w->worker_id, NULL) = w->askable;
    timer_start(fd->choose, 0);
    kv_intake_put_worker(fd->intake, w);
}

void kv_feed_remove_worker(struct kv_feed *fd, uint64_t worker_id)
{
    (void)map64_remove(&fd->workers, worker_id, NULL);
    kv_intake_remove_worker(fd->intake, worker_id);
}
