/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the worker's items to the client's text: decoding, stops, chunks, back-pressure.
 */
#include <inttypes.h>
#include <math.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "router/frontend/event_stream.h"
#include "router/frontend/request_migrate.h"
#include "router/frontend/request_batch.h"
#include "router/frontend/request_relay.h"
#include "router/sched/signals.h"

static const struct log_target LG = {"commutator::frontend::request"};

/* Beyond this the worker's stream is not read until the client has taken what it was sent. */
enum { BACKLOG_HIGH = 256 << 10 };

static void tell_workers(struct request *rq)
{
    struct worker_rank decode = rq->answered_early
                                    ? (struct worker_rank){0}
                                    : rq->decision.candidates[rq->decision.chosen].worker;
    struct worker_rank prefill = rq->prefill ? prefill_chosen(rq->prefill)->worker : decode;
    bool by_caches = rq->prefill || rq->decision.mode == ROUTE_KV;

    rq->moved = false;
    if (rq->m->chunks->tells_any_worker
            ? !rq->in.wants_worker
            : !by_caches || !(rq->in.wants_worker || rq->in.wants_timing))
        return;
    chunk_tell_workers(&rq->chunk, &(struct chunk_workers){.prefill_id = prefill.worker_id,
                                                           .prefill_rank = prefill.dp_rank,
                                                           .decode_id = decode.worker_id,
                                                           .decode_rank = decode.dp_rank,
                                                           .no_decode = rq->answered_early,
                                                           .has_ranks = by_caches});
}

/* The model's and the request's. */
static const uint32_t *stop_ids(struct request *rq)
{
    const struct engine_stop *stop = &rq->in.stop;
    size_t n = rq->m->n_eos_ids;
    uint32_t *ids;

    if (!stop->n_ids)
        return rq->m->eos_ids;
    ids = arena_alloc(rq->arena, (n + stop->n_ids) * sizeof(*ids));
    memcpy(ids, rq->m->eos_ids, n * sizeof(*ids));
    memcpy(ids + n, stop->ids, stop->n_ids * sizeof(*ids));
    return ids;
}

/* Before which nothing stops. */
static uint64_t min_tokens(const struct request *rq)
{
    uint64_t n = rq->in.stop.min_tokens.set ? rq->in.stop.min_tokens.v : 0;

    return n > 0 && rq->m->chunks->stops_behind_min ? n + 1 : n;
}

/* Unless the request says it. */
static bool hides_special(const struct request *rq)
{
    const struct opt_bool *asked = &rq->in.output.skip_special_tokens;

    return asked->set ? asked->v : rq->m->chunks->hides_special && !rq->m->reads_special;
}

/* The frontend of 0.9.0 does not know of them. */
static bool tells_ids(const struct request *rq)
{
    return rq->in.wants_ids && model_is_of_1(rq->m);
}

static void start_decoding(struct request *rq)
{
    const struct openai_request *in = &rq->in;
    bool ignore_eos = in->stop.ignore_eos.set && in->stop.ignore_eos.v;

    if (rq->decoding) {
        if (rq->moved)
            tell_workers(rq);
        return;
    }
    rq->decoding = true;
    rq->rules = (struct stop_rules){
        .strings = in->stop.stop,
        .n_strings = ignore_eos ? 0 : in->stop.n_stop,
        .hidden_ids = stop_ids(rq),
        .n_hidden_ids = ignore_eos ? 0 : rq->m->n_eos_ids + in->stop.n_ids,
        .min_tokens = min_tokens(rq),
        .include_string = in->sampling.include_stop_str_in_output.set &&
                          in->sampling.include_stop_str_in_output.v,
    };
    stop_init(&rq->stop, &rq->rules);
    detok_init(&rq->detok, rq->m->tokenizer, rq->prompt.ptr, rq->prompt.len, hides_special(rq));
    chunk_init(&rq->chunk, in->api, rq->m->chunks,
               rq->batch ? request_batch_id(rq->batch) : str_from(rq->id), in->model,
               clock_wall_ms() / 1000);
    if (rq->choice)
        chunk_choose(&rq->chunk, rq->choice);
    request_reply_start(rq);
    if (rq->dialect && in->stream)
        rq->dialect->put_begin(rq->told, &rq->out);
    tell_workers(rq);
    if (tells_ids(rq))
        chunk_tell_ids(&rq->chunk, NULL, 0);
}

void request_output_done(struct request *rq)
{
    rq->form->reset(rq);
}

static void stop_decoding(struct request *rq)
{
    engine_output_reader_done(&rq->reader);
    request_reply_done(rq);
    if (!rq->decoding)
        return;
    detok_done(&rq->detok);
    stop_done(&rq->stop);
    chunk_done(&rq->chunk);
    rq->decoding = false;
}

/* --- what the client sees ----------------------------------------------------------------------
 */

void request_resume(struct request *rq)
{
    if (rq->stream)
        plane_stream_resume(rq->stream);
    else if (rq->relay)
        relay_resume(rq->relay);
}

static void drained(void *arg)
{
    request_resume(arg);
}

void request_flush(struct request *rq)
{
    if (rq->out.len == 0)
        return;
    if (rq->batch) {
        request_batch_write(rq);
        return;
    }
    if (!rq->begun) {
        rq->begun = true;
        http_on_drained(rq->x, drained, rq);
        event_stream_open(rq->x);
    }
    http_stream_write(rq->x, buf_str(&rq->out));
    buf_clear(&rq->out);
}

/* Key order and units of the reference (wire.md §8.7). */
static struct str timing_json(struct request *rq)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    uint64_t now_ns = clock_now_ns();
    double total_ms = (double)(now_ns - rq->t_start_ns) / 1e6;
    const struct route_decision *d = rq->prefill ? prefill_decision(rq->prefill) : &rq->decision;

    buf_printf(&out, "{\"request_received_ms\":%" PRIu64, clock_wall_ms() - (uint64_t)total_ms);
    if (rq->prefill && rq->t_first_ns) {
        uint64_t began_ns = prefill_started_ns(rq->prefill);

        buf_printf(&out, ",\"prefill_wait_time_ms\":%.3f,\"prefill_time_ms\":%.3f",
                   (double)(began_ns - rq->t_start_ns) / 1e6,
                   (double)(rq->t_first_ns - began_ns) / 1e6);
    }
    if (rq->t_first_ns)
        buf_printf(&out, ",\"ttft_ms\":%.3f", (double)(rq->t_first_ns - rq->t_start_ns) / 1e6);
    buf_printf(&out, ",\"total_time_ms\":%.3f", total_ms);
    if (d->mode == ROUTE_KV && d->isl_blocks)
        buf_printf(&out, ",\"kv_hit_rate\":%.6g",
                   (double)d->candidates[d->chosen].overlap_blocks / (double)d->isl_blocks);
    buf_put_char(&out, '}');
    return str_from(arena_strdup(rq->arena, buf_str(&out)));
}

static struct str prompt_ids_json(struct request *rq)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);

    json_put_u32_array(&j, rq->prompt.ptr, rq->prompt.len - rq->n_replayed);
    return str_from(arena_strdup(rq->arena, buf_str(&out)));
}

/* The last text of an answer that has ended, and why it has. */
static void emit_end(struct request *rq, struct str text)
{
    if (rq->in.wants_prompt_ids && model_is_of_1(rq->m))
        rq->end.prompt_ids_json = prompt_ids_json(rq);
    if (rq->in.wants_timing)
        rq->end.timing_json = timing_json(rq);
    request_reply_end(rq, text);
}

void request_complete_stream(struct request *rq)
{
    if (!rq->own.answers)
        chunk_put_done(&rq->out);
    request_flush(rq);
    http_stream_end(rq->x);
    request_finish(rq);
}

static void complete(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (rq->batch) {
        request_batch_complete(rq);
        return;
    }
    if (!rq->in.stream) {
        request_reply_put_folded(rq, &body);
        http_respond(rq->x, 200, "application/json", buf_str(&body));
        request_finish(rq);
        return;
    }
    if (rq->dialect)
        rq->dialect->put_end(rq->told, &rq->out,
                             &(struct dialect_end){.end = &rq->end,
                                                   .usage = &rq->usage,
                                                   .completed = clock_wall_ms() / 1000});
    else if (rq->in.include_usage)
        chunk_put_usage(&rq->chunk, &rq->out, &rq->usage);
    request_complete_stream(rq);
}

/* --- tokens ------------------------------------------------------------------------------------
 */

/* The worker has computed the prompt itself: events of it must come. */
static void tell_computed(const struct request *rq)
{
    const struct route_candidate *c;

    if (rq->prefill)
        return;
    c = &rq->decision.candidates[rq->decision.chosen];
    scheduler_signal_prompt(rq->m->pool->scheduler, c->worker, rq->n_blocks, policy_held_blocks(c),
                            loop_now_ms(rq->s->loop));
}

static void note_first_token(struct request *rq, uint64_t now_ns)
{
    rq->t_first_ns = now_ns;
    metric_observe(metric_with(rq->s->metrics.ttft, rq->m->label),
                   (double)(now_ns - rq->t_start_ns) / 1e9);
    if (rq->booking)
        booking_first_token(rq->booking, now_ns);
    tell_computed(rq);
    if (rq->prefill)
        prefill_delivered(rq->prefill);
    if (rq->is_queued)
        metric_add(rq->queued, -1);
    rq->is_queued = false;
}

static void note_tokens(struct request *rq, size_t n)
{
    uint64_t now_ns = clock_now_ns();

    if (n == 0)
        return;
    request_note_loss_over(rq, "success");
    if (rq->n_output == 0) {
        note_first_token(rq, now_ns);
    } else if (request_new_output(rq) == 0) { /* another worker went on: that is no gap */
        if (rq->booking)
            booking_first_token(rq->booking, now_ns);
        tell_computed(rq);
        if (rq->prefill)
            prefill_delivered(rq->prefill);
    } else {
        double each = (double)(now_ns - rq->t_last_ns) / 1e9 / (double)n;

        if (rq->booking)
            booking_touch(rq->booking, now_ns);
        if (!rq->itl)
            rq->itl = metric_with(rq->s->metrics.itl, rq->m->label);
        for (size_t i = 0; i < n; i++)
            metric_observe(rq->itl, each);
    }
    rq->t_last_ns = now_ns;
    rq->n_output += n;
    rq->program.ticket.context_tokens += n;
    rq->usage.completion_tokens = rq->n_output;
    if (!rq->output_total)
        rq->output_total = metric_with(rq->s->metrics.output_total, rq->m->label);
    metric_add(rq->output_total, (double)n);
}

/* Grown output is booked a block at a time (--track-output-blocks, router.md §4.4). */
static void note_output_blocks(struct request *rq)
{
    uint32_t block = scheduler_block_size(rq->m->pool->scheduler);
    uint64_t before = (rq->prompt.len + block - 1) / block;
    uint64_t blocks = (rq->prompt.len + request_new_output(rq) + block - 1) / block - before;
    const struct opt_u64 *expected = &rq->in.expected_output_tokens;
    double decay = 1;

    if (!rq->s->route.track_output_blocks || blocks <= rq->n_output_blocks)
        return;
    rq->n_output_blocks = blocks;
    if (expected->set)
        decay = fmax(0, 1 - (double)rq->n_output / (double)MAX(expected->v, UINT64_C(1)));
    if (rq->booking)
        booking_output_block(rq->booking, decay);
}

void request_note_output(struct request *rq, size_t n)
{
    note_tokens(rq, n);
    note_output_blocks(rq);
}

static const char *finish_word(enum finish_reason f)
{
    switch (f) {
    case FINISH_LENGTH:
        return "length";
    case FINISH_CONTENT_FILTER:
        return "content_filter";
    case FINISH_EOS:
    case FINISH_STOP:
    case FINISH_CANCELLED:
    case FINISH_ERROR:
    case FINISH_NONE:
        break;
    }
    return "stop";
}

static void end_with(struct request *rq, const char *finish, struct str stop_reason_json)
{
    rq->ended = true;
    rq->end.finish = finish;
    if (stop_reason_json.len)
        rq->end.stop_reason_json = str_from(arena_strdup(rq->arena, stop_reason_json));
}

static void end_at_stop_string(struct request *rq)
{
    AUTO(buf_done) struct buf quoted = BUF_NULL;

    buf_put_char(&quoted, '"');
    json_escape(&quoted, rq->rules.strings[rq->stop.matched]);
    buf_put_char(&quoted, '"');
    end_with(rq, "stop", buf_str(&quoted));
}

/* Whether the item tells log probabilities that the client wants; then @it walks over them. */
static bool begin_logprobs(const struct request *rq, const struct engine_output *o,
                           struct logprobs_item *it)
{
    if (!rq->in.output.logprobs.set || !o->log_probs_json.len)
        return false;
    logprobs_item_init(it, o->log_probs_json, o->top_logprobs_json);
    return true;
}

/* Appends to @out what may be sent of @text, which may end the answer. */
static void push_text(struct request *rq, struct str text, struct buf *out)
{
    if (stop_push(&rq->stop, text, out) == STOP_AT_STRING)
        end_at_stop_string(rq);
}

/* No more tokens come: lets out what waited for them, in which a stop string may still be found. */
static void end_text(struct request *rq, const char *finish, struct str stop_reason_json,
                     struct buf *out)
{
    if (rq->m->chunks->tells_broken_end)
        push_text(rq, detok_flush(&rq->detok), out);
    if (rq->ended)
        return;
    stop_flush(&rq->stop, out);
    end_with(rq, finish, stop_reason_json);
}

/* Decodes the ids of one item. */
static void take_ids(struct request *rq, const struct engine_output *o, struct buf *text)
{
    struct logprobs_item it;
    bool has_logprobs = begin_logprobs(rq, o, &it);
    size_t i;

    for (i = 0; i < o->n_token_ids && !rq->ended; i++) {
        bool is_end = stop_count(&rq->stop, o->token_ids[i]) == STOP_AT_ID;
        struct str piece = is_end ? STR_NULL : detok_push(&rq->detok, o->token_ids[i]);

        if (has_logprobs)
            request_reply_logprobs(rq, &it, o->token_ids[i], piece);
        if (is_end)
            end_text(rq, "stop", STR_NULL, text);
        else
            push_text(rq, piece, text);
    }
    if (rq->m->chunks->counts_to_stop)
        rq->usage.completion_tokens -= o->n_token_ids - i;
}

/* Of an item that the worker has decoded itself. */
static void take_logprobs(struct request *rq, const struct engine_output *o)
{
    struct logprobs_item it;

    if (begin_logprobs(rq, o, &it))
        for (size_t i = 0; i < o->n_token_ids; i++)
            request_reply_logprobs(rq, &it, o->token_ids[i], STR_NULL);
}

/* One item is one chunk. */
static void take_output(struct request *rq, const struct engine_output *o)
{
    AUTO(buf_done) struct buf decoded = BUF_NULL;
    struct str text = o->text;

    if (tells_ids(rq) && rq->chunk.ids.len < TEXT_BYTES_MAX)
        chunk_tell_ids(&rq->chunk, o->token_ids, o->n_token_ids);
    if (o->has_text) {
        take_logprobs(rq, o);
        if (o->finish != FINISH_NONE)
            end_with(rq, finish_word(o->finish), o->stop_reason_json);
    } else {
        take_ids(rq, o, &decoded);
        if (o->finish != FINISH_NONE && !rq->ended)
            end_text(rq, finish_word(o->finish), o->stop_reason_json, &decoded);
        if (decoded.len)
            text = buf_str(&decoded);
        else if (rq->stop.found && rq->m->chunks->stop_leaves_text)
            text = STR("");
    }
    if (rq->ended)
        emit_end(rq, text);
    else if (text.len || o->n_token_ids)
        request_reply_push(rq, text);
}

/* What the engine counted itself goes before what was counted here. */
static void take_completion_details(struct request *rq, struct str json)
{
    uint64_t n;

    rq->usage.completion_details_json = str_from(arena_strdup(rq->arena, json));
    if (str_parse_u64(json_pull_member(json, "reasoning_tokens"), &n)) {
        rq->usage.reasoning_tokens = OPT_U64(n);
        rq->reply.told_thoughts = true;
    }
}

/* Usage that only the engine knows: cached tokens (wire.md §5.2). */
static void take_usage(struct request *rq, struct str json)
{
    struct json_pull p;
    struct str key, details = STR_NULL, completion;
    uint64_t prompt;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return;
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "prompt_tokens_details") && json_pull_peek(&p) == JSON_KIND_OBJECT)
            json_pull_skip(&p, &details);
        else if (str_is(key, "completion_tokens_details") &&
                 json_pull_peek(&p) == JSON_KIND_OBJECT && json_pull_skip(&p, &completion))
            take_completion_details(rq, completion);
        else if (str_is(key, "prompt_tokens") && json_pull_u64(&p, &prompt))
            rq->usage.prompt_tokens = prompt - MIN(prompt, rq->n_replayed);
        else
            json_pull_skip(&p, NULL);
    }
    if (!details.len)
        return;
    rq->usage.prompt_details_json = str_from(arena_strdup(rq->arena, details));
    json_pull_init(&p, details);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "cached_tokens") && json_pull_peek(&p) == JSON_KIND_NUMBER &&
                json_pull_u64(&p, &rq->cached_tokens))
                metric_observe(metric_with(rq->s->metrics.cached_tokens, rq->m->label),
                               (double)rq->cached_tokens);
            else
                json_pull_skip(&p, NULL);
        }
}

/* --- the stream's callbacks --------------------------------------------------------------------
 */

/* In 1.x what a worker will not do is told apart from what it cannot. */
static bool blames_client(const struct wire_item *item)
{
    return str_is(item->error_type, "InvalidArgument") ||
           str_is(item->error_type, "Backend.InvalidArgument");
}

/* A worker may name status and words itself: {"message":s,"code":n} (wire.md §6.2). */
static void fail_with_worker_text(struct request *rq, const struct wire_item *item)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str key, text = item->error, message = text;
    struct json_pull p;
    uint64_t code = blames_client(item) ? 400 : 500;

    json_pull_init(&p, text);
    if (json_pull_peek(&p) == JSON_KIND_OBJECT && json_pull_object(&p)) {
        struct str named = STR_NULL;
        uint64_t named_code = 0;

        while (json_pull_key(&p, &key)) {
            if (str_is(key, "message") && json_pull_peek(&p) == JSON_KIND_STRING)
                (void)!json_pull_string(&p, &scratch, &named);
            else if (str_is(key, "code") && json_pull_peek(&p) == JSON_KIND_NUMBER)
                (void)!json_pull_u64(&p, &named_code);
            else
                json_pull_skip(&p, NULL);
        }
        if (json_pull_ok(&p) && named.ptr && named_code >= 400 && named_code < 600) {
            message = named;
            code = named_code;
        }
    }
    request_fail(rq, (int)code, "%.*s", STR_ARG(message));
}

/* A decode that fails then has most likely lost its prefill worker, before or after that one's end. */
static bool waits_for_prompt(const struct request *rq)
{
    return rq->prefill && request_new_output(rq) == 0;
}

static void inhibit_worker(struct request *rq)
{
    pool_inhibit(rq->m->pool, rq->decision.candidates[rq->decision.chosen].worker.worker_id);
}

static void end_and_complete(struct request *rq, const char *finish)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (!rq->ended) {
        end_text(rq, finish, STR_NULL, &text);
        emit_end(rq, text.len ? buf_str(&text) : STR_NULL);
    }
    complete(rq);
}

/* Another worker goes on, or does it from the start, or the client is told. */
static void worker_lost(struct request *rq, const char *reason, struct str text)
{
    AUTO(mem_free) char *why = str_dup(text); /* the stream's */

    rq->attempt.failure = reason;
    inhibit_worker(rq);
    rq->stream = plane_stream_cancel(rq->stream);
    if (request_new_output(rq) == 0) {
        request_retry(rq, reason);
    } else if (rq->decoding && rq->in.stop.max_tokens.set &&
               rq->n_output >= rq->in.stop.max_tokens.v) {
        end_and_complete(rq, "length"); /* only its farewell is missing */
    } else if (request_can_migrate(rq)) {
        request_migrate(rq, reason);
    } else {
        request_fail(rq, rq->m->chunks->lost_status, "%s", why);
    }
}

static void take_item(struct request *rq, struct str data)
{
    struct engine_output o;
    struct err e;

    start_decoding(rq);
    if (engine_output_parse(&rq->reader, data, &o, &e) < 0) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "Failed to read the worker's output: %s", e.text);
        return;
    }
    if (o.finish == FINISH_ERROR) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "%.*s", STR_ARG(o.finish_error));
        return;
    }
    request_note_output(rq, o.n_token_ids);
    request_remember(rq, o.token_ids, o.n_token_ids);
    if (o.completion_usage_json.len)
        take_usage(rq, o.completion_usage_json);
    take_output(rq, &o);
    /* The engine goes on until it is told: a stop that only we know of ends the stream here. */
    if (rq->ended && o.finish == FINISH_NONE) {
        rq->stream = plane_stream_cancel(rq->stream);
        complete(rq);
    }
}

static void end_items(struct request *rq)
{
    start_decoding(rq);
    end_and_complete(rq, "stop");
}

/* @item is readable and says why it ends: the prefill has looked. */
void request_take_answer(struct request *rq, struct str item)
{
    rq->answered_early = true;
    take_item(rq, item);
    end_items(rq);
}

const struct request_form REQUEST_OF_TOKENS = {.put = request_put_tokens,
                                               .take = take_item,
                                               .end = end_items,
                                               .reset = stop_decoding,
                                               .splits_prompts = true};

/* The worker says itself that it failed; behind an answer's end, too: then it takes that back. */
static void on_error(struct request *rq, const struct wire_item *item)
{
    if (wire_item_is_loss(item)) {
        if (!rq->ended) /* else the answer was whole */
            worker_lost(rq, "lost_behind", item->error);
        return;
    }
    if (waits_for_prompt(rq)) {
        prefill_refused(rq->prefill);
        return;
    }
    rq->stream = plane_stream_cancel(rq->stream);
    fail_with_worker_text(rq, item);
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct request *rq = arg;

    rq->n_items++;
    if (item->is_error)
        on_error(rq, item);
    else if (item->data.len && !rq->ended) /* else an annotation, or behind the end */
        rq->form->take(rq, item->data);
}

static void on_batch_end(void *arg)
{
    struct request *rq = arg;

    if (rq->form->answers_late && !rq->n_output)
        return;
    request_flush(rq);
    if (rq->begun && http_stream_backlog(rq->x) > BACKLOG_HIGH)
        plane_stream_pause(rq->stream);
}

static void on_finished(void *arg)
{
    struct request *rq = arg;

    rq->stream = NULL;
    if (rq->n_items == 0) {
        request_fail(rq, 500, "Failed to generate completions: the worker ended without output");
        return;
    }
    rq->form->end(rq);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct request *rq = arg;

    rq->stream = NULL;
    if (rq->ended) {
        complete(rq); /* the answer was whole; only the farewell is missing */
        return;
    }
    rq->attempt.failure = plane_failure_name(kind);
    log_debug(&LG, "stream failed", LOG_REQUEST(rq->id, &rq->trace),
              LOG_STR("kind", plane_failure_name(kind)), LOG_STR("why", text));
    if (kind == PLANE_OVERLOADED || kind == PLANE_TOO_LARGE) {
        request_fail(rq, kind == PLANE_TOO_LARGE ? 413 : rq->s->overload_status, "%s", text);
        return;
    }
    if (plane_failure_is_retryable(kind)) { /* nothing was generated: another worker may do it */
        request_retry(rq, plane_failure_name(kind));
        return;
    }
    if (plane_failure_is_migratable(kind)) {
        worker_lost(rq, plane_failure_name(kind), str_from(text));
        return;
    }
    if (plane_failure_is_workers(kind))
        inhibit_worker(rq);
    if (waits_for_prompt(rq))
        prefill_refused(rq->prefill);
    else if (kind == PLANE_ENGINE)
        request_fail(
            rq, rq->m->chunks->lost_status,
            "Failed to generate completions: Failed to establish a streaming connection: %s", text);
    else
        request_fail(rq, 500, "%s", text);
}

const struct plane_handlers REQUEST_STREAM_HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed, .batch_end = on_batch_end};
