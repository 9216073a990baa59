/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/request.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/log.h"
#include "lib/net/http_client.h"
#include "router/frontend/prompt_make.h"
#include "router/frontend/request_migrate.h"
#include "router/frontend/request_batch.h"
#include "router/frontend/request_relay.h"
#include "router/sched/signals.h"

static const struct log_target LG = {"commutator::frontend::request"};

/* Tokenizing runs at some 10 MB/s: beyond this, other streams would notice on their tokens. */
enum { POOL_BYTES = 64 << 10, ROUND_PAUSE_MS = 1000 };
/* So much of a template runs on the loop, about a millisecond; beyond it begins anew elsewhere. */
enum { LOOP_STEPS = 10000 };

static void run(struct request *rq);

/* --- ways out ----------------------------------------------------------------------------------
 */

static void leave_queue(struct request *rq)
{
    if (rq->is_queued)
        metric_add(rq->queued, -1);
    rq->is_queued = false;
}

static void end_booking(struct request *rq, bool ok)
{
    uint64_t now_ns = clock_now_ns();

    rq->booking = booking_end(rq->booking, now_ns, ok);
    if (rq->session.session)
        affinity_release(rq->m->pool->affinity, &rq->session, now_ns);
}

static void request_free(struct request *rq)
{
    timer_free(rq->pause);
    request_lookup_done(rq);
    program_gate_leave(&rq->program, false);
    admission_leave(&rq->ticket);
    rq->prefill = prefill_free(rq->prefill);
    rq->stream = plane_stream_cancel(rq->stream);
    rq->relay = relay_cancel(rq->relay);
    rq->tokenizing = http_call_cancel(rq->tokenizing);
    end_booking(rq, false);
    leave_queue(rq);
    metric_add(rq->inflight, -1);
    metric_add(rq->active, -1);
    rq->s->n_requests--;
    request_output_done(rq);
    route_decision_done(&rq->decision);
    if (rq->scratch)
        model_give_scratch(rq->m, TAKE(rq->scratch));
    openai_request_done(&rq->in);
    token_ids_done(&rq->prompt);
    token_ids_done(&rq->said);
    prompt_media_done(&rq->media);
    buf_done(&rq->prompt_text);
    buf_done(&rq->out);
    buf_done(&rq->text);
    free(rq->local);
    if (rq->dialect)
        rq->dialect->free(rq->told);
    free(rq->sequence);
    free(rq->tracked);
    model_unref(rq->m);
    arena_free(rq->arena);
    if (rq->batch)
        request_batch_forget(rq);
    free(rq);
}

/* @error "" = none. */
static void count_outcome(struct request *rq, const char *error)
{
    struct serving_metrics *mt = &rq->s->metrics;
    const char *model = rq->m->label;

    metric_add(metric_with(mt->requests, model, request_endpoint(rq), request_type(rq),
                           *error ? "error" : "success", error),
               1);
    request_span_over(rq,
                      *error ? str_is(str_from(error), "cancelled") ? error : "error" : "success");
    metric_observe(metric_with(mt->duration, model),
                   (double)(clock_now_ns() - rq->t_start_ns) / 1e9);
    if (rq->n_output)
        metric_observe(metric_with(mt->output_tokens, model), (double)rq->n_output);
}

void request_abandon(struct request *rq, enum decision_end how)
{
    request_note_end(rq, how);
    request_note_loss_over(rq, "cancelled");
    count_outcome(rq, "cancelled");
    rq->gone = true;
    if (!rq->in_pool)
        request_free(rq);
}

void request_fail_as(struct request *rq, const struct api_error *e)
{
    log_warn(&LG, "request failed", LOG_REQUEST(rq->id, &rq->trace), LOG_I64("status", e->status),
             LOG_BOOL("streaming", rq->begun),
             LOG_STR("why", rq->own.said ? "the engine says it to the client" : e->text));
    request_note_end(rq, DECISION_FAILED);
    if (rq->n_output > 0)
        request_flush(rq); /* what was said before, although it came in the same turn */
    request_put_failure(rq, e);
    request_note_loss_over(rq, "failure");
    count_outcome(rq, api_error_type(e->status));
    request_free(rq);
}

void request_fail(struct request *rq, int status, const char *format, ...)
{
    struct api_error e = {.status = status};
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(e.text, sizeof(e.text), format, ap);
    va_end(ap);
    request_fail_as(rq, &e);
}

/* What the engine says of its own cache corrects what is believed of it. */
static void tell_cached(const struct request *rq)
{
    const struct route_candidate *c;
    struct observed_prompt p = {.local = rq->local,
                                .sequence = rq->sequence,
                                .n_blocks = rq->n_blocks,
                                .cached_tokens = rq->cached_tokens};

    if (rq->cached_tokens == DECISION_UNKNOWN || rq->prefill)
        return;
    c = &rq->decision.candidates[rq->decision.chosen];
    p.worker = c->worker;
    p.predicted = policy_served_blocks(c, &rq->decision.inputs);
    scheduler_signal_cached(rq->m->pool->scheduler, &p, loop_now_ms(rq->s->loop));
}

void request_finish(struct request *rq)
{
    end_booking(rq, true);
    program_gate_leave(&rq->program, true);
    tell_cached(rq);
    request_note_end(rq, DECISION_FINISHED);
    count_outcome(rq, "");
    request_free(rq);
}

/* --- tokenize ---------------------------------------------------------------------------------- */

/* One that is told to us: not of embeddings, nor of what only the engine understands. */
static bool has_prompt(const struct request *rq)
{
    return rq->in.api != API_EMBEDDINGS && (!rq->own.api || rq->in.made_chat.len);
}

/* Touches nothing but the request and what is immutable: runs on a pool thread too. */
static void make_prompt(void *arg)
{
    struct request *rq = arg;
    struct str text = rq->in.prompt.text;
    struct prompt_making how;

    if (rq->in.api == API_EMBEDDINGS) {
        request_embed_tokenize(rq);
        return;
    }
    if (rq->in.api != API_CHAT) {
        rq->tokenize_r =
            prompt_encode(rq->m, rq->scratch, text, &rq->prompt, &rq->reuse, &rq->tokenize_error);
        return;
    }
    how = (struct prompt_making){&rq->now, rq->in_pool ? 0 : LOOP_STEPS, rq->scratch,
                                 &rq->prompt_text, &rq->reuse};
    rq->tokenize_r = prompt_make(rq->m, &rq->in, &how, &rq->prompt, &rq->tokenize_error);
}

static void prompt_made(void *arg)
{
    struct request *rq = arg;

    rq->in_pool = false;
    if (rq->gone) {
        request_free(rq);
        return;
    }
    rq->step = STEP_check;
    run(rq);
}

/* The prompt as ids, when it came so: instead of a text or beside it, which 0.9.0 heeds where the worker
 * is named too. */
static bool take_ids(struct request *rq)
{
    bool told = rq->in.n_token_data > 0 && (rq->pinned || model_is_of_1(rq->m));
    const uint32_t *ids = told ? rq->in.token_data : rq->in.prompt.ids;
    size_t n = told ? rq->in.n_token_data : rq->in.prompt.n_ids;

    if (rq->in.api == API_EMBEDDINGS || (!told && !rq->in.prompt.is_ids))
        return false;
    memcpy(token_ids_reserve(&rq->prompt, n), ids, n * sizeof(*ids));
    rq->prompt.len = n;
    return true;
}

static void keep_text(struct request *rq, struct str *text)
{
    if (text->len)
        *text = str_slice(arena_strdup(rq->arena, *text), text->len);
}

static enum step_result step_tokenize(struct request *rq)
{
    time_t now = (time_t)(clock_wall_ms() / 1000);

    rq->step = STEP_check;
    if (take_ids(rq))
        return STEP_MORE;
    if (rq->m->is_stock && !has_prompt(rq)) { /* the engine cuts its inputs itself */
        request_guess_length(rq);
        return STEP_MORE;
    }
    if (!model_can_tokenize(rq->m, rq->in.api == API_CHAT))
        return request_tokenize_there(rq);
    localtime_r(&now, &rq->now);
    rq->scratch = model_take_scratch(rq->m);
    request_put_head(rq);
    if (http_request(rq->x)->body.len < POOL_BYTES) {
        make_prompt(rq);
        if (rq->tokenize_r != -EAGAIN)
            return STEP_MORE;
    }
    /* The client may leave meanwhile, and its body with it. */
    keep_text(rq, &rq->in.prompt.text);
    keep_text(rq, &rq->in.guided.response_format);
    for (size_t i = 0; rq->in.api == API_EMBEDDINGS && i < rq->in.n_prompts; i++)
        keep_text(rq, &rq->in.prompts[i].text);
    rq->in_pool = true;
    loop_work(rq->s->loop, make_prompt, prompt_made, rq);
    return STEP_WAIT;
}

/* --- check ------------------------------------------------------------------------------------- */

static void hash_for_tracker(struct request *rq)
{
    const struct token_ids *tokens = prompt_media_tokens(&rq->media, &rq->prompt);

    if (!rq->s->tracking)
        return;
    rq->tracked =
        xreallocarray(rq->tracked, tokens->len / scheduler_block_size(rq->m->pool->scheduler),
                      sizeof(*rq->tracked));
    (void)serving_track(rq->s, rq->m, rq->in.cache_salt, tokens->ptr, tokens->len, rq->tracked);
}

void request_hash_prompt(struct request *rq)
{
    uint32_t block_size = scheduler_block_size(rq->m->pool->scheduler);
    const struct token_ids *tokens = prompt_media_tokens(&rq->media, &rq->prompt);
    size_t n = tokens->len / block_size;
    uint64_t start = clock_now_ns(), hashed;

    rq->local = xreallocarray(rq->local, n, sizeof(*rq->local));
    rq->sequence = xreallocarray(rq->sequence, n, sizeof(*rq->sequence));
    rq->n_blocks = pool_hash(rq->m->pool, model_salt(rq->m, rq->in.cache_salt), tokens->ptr,
                             tokens->len, rq->local, rq->sequence);
    hashed = clock_now_ns();
    hash_for_tracker(rq);
    rq->times.hashing_at_ns = start;
    rq->times.block_hashing = hashed - start;
    rq->times.sequence_hashing = clock_now_ns() - hashed;
}

static void measure_prompt(struct request *rq)
{
    rq->usage.prompt_tokens = request_isl(rq);
    metric_observe(metric_with(rq->s->metrics.input_tokens, rq->m->label), (double)request_isl(rq));
}

/* Whether a worker that counts them together would refuse what is wanted for this prompt. */
static bool over_budget(const struct request *rq)
{
    uint64_t budget = rq->m->card->token_budget, wanted = rq->in.stop.max_tokens.v;

    return budget && rq->in.stop.max_tokens.set &&
           (wanted > budget || rq->prompt.len > budget - wanted);
}

static enum step_result step_check(struct request *rq)
{
    uint64_t context = rq->m->card->context_length;

    /* Needed no more: a thousand streams must not hold a thousand of them. */
    if (rq->scratch) {
        model_give_scratch(rq->m, TAKE(rq->scratch));
        if (rq->tokenize_r == 0 && rq->in.api != API_EMBEDDINGS) /* whose texts are not kept */
            serving_metrics_reuse(&rq->s->metrics, rq->m, rq->reuse, rq->prompt.len);
    }
    request_annotate(rq);
    request_look_at_end(rq);
    prompt_media_make(rq->m, &rq->in, &rq->prompt, rq->arena, &rq->media);
    prompt_extras(rq->m, &rq->in, buf_str(&rq->prompt_text), &rq->media, rq->arena, &rq->extras);
    buf_done(&rq->prompt_text);
    if (rq->m->is_stock && (rq->tokenize_r < 0 || rq->prompt.len == 0))
        request_guess_length(rq); /* the engine may know better what to make of it */
    else if (rq->tokenize_r < 0) {
        request_fail(
            rq, 400, "%s%s",
            rq->in.api == API_EMBEDDINGS ? "" : "Failed to apply the chat template or tokenizer: ",
            rq->tokenize_error.text);
        return STEP_DONE;
    }
    if (rq->in.api == API_EMBEDDINGS) { /* how long each may be, its engine knows */
        rq->isl_guess = MAX(rq->isl_guess, (size_t)1);
        measure_prompt(rq);
        rq->step = STEP_programs;
        return STEP_MORE;
    }
    if (rq->prompt.len == 0 && !rq->isl_guess) {
        request_fail(rq, 400, "Validation: the prompt has no tokens");
        return STEP_DONE;
    }
    if (context && rq->prompt.len >= context) {
        request_fail(
            rq, 400,
            "This model's maximum context length is %llu tokens, but the prompt has %zu tokens",
            (unsigned long long)context, rq->prompt.len);
        return STEP_DONE;
    }
    if (over_budget(rq)) {
        struct api_error e;

        (void)api_fail(&e, 400, "max_tokens",
                       "This model's maximum context length is %llu tokens, but the prompt has "
                       "%zu tokens and max_tokens asks for %llu more",
                       (unsigned long long)rq->m->card->token_budget, rq->prompt.len,
                       (unsigned long long)rq->in.stop.max_tokens.v);
        request_fail_as(rq, &e);
        return STEP_DONE;
    }
    measure_prompt(rq);
    request_hash_prompt(rq);
    rq->step = STEP_lookup;
    return STEP_MORE;
}

static enum step_result step_lookup(struct request *rq)
{
    rq->step = rq->in.query_only && rq->s->route.mode == ROUTE_KV ? STEP_tell : STEP_programs;
    return request_lookup_start(rq) ? STEP_WAIT : STEP_MORE;
}

/* Outside kv mode the reference lets no hint influence the choice (wire.md §8.11). */
static bool heeds_pins(const struct request *rq)
{
    return rq->s->route.mode == ROUTE_KV || rq->s->route.mode == ROUTE_DIRECT;
}

/* --- programs, admit --- */

static void refuse(struct request *rq, const char *reason, const char *text)
{
    metric_add(metric_with(rq->s->metrics.overloads, rq->m->label, reason), 1);
    request_fail(rq, rq->s->overload_status, "Service temporarily unavailable: %s", text);
}

static void admitted(void *arg)
{
    run(arg);
}

/* A session is a program, and what names its worker waits for that one. */
static enum step_result step_programs(struct request *rq)
{
    const struct http1_request *head = http_request(rq->x);
    bool last = false;

    rq->step = STEP_admit;
    if (!rq->m->pool->programs)
        return STEP_MORE;
    (void)!str_parse_bool(http1_header_get(head, "x-dynamo-session-final"), &last);
    rq->program = (struct program_waiter){
        .ticket = {.isl_tokens = rq->prompt.len ? rq->prompt.len : rq->isl_guess,
                   .is_last = last,
                   .pinned = heeds_pins(rq) && rq->pinned,
                   .pin = {rq->pin, rq->pin_rank}},
        .go = admitted,
        .arg = rq};
    switch (program_gate_enter(rq->m->pool->programs, &rq->program,
                               http1_header_get(head, "x-dynamo-session-id"))) {
    case PROGRAMS_WAITS:
        return STEP_WAIT;
    case PROGRAMS_FULL:
        refuse(rq, "program_limit", "Too many programs at once, please retry later");
        return STEP_DONE;
    default:
        return STEP_MORE;
    }
}

/* Prompts wait for those who compute them: prefill workers, where there are any. */
static enum step_result step_admit(struct request *rq)
{
    struct pool *prefills = rq->form->splits_prompts ? serving_find_prefill(rq->s, rq->m) : NULL;
    struct pool *pool = prefills ? prefills : rq->m->pool;
    struct admission_refusal refusal;

    rq->step = STEP_prefill;
    rq->ticket.q = request_query_of(rq, pool);
    rq->ticket.q.pinned =
        heeds_pins(rq) && (rq->pinned || (prefills && rq->in.prefill_worker_id.set));
    rq->ticket.go = admitted;
    rq->ticket.arg = rq;
    switch (admission_enter(pool->admission, &rq->ticket, &refusal)) {
    case ADMISSION_WAITS:
        rq->times.queued_at_ns = clock_now_ns();
        return STEP_WAIT;
    case ADMISSION_REFUSED:
        refuse(rq, refusal.reason, "The router queue is full, please retry later");
        return STEP_DONE;
    default:
        return STEP_MORE;
    }
}

/* --- prefill ----------------------------------------------------------------------------------- */

static enum step_result step_tell(struct request *rq)
{
    return request_tell(rq);
}

static enum step_result step_prefill(struct request *rq)
{
    return request_prefill(rq);
}

/* --- route ------------------------------------------------------------------------------------- */

static void go_round(void *arg)
{
    run(arg);
}

/*
 * Every worker had its turn and failed before its first token. Workers that are starting, or handing
 * over, fail like that for a moment: after a pause they may all be asked again.
 */
static enum step_result pause_before_next_round(struct request *rq)
{
    rq->first_avoided = rq->n_failed;
    if (!rq->pause)
        rq->pause = timer_new(rq->s->loop, go_round, rq);
    timer_start(rq->pause, ROUND_PAUSE_MS);
    return STEP_WAIT;
}

enum step_result request_route_failed(struct request *rq, int r)
{
    if (r == ROUTE_NO_WORKERS && rq->first_avoided < rq->n_failed)
        return pause_before_next_round(rq);
    if (rq->n_replayed) /* as there: what went wrong first */
        request_fail(rq, rq->m->chunks->lost_status, "%s", PLANE_BROKEN_TEXT);
    else if (r == ROUTE_ALL_BUSY)
        refuse(rq, "all_busy", "All workers are busy, please retry later");
    else if (r == ROUTE_NO_SUCH_PIN)
        request_fail(
            rq, 500,
            "Failed to generate completions: instance_id=%llu not found for endpoint %s/%s/%s",
            (unsigned long long)rq->pin, rq->m->pool->ns, rq->m->pool->component,
            rq->m->pool->endpoint);
    else if (r == ROUTE_PIN_NEEDED)
        request_fail(rq, 400,
                     "Router mode direct needs the worker: header x-worker-instance-id or "
                     "nvext.backend_instance_id");
    else if (r == ROUTE_CONSTRAINED)
        request_fail(rq, 503, "No worker has the taints that the request requires");
    else if (rq->n_failed)
        request_fail(rq, 503,
                     "Failed to generate completions: no worker is left after %zu failed attempts",
                     rq->n_failed);
    else
        request_fail(rq, 503,
                     "Failed to generate completions: no instances found for endpoint \"%s/%s/%s\"",
                     rq->m->pool->ns, rq->m->pool->component, rq->m->pool->endpoint);
    return STEP_DONE;
}

struct route_request request_query(const struct request *rq)
{
    const struct token_ids *tokens = prompt_media_tokens(&rq->media, &rq->prompt);

    return (struct route_request){.id = str_from(rq->id),
                                  .local = rq->local,
                                  .sequence = rq->sequence,
                                  .tracked = rq->tracked,
                                  .n_blocks = rq->n_blocks,
                                  /* Salted blocks have names of their own there. */
                                  .tokens = rq->in.cache_salt.len ? NULL : tokens->ptr,
                                  .n_tokens = tokens->len,
                                  .isl = (uint32_t)(tokens->len ? tokens->len : rq->isl_guess),
                                  .overlap_weight = NAN,
                                  .temperature = NAN,
                                  .required = rq->in.required_taints,
                                  .n_required = rq->in.n_required_taints,
                                  .preferred = rq->in.preferred_taints,
                                  .n_preferred = rq->in.n_preferred_taints,
                                  .now_ns = clock_now_ns(),
                                  .clock = clock_now_ns,
                                  .random = random_u64()};
}

struct pool_avoid request_avoid(const struct request *rq, const struct pool *pool)
{
    if (pool != rq->m->pool)
        return (struct pool_avoid){NULL, 0};
    return (struct pool_avoid){rq->failed + rq->first_avoided, rq->n_failed - rq->first_avoided};
}

void request_pin(const struct request *rq, struct route_request *q)
{
    if (!heeds_pins(rq))
        return;
    if (rq->prefill && rq->in.decode_worker_id.set)
        q->pin.worker_id = rq->in.decode_worker_id.v;
    else if (rq->pinned)
        q->pin = (struct worker_rank){rq->pin, rq->pin_rank};
    else if (rq->bypasses)
        q->pin = rq->bypass_pin;
    else
        return;
    q->pinned = true;
}

/* Empty when sessions do not matter: they are off, or the request names its worker. */
static struct str session_of(const struct request *rq, const struct route_request *q)
{
    if (!rq->s->route.affinity_ttl_s || q->pinned)
        return STR_NULL;
    return http1_header_get(http_request(rq->x), "x-dynamo-session-id");
}

static void find_binding(const struct request *rq, struct route_request *q)
{
    uint64_t ttl_ns = rq->s->route.affinity_ttl_s * UINT64_C(1000000000);

    q->bound =
        affinity_find(rq->m->pool->affinity, session_of(rq, q), ttl_ns, q->now_ns, &q->binding);
    if (rq->program.ticket.in && rq->program.ticket.has_target) { /* before the session's own */
        q->bound = q->yields = true;
        q->binding = rq->program.ticket.target;
    }
}

static void bind_session(struct request *rq, const struct route_request *q)
{
    struct worker_rank w = rq->decision.candidates[rq->decision.chosen].worker;

    if (affinity_bind(rq->m->pool->affinity, session_of(rq, q), w, q->now_ns))
        metric_add(metric_with(rq->s->metrics.session_evictions, rq->m->label), 1);
    rq->session = affinity_hold(rq->m->pool->affinity, session_of(rq, q));
    if (q->bound)
        log_debug(&LG, worker_rank_eq(w, q->binding) ? "session kept its worker" : "session moved",
                  LOG_REQUEST(rq->id, &rq->trace), LOG_U64("worker_id", w.worker_id),
                  LOG_U64("was", q->binding.worker_id));
}

static enum step_result step_route(struct request *rq)
{
    struct route_request q = request_query_of(rq, rq->m->pool);
    const struct route_candidate *chosen;
    int r;

    request_pin(rq, &q);
    if (rq->prefill) { /* the prompt comes to whoever decodes */
        q.overlap_weight = 0;
        q.no_prefill_tokens = q.no_kv_reuse =
            scheduler_conf(rq->m->pool->scheduler)->policy != ROUTE_POLICY_DYNAMO; /* since 1.x */
    }
    find_binding(rq, &q);
    r = pool_route(rq->m->pool, &q, request_avoid(rq, rq->m->pool), &rq->decision, &rq->booking);
    request_note_decision(rq, &q, r);
    if (r != 0)
        return request_route_failed(rq, r);
    bind_session(rq, &q);
    programs_sent(&rq->program.ticket, rq->decision.candidates[rq->decision.chosen].worker);
    /* Who sets this books elsewhere: what is booked here, nobody would take back. */
    if (rq->in.enable_local_updates.set && !rq->in.enable_local_updates.v)
        rq->booking = booking_end(rq->booking, clock_now_ns(), false);
    pool_trace(rq->m->pool, &rq->decision, rq->id, &rq->trace);

    chosen = &rq->decision.candidates[rq->decision.chosen];
    metric_add(
        metric_with(rq->s->metrics.decisions, rq->m->label, ROUTE_MODE_WORDS[rq->decision.mode]),
        1);
    log_debug(&LG, "routed", LOG_REQUEST(rq->id, &rq->trace),
              LOG_STR("mode", ROUTE_MODE_WORDS[rq->decision.mode]),
              LOG_U64("worker_id", chosen->worker.worker_id),
              LOG_U64("overlap_blocks", chosen->overlap_blocks), LOG_U64("isl", rq->prompt.len));
    rq->step = STEP_send;
    return STEP_MORE;
}

/* --- send -------------------------------------------------------------------------------------- */

void request_fill_engine(struct request *rq, struct engine_request *ret)
{
    const struct openai_request *in = &rq->in;

    *ret = (struct engine_request){
        .model = in->model,
        .token_ids = rq->prompt.ptr,
        .n_token_ids = rq->prompt.len,
        .stop = in->stop,
        .sampling = in->sampling,
        .output = in->output,
        .eos_token_ids = rq->m->eos_ids,
        .n_eos_token_ids = rq->m->n_eos_ids,
        .mdc_sum = str_from(rq->m->card->mdc_sum),
        .annotations = in->annotations,
        .n_annotations = in->n_annotations,
        .has_routing = in->has_nvext || in->cache_salt.len || rq->m->card->lora_name ||
                       in->priority.set || in->strict_priority.set || in->prefill_dp_rank.set,
        .has_targets = in->has_targets,
        .targets = {in->ttft_target_ms, in->itl_target_ms},
        .multi_modal_data_json = rq->extras.media,
        .multi_modal_uuids_json = rq->extras.uuids,
        .extra_args_json = rq->extras.args,
        .mm_processor_kwargs_json = in->mm_processor_kwargs_json,
    };
    prompt_media_fill(&rq->media, scheduler_block_size(rq->m->pool->scheduler), ret);

    if (!in->output.skip_special_tokens.set && rq->m->chunks->hides_special && rq->m->reads_special)
        ret->output.skip_special_tokens = (struct opt_bool){.set = true}; /* as 1.6.1 tells them */
    if (in->stop.max_tokens.set)
        ret->stop.max_tokens.v -= MIN(in->stop.max_tokens.v, rq->n_replayed);
    if (in->stop.min_tokens.set)
        ret->stop.min_tokens.v -= MIN(in->stop.min_tokens.v, rq->n_replayed);
    if (in->stop.ignore_eos.set && in->stop.ignore_eos.v) {
        ret->stop.stop = NULL;
        ret->stop.ids = NULL;
        ret->n_eos_token_ids = 0;
    } else {
        ret->stop.hidden_ids = rq->m->eos_ids;
        ret->stop.n_hidden_ids = rq->m->n_eos_ids;
    }
    ret->routing = (struct engine_routing){.backend_instance_id = in->backend_instance_id,
                                           .prefill_worker_id = in->prefill_worker_id,
                                           .decode_worker_id = in->decode_worker_id,
                                           .enable_local_updates = in->enable_local_updates,
                                           .expected_output_tokens = in->expected_output_tokens,
                                           .lora_name = str_from(rq->m->card->lora_name),
                                           .cache_salt = in->cache_salt,
                                           .constraints_json = in->constraints_json,
                                           .prefill_dp_rank = in->prefill_dp_rank,
                                           .strict_priority = in->strict_priority,
                                           .priority_jump = in->latency_sensitivity,
                                           .priority = in->priority};
}

/* Tells a decode worker that has prefill workers beside it to compute this prompt itself. */
static void note_bypass(struct request *rq, struct engine_request *e)
{
    struct str *all = arena_alloc(rq->arena, (e->n_annotations + 1) * sizeof(*all));

    for (size_t i = 0; i < e->n_annotations; i++)
        all[i] = e->annotations[i];
    all[e->n_annotations++] = STR("x-bypass-remote-prefill");
    e->annotations = all;
}

void request_put_tokens(struct request *rq, struct buf *out)
{
    struct engine_request e;

    request_fill_engine(rq, &e);
    if (rq->decision.mode == ROUTE_KV) {
        e.has_routing = true;
        e.routing.dp_rank = OPT_U64(rq->decision.candidates[rq->decision.chosen].worker.dp_rank);
    }
    if (rq->prefill)
        prefill_fill_decode(rq->prefill, model_is_of_1(rq->m), &e);
    if (rq->bypasses)
        note_bypass(rq, &e);
    engine_request_put(out, &e);
}

static enum step_result step_send(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    uint64_t worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;
    const struct pool_worker *w = pool_worker(rq->m->pool, worker);
    struct plane_header headers[TRACE_HEADERS_MAX];
    struct plane_call call = {.address = pool_worker_address(rq->m->pool, worker),
                              .id = str_from(rq->id),
                              .headers = headers};

    attempt_span_begin(&rq->attempt, &rq->s->tracer, &rq->trace);
    call.n_headers = trace_context_headers(&rq->attempt.trace, headers);
    if (w && w->engine_model) {
        request_relay(rq, w);
        return STEP_WAIT;
    }
    rq->form->put(rq, &body);
    call.body = buf_str(&body);
    rq->stream = plane_client_send(rq->s->plane, &call, &REQUEST_STREAM_HANDLERS, rq);
    return STEP_WAIT;
}

void request_unroute(struct request *rq, enum decision_end how)
{
    if (rq->pause)
        timer_stop(rq->pause);
    rq->stream = plane_stream_cancel(rq->stream);
    rq->relay = relay_cancel(rq->relay);
    request_note_end(rq, how);
    end_booking(rq, false);
    rq->n_items = 0;
    if (rq->n_output == 0) /* else the next one goes on with the text */
        request_output_done(rq);
}

void request_go(struct request *rq, enum request_step step)
{
    rq->step = step;
    run(rq);
}

void request_retry(struct request *rq, const char *reason)
{
    uint64_t worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;

    rq->attempt.failure = reason;
    request_note_loss(rq, rq->n_output == 0);
    request_unroute(rq, DECISION_RETRIED);
    /* What was prefilled may have gone to the worker that failed: once more, from the cache. */
    rq->prefill = prefill_free(rq->prefill);
    pool_inhibit(rq->m->pool, worker);
    metric_add(metric_with(rq->s->metrics.retries, rq->m->label, reason), 1);
    metric_add(metric_with(rq->s->metrics.migrations, rq->m->name, "new_request"), 1);
    log_warn(&LG, "worker failed before its first token, trying another",
             LOG_REQUEST(rq->id, &rq->trace), LOG_U64("worker_id", worker), LOG_STR("why", reason));
    rq->failed[rq->n_failed++] = worker;
    if (rq->n_failed == REQUEST_ATTEMPTS) {
        if (rq->n_replayed)
            request_fail(rq, rq->m->chunks->lost_status, "%s", PLANE_BROKEN_TEXT);
        else
            request_fail(rq, 503,
                         "Failed to generate completions: %d attempts failed, the last one: %s",
                         REQUEST_ATTEMPTS, reason);
        return;
    }
    request_go(rq, STEP_prefill);
}

/* --- start ------------------------------------------------------------------------------------- */

static void run(struct request *rq)
{
    static enum step_result (*const steps[])(struct request * rq) = {
#define STEP_FUNCTION(name) [STEP_##name] = step_##name,
        REQUEST_STEPS(STEP_FUNCTION)
#undef STEP_FUNCTION
    };

    while (steps[rq->step](rq) == STEP_MORE)
        ;
}
