/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/replica.h"

#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sched/affinity.h"
#include "router/sched/scheduler.h"
#include "router/sync/replica_ledger.h"
#include "router/wire/event_bus.h"
#include "router/wire/sequence_event.h"
#include "router/wire/session_event.h"

static const struct log_target LG = {"dynamo_llm::kv_router::sequence"};

enum { TICK_MS = 1000 };

/* One of our bookings, as it was told. */
struct told {
    struct worker_rank worker;
    char id[]; /* request id */
};

struct replica {
    struct replica_conf conf;
    struct replica_ledger *ledger;
    struct scheduler_observer observer;
    struct event_subscription *events, *presence, *sessions;
    struct event_outlet *outlet, *newer_outlet, *presence_outlet, *session_outlet;
    struct sequence_event_reader reader;
    uint64_t publisher_id; /* of the envelope that is read */
    struct map64 told;     /* booking -> struct told */
    struct timer *tick;
    uint64_t announced_ms;
    struct metric *heard[N_REPLICA_OUTCOMES], *bad, *sent, *lost, *routers, *bookings;
    struct metric *sessions_heard[N_REPLICA_OUTCOMES];
};

/* --- telling ---------------------------------------------------------------------------------- */

static void send_to(struct replica *r, struct event_outlet *o, const struct buf *payload)
{
    metric_add(event_outlet_send(o, buf_str(payload)) == 0 ? r->sent : r->lost, 1);
}

static void tell(struct replica *r, const struct sequence_event *ev)
{
    AUTO(buf_done) struct buf older = BUF_NULL, newer = BUF_NULL;

    sequence_event_put(&older, ev, SEQUENCE_FORM_0_9);
    send_to(r, r->outlet, &older);
    if (!replica_ledger_newer(r->ledger))
        return;
    if (event_bus_is_direct(r->conf.bus))
        sequence_list_put(&newer, ev);
    else
        sequence_event_put(&newer, ev, SEQUENCE_FORM_1_X);
    send_to(r, r->newer_outlet, &newer);
}

static void on_booked(struct scheduler_observer *o, const struct route_booked *b)
{
    struct replica *r = CONTAINER_OF(o, struct replica, observer);
    struct told *t = xcalloc(1, sizeof(*t) + b->id.len + 1);
    const struct sequence_event ev = {
        .request_id = b->id,
        .worker_id = b->worker.worker_id,
        .dp_rank = b->worker.dp_rank,
        .kind = SEQUENCE_ADD,
        .router_id = r->conf.router_id,
        .sequence = b->sequence,
        .n_sequence = b->n_blocks,
        .isl = OPT_U64(b->isl),
        .overlap_blocks = OPT_U64(b->overlap_blocks),
        .prefill_tokens = OPT_U64(b->prefill_tokens),
    };

    t->worker = b->worker;
    memcpy(t->id, b->id.ptr, b->id.len);
    map64_put_ptr(&r->told, (uintptr_t)b->booking, t);
    tell(r, &ev);
}

static void tell_of(struct replica *r, const struct told *t, enum sequence_event_kind kind)
{
    tell(r, &(struct sequence_event){.request_id = str_from(t->id),
                                     .worker_id = t->worker.worker_id,
                                     .dp_rank = t->worker.dp_rank,
                                     .kind = kind,
                                     .router_id = r->conf.router_id});
}

static void on_prefilled(struct scheduler_observer *o, const struct booking *b)
{
    struct replica *r = CONTAINER_OF(o, struct replica, observer);
    const struct told *t = map64_find_ptr(&r->told, (uintptr_t)b);

    if (t) /* else another router's, or older than the sync */
        tell_of(r, t, SEQUENCE_PREFILL_DONE);
}

static void on_ended(struct scheduler_observer *o, const struct booking *b)
{
    struct replica *r = CONTAINER_OF(o, struct replica, observer);
    uint64_t value;

    if (map64_remove(&r->told, (uintptr_t)b, &value)) {
        struct told *t = (struct told *)(uintptr_t)value;

        tell_of(r, t, SEQUENCE_FREE);
        free(t);
    }
}

static void on_session(void *arg, const struct affinity_binding *b)
{
    struct replica *r = arg;
    AUTO(buf_done) struct buf payload = BUF_NULL;
    const struct session_event s = replica_session_of(b);

    session_event_put(&payload, &s);
    send_to(r, r->session_outlet, &payload);
}

static void announce(struct replica *r, bool leaving)
{
    AUTO(buf_done) struct buf payload = BUF_NULL;

    if (!r->presence_outlet)
        return;
    router_presence_put(&payload, &(struct router_presence){r->conf.router_id, leaving});
    (void)event_outlet_send(r->presence_outlet, buf_str(&payload));
    r->announced_ms = loop_now_ms(r->conf.loop);
}

/* --- hearing ---------------------------------------------------------------------------------- */

static void show(const struct replica *r)
{
    metric_set(r->routers, (double)replica_ledger_routers(r->ledger));
    metric_set(r->bookings, (double)replica_ledger_bookings(r->ledger));
}

static void on_event(void *arg, const struct sequence_event *ev)
{
    struct replica *r = arg;
    enum replica_outcome outcome =
        replica_ledger_apply(r->ledger, r->publisher_id, ev, clock_now_ns());

    metric_add(r->heard[outcome], 1);
}

static void on_bad(void *arg, const struct err *e)
{
    struct replica *r = arg;

    metric_add(r->bad, 1);
    log_debug(&LG, "event of another router cannot be read, ignoring", LOG_STR("why", e->text));
}

static void on_envelope(void *arg, const struct event_envelope *v)
{
    struct replica *r = arg;
    struct err e;

    r->publisher_id = v->publisher_id;
    if (sequence_events_decode(&r->reader, v->payload, on_event, r, &e) < 0)
        on_bad(r, &e);
    show(r);
}

static void on_session_envelope(void *arg, const struct event_envelope *v)
{
    struct replica *r = arg;
    struct session_event s;
    struct err e;

    if (session_event_decode(v->payload, &s, &e) < 0)
        on_bad(r, &e);
    else
        metric_add(r->sessions_heard[replica_bind(r->conf.scheduler, r->conf.affinity, &s,
                                                  clock_now_ns())],
                   1);
}

static void on_presence(void *arg, const struct event_envelope *v)
{
    struct replica *r = arg;
    struct router_presence p;
    struct err e;

    if (router_presence_decode(v->payload, &p, &e) < 0)
        on_bad(r, &e);
    else if (p.leaving)
        replica_ledger_leave(r->ledger, p.router_id, clock_now_ns());
    else
        replica_ledger_present(r->ledger, p.router_id, clock_now_ns());
    show(r);
}

void replica_publisher_gone(struct replica *r, uint64_t publisher_id)
{
    replica_ledger_publisher_gone(r->ledger, publisher_id, clock_now_ns());
    show(r);
}

static void on_tick(void *arg)
{
    struct replica *r = arg;
    size_t before = replica_ledger_routers(r->ledger);

    replica_ledger_tick(r->ledger, clock_now_ns());
    if (replica_ledger_routers(r->ledger) < before)
        log_info(&LG, "another router is silent", LOG_STR("component", r->conf.component),
                 LOG_U64("routers_left", replica_ledger_routers(r->ledger)));
    show(r);
    if (loop_now_ms(r->conf.loop) >= r->announced_ms + REPLICA_PRESENCE_MS)
        announce(r, false);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct metric_family *family(struct replica *r, enum metric_type type, const char *name,
                                    const char *help, const char *label)
{
    return metric_family(
        r->conf.metrics,
        &(struct metric_desc){.name = name,
                              .help = help,
                              .type = type,
                              .labels = {"dynamo_namespace", "dynamo_component", label}});
}

static void init_metrics(struct replica *r)
{
    struct metric_family *heard = family(r, METRIC_COUNTER, "commutator_router_replica_heard_total",
                                         "Events of other routers, by what was done", "outcome");
    struct metric_family *sent =
        family(r, METRIC_COUNTER, "commutator_router_replica_sent_total",
               "Events for other routers, by whether they could leave", "outcome");
    const char *ns = r->conf.ns, *c = r->conf.component;

    for (size_t i = 0; i < N_REPLICA_OUTCOMES; i++)
        r->heard[i] = metric_with(heard, ns, c, REPLICA_OUTCOME_WORDS[i]);
    for (size_t i = 0; i < N_REPLICA_OUTCOMES; i++)
        r->sessions_heard[i] = metric_with(
            family(r, METRIC_COUNTER, "commutator_router_replica_sessions_heard_total",
                   "Bindings of sessions that other routers told, by what was done", "outcome"),
            ns, c, REPLICA_OUTCOME_WORDS[i]);
    r->bad = metric_with(heard, ns, c, "bad");
    r->sent = metric_with(sent, ns, c, "sent");
    r->lost = metric_with(sent, ns, c, "lost");
    r->routers = metric_with(family(r, METRIC_GAUGE, "commutator_router_replica_routers",
                                    "Other routers that place requests on these workers", NULL),
                             ns, c);
    r->bookings = metric_with(family(r, METRIC_GAUGE, "commutator_router_replica_bookings",
                                     "Requests that other routers have placed", NULL),
                              ns, c);
}

static int open_outlets(struct replica *r, struct err *e)
{
    const struct replica_conf *c = &r->conf;
    const struct event_topic older = {c->ns, c->component, NULL, TOPIC_ACTIVE_SEQUENCES};
    const struct event_topic newer = {c->ns, c->component, c->endpoint, TOPIC_ACTIVE_SEQUENCES};
    const struct event_topic presence = {c->ns, c->component, NULL, TOPIC_ROUTER_PRESENCE};
    int x = event_outlet_new(&r->outlet, c->bus, &older, event_publisher_id(), e);

    if (x == 0)
        x = event_outlet_new(&r->newer_outlet, c->bus, &newer, event_publisher_id(), e);
    if (x == 0)
        x = event_outlet_new(&r->presence_outlet, c->bus, &presence, event_publisher_id(), e);
    return x;
}

static int share_sessions(struct replica *r, struct err *e)
{
    const struct replica_conf *c = &r->conf;
    const struct event_topic topic = {c->ns, c->component, c->endpoint, TOPIC_SESSION_AFFINITY};
    const struct event_handlers heard = {.event = on_session_envelope, .bad = on_bad, .arg = r};
    int x;

    if (!c->affinity)
        return 0;
    x = event_outlet_new(&r->session_outlet, c->bus, &topic, event_publisher_id(), e);
    if (x == 0)
        x = event_bus_subscribe(&r->sessions, c->bus, &topic, &heard, e);
    if (x == 0)
        affinity_share(c->affinity, c->router_id, clock_wall_ms() * UINT64_C(1000000), on_session,
                       r);
    return x;
}

static int subscribe(struct replica *r, struct err *e)
{
    const struct replica_conf *c = &r->conf;
    const struct event_topic events = {c->ns, c->component, c->endpoint, TOPIC_ACTIVE_SEQUENCES};
    const struct event_topic presence = {c->ns, c->component, c->endpoint, TOPIC_ROUTER_PRESENCE};
    const struct event_handlers on_events = {.event = on_envelope, .bad = on_bad, .arg = r};
    const struct event_handlers on_presences = {.event = on_presence, .bad = on_bad, .arg = r};
    int x = event_bus_subscribe(&r->presence, c->bus, &presence, &on_presences, e);

    return x < 0 ? x : event_bus_subscribe(&r->events, c->bus, &events, &on_events, e);
}

int replica_start(struct replica **ret, const struct replica_conf *conf, struct err *e)
{
    AUTO(replica_free) struct replica *r = xcalloc(1, sizeof(*r));
    int x;

    r->conf = *conf;
    r->ledger = replica_ledger_new(conf->scheduler, conf->router_id);
    init_metrics(r);
    x = open_outlets(r, e);
    if (x == 0)
        x = subscribe(r, e);
    if (x == 0)
        x = share_sessions(r, e);
    if (x < 0)
        return x;
    r->observer = (struct scheduler_observer){
        .booked = on_booked, .prefilled = on_prefilled, .ended = on_ended};
    scheduler_observe(conf->scheduler, &r->observer);
    r->tick = timer_new(conf->loop, on_tick, r);
    timer_start_repeat(r->tick, TICK_MS);
    announce(r, false);
    *ret = TAKE(r);
    return 0;
}

struct replica *replica_free(struct replica *r)
{
    uint64_t booking, value;
    size_t at = 0;

    if (!r)
        return NULL;
    announce(r, true);
    list_remove(&r->observer.link);
    timer_free(r->tick);
    event_subscription_free(r->events);
    event_subscription_free(r->presence);
    event_subscription_free(r->sessions);
    if (r->conf.affinity)
        affinity_share(r->conf.affinity, r->conf.router_id, 0, NULL, NULL);
    event_outlet_free(r->outlet);
    event_outlet_free(r->newer_outlet);
    event_outlet_free(r->presence_outlet);
    event_outlet_free(r->session_outlet);
    replica_ledger_free(r->ledger);
    while (map64_next(&r->told, &at, &booking, &value))
        free((struct told *)(uintptr_t)value);
    map64_done(&r->told);
    sequence_event_reader_done(&r->reader);
    free(r);
    return NULL;
}
