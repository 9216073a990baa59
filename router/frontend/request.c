/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/request.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "lib/base/log.h"
#include "router/frontend/request_state.h"
#include "router/kv/block_hash.h"

static const struct log_target LG = {"commutator::frontend::request"};
/* Where users of the reference look for the cost function (router.md §4.2). */
static const struct log_target LG_SCHEDULER = {"dynamo_llm::kv_router::scheduler"};

/* Tokenizing runs at some 10 MB/s: beyond this, other streams would notice on their tokens. */
enum { POOL_BYTES = 64 << 10, INHIBITED_MAX = 64, ROUND_PAUSE_MS = 1000 };

enum step_result { STEP_MORE, STEP_WAIT, STEP_DONE };

static void run(struct request *rq);

/* --- ways out ----------------------------------------------------------------------------------
 */

static void leave_queue(struct request *rq)
{
    if (rq->is_queued)
        metric_add(rq->queued, -1);
    rq->is_queued = false;
}

static void request_free(struct request *rq)
{
    timer_free(rq->pause);
    rq->stream = plane_stream_cancel(rq->stream);
    rq->booking = booking_release(rq->booking);
    leave_queue(rq);
    metric_add(rq->inflight, -1);
    rq->s->n_requests--;
    request_output_done(rq);
    route_decision_done(&rq->decision);
    if (rq->scratch)
        model_give_scratch(rq->m, TAKE(rq->scratch));
    openai_request_done(&rq->in);
    token_ids_done(&rq->prompt);
    buf_done(&rq->prompt_text);
    buf_done(&rq->out);
    buf_done(&rq->text);
    free(rq->local);
    free(rq->sequence);
    model_unref(rq->m);
    arena_free(rq->arena);
    free(rq);
}

static void count_outcome(struct request *rq, const char *status)
{
    struct serving_metrics *mt = &rq->s->metrics;
    const char *model = rq->m->label;

    metric_add(metric_with(mt->requests, model,
                           rq->in.api == API_CHAT ? "chat_completions" : "completions",
                           rq->in.stream ? "stream" : "unary", status),
               1);
    metric_observe(metric_with(mt->duration, model),
                   (double)(clock_now_ns() - rq->t_start_ns) / 1e9);
    if (rq->n_output)
        metric_observe(metric_with(mt->output_tokens, model), (double)rq->n_output);
}

/* The client left; kill what runs for it. */
static void gone(void *arg)
{
    struct request *rq = arg;

    metric_add(rq->s->metrics.disconnected, 1);
    count_outcome(rq, "error");
    rq->gone = true;
    if (!rq->in_pool)
        request_free(rq);
}

void request_fail(struct request *rq, int status, const char *format, ...)
{
    struct api_error e;
    va_list ap;

    e.status = status;
    e.param[0] = '\0';
    va_start(ap, format);
    (void)vsnprintf(e.text, sizeof(e.text), format, ap);
    va_end(ap);
    log_warn(&LG, "request failed", LOG_STR("request_id", rq->id), LOG_I64("status", status),
             LOG_BOOL("streaming", rq->begun), LOG_STR("why", e.text));
    if (rq->begun) {
        chunk_put_error(&rq->out, status, str_from(e.text));
        chunk_put_done(&rq->out);
        http_stream_write(rq->x, buf_str(&rq->out));
        http_stream_end(rq->x);
    } else {
        api_error_respond(rq->x, &e);
    }
    count_outcome(rq, "error");
    request_free(rq);
}

void request_finish(struct request *rq)
{
    count_outcome(rq, "success");
    request_free(rq);
}

/* --- tokenize ----------------------------------------------------------------------------------
 */

/* Touches nothing but the request and what is immutable: runs on a pool thread too. */
static void make_prompt(void *arg)
{
    struct request *rq = arg;
    struct chat_input chat = {rq->in.messages, rq->in.tools, rq->in.template_args, &rq->now};
    struct str text = rq->in.prompt;

    if (rq->in.api == API_CHAT) {
        rq->tokenize_r = chat_render(rq->m->chat, &chat, &rq->prompt_text, &rq->tokenize_error);
        if (rq->tokenize_r < 0)
            return;
        text = buf_str(&rq->prompt_text);
    }
    rq->tokenize_r =
        tokenizer_encode(rq->m->tokenizer, rq->scratch, text, &rq->prompt, &rq->tokenize_error);
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

static enum step_result step_tokenize(struct request *rq)
{
    time_t now = (time_t)(clock_wall_ms() / 1000);

    rq->step = STEP_check;
    if (rq->in.prompt_is_ids) {
        memcpy(token_ids_reserve(&rq->prompt, rq->in.n_prompt_ids), rq->in.prompt_ids,
               rq->in.n_prompt_ids * sizeof(uint32_t));
        rq->prompt.len = rq->in.n_prompt_ids;
        return STEP_MORE;
    }
    localtime_r(&now, &rq->now);
    rq->scratch = model_take_scratch(rq->m);
    if (http_request(rq->x)->body.len < POOL_BYTES) {
        make_prompt(rq);
        return STEP_MORE;
    }
    rq->in_pool = true;
    loop_work(rq->s->loop, make_prompt, prompt_made, rq);
    return STEP_WAIT;
}

/* --- check -------------------------------------------------------------------------------------
 */

static enum step_result step_check(struct request *rq)
{
    uint64_t context = rq->m->card->context_length;

    /* Needed no more: a thousand streams must not hold a thousand of them. */
    if (rq->scratch)
        model_give_scratch(rq->m, TAKE(rq->scratch));
    buf_done(&rq->prompt_text);
    if (rq->tokenize_r < 0) {
        request_fail(rq, 400, "Failed to apply the chat template or tokenizer: %s",
                     rq->tokenize_error.text);
        return STEP_DONE;
    }
    if (rq->prompt.len == 0) {
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
    /* An engine without a limit would go on to the end of its context: say where that is. */
    if (!rq->in.stop.max_tokens.set && context)
        rq->in.stop.max_tokens = OPT_U64(context - rq->prompt.len);
    rq->usage.prompt_tokens = rq->prompt.len;
    metric_observe(metric_with(rq->s->metrics.input_tokens, rq->m->label), (double)rq->prompt.len);

    uint32_t block_size = scheduler_block_size(rq->m->scheduler);
    size_t n = rq->prompt.len / block_size;

    rq->local = xreallocarray(NULL, n, sizeof(*rq->local));
    rq->sequence = xreallocarray(NULL, n, sizeof(*rq->sequence));
    rq->n_blocks = block_hash_local(rq->prompt.ptr, rq->prompt.len, block_size, rq->local);
    block_hash_sequence(rq->local, rq->n_blocks, rq->sequence);
    rq->step = STEP_route;
    return STEP_MORE;
}

/* --- route -------------------------------------------------------------------------------------
 */

static void trace_line(void *arg, struct str text)
{
    const struct request *rq = arg;

    log_emitf(&LG_SCHEDULER, LOG_INFO, &LOG_STR("request_id", rq->id), 1, "%.*s", STR_ARG(text));
}

static int route_around(struct request *rq, struct route_request *q)
{
    uint64_t avoid[REQUEST_ATTEMPTS + INHIBITED_MAX];
    size_t n_avoid = rq->n_failed - rq->first_avoided;
    int r;

    memcpy(avoid, rq->failed + rq->first_avoided, n_avoid * sizeof(avoid[0]));
    q->exclude = avoid;
    q->n_exclude = n_avoid + model_inhibited(rq->m, avoid + n_avoid, INHIBITED_MAX);
    r = scheduler_route(rq->m->scheduler, q, &rq->decision, &rq->booking);
    if (r != ROUTE_NO_WORKERS || q->n_exclude == n_avoid)
        return r;
    /* Better a worker that failed somebody else just now than none. */
    q->n_exclude = n_avoid;
    return scheduler_route(rq->m->scheduler, q, &rq->decision, &rq->booking);
}

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

static enum step_result route_failed(struct request *rq, int r)
{
    if (r == ROUTE_NO_WORKERS && rq->first_avoided < rq->n_failed)
        return pause_before_next_round(rq);
    if (r == ROUTE_ALL_BUSY)
        request_fail(rq, 503,
                     "Service temporarily unavailable: All workers are busy, please retry later");
    else if (r == ROUTE_NO_SUCH_PIN)
        request_fail(
            rq, 500,
            "Failed to generate completions: instance_id=%llu not found for endpoint %s/%s/%s",
            (unsigned long long)rq->pin, rq->m->ns, rq->m->component, rq->m->endpoint);
    else if (rq->n_failed)
        request_fail(rq, 503,
                     "Failed to generate completions: no worker is left after %zu failed attempts",
                     rq->n_failed);
    else
        request_fail(rq, 503,
                     "Failed to generate completions: no instances found for endpoint \"%s/%s/%s\"",
                     rq->m->ns, rq->m->component, rq->m->endpoint);
    return STEP_DONE;
}

static enum step_result step_route(struct request *rq)
{
    struct route_request q = {.id = str_from(rq->id),
                              .local = rq->local,
                              .sequence = rq->sequence,
                              .n_blocks = rq->n_blocks,
                              .isl = (uint32_t)rq->prompt.len,
                              .overlap_weight = NAN,
                              .temperature = NAN,
                              .now_ms = loop_now_ms(rq->s->loop),
                              .random = random_u64()};
    const struct route_candidate *chosen;
    int r;

    /* Outside kv mode the reference lets no hint influence the choice (wire.md §8.11). */
    if (rq->pinned && rq->s->route.mode == ROUTE_KV) {
        q.pinned = true;
        q.pin.worker_id = rq->pin;
    }
    r = route_around(rq, &q);
    if (r != 0)
        return route_failed(rq, r);
    if (log_enabled(&LG_SCHEDULER, LOG_INFO))
        route_decision_trace(&rq->decision, trace_line, rq);

    chosen = &rq->decision.candidates[rq->decision.chosen];
    metric_add(
        metric_with(rq->s->metrics.decisions, rq->m->label, ROUTE_MODE_WORDS[rq->decision.mode]),
        1);
    if (rq->n_blocks)
        metric_observe(metric_with(rq->s->metrics.hit_rate, rq->m->label),
                       (double)chosen->overlap_blocks / (double)rq->n_blocks);
    log_debug(&LG, "routed", LOG_STR("request_id", rq->id),
              LOG_STR("mode", ROUTE_MODE_WORDS[rq->decision.mode]),
              LOG_U64("worker_id", chosen->worker.worker_id),
              LOG_U64("overlap_blocks", chosen->overlap_blocks), LOG_U64("isl", rq->prompt.len));
    rq->step = STEP_send;
    return STEP_MORE;
}

/* --- send --------------------------------------------------------------------------------------
 */

static void put_engine_request(const struct request *rq, struct buf *out)
{
    const struct openai_request *in = &rq->in;
    struct engine_request e = {
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
        .has_routing = in->has_nvext || rq->decision.mode == ROUTE_KV,
    };

    if (in->stop.ignore_eos.set && in->stop.ignore_eos.v) {
        e.stop.stop = NULL;
        e.n_eos_token_ids = 0;
    } else {
        e.stop.hidden_ids = rq->m->eos_ids;
        e.stop.n_hidden_ids = rq->m->n_eos_ids;
    }
    e.routing = (struct engine_routing){.backend_instance_id = in->backend_instance_id,
                                        .prefill_worker_id = in->prefill_worker_id,
                                        .decode_worker_id = in->decode_worker_id,
                                        .enable_local_updates = in->enable_local_updates,
                                        .expected_output_tokens = in->expected_output_tokens};
    if (rq->decision.mode == ROUTE_KV)
        e.routing.dp_rank = OPT_U64(rq->decision.candidates[rq->decision.chosen].worker.dp_rank);
    engine_request_put(out, &e);
}

static enum step_result step_send(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    uint64_t worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;
    struct plane_call call = {.address = model_worker_address(rq->m, worker),
                              .id = str_from(rq->id)};

    put_engine_request(rq, &body);
    call.body = buf_str(&body);
    rq->stream = plane_client_send(rq->s->plane, &call, &REQUEST_STREAM_HANDLERS, rq);
    return STEP_WAIT;
}

void request_retry(struct request *rq, const char *reason)
{
    uint64_t worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;

    rq->booking = booking_release(rq->booking);
    model_inhibit(rq->m, worker);
    metric_add(metric_with(rq->s->metrics.retries, rq->m->label, reason), 1);
    log_warn(&LG, "worker failed before its first token, trying another",
             LOG_STR("request_id", rq->id), LOG_U64("worker_id", worker), LOG_STR("why", reason));
    rq->failed[rq->n_failed++] = worker;
    if (rq->n_failed == REQUEST_ATTEMPTS) {
        request_fail(rq, 503,
                     "Failed to generate completions: %d attempts failed, the last one: %s",
                     REQUEST_ATTEMPTS, reason);
        return;
    }
    rq->step = STEP_route;
    run(rq);
}

/* --- start -------------------------------------------------------------------------------------
 */

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

/* Body `user` if it is a UUID, else the header, else a new one (wire.md §9.2). */
static void choose_id(struct request *rq)
{
    struct str header = http1_header_get(http_request(rq->x), "x-dynamo-request-id");
    struct str id = uuid_is_valid(rq->in.user) ? rq->in.user : header;

    if (uuid_is_valid(id))
        (void)snprintf(rq->id, sizeof(rq->id), "%.*s", STR_ARG(id));
    else
        random_uuid(rq->id);
}

static void choose_pin(struct request *rq)
{
    struct str header = http1_header_get(http_request(rq->x), "x-worker-instance-id");

    rq->pinned = str_parse_u64(header, &rq->pin);
    if (!rq->pinned && rq->in.backend_instance_id.set) {
        rq->pinned = true;
        rq->pin = rq->in.backend_instance_id.v;
    }
}

static bool find_model(struct serving *s, const struct openai_request *in, struct model **ret,
                       struct api_error *e)
{
    struct model *m = serving_find_model(s, in->model);

    if (s->stopping)
        return api_fail(e, 503, NULL, "Service is shutting down");
    if (s->n_requests >= s->requests_max)
        return api_fail(e, 503, NULL, "Too many requests in flight (%zu), please retry later",
                        s->n_requests);
    if (!m)
        return api_fail(e, 404, "model", "Model not found");
    if (m->state == MODEL_LOADING)
        return api_fail(e, 503, "model", "Model is being loaded, please retry");
    if (m->state == MODEL_FAILED)
        return api_fail(e, 503, "model", "Model cannot be served: %s", m->why.text);
    if (in->api == API_CHAT && !m->chat)
        return api_fail(e, 400, "model", "Model has no chat template: use /v1/completions");
    *ret = m;
    return true;
}

void request_serve(struct serving *s, struct http_exchange *x, enum api api)
{
    AUTO(arena_free) struct arena *arena = arena_new();
    struct openai_request in;
    struct api_error e;
    struct request *rq;
    struct model *m = NULL;

    if (!openai_request_parse(api, http_request(x)->body, arena, &in, &e) ||
        !find_model(s, &in, &m, &e)) {
        openai_request_done(&in);
        api_error_respond(x, &e);
        return;
    }
    rq = xcalloc(1, sizeof(*rq));
    *rq = (struct request){.s = s,
                           .x = x,
                           .m = model_ref(m),
                           .arena = TAKE(arena),
                           .in = in,
                           .t_start_ns = clock_now_ns(),
                           .is_queued = true};
    rq->inflight = metric_with(s->metrics.inflight, m->label);
    rq->queued = metric_with(s->metrics.queued, m->label);
    metric_add(rq->inflight, 1);
    metric_add(rq->queued, 1);
    s->n_requests++;
    choose_id(rq);
    choose_pin(rq);
    http_on_gone(x, gone, rq);
    run(rq);
}
