/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_recovery.h"

#include <inttypes.h>

#include "lib/base/digest.h"
#include "lib/base/list.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "router/sync/event_order.h"
#include "router/sync/kv_answer.h"
#include "router/wire/plane_address.h"
#include "router/wire/plane_client.h"

static const struct log_target LG = {"dynamo_llm::kv_router::worker_query"};

enum outcome { TOLD_EVENTS, TOLD_DUMP, TOLD_TOO_NEW, FAILED, WITHDRAWN, UNSUPPORTED, N_OUTCOMES };
static const char *const OUTCOME_WORDS[] = {"events", "dump",      "too_new",
                                            "failed", "withdrawn", "unsupported"};
static const char *const KIND_WORDS[] = {"news", "range", "position", "dump"};

struct peer {
    char *socket;  /* "ip:port"; "" when it is on another plane than tcp */
    char *queries; /* what discovery told, may be "" */
    bool per_rank; /* guessed: it has an endpoint for each rank */
    unsigned turn; /* among sources that name no rank */
};

/* A dump of a full cache takes a second; what is held meanwhile must not wait for a dead worker. */
enum { ANSWER_MS = 10000 };

/* A question on its way. */
struct asking {
    struct list link;
    struct kv_recovery *owner;
    struct event_question question;
    struct plane_stream *stream;
    struct timer *deadline;
    bool per_rank, answered;
};

struct kv_recovery {
    struct kv_recovery_conf conf;
    struct map64 peers; /* worker id -> struct peer */
    struct list asking;
    struct timer *look; /* when to look for questions again */
    struct kv_event_reader reader;
    struct metric *counts[EVENT_ASK_DUMP + 1][N_OUTCOMES];
};

/* --- answers ---------------------------------------------------------------------------------- */

static void asking_free(struct asking *a)
{
    a->stream = plane_stream_cancel(a->stream);
    timer_free(a->deadline);
    list_remove(&a->link);
    free(a);
}

static void count(struct kv_recovery *r, const struct event_question *q, enum outcome outcome)
{
    metric_add(r->counts[q->kind][outcome], 1);
}

static void feed(void *arg, const struct kv_event *ev)
{
    event_order_answer_feed(arg, ev);
}

static void failed(struct asking *a, bool never, struct str why)
{
    struct kv_recovery *r = a->owner;
    struct peer *p = map64_find_ptr(&r->peers, a->question.worker.worker_id);

    a->answered = true;
    if (p)
        p->turn++;
    count(r, &a->question, never ? UNSUPPORTED : FAILED);
    log_emitf(&LG, never ? LOG_DEBUG : LOG_WARN, NULL, 0,
              "worker %" PRIu64 " rank %" PRIu32 " does not tell its blocks (%s): %.*s",
              a->question.worker.worker_id, a->question.worker.dp_rank,
              KIND_WORDS[a->question.kind], (int)MIN(why.len, (size_t)200), why.ptr);
    event_order_answer_failed(r->conf.order, a->question.number, never, loop_now_ms(r->conf.loop));
}

static void take_events(struct asking *a, const struct kv_answer *answer)
{
    struct kv_recovery *r = a->owner;
    bool is_dump = answer->kind == KV_ANSWER_DUMP;
    struct err e;
    int n;

    if (!event_order_answer_begin(r->conf.order, a->question.number, is_dump, answer->newest))
        return;
    n = kv_events_parse(&r->reader, answer->events, feed, r->conf.order, &e);
    count(r, &a->question, n < 0 ? FAILED : is_dump ? TOLD_DUMP : TOLD_EVENTS);
    if (n < 0)
        log_warn(&LG, "the worker's answer cannot be read",
                 LOG_U64("worker_id", a->question.worker.worker_id), LOG_STR("why", e.text));
    else
        log_debug(
            &LG, "blocks of a worker recovered", LOG_U64("worker_id", a->question.worker.worker_id),
            LOG_U64("dp_rank", a->question.worker.dp_rank),
            LOG_STR("kind", KIND_WORDS[a->question.kind]), LOG_U64("bytes", answer->events.len));
    event_order_answer_end(r->conf.order, n == 0, loop_now_ms(r->conf.loop));
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct asking *a = arg;
    struct kv_recovery *r = a->owner;
    struct kv_answer answer;
    struct err e;

    if (a->answered)
        return;
    if (item->is_error || item->raw.len == 0) {
        failed(a, false, item->error);
    } else if (kv_answer_parse(item->raw, &answer, &e) < 0) {
        failed(a, false, str_from(e.text));
    } else if (answer.kind == KV_ANSWER_REFUSED) {
        failed(a, false, answer.why);
    } else if (answer.kind == KV_ANSWER_TOO_NEW) {
        count(r, &a->question, TOLD_TOO_NEW);
        event_order_answer_too_new(r->conf.order, a->question.number, answer.newest.v,
                                   loop_now_ms(r->conf.loop));
    } else {
        take_events(a, &answer);
    }
    a->answered = true;
}

static void done(struct asking *a)
{
    struct kv_recovery *r = a->owner;

    asking_free(a);
    kv_recovery_kick(r);
}

static void on_deadline(void *arg)
{
    struct asking *a = arg;

    if (!a->answered)
        failed(a, false, STR("no answer in time"));
    done(a);
}

static void on_finished(void *arg)
{
    struct asking *a = arg;

    a->stream = NULL;
    if (!a->answered)
        failed(a, false, STR("the stream ended without an answer"));
    done(a);
}

/* --- questions -------------------------------------------------------------------------------- */

static void on_failed(void *arg, enum plane_failure kind, const char *text);

static bool is_source(struct str address)
{
    struct str last = address, skipped;

    while (str_cut(&last, '/', &skipped))
        ;
    return str_starts(skipped, STR("worker_kv_query_source_")) && !str_cut(&skipped, '#', &last);
}

static const struct plane_handlers HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed};

/* What the rank's own source of events names; empty when it names none. */
static struct str told_for_rank(const struct peer *p, uint32_t dp_rank)
{
    struct str rest = str_from(p->queries), one, address;
    AUTO(mem_free) char *rank = xasprintf("%" PRIu32, dp_rank);

    for (bool more = rest.len > 0; more;) {
        more = str_cut(&rest, ',', &one);
        if (str_cut(&one, '#', &address) && str_is(one, rank))
            return address;
    }
    return STR_NULL;
}

/* Endpoint that answers for the rank, of those that discovery told; empty when there is none. */
static struct str told_address(const struct peer *p, uint32_t dp_rank)
{
    struct str rest = str_from(p->queries), one, source = told_for_rank(p, dp_rank);
    AUTO(mem_free) char *of_rank = xasprintf("/worker_kv_indexer_query_dp%" PRIu32, dp_rank);
    size_t n = 0, at = 0;

    if (source.len)
        return source;
    for (bool more = rest.len > 0; more;) {
        more = str_cut(&rest, ',', &one);
        if (str_ends(one, str_from(of_rank)) || str_ends(one, STR("/worker_kv_indexer_query")))
            return one;
        n += is_source(one);
    }
    rest = str_from(p->queries);
    for (bool more = n > 0; more;) {
        more = str_cut(&rest, ',', &one);
        if (is_source(one) && at++ == (dp_rank + p->turn) % n)
            source = one;
    }
    return source;
}

static void put_address(const struct peer *p, const struct worker_rank *w, struct buf *out)
{
    buf_put_str(out, told_address(p, w->dp_rank));
    if (out->len || !p->socket[0])
        return;
    buf_printf(out, "%s/%" PRIx64 "/worker_kv_indexer_query", p->socket, w->worker_id);
    if (p->per_rank)
        buf_printf(out, "_dp%" PRIu32, w->dp_rank);
}

static bool has_address(const struct peer *p, const struct worker_rank *w)
{
    return p->socket[0] || told_address(p, w->dp_rank).len;
}

static void send(struct asking *a, const struct peer *p)
{
    struct kv_recovery *r = a->owner;
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(buf_done) struct buf address = BUF_NULL;
    char id[UUID_TEXT_SIZE];
    struct plane_call call = {.id = STR_NULL};

    kv_query_put(&body, &a->question);
    put_address(p, &a->question.worker, &address);
    random_uuid(id);
    call.id = str_from(id);
    call.body = buf_str(&body);
    call.address = buf_str(&address);
    a->per_rank = p->per_rank;
    a->stream = plane_client_send(r->conf.plane, &call, &HANDLERS, a);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct asking *a = arg;
    struct peer *p = map64_find_ptr(&a->owner->peers, a->question.worker.worker_id);
    bool unknown = kind == PLANE_REFUSED && str_starts(str_from(text), STR("Unknown endpoint"));

    a->stream = NULL;
    if (unknown && p && !p->queries[0] && !a->per_rank) { /* the other generation, then */
        p->per_rank = true;
        send(a, p);
        return;
    }
    if (unknown && p)
        p->per_rank = false;
    if (!a->answered)
        failed(a, unknown && p && !p->queries[0], str_from(text));
    done(a);
}

static void ask(struct kv_recovery *r, const struct event_question *q)
{
    const struct peer *p = map64_find_ptr(&r->peers, q->worker.worker_id);
    struct asking *a;

    if (!p || !r->conf.plane || !has_address(p, &q->worker)) {
        count(r, q, UNSUPPORTED);
        event_order_answer_failed(r->conf.order, q->number, true, loop_now_ms(r->conf.loop));
        return;
    }
    a = xcalloc(1, sizeof(*a));
    a->owner = r;
    a->question = *q;
    a->deadline = timer_new(r->conf.loop, on_deadline, a);
    timer_start(a->deadline, ANSWER_MS);
    list_append(&r->asking, &a->link);
    send(a, p);
}

static void look(void *arg)
{
    struct kv_recovery *r = arg;
    uint64_t now = loop_now_ms(r->conf.loop), wake;
    struct event_question q;

    while (event_order_next(r->conf.order, now, &q))
        ask(r, &q);
    wake = event_order_wake_ms(r->conf.order);
    if (wake != UINT64_MAX)
        timer_start(r->look, MAX(wake, now + 1) - now);
}

void kv_recovery_kick(struct kv_recovery *r)
{
    timer_start(r->look, 0);
}

void kv_recovery_withdraw(struct kv_recovery *r, uint64_t question)
{
    LIST_FOREACH (a, &r->asking, struct asking, link)
        if (a->question.number == question) {
            count(r, &a->question, WITHDRAWN);
            asking_free(a);
            return;
        }
}

/* --- life ------------------------------------------------------------------------------------- */

static void init_metrics(struct kv_recovery *r)
{
    static const struct metric_desc d = {
        .name = "commutator_router_kv_recoveries_total",
        .help = "Questions to workers about their blocks, by what was asked and what came of it",
        .type = METRIC_COUNTER,
        .labels = {"dynamo_namespace", "dynamo_component", "kind", "outcome"}};
    struct metric_family *f = metric_family(r->conf.metrics, &d);

    for (size_t kind = 0; kind < ARRAY_LEN(KIND_WORDS); kind++)
        for (size_t outcome = 0; outcome < N_OUTCOMES; outcome++)
            r->counts[kind][outcome] = metric_with(f, r->conf.ns, r->conf.component,
                                                   KIND_WORDS[kind], OUTCOME_WORDS[outcome]);
}

struct kv_recovery *kv_recovery_new(const struct kv_recovery_conf *conf)
{
    struct kv_recovery *r = xcalloc(1, sizeof(*r));

    r->conf = *conf;
    list_init(&r->asking);
    r->look = timer_new(conf->loop, look, r);
    init_metrics(r);
    return r;
}

static void peer_free(struct peer *p)
{
    free(p->socket);
    free(p->queries);
    free(p);
}

struct kv_recovery *kv_recovery_free(struct kv_recovery *r)
{
    uint64_t id, ptr;
    size_t at = 0;

    if (!r)
        return NULL;
    LIST_FOREACH (a, &r->asking, struct asking, link)
        asking_free(a);
    while (map64_next(&r->peers, &at, &id, &ptr))
        peer_free((struct peer *)(uintptr_t)ptr);
    map64_done(&r->peers);
    kv_event_reader_done(&r->reader);
    timer_free(r->look);
    free(r);
    return NULL;
}

void kv_recovery_put_worker(struct kv_recovery *r, uint64_t worker_id, const char *address,
                            const char *queries)
{
    struct str rest = str_from(address), socket;
    struct plane_address a;
    struct peer *p = map64_find_ptr(&r->peers, worker_id);

    (void)str_cut(&rest, '/', &socket);
    if (!p) {
        p = xcalloc(1, sizeof(*p));
        map64_put_ptr(&r->peers, worker_id, p);
    }
    free(p->socket);
    free(p->queries);
    if (plane_address_parse(str_from(address), &a, NULL) < 0 || a.kind != PLANE_TCP)
        socket = STR_NULL;
    p->socket = str_dup(socket);
    p->queries = xstrdup(queries ? queries : "");
}

void kv_recovery_remove_worker(struct kv_recovery *r, uint64_t worker_id)
{
    uint64_t ptr;

    if (map64_remove(&r->peers, worker_id, &ptr))
        peer_free((struct peer *)(uintptr_t)ptr);
}
