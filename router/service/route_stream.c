/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/route_stream.h"

#include <math.h>
#include <string.h>

#include "lib/base/arena.h"
#include "lib/base/log.h"
#include "router/sched/sequences.h"
#include "router/sched/signals.h"
#include "router/service/route_state.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"

static const struct log_target LG = {"commutator::router"};

const char *const ROUTE_ENDPOINT_WORDS[ROUTE_ENDPOINTS] = {
    [ROUTE_GENERATE] = "generate",
    [ROUTE_BEST_WORKER] = "best_worker_id",
    [ROUTE_OVERLAP_SCORES] = "get_overlap_scores",
};
enum {
    BACKLOG_HIGH = 256 << 10
}; /* beyond it the worker is not read until the caller has caught up */
/* --- ways out --------------------------------------------------------------------------------- */

void route_stream_free(struct route_stream *s)
{
    struct route_pool *p = s->pool;

    route_note_end(s, DECISION_CLIENT_GONE); /* nobody has said otherwise */
    span_payload(p->tracer, &s->trace,
                 &(struct payload_span){.component = "router",
                                        .endpoint = ROUTE_ENDPOINT_WORDS[s->endpoint],
                                        .ns = p->own_ns,
                                        .instance_id = p->instance_id,
                                        .start_ns = s->at.start_ns});
    s->lookup = remote_lookup_free(s->lookup);
    prompt_matches_done(&s->matches);
    admission_leave(&s->ticket);
    s->stream = plane_stream_cancel(s->stream);
    s->booking = booking_end(s->booking, clock_now_ns(), false);
    route_decision_done(&s->decision);
    engine_output_reader_done(&s->reader);
    free(s->said.ids);
    arena_free(s->arena);
    list_remove(&s->link);
    p->n_streams--;
    call_over(&p->calls[s->endpoint], clock_now_ns() - s->at.start_ns);
    free(s);
    if (p->ended)
        p->ended(p->arg);
}

/* Words for the caller: an error prologue where none was sent yet, else an error item. */
void route_fail(struct route_stream *s, const char *why)
{
    log_warn(&LG, "request failed", LOG_VIEW("request_id", route_request_id(s)),
             LOG_STR("why", why));
    metric_add(s->pool->refused, 1);
    route_note_end(s, DECISION_FAILED);
    if (!s->started) {
        plane_request_refuse(s->request, str_from(why));
    } else if (s->in.n_said) {
        plane_request_abort(s->request); /* nobody went on: as if none had been asked to */
    } else {
        plane_request_error(s->request, str_from(why));
        plane_request_finish(s->request);
    }
    route_stream_free(s);
}

static void on_cancelled(void *arg)
{
    struct route_stream *s = arg;

    metric_add(s->pool->calls[s->endpoint].cancelled, 1);
    plane_request_abort(s->request);
    route_stream_free(s);
}

static void on_caller_drained(void *arg)
{
    struct route_stream *s = arg;

    if (s->stream)
        plane_stream_resume(s->stream);
}

/* --- the worker's stream ---------------------------------------------------------------------- */

static void send_on(struct route_stream *s);
static void on_finished(void *arg);

static void retry(struct route_stream *s, const char *reason)
{
    uint64_t worker = route_chosen(s).worker_id;

    s->booking = booking_end(s->booking, clock_now_ns(), false);
    s->attempt.failure = reason;
    route_note_end(s, DECISION_RETRIED);
    metric_add(s->pool->retries, 1);
    log_warn(&LG, "worker failed before its first item, trying another",
             LOG_VIEW("request_id", route_request_id(s)), LOG_U64("worker_id", worker),
             LOG_STR("why", reason));
    s->failed[s->n_failed++] = worker;
    s->n_items = 0;
    if (s->n_failed == ROUTE_ATTEMPTS || s->in.backend_instance_id.set) {
        route_fail(s, reason);
        return;
    }
    send_on(s);
}

/* By the weight of 0.9.0, or the credit of 1.x: the prompt was computed elsewhere. */
static bool rules_caches_out(const struct routed_request *in)
{
    return (in->overlap_weight.set && in->overlap_weight.v == 0) ||
           (in->overlap_credit.set && in->overlap_credit.v == 0);
}

/* The worker has computed the prompt, and events of it must come. */
static void tell_computed(const struct route_stream *s)
{
    const struct route_candidate *c = &s->decision.candidates[s->decision.chosen];

    if (!rules_caches_out(&s->in))
        scheduler_signal_prompt(s->pool->scheduler, c->worker, s->n_blocks, policy_held_blocks(c),
                                clock_now_ns() / 1000000);
}

/* Output that grows is booked a block at a time (router.md §4.4). */
static void note_output(struct route_stream *s, size_t n)
{
    uint32_t block = scheduler_block_size(s->pool->scheduler);
    const struct opt_u64 *expected = &s->in.expected_output_tokens;
    uint64_t before = (s->in.routed.len + block - 1) / block, blocks;
    double decay = 1;

    if (n == 0)
        return;
    if (s->n_output == 0) {
        booking_first_token(s->booking, clock_now_ns());
        tell_computed(s);
    }
    s->n_output += n;
    blocks = (s->in.routed.len + s->n_output + block - 1) / block - before;
    if (!s->pool->track_output_blocks || blocks <= s->n_output_blocks)
        return;
    s->n_output_blocks = blocks;
    if (expected->set)
        decay = fmax(0, 1 - (double)s->n_output / (double)MAX(expected->v, UINT64_C(1)));
    booking_output_block(s->booking, decay);
}

/* --- migration -------------------------------------------------------------------------------- */

static bool is_movable(const struct route_stream *s)
{
    uint64_t limit = MAX(s->pool->migration_limit, s->pool->card_migration_limit);

    return s->n_migrations < limit && !s->in.immovable && !s->in.backend_instance_id.set;
}

static void remember(struct route_stream *s, const struct engine_output *o)
{
    uint64_t max = s->pool->migration_tokens_max;

    if (!o->n_token_ids || !is_movable(s))
        return;
    if (max && s->in.n_tokens + s->said.len + o->n_token_ids > max) {
        s->in.immovable = true;
        return;
    }
    if (s->said.len + o->n_token_ids > s->said.cap) {
        s->said.cap = 2 * s->said.cap + o->n_token_ids;
        s->said.ids = xreallocarray(s->said.ids, s->said.cap, sizeof(*s->said.ids));
    }
    memcpy(s->said.ids + s->said.len, o->token_ids, o->n_token_ids * sizeof(*o->token_ids));
    s->said.len += o->n_token_ids;
}

static bool can_migrate(const struct route_stream *s)
{
    return s->said.len > 0 && is_movable(s);
}

void route_send_item(const struct route_stream *s, struct str item)
{
    call_answered(&s->pool->calls[s->endpoint], item.len);
    plane_request_item(s->request, item);
}

static void forward(struct route_stream *s, struct str data, bool last)
{
    const struct routing_told told = routing_told_of(&s->decision, &s->at, !s->told_worker, last);
    AUTO(buf_done) struct buf out = BUF_NULL;

    s->told_worker = true;
    routed_output_put(&out, data, &s->in, &told);
    route_send_item(s, buf_str(&out));
}

/* All was said but the farewell. */
static void finish_for_worker(struct route_stream *s)
{
    const struct engine_output last = {.finish = FINISH_LENGTH};
    AUTO(buf_done) struct buf out = BUF_NULL;

    engine_output_put(&out, &last);
    forward(s, buf_str(&out), true);
    on_finished(s);
}

/* The stream has ended, and the caller need not know. */
static void migrate(struct route_stream *s, const char *reason)
{
    uint64_t worker = route_chosen(s).worker_id;

    if (routed_request_left(&s->in, s->said.len) == 0) {
        finish_for_worker(s);
        return;
    }
    s->booking = booking_end(s->booking, clock_now_ns(), false);
    s->attempt.failure = reason;
    route_note_end(s, DECISION_RETRIED);
    s->n_migrations++;
    metric_add(s->pool->migrations, 1);
    log_warn(&LG, "worker was lost, another one goes on",
             LOG_VIEW("request_id", route_request_id(s)), LOG_U64("worker_id", worker),
             LOG_STR("why", reason), LOG_U64("tokens", s->said.len),
             LOG_U64("migration", s->n_migrations));
    routed_request_extend(s->arena, &s->in, s->said.ids, s->said.len);
    s->said.len = 0;
    s->n_output = s->n_output_blocks = 0;
    route_hash_prompt(s);
    s->failed[0] = worker; /* what failed before may have come back */
    s->n_failed = 1;
    s->n_items = 0;
    send_on(s);
}

/* Whether it is the last output. An external caller may keep the books itself (enable_local_updates=false). */
static bool watch_output(struct route_stream *s, struct str data)
{
    struct engine_output o;
    struct err e;

    if (engine_output_parse(&s->reader, data, &o, &e) < 0)
        return false;
    remember(s, &o);
    route_measure_output(&s->measure, &s->at, &o);
    if (s->in.enable_local_updates.set && !s->in.enable_local_updates.v)
        return o.finish != FINISH_NONE;
    if (s->n_output > 0)
        booking_touch(s->booking, clock_now_ns());
    note_output(s, o.n_token_ids);
    return o.finish != FINISH_NONE;
}

/* The worker took the request, possibly the second one that was asked. */
static void on_started(void *arg)
{
    struct route_stream *s = arg;

    if (!s->started)
        plane_request_start(s->request);
    s->started = true;
}

static void send_raw(const struct route_stream *s, struct str item)
{
    call_answered(&s->pool->calls[s->endpoint], item.len);
    plane_request_item_raw(s->request, item);
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct route_stream *s = arg;
    bool last = false;

    s->n_items++;
    if (wire_item_is_loss(item) && (s->n_items == 1 || can_migrate(s))) {
        s->stream = plane_stream_cancel(s->stream);
        if (s->n_items == 1)
            retry(s, "lost_behind");
        else
            migrate(s, "lost_behind");
        return;
    }
    if (item->data.len)
        last = watch_output(s, item->data);
    if (item->data.len && !item->event.len && !item->id.len &&
        (s->in.n_said || last || !s->told_worker))
        forward(s, item->data, last);
    else
        send_raw(s, item->raw); /* errors too: their type tells the caller more */
}

static void on_batch_end(void *arg)
{
    struct route_stream *s = arg;

    if (plane_request_backlog(s->request) > BACKLOG_HIGH)
        plane_stream_pause(s->stream);
}

static void on_finished(void *arg)
{
    struct route_stream *s = arg;

    s->stream = NULL;
    s->booking = booking_end(s->booking, clock_now_ns(), true);
    route_note_end(s, DECISION_FINISHED);
    plane_request_finish(s->request);
    route_stream_free(s);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct route_stream *s = arg;

    s->stream = NULL;
    s->attempt.failure = plane_failure_name(kind);
    if (s->n_items == 0 && plane_failure_is_retryable(kind)) {
        retry(s, plane_failure_name(kind));
    } else if (s->n_items == 0) {
        route_fail(s, text);
    } else if (plane_failure_is_migratable(kind) && can_migrate(s)) {
        migrate(s, plane_failure_name(kind));
    } else {
        /* The caller sees what we saw, a stream without an end, and may migrate. */
        route_note_end(s, DECISION_FAILED);
        plane_request_abort(s->request);
        route_stream_free(s);
    }
}

static void send_on(struct route_stream *s)
{
    static const struct plane_handlers handlers = {.started = on_started,
                                                   .item = on_item,
                                                   .finished = on_finished,
                                                   .failed = on_failed,
                                                   .batch_end = on_batch_end};
    AUTO(buf_done) struct buf body = BUF_NULL;
    int r = route_decide(s, false);
    struct plane_header headers[TRACE_HEADERS_MAX];
    struct plane_call call = {.id = route_request_id(s), .headers = headers};

    if (r != 0) {
        route_fail(s, routing_refusal(r));
        return;
    }
    routed_request_put(&body, plane_request_body(s->request), &s->in, route_chosen(s).dp_rank);
    call.address = str_from(map64_find_ptr(&s->pool->addresses, route_chosen(s).worker_id));
    call.body = buf_str(&body);
    attempt_span_begin(&s->attempt, s->pool->tracer, &s->trace);
    call.n_headers = trace_context_headers(&s->attempt.trace, headers);
    s->at.sent_ns = clock_now_ns();
    s->stream = plane_client_send(s->pool->plane, &call, &handlers, s);
}

/* --- room --------------------------------------------------------------------------------------- */

static void on_room(void *arg)
{
    send_on(arg);
}

static void admit(struct route_stream *s)
{
    struct admission_refusal refusal;

    s->at.queue_depth = admission_waiting(s->pool->admission).requests;
    s->ticket.q = route_query(s);
    s->ticket.go = on_room;
    s->ticket.arg = s;
    switch (admission_enter(s->pool->admission, &s->ticket, &refusal)) {
    case ADMISSION_WAITS:
        s->times.queued_at_ns = clock_now_ns();
        /* The caller need not fear that nobody is there. */
        plane_request_start(s->request);
        s->started = true;
        break;
    case ADMISSION_REFUSED:
        route_fail(s,
                   "Service temporarily unavailable: The router queue is full, please retry later");
        break;
    default:
        send_on(s);
    }
}

/* --- another router's index -------------------------------------------------------------------- */

static void on_answer(void *arg)
{
    struct route_stream *s = arg;

    s->next(s);
}

/* Goes on with @next, which may end it: now, or once the router that keeps the index has answered. */
void route_look_up(struct route_stream *s, void (*next)(struct route_stream *s))
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled,
                                                           .drained = on_caller_drained};
    const struct route_pool *p = s->pool;
    const struct remote_prompt prompt = route_remote_prompt(s);

    plane_request_set_handlers(s->request, &handlers, s);
    if (p->remote && p->served && s->n_blocks) {
        s->asked = true;
        s->next = next;
        s->lookup = remote_lookup_start(p->remote, &prompt, &s->matches, on_answer, s);
    }
    if (!s->lookup)
        next(s);
}

/* --- entry ------------------------------------------------------------------------------------ */

/* What is told of it after its end outlives the plane's request. */
static void keep(struct route_stream *s, struct str *text)
{
    if (text->len)
        *text = (struct str){arena_strdup(s->arena, *text), text->len};
}

struct route_stream *route_stream_new(struct route_pool *p, struct plane_request *rq,
                                      enum route_endpoint endpoint)
{
    struct route_stream *s = xcalloc(1, sizeof(*s));
    struct trace_headers told = plane_request_trace(rq);

    s->pool = p;
    s->request = rq;
    s->at.start_ns = clock_now_ns();
    s->arena = arena_new();
    s->endpoint = endpoint;
    s->measure = ROUTE_MEASURE_NULL;
    s->id = arena_strdup(s->arena, plane_request_id(rq));
    if (p->tracer->export) {
        keep(s, &told.state);
        keep(s, &told.client_id);
        keep(s, &told.dynamo_id);
    }
    trace_context_init(&s->trace, &told, tracer_sampler(p->tracer));
    list_append(&p->streams, &s->link);
    p->n_streams++;
    call_begun(&p->calls[endpoint], plane_request_body(rq).len);
    return s;
}

void route_stream_serve(struct route_pool *p, struct plane_request *rq)
{
    struct route_stream *s = route_stream_new(p, rq, ROUTE_GENERATE);
    struct err e;

    if (routed_request_parse(s->arena, plane_request_body(rq), &s->in, &e) < 0) {
        route_fail(s, e.text);
        return;
    }
    if (s->in.bare || s->in.n_tokens == 0) {
        route_fail(s, s->in.bare ? "the request is no object" : "token_ids is empty");
        return;
    }
    route_hash_prompt(s);
    route_look_up(s, admit);
}

void route_streams_abort(struct route_pool *p)
{
    LIST_FOREACH (s, &p->streams, struct route_stream, link) {
        plane_request_abort(s->request);
        route_stream_free(s);
    }
}
