/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_intake.h"

#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sched/scheduler.h"
#include "router/wire/kv_event.h"

static const struct log_target LG = {"dynamo_llm::kv_router::indexer"};

enum { SUBJECTS = 3 };

/* Outcomes of the reference's counter, by what the index answered. */
enum status { OK, PARENT_NOT_FOUND, BLOCK_NOT_FOUND, INVALID_BLOCK, N_STATUS };
static const char *const STATUS_WORDS[] = {"ok", "parent_block_not_found", "block_not_found",
                                           "invalid_block"};
static const char *const KIND_WORDS[] = {"stored", "removed", "cleared"};

struct kv_intake {
    struct kv_intake_conf conf;
    uint64_t subscriptions[SUBJECTS];
    size_t n_subscriptions;
    struct kv_event_reader reader;
    struct map64 last_ids; /* worker and rank -> id of its last event + 1 */
    struct metric *applied[KV_CLEARED + 1][N_STATUS];
    struct metric *gaps, *restarts, *bad, *other_tier;
    uint64_t n_bad;
    bool dump; /* what is read now is an answer, whose ids mean nothing */
};

/* Events are handed to the index as they were read. */
_Static_assert(sizeof(struct prefix_block) == sizeof(struct kv_block) &&
                   offsetof(struct prefix_block, local) == offsetof(struct kv_block, tokens_hash),
               "same layout");

/* --- events ------------------------------------------------------------------------------------
 */

static uint64_t rank_key(uint64_t worker_id, uint32_t dp_rank)
{
    return worker_id ^ (uint64_t)dp_rank * UINT64_C(0xD6E8FEB86659FD93);
}

static enum status status_of(int outcome)
{
    switch (outcome) {
    case 0:
        return OK;
    case PREFIX_NO_PARENT:
        return PARENT_NOT_FOUND;
    case PREFIX_UNKNOWN:
        return BLOCK_NOT_FOUND;
    default:
        return INVALID_BLOCK;
    }
}

static int apply(struct kv_intake *k, const struct kv_event *ev)
{
    struct worker_rank w = {ev->worker_id, ev->dp_rank};
    struct scheduler *s = k->conf.scheduler;

    switch (ev->kind) {
    case KV_STORED:
        return scheduler_store(s, w, ev->parent_hash.set ? &ev->parent_hash.v : NULL,
                               (const struct prefix_block *)(const void *)ev->blocks, ev->n_blocks);
    case KV_REMOVED:
        return scheduler_remove(s, w, ev->removed, ev->n_removed);
    case KV_CLEARED:
        scheduler_clear(s, w);
        break;
    }
    return 0;
}

/* Looks at the event's id; true when it follows the last one, or is the first. */
static bool in_order(struct kv_intake *k, const struct kv_event *ev)
{
    bool first;
    uint64_t *next = map64_put(&k->last_ids, rank_key(ev->worker_id, ev->dp_rank), &first);
    uint64_t expected = *next;

    *next = ev->event_id + 1;
    if (first || ev->event_id == expected || ev->event_id + 1 == expected)
        return true; /* several events of one engine batch may share an id (router.md §2.7) */
    if (ev->event_id == 0) {
        log_info(&LG, "engine restarted, its old blocks are dropped",
                 LOG_U64("worker_id", ev->worker_id), LOG_U64("dp_rank", ev->dp_rank));
        metric_add(k->restarts, 1);
        scheduler_clear(k->conf.scheduler, (struct worker_rank){ev->worker_id, ev->dp_rank});
        return true;
    }
    if (ev->event_id < expected) {
        *next = expected; /* late or repeated: applied, and forgotten */
        return true;
    }
    metric_add(k->gaps, 1);
    log_emitf(
        &LG, LOG_WARN, NULL, 0,
        "Event ID gap detected for worker %llu, recovering events [%llu, %llu], gap_size: %llu",
        (unsigned long long)ev->worker_id, (unsigned long long)expected,
        (unsigned long long)(ev->event_id - 1), (unsigned long long)(ev->event_id - expected));
    return false;
}

static void on_event(void *arg, const struct kv_event *ev)
{
    struct kv_intake *k = arg;
    bool ordered;
    enum status status;

    if (ev->tier != KV_TIER_DEVICE) {
        metric_add(k->other_tier, 1);
        return;
    }
    ordered = k->dump || in_order(k, ev);
    status = status_of(apply(k, ev));
    metric_add(k->applied[ev->kind][status], 1);
    if (k->conf.gap && !k->dump && (!ordered || status == PARENT_NOT_FOUND))
        k->conf.gap(k->conf.arg, ev->worker_id, ev->dp_rank);
}

/* Said at the first, second, fourth, eighth …: a flood of them must not flood the log too. */
static void complain(struct kv_intake *k, struct str subject, const struct err *e)
{
    metric_add(k->bad, 1);
    k->n_bad++;
    if ((k->n_bad & (k->n_bad - 1)) == 0)
        log_warn(&LG, "KV event cannot be read, ignoring", LOG_VIEW("subject", subject),
                 LOG_U64("so_far", k->n_bad), LOG_STR("why", e->text));
}

static void on_kv_events(void *arg, struct str subject, struct str payload)
{
    struct kv_intake *k = arg;
    struct event_envelope envelope;
    struct err e;
    int r;

    r = event_envelope_decode(payload, &envelope, &e);
    if (r == 0)
        r = kv_events_decode(&k->reader, envelope.payload, on_event, k, &e);
    if (r < 0)
        complain(k, subject, &e);
}

static void on_load(void *arg, struct str subject, struct str payload)
{
    struct kv_intake *k = arg;
    struct event_envelope envelope;
    struct active_load load;
    struct err e;

    if (event_envelope_decode(payload, &envelope, &e) < 0 ||
        active_load_decode(envelope.payload, &load, &e) < 0) {
        complain(k, subject, &e);
        return;
    }
    if (load.active_decode_blocks.set)
        scheduler_report_load(k->conf.scheduler, (struct worker_rank){load.worker_id, load.dp_rank},
                              load.active_decode_blocks.v);
}

/* --- life --------------------------------------------------------------------------------------
 */

static void init_metrics(struct kv_intake *k)
{
    static const struct metric_desc applied = {
        .name = "dynamo_component_kv_cache_events_applied",
        .help = "KV cache events, by what the index made of them",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "event_type", "status"}};
    static const struct metric_desc problems = {
        .name = "commutator_router_kv_event_problems_total",
        .help = "KV events that did not fit: gap, restart, bad, other_tier",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "problem"}};
    struct metric_family *f = metric_family(k->conf.metrics, &applied);
    struct metric_family *p = metric_family(k->conf.metrics, &problems);
    const char *ns = k->conf.ns, *c = k->conf.component;

    for (size_t kind = 0; kind < ARRAY_LEN(KIND_WORDS); kind++)
        for (size_t status = 0; status < N_STATUS; status++)
            k->applied[kind][status] =
                metric_with(f, ns, c, KIND_WORDS[kind], STATUS_WORDS[status]);
    k->gaps = metric_with(p, ns, c, "gap");
    k->restarts = metric_with(p, ns, c, "restart");
    k->bad = metric_with(p, ns, c, "bad");
    k->other_tier = metric_with(p, ns, c, "other_tier");
}

static int subscribe(struct kv_intake *k, const char *component, const char *endpoint,
                     const char *topic, nats_link_fn fn, struct err *e)
{
    AUTO(buf_done) struct buf subject = BUF_NULL;
    int r;

    event_subject_put(&subject, k->conf.ns, component, endpoint, topic);
    r = nats_link_subscribe(k->conf.nats, buf_cstr(&subject), fn, k,
                            &k->subscriptions[k->n_subscriptions], e);
    if (r < 0)
        return err_wrap(e, r, "subscribe to %s", buf_cstr(&subject));
    k->n_subscriptions++;
    return 0;
}

int kv_intake_start(struct kv_intake **ret, const struct kv_intake_conf *conf, struct err *e)
{
    AUTO(kv_intake_free) struct kv_intake *k = xcalloc(1, sizeof(*k));
    int r;

    k->conf = *conf;
    init_metrics(k);
    r = subscribe(k, conf->component, NULL, TOPIC_KV_EVENTS, on_kv_events, e);
    if (r == 0) /* 1.x scopes the topic to the endpoint */
        r = subscribe(k, conf->component, conf->endpoint, TOPIC_KV_EVENTS, on_kv_events, e);
    if (r == 0)
        r = subscribe(k, NULL, NULL, TOPIC_KV_METRICS, on_load, e);
    if (r < 0)
        return r;
    *ret = TAKE(k);
    return 0;
}

struct kv_intake *kv_intake_free(struct kv_intake *k)
{
    if (!k)
        return NULL;
    for (size_t i = 0; i < k->n_subscriptions; i++)
        nats_link_unsubscribe(k->conf.nats, k->subscriptions[i]);
    kv_event_reader_done(&k->reader);
    map64_done(&k->last_ids);
    free(k);
    return NULL;
}

void kv_intake_forget(struct kv_intake *k, uint64_t worker_id)
{
    enum { RANKS_MAX = 64 };

    for (uint32_t rank = 0; rank < RANKS_MAX; rank++)
        (void)map64_remove(&k->last_ids, rank_key(worker_id, rank), NULL);
}

int kv_intake_apply_dump(struct kv_intake *k, struct str json, struct err *e)
{
    int r;

    k->dump = true;
    r = kv_events_parse(&k->reader, json, on_event, k, e);
    k->dump = false;
    return r;
}
