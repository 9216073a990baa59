/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_intake.h"

#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sched/scheduler.h"
#include "router/sched/signals.h"
#include "router/sync/event_order.h"
#include "router/sync/event_proof.h"
#include "router/sync/kv_apply.h"
#include "router/sync/kv_recovery.h"
#include "router/wire/event_bus.h"
#include "router/wire/kv_event.h"

static const struct log_target LG = {"dynamo_llm::kv_router::indexer"};

enum { TICK_MS = 1000 };

static const char *const FILTER_WORDS[N_KV_FILTERS] = {
    [KV_FILTER_BAD] = "bad",
    [KV_FILTER_UNKNOWN_TIER] = "unknown_tier",
    [KV_FILTER_BLOCK_SIZE] = "block_size",
    [KV_FILTER_ATTENTION] = "attention_group",
    [KV_FILTER_RAW_HASH] = "raw_hash",
    [KV_FILTER_SALT] = "salt",
    [KV_FILTER_DUPLICATE] = "duplicate",
    [KV_FILTER_STALE] = "stale",
    [KV_FILTER_UNKNOWN_RANK] = "unknown_rank",
};
enum problem { GAP, RESTART, OVERFLOW, GAVE_UP, ORPHAN, N_PROBLEMS };
static const char *const PROBLEM_WORDS[] = {"gap", "restart", "overflow", "gave_up", "orphan"};

struct kv_intake {
    struct kv_intake_conf conf;
    struct event_subscription *events, *loads;
    struct event_order *order;
    struct event_proofs proofs;
    bool keeps_proofs;
    struct map64 misfits; /* workers whose blocks have another size */
    struct kv_recovery *recovery;
    struct timer *tick;
    struct kv_event_reader reader;
    uint64_t sent_ms; /* of the message that is being read */
    struct metric *seen, *applied[KV_CLEARED + 1][N_KV_APPLIED];
    struct metric *known; /* stores of nothing new */
    struct metric *filtered[N_KV_FILTERS], *problems[N_PROBLEMS], *ranks, *held_bytes;
    uint64_t n_bad;
};

/* --- what the order of events asks for -------------------------------------------------------- */

static bool on_apply(void *arg, const struct kv_event *ev, bool live)
{
    struct kv_intake *k = arg;
    struct worker_rank w = {ev->worker_id, ev->dp_rank};
    enum kv_applied applied;
    bool known;

    if (k->keeps_proofs)
        event_proofs_saw(&k->proofs, ev);
    (live ? scheduler_signal_event : scheduler_signal_told)(k->conf.scheduler, w,
                                                            loop_now_ms(k->conf.loop));
    if (ev->tier == KV_TIER_UNKNOWN) {
        kv_intake_filtered(k, KV_FILTER_UNKNOWN_TIER);
        return true;
    }
    applied = kv_apply(k->conf.scheduler, ev, &known);
    if (known)
        metric_add(k->known, 1);
    if (ev->tier == KV_TIER_DEVICE) /* the reference counts these */
        metric_add(k->applied[ev->kind][applied], 1);
    if (applied == KV_APPLIED_NO_PARENT) {
        metric_add(k->problems[ORPHAN], 1);
        scheduler_signal_fault(k->conf.scheduler, w, SIGNAL_ORPHAN);
    }
    return applied != KV_APPLIED_NO_PARENT;
}

static void on_clear(void *arg, struct worker_rank w)
{
    struct kv_intake *k = arg;

    event_proofs_reset(&k->proofs, w);
    scheduler_clear(k->conf.scheduler, w);
}

static void on_forget(void *arg, uint64_t worker_id)
{
    struct kv_intake *k = arg;

    event_proofs_forget(&k->proofs, worker_id);
    scheduler_remove_worker(k->conf.scheduler, worker_id);
}

static void on_withdraw(void *arg, uint64_t question)
{
    kv_recovery_withdraw(((struct kv_intake *)arg)->recovery, question);
}

static void say(enum log_level level, struct worker_rank w, const char *what, uint64_t n)
{
    log_emitf(&LG, level, NULL, 0, "worker %llu rank %u: %s (%llu)",
              (unsigned long long)w.worker_id, w.dp_rank, what, (unsigned long long)n);
}

static void on_note(void *arg, enum event_note what, struct worker_rank w, uint64_t first,
                    uint64_t last)
{
    struct kv_intake *k = arg;

    switch (what) {
    case EVENT_GAP:
        metric_add(k->problems[GAP], 1);
        scheduler_signal_fault(k->conf.scheduler, w, SIGNAL_GAP);
        log_emitf(
            &LG, LOG_WARN, NULL, 0,
            "Event ID gap detected for worker %llu, recovering events [%llu, %llu], gap_size: %llu",
            (unsigned long long)w.worker_id, (unsigned long long)first, (unsigned long long)last,
            (unsigned long long)(last - first + 1));
        break;
    case EVENT_RESTARTED:
        metric_add(k->problems[RESTART], 1);
        say(LOG_INFO, w, "engine restarted, its old blocks are dropped; its last event", last);
        break;
    case EVENT_OVERFLOW:
        metric_add(k->problems[OVERFLOW], 1);
        say(LOG_WARN, w, "too many events wait for missing ones, asking for a dump; dropped",
            first);
        break;
    case EVENT_GAVE_UP:
        metric_add(k->problems[GAVE_UP], 1);
        say(LOG_WARN, w, "missing events cannot be recovered, going on without them; events so far",
            last);
        break;
    case EVENT_DUPLICATE:
        kv_intake_filtered(k, KV_FILTER_DUPLICATE);
        break;
    case EVENT_STALE:
        kv_intake_filtered(k, KV_FILTER_STALE);
        break;
    case EVENT_UNKNOWN_RANK:
        kv_intake_filtered(k, KV_FILTER_UNKNOWN_RANK);
        break;
    }
}

/* --- sources ---------------------------------------------------------------------------------- */

void kv_intake_filtered(struct kv_intake *k, enum kv_filter why)
{
    metric_add(k->filtered[why], 1);
}

static void ask_what_is_missing(struct kv_intake *k)
{
    if (event_order_stats(k->order).waiting)
        kv_recovery_kick(k->recovery);
}

static void on_event(void *arg, const struct kv_event *ev)
{
    struct kv_intake *k = arg;

    metric_add(k->seen, 1);
    if (k->misfits.len && map64_find(&k->misfits, ev->worker_id)) {
        kv_intake_filtered(k, KV_FILTER_BLOCK_SIZE);
        return;
    }
    event_order_live(k->order, ev, k->sent_ms, loop_now_ms(k->conf.loop));
}

void kv_intake_event(struct kv_intake *k, const struct kv_event *ev, uint64_t sent_ms)
{
    k->sent_ms = sent_ms;
    on_event(k, ev);
    ask_what_is_missing(k);
}

/* Said at the first, second, fourth, eighth …: a flood of them must not flood the log too. */
static void complain(void *arg, const struct err *e)
{
    struct kv_intake *k = arg;

    kv_intake_filtered(k, KV_FILTER_BAD);
    k->n_bad++;
    if ((k->n_bad & (k->n_bad - 1)) == 0)
        log_warn(&LG, "KV event cannot be read, ignoring", LOG_STR("component", k->conf.component),
                 LOG_U64("so_far", k->n_bad), LOG_STR("why", e->text));
}

static void on_envelope(void *arg, const struct event_envelope *envelope)
{
    struct kv_intake *k = arg;
    struct err e;

    k->sent_ms = envelope->published_at;
    if (kv_events_decode(&k->reader, envelope->payload, on_event, k, &e) < 0)
        complain(k, &e);
    ask_what_is_missing(k);
}

/* JetStream tells no time, and keeps the order. */
void kv_intake_json(struct kv_intake *k, struct str json)
{
    struct err e;

    k->sent_ms = 0;
    if (kv_events_parse(&k->reader, json, on_event, k, &e) < 0)
        complain(k, &e);
    ask_what_is_missing(k);
}

/*
 * A worker tells one number, of what it runs; 1.x has a name of its own for it. Routers tell two, of
 * what they have booked there: each knows a part, and one that died would be believed for ever, so
 * theirs are left to replica sync (router.md §2.8).
 */
static void on_load(void *arg, const struct event_envelope *envelope)
{
    struct kv_intake *k = arg;
    struct active_load load;
    struct opt_u64 blocks;
    struct err e;

    if (active_load_decode(envelope->payload, &load, &e) < 0) {
        complain(k, &e);
        return;
    }
    blocks = load.active_decode_blocks.set ? load.active_decode_blocks : load.kv_used_blocks;
    if (blocks.set && !load.active_prefill_tokens.set)
        scheduler_report_load(k->conf.scheduler, (struct worker_rank){load.worker_id, load.dp_rank},
                              blocks.v);
}

/* The workers of 0.9 publish under their own id; who is meant by another one is not known here. */
static void on_joined(void *arg, uint64_t publisher_id)
{
    struct kv_intake *k = arg;

    if (!event_order_check_worker(k->order, publisher_id, loop_now_ms(k->conf.loop)))
        event_order_check(k->order, loop_now_ms(k->conf.loop));
    ask_what_is_missing(k);
}

/* --- workers ---------------------------------------------------------------------------------- */

void kv_intake_put_worker(struct kv_intake *k, const struct kv_intake_worker *w)
{
    if (scheduler_signal_block_size(k->conf.scheduler, w->worker_id, w->block_size)) {
        (void)map64_remove(&k->misfits, w->worker_id, NULL);
    } else {
        (void)map64_put(&k->misfits, w->worker_id, NULL);
        event_order_remove_worker(k->order, w->worker_id);
        scheduler_clear_worker(k->conf.scheduler, w->worker_id);
        return;
    }
    kv_recovery_put_worker(k->recovery, w->worker_id, w->address, w->queries);
    event_order_put_worker(k->order, w->worker_id, w->dp_start, w->dp_size, w->askable,
                           loop_now_ms(k->conf.loop));
    ask_what_is_missing(k);
}

void kv_intake_remove_worker(struct kv_intake *k, uint64_t worker_id)
{
    event_order_remove_worker(k->order, worker_id);
    event_proofs_forget(&k->proofs, worker_id);
    (void)map64_remove(&k->misfits, worker_id, NULL);
    kv_recovery_remove_worker(k->recovery, worker_id);
}

void kv_intake_check(struct kv_intake *k)
{
    event_order_check(k->order, loop_now_ms(k->conf.loop));
    ask_what_is_missing(k);
}

bool kv_intake_position(const struct kv_intake *k, struct worker_rank w, struct event_position *ret)
{
    if (!event_order_position(k->order, w, ret))
        return false;
    ret->proof = ret->next ? event_proofs_of(&k->proofs, w, ret->next - 1) : 0;
    return true;
}

bool kv_intake_resume(struct kv_intake *k, struct worker_rank w, struct event_position at)
{
    bool proves = k->keeps_proofs && at.proof && at.next;

    at.next -= proves;
    if (!event_order_resume(k->order, w, at, loop_now_ms(k->conf.loop)))
        return false;
    if (proves)
        event_proofs_expect(&k->proofs, w, at.next, at.proof);
    return true;
}

void kv_intake_keep_proofs(struct kv_intake *k)
{
    k->keeps_proofs = true;
}

/* Ranks whose worker has answered, and not told the event that they stand for as it was. */
static void check_proofs(struct kv_intake *k, uint64_t now_ms)
{
    struct event_position at;
    struct worker_rank w;
    size_t i = 0;

    while (event_proofs_next(&k->proofs, &i, &w)) {
        if (!event_order_position(k->order, w, &at))
            continue; /* it has not answered, or is asked for a dump anyhow */
        log_info(&LG, "its engine is another one than that of the kept index: asking for a dump",
                 LOG_U64("worker_id", w.worker_id), LOG_U64("dp_rank", w.dp_rank));
        metric_add(k->problems[RESTART], 1);
        event_proofs_reset(&k->proofs, w);
        event_order_doubt(k->order, w, now_ms);
    }
}

static void on_verdict(void *arg, struct worker_rank w, const struct signal_health *h,
                       enum signal_verdict verdict)
{
    struct kv_intake *k = arg;
    uint64_t now_ms = loop_now_ms(k->conf.loop);
    AUTO(buf_done) struct buf reason = BUF_NULL;

    switch (verdict) {
    case SIGNAL_SAME:
        break;
    case SIGNAL_DIED:
        signal_health_reason(h, w, now_ms, &reason);
        log_warn(&LG, buf_cstr(&reason), LOG_STR("instead", "its cache is predicted from routing"));
        break;
    case SIGNAL_REVIVED:
        log_info(&LG, "KV events come again", LOG_U64("worker_id", w.worker_id),
                 LOG_U64("dp_rank", w.dp_rank));
        break;
    case SIGNAL_ASK_NEWS:
        (void)event_order_check_worker(k->order, w.worker_id, now_ms);
        break;
    case SIGNAL_ASK_ALL:
        event_order_doubt(k->order, w, now_ms);
        break;
    }
}

static void on_tick(void *arg)
{
    struct kv_intake *k = arg;
    uint64_t now_ms = loop_now_ms(k->conf.loop);
    struct event_order_stats s;

    event_order_tick(k->order, now_ms);
    check_proofs(k, now_ms);
    scheduler_judge_signals(k->conf.scheduler, now_ms, on_verdict, k);
    ask_what_is_missing(k);
    s = event_order_stats(k->order);
    metric_set(k->ranks, (double)s.ranks);
    metric_set(k->held_bytes, (double)s.held_bytes);
}

/* --- life ------------------------------------------------------------------------------------- */

static struct metric_family *family(struct kv_intake *k, enum metric_type type, const char *name,
                                    const char *help, const char *label)
{
    return metric_family(
        k->conf.metrics,
        &(struct metric_desc){.name = name,
                              .help = help,
                              .type = type,
                              .labels = {"dynamo_namespace", "dynamo_component", label}});
}

static void init_metrics(struct kv_intake *k)
{
    static const struct metric_desc applied = {
        .name = "dynamo_component_kv_cache_events_applied",
        .help = "KV cache events, by what the index made of them",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "event_type", "status"}};
    struct metric_family *f = metric_family(k->conf.metrics, &applied);
    struct metric_family *filtered =
        family(k, METRIC_COUNTER, "commutator_router_kv_events_filtered_total",
               "KV events left out, by reason", "reason");
    struct metric_family *problems =
        family(k, METRIC_COUNTER, "commutator_router_kv_event_problems_total",
               "KV events that did not follow, and what came of it", "problem");
    const char *ns = k->conf.ns, *c = k->conf.component;

    for (size_t kind = 0; kind < ARRAY_LEN(KV_KIND_WORDS); kind++)
        for (size_t i = 0; i < N_KV_APPLIED; i++)
            k->applied[kind][i] = metric_with(f, ns, c, KV_KIND_WORDS[kind], KV_APPLIED_WORDS[i]);
    k->known = metric_with(family(k, METRIC_COUNTER, "dynamo_component_kv_cache_event_warnings",
                                  "KV cache events that look wrong", "warning_kind"),
                           ns, c, KV_WARNING_KNOWN);
    for (size_t i = 0; i < N_KV_FILTERS; i++)
        k->filtered[i] = metric_with(filtered, ns, c, FILTER_WORDS[i]);
    for (size_t i = 0; i < N_PROBLEMS; i++)
        k->problems[i] = metric_with(problems, ns, c, PROBLEM_WORDS[i]);
    k->seen = metric_with(family(k, METRIC_COUNTER, "commutator_router_kv_events_seen_total",
                                 "KV events that came", NULL),
                          ns, c);
    k->ranks = metric_with(family(k, METRIC_GAUGE, "commutator_router_kv_event_ranks",
                                  "Ranks whose events are followed", NULL),
                           ns, c);
    k->held_bytes = metric_with(family(k, METRIC_GAUGE, "commutator_router_kv_events_held_bytes",
                                       "Events that wait for missing ones", NULL),
                                ns, c);
}

static int hear(struct kv_intake *k, struct err *e)
{
    const struct kv_intake_conf *c = &k->conf;
    const struct event_topic events = {c->ns, c->component, c->endpoint, TOPIC_KV_EVENTS};
    const struct event_topic loads = {c->ns, c->component, c->endpoint, TOPIC_KV_METRICS};
    const struct event_handlers on_events = {on_envelope, complain, on_joined, k};
    const struct event_handlers on_loads = {on_load, complain, NULL, k};
    int r;

    if (!c->bus)
        return 0;
    r = event_bus_subscribe(&k->events, c->bus, &events, &on_events, e);
    if (r == 0)
        r = event_bus_subscribe(&k->loads, c->bus, &loads, &on_loads, e);
    return r;
}

int kv_intake_start(struct kv_intake **ret, const struct kv_intake_conf *conf, struct err *e)
{
    AUTO(kv_intake_free) struct kv_intake *k = xcalloc(1, sizeof(*k));
    const struct event_order_sink sink = {.apply = on_apply,
                                          .clear = on_clear,
                                          .forget = on_forget,
                                          .withdraw = on_withdraw,
                                          .note = on_note,
                                          .arg = k};
    int r;

    k->conf = *conf;
    init_metrics(k);
    k->order = event_order_new(&sink);
    k->recovery = kv_recovery_new(&(struct kv_recovery_conf){.loop = conf->loop,
                                                             .plane = conf->plane,
                                                             .order = k->order,
                                                             .metrics = conf->metrics,
                                                             .ns = conf->ns,
                                                             .component = conf->component});
    k->tick = timer_new(conf->loop, on_tick, k);
    timer_start_repeat(k->tick, TICK_MS);
    r = hear(k, e);
    if (r < 0)
        return r;
    *ret = TAKE(k);
    return 0;
}

struct kv_intake *kv_intake_free(struct kv_intake *k)
{
    if (!k)
        return NULL;
    event_subscription_free(k->events);
    event_subscription_free(k->loads);
    timer_free(k->tick);
    kv_recovery_free(k->recovery);
    event_order_free(k->order);
    event_proofs_done(&k->proofs);
    map64_done(&k->misfits);
    kv_event_reader_done(&k->reader);
    free(k);
    return NULL;
}
