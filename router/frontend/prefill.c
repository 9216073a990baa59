/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/prefill.h"

#include <math.h>

#include "lib/base/digest.h"
#include "lib/base/json_pull.h"
#include "lib/base/log.h"
#include "router/frontend/decision_note.h"
#include "router/frontend/explain.h"
#include "router/sched/sequences.h"
#include "router/sched/signals.h"
#include "router/wire/engine_output.h"

/* Where users of the reference look for it. */
static const struct log_target LG = {"dynamo_llm::kv_router::prefill_router"};

struct prefill {
    struct prefill_conf conf;
    enum prefill_state state;
    const char *reason;
    bool computed; /* in this attempt */
    bool delivered;
    uint64_t *local, *sequence; /* owned; NULL where the decode pool's serve */

    struct route_decision decision;
    uint64_t decision_seq; /* of its record; 0 = none, or told how it went */
    struct booking *booking;
    struct plane_stream *stream;
    struct attempt_span attempt;
    uint64_t failed[PREFILL_ATTEMPTS];
    size_t n_failed;
    uint64_t started_ns, sent_ns;

    char *host; /* of the bootstrap endpoint; NULL = none */
    char handoff_id[UUID_TEXT_SIZE];
    struct engine_bootstrap bootstrap;
    struct engine_output_reader reader;
    struct buf params, details; /* JSON that the worker gave */
    struct buf result;          /* prefill_result */
    bool heard;                 /* an output, in this attempt */
    struct buf answer;          /* the output that is all there is to say; empty = none */
};

/* --- life --------------------------------------------------------------------------------------
 */

/* The prefill workers cut the prompt otherwise than the decode workers. */
static void rehash(struct prefill *p)
{
    struct engine_request rq;
    const uint32_t *tokens;
    size_t n_tokens, n;

    p->conf.fill(p->conf.arg, &rq);
    tokens = rq.n_routing_prompt ? rq.routing_token_ids : rq.token_ids;
    n_tokens = rq.n_routing_prompt ? rq.n_routing_prompt : rq.n_token_ids;
    n = n_tokens / scheduler_block_size(p->conf.pool->scheduler);
    p->local = xreallocarray(NULL, n, sizeof(*p->local));
    p->sequence = xreallocarray(NULL, n, sizeof(*p->sequence));
    n = pool_hash(p->conf.pool, p->conf.salt, tokens, n_tokens, p->local, p->sequence);
    p->conf.request.local = p->local;
    p->conf.request.sequence = p->sequence;
    p->conf.request.tracked = NULL;
    p->conf.request.n_blocks = n;
}

struct prefill *prefill_new(const struct prefill_conf *conf)
{
    struct prefill *p = xcalloc(1, sizeof(*p));

    p->conf = *conf;
    p->state = PREFILL_FAILED;
    p->reason = "";
    pool_ref(conf->pool);
    if (!pool_cuts_as(conf->pool, conf->hashed_for))
        rehash(p);
    return p;
}

static void note_end(struct prefill *p, enum decision_end how)
{
    uint64_t now_ns = clock_now_ns();
    struct decision_outcome o = {.ended = how,
                                 .cached_tokens = DECISION_UNKNOWN,
                                 .ttft_ms = NAN,
                                 .duration_ms = (double)(now_ns - p->started_ns) / 1e6};

    attempt_span_end(
        &p->attempt, &p->conf.s->tracer,
        &(struct attempt_end){
            .id = p->conf.id, .decision = &p->decision, .phase = PHASE_PREFILL, .how = how});
    p->booking = booking_end(p->booking, now_ns, how == DECISION_FINISHED);
    if (p->decision_seq)
        explain_ended(p->conf.s->explain, p->decision_seq, &o);
    p->decision_seq = 0;
}

/* Gives back what an attempt holds. */
static void drop_attempt(struct prefill *p, enum decision_end how)
{
    p->stream = plane_stream_cancel(p->stream);
    note_end(p, how);
    free(TAKE(p->host));
    p->bootstrap = (struct engine_bootstrap){.port = 0};
    buf_clear(&p->params);
    buf_clear(&p->details);
    buf_clear(&p->result);
    buf_clear(&p->answer);
}

struct prefill *prefill_free(struct prefill *p)
{
    if (!p)
        return NULL;
    drop_attempt(p, p->delivered ? DECISION_FINISHED : DECISION_CLIENT_GONE);
    route_decision_done(&p->decision);
    engine_output_reader_done(&p->reader);
    buf_done(&p->params);
    buf_done(&p->details);
    buf_done(&p->result);
    buf_done(&p->answer);
    free(p->local);
    free(p->sequence);
    pool_unref(p->conf.pool);
    free(p);
    return NULL;
}

/* --- an attempt --------------------------------------------------------------------------------
 */

uint64_t prefill_room(uint64_t random, uint32_t dp_rank, uint32_t dp_size)
{
    uint64_t rank = dp_rank % dp_size;
    uint64_t rounds = ((uint64_t)INT64_MAX - rank) / dp_size + 1;

    return random % rounds * dp_size + rank;
}

static const char *reason_of(int r)
{
    static const char *const words[ROUTE_RESULTS] = {
        [ROUTE_NO_WORKERS] = "no_workers",   [ROUTE_ALL_BUSY] = "all_busy",
        [ROUTE_NO_SUCH_PIN] = "no_such_pin", [ROUTE_CONSTRAINED] = "constrained",
        [ROUTE_PIN_NEEDED] = "pin_needed",
    };

    return words[r] ? words[r] : "not_routed";
}

/* In modes that know no ranks any rank may get it. */
static void choose_room(struct prefill *p, const struct pool_worker *w)
{
    const struct worker_rank *at = &prefill_chosen(p)->worker;
    bool kv = p->decision.mode == ROUTE_KV;

    p->host = xstrdup(w->bootstrap_host);
    random_uuid(p->handoff_id);
    p->bootstrap = (struct engine_bootstrap){
        str_from(p->host), w->bootstrap_port,
        prefill_room(random_u64(), kv ? at->dp_rank : 0, kv ? w->dp_size : 1),
        str_from(p->handoff_id)};
    log_info(&LG, "Built bootstrap_info upfront before prefill",
             LOG_REQUEST(p->conf.id, p->conf.trace), LOG_U64("worker_id", at->worker_id),
             LOG_U64("dp_rank", at->dp_rank), LOG_STR("bootstrap_host", p->host),
             LOG_U64("bootstrap_port", p->bootstrap.port),
             LOG_U64("bootstrap_room", p->bootstrap.room),
             LOG_STR("router_mode", ROUTE_MODE_WORDS[p->decision.mode]));
}

/* A decode engine that meets one of several ranks has to ask for the prompt at the right one. */
static void name_place(const struct prefill *p, bool rank, struct engine_routing *r)
{
    const struct worker_rank *at = &prefill_chosen(p)->worker;

    r->prefill_worker_id = OPT_U64(at->worker_id);
    if (rank && p->decision.mode == ROUTE_KV)
        r->prefill_dp_rank = OPT_U64(at->dp_rank);
}

static const struct plane_handlers HANDLERS;

static void send(struct prefill *p)
{
    const struct worker_rank *at = &prefill_chosen(p)->worker;
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct plane_header headers[TRACE_HEADERS_MAX];
    struct plane_call call = {.address = pool_worker_address(p->conf.pool, at->worker_id),
                              .id = str_from(p->conf.id),
                              .headers = headers};
    struct engine_request rq;

    attempt_span_begin(&p->attempt, &p->conf.s->tracer, p->conf.trace);
    call.n_headers = trace_context_headers(&p->attempt.trace, headers);
    p->conf.fill(p->conf.arg, &rq);
    rq.stop.max_tokens = OPT_U64(1);
    rq.has_routing = true;
    name_place(p, true, &rq.routing);
    if (p->decision.mode == ROUTE_KV)
        rq.routing.dp_rank = OPT_U64(at->dp_rank);
    if (p->host) {
        rq.has_bootstrap = true;
        rq.bootstrap = p->bootstrap;
    }
    engine_request_put(&body, &rq);
    call.body = buf_str(&body);
    p->computed = p->heard = false;
    p->sent_ns = clock_now_ns();
    p->stream = plane_client_send(p->conf.s->plane, &call, &HANDLERS, p);
}

static void count(const struct prefill *p, const char *path, const char *reason)
{
    metric_add(metric_with(p->conf.s->metrics.prefills, p->conf.label, path, reason), 1);
}

static void note_decision(struct prefill *p, const struct route_request *q, int result)
{
    const struct decision_note n = {.serving = p->conf.s,
                                    .pool = p->conf.pool,
                                    .model = p->conf.label,
                                    .phase = PHASE_PREFILL,
                                    .attempt = (uint32_t)p->n_failed + 1};

    p->decision_seq = decision_note(&n, q, &p->decision, result);
    if (result == 0)
        span_decided(&p->conf.s->tracer, p->conf.trace, q, &p->decision, p->conf.times);
    if (result != 0)
        p->decision_seq = 0;
}

/* False, and why in p->reason, when nobody can be asked. */
static bool attempt(struct prefill *p)
{
    struct route_request q = p->conf.request;
    const struct pool_worker *w;
    int r;

    q.now_ns = clock_now_ns();
    q.random = random_u64();
    r = pool_route(p->conf.pool, &q, (struct pool_avoid){p->failed, p->n_failed}, &p->decision,
                   &p->booking);
    note_decision(p, &q, r);
    if (r != 0) {
        if (p->n_failed == 0) /* else what failed before says more */
            p->reason = reason_of(r);
        return false;
    }
    pool_trace(p->conf.pool, &p->decision, p->conf.id, p->conf.trace);
    w = pool_worker(p->conf.pool, prefill_chosen(p)->worker.worker_id);
    if (w && w->bootstrap_host)
        choose_room(p, w);
    p->state = p->host ? PREFILL_AHEAD : PREFILL_WAITING;
    count(p, p->host ? "bootstrap" : "synchronous", "");
    send(p);
    return true;
}

enum prefill_state prefill_start(struct prefill *p)
{
    p->started_ns = clock_now_ns();
    (void)attempt(p);
    return p->state;
}

/* --- its outcome -------------------------------------------------------------------------------
 */

static void attempt_failed(struct prefill *p, const char *reason, bool again)
{
    uint64_t worker = prefill_chosen(p)->worker.worker_id;
    bool decodes = p->state != PREFILL_WAITING;

    p->attempt.failure = reason;
    drop_attempt(p, p->delivered ? DECISION_FINISHED : DECISION_RETRIED);
    if (p->delivered) {
        p->state = PREFILL_READY;
        return;
    }
    p->reason = reason;
    p->state = PREFILL_FAILED;
    p->failed[p->n_failed++] = worker;
    count(p, "failed", reason);
    pool_inhibit(p->conf.pool, worker);
    log_warn(&LG, "prefill failed", LOG_REQUEST(p->conf.id, p->conf.trace),
             LOG_U64("worker_id", worker), LOG_STR("why", reason), LOG_BOOL("decoding", decodes));
    if (decodes)
        p->conf.lost(p->conf.arg);
    if (!again || p->conf.request.pinned || p->n_failed == PREFILL_ATTEMPTS || !attempt(p))
        p->conf.failed(p->conf.arg);
    else if (p->state == PREFILL_AHEAD)
        p->conf.go(p->conf.arg);
}

/* Whoever says so first: the worker by a token or its end, or the decode worker by its first token. */
static void note_computed(struct prefill *p)
{
    uint64_t now_ns = clock_now_ns();

    if (p->computed)
        return;
    p->computed = true;
    metric_observe(metric_with(p->conf.s->metrics.prefill_seconds, p->conf.label),
                   (double)(now_ns - p->sent_ns) / 1e9);
    booking_first_token(p->booking, now_ns);
}

/* Nothing follows the token that was asked for, whoever would be asked for more. */
static bool ends_answer(enum finish_reason finish)
{
    return finish != FINISH_NONE && finish != FINISH_LENGTH;
}

/* As in 1.6.1 only the first output counts: an end behind it is of a worker that was asked for one token. */
static void look_for_answer(struct prefill *p, const struct engine_output *o, struct str item)
{
    if (!p->heard && p->conf.answered && p->state == PREFILL_WAITING && ends_answer(o->finish))
        buf_put_str(&p->answer, item);
    p->heard = true;
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct prefill *p = arg;
    struct engine_output o;
    struct str details;
    struct err e;

    if (item->is_error) {
        attempt_failed(p, "engine_error", true);
        return;
    }
    if (item->data.len == 0)
        return; /* an annotation */
    if (engine_output_parse(&p->reader, item->data, &o, &e) < 0) {
        attempt_failed(p, "bad_output", true);
        return;
    }
    if (o.finish == FINISH_ERROR) {
        attempt_failed(p, "engine_error", true);
        return;
    }
    look_for_answer(p, &o, item->data);
    if (o.n_token_ids)
        note_computed(p);
    if (o.disaggregated_params_json.len && !p->params.len)
        buf_put_str(&p->params, o.disaggregated_params_json);
    details = json_pull_member(o.completion_usage_json, "prompt_tokens_details");
    if (details.len && details.ptr[0] == '{' && !p->details.len)
        buf_put_str(&p->details, details);
}

static void put_result(struct prefill *p)
{
    buf_printf(&p->result, "{\"disaggregated_params\":%.*s", STR_ARG(buf_str(&p->params)));
    if (p->details.len)
        buf_printf(&p->result, ",\"prompt_tokens_details\":%.*s", STR_ARG(buf_str(&p->details)));
    buf_put_char(&p->result, '}');
}

static void hand_over_answer(struct prefill *p)
{
    note_computed(p);
    note_end(p, DECISION_FINISHED);
    p->state = PREFILL_READY;
    count(p, "answered", "");
    log_debug(&LG, "Prefill ended the answer, nobody decodes",
              LOG_REQUEST(p->conf.id, p->conf.trace));
    p->conf.answered(p->conf.arg, buf_str(&p->answer));
}

static void on_finished(void *arg)
{
    struct prefill *p = arg;
    bool was_ahead = p->state == PREFILL_AHEAD;

    p->stream = NULL;
    if (p->answer.len) {
        hand_over_answer(p);
        return;
    }
    if (!was_ahead && !p->params.len) {
        attempt_failed(p, "no_disaggregated_params", false); /* nor would others say them */
        return;
    }
    note_computed(p);
    note_end(p, DECISION_FINISHED);
    p->state = PREFILL_READY;
    log_debug(&LG, "Prefill completed, proceeding to decode",
              LOG_REQUEST(p->conf.id, p->conf.trace), LOG_BOOL("ahead", was_ahead));
    if (was_ahead)
        return;
    put_result(p);
    p->conf.go(p->conf.arg);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct prefill *p = arg;

    p->stream = NULL;
    log_debug(&LG, "stream failed", LOG_REQUEST(p->conf.id, p->conf.trace),
              LOG_STR("kind", plane_failure_name(kind)), LOG_STR("why", text));
    if (p->answer.len) /* only the farewell is missing */
        hand_over_answer(p);
    else
        attempt_failed(p, plane_failure_name(kind), true);
}

static const struct plane_handlers HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed};

void prefill_refused(struct prefill *p)
{
    attempt_failed(p, "decode_refused", true);
}

void prefill_delivered(struct prefill *p)
{
    const struct route_request *q = &p->conf.request;
    const struct route_candidate *c = prefill_chosen(p);

    p->delivered = true;
    if (p->state == PREFILL_AHEAD)
        note_computed(p);
    scheduler_signal_prompt(p->conf.pool->scheduler, c->worker, q->n_blocks, policy_held_blocks(c),
                            loop_now_ms(p->conf.s->loop));
}

/* --- what it knows -----------------------------------------------------------------------------
 */

/* A router between us and the worker shall choose as we do (router.md §5.1). */
static void name_weights(struct engine_request *rq, bool of_1)
{
    rq->has_override = true;
    if (!of_1) {
        rq->overlap_score_weight = OPT_F64(0);
        return;
    }
    rq->overlap_score_credit = OPT_F64(0);
    rq->assume_kv_reuse = rq->track_prefill_tokens = OPT_BOOL(false);
}

void prefill_fill_decode(const struct prefill *p, bool of_1, struct engine_request *rq)
{
    name_weights(rq, of_1);
    rq->has_routing = true;
    name_place(p, p->bootstrap.host.ptr && !p->result.len, &rq->routing);
    if (p->bootstrap.host.ptr && !p->result.len) {
        rq->has_bootstrap = true;
        rq->bootstrap = p->bootstrap;
    }
    rq->prefill_result_json = buf_str(&p->result);
}

enum prefill_state prefill_state(const struct prefill *p)
{
    return p->state;
}

const char *prefill_reason(const struct prefill *p)
{
    return p->reason;
}

const struct route_decision *prefill_decision(const struct prefill *p)
{
    return &p->decision;
}

uint64_t prefill_started_ns(const struct prefill *p)
{
    return p->started_ns;
}
