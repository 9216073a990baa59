/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the worker's items to the client's text: decoding, stops, chunks, back-pressure.
 */
#include <inttypes.h>
#include <math.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/base/log.h"
#include "router/frontend/request_state.h"

static const struct log_target LG = {"commutator::frontend::request"};

/* Beyond this the worker's stream is not read until the client has taken what it was sent. */
enum { BACKLOG_HIGH = 256 << 10 };

static void start_decoding(struct request *rq)
{
    const struct openai_request *in = &rq->in;
    bool ignore_eos = in->stop.ignore_eos.set && in->stop.ignore_eos.v;

    if (rq->decoding)
        return;
    rq->decoding = true;
    rq->rules = (struct stop_rules){
        .strings = in->stop.stop,
        .n_strings = ignore_eos ? 0 : in->stop.n_stop,
        .hidden_ids = rq->m->eos_ids,
        .n_hidden_ids = ignore_eos ? 0 : rq->m->n_eos_ids,
        .min_tokens = in->stop.min_tokens.set ? in->stop.min_tokens.v : 0,
        .include_string = in->sampling.include_stop_str_in_output.set &&
                          in->sampling.include_stop_str_in_output.v,
    };
    stop_init(&rq->stop, &rq->rules);
    detok_init(&rq->detok, rq->m->tokenizer, rq->prompt.ptr, rq->prompt.len,
               in->output.skip_special_tokens.set && in->output.skip_special_tokens.v);
    chunk_init(&rq->chunk, in->api, str_from(rq->id), in->model, clock_wall_ms() / 1000);
    if (in->wants_tracking && rq->decision.mode == ROUTE_KV)
        chunk_tell_worker(&rq->chunk,
                          rq->decision.candidates[rq->decision.chosen].worker.worker_id);
}

void request_output_done(struct request *rq)
{
    engine_output_reader_done(&rq->reader);
    if (!rq->decoding)
        return;
    detok_done(&rq->detok);
    stop_done(&rq->stop);
    chunk_done(&rq->chunk);
    rq->decoding = false;
}

/* --- what the client sees ----------------------------------------------------------------------
 */

static const struct usage *usage_in_chunks(const struct request *rq)
{
    return rq->in.continuous_usage ? &rq->usage : NULL;
}

static void emit_text(struct request *rq, struct str text)
{
    if (!rq->in.stream) {
        if (rq->text.len + text.len <= TEXT_BYTES_MAX)
            buf_put_str(&rq->text, text);
        return;
    }
    chunk_put_text(&rq->chunk, &rq->out, text, usage_in_chunks(rq));
}

static void drained(void *arg)
{
    struct request *rq = arg;

    if (rq->stream)
        plane_stream_resume(rq->stream);
}

static void flush(struct request *rq)
{
    if (rq->out.len == 0)
        return;
    if (!rq->begun) {
        rq->begun = true;
        http_add_header(rq->x, "cache-control", STR("no-cache"));
        http_on_drained(rq->x, drained, rq);
        http_stream_begin(rq->x, 200, "text/event-stream");
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
    double hit_rate = rq->n_blocks
                          ? (double)rq->decision.candidates[rq->decision.chosen].overlap_blocks /
                                (double)rq->n_blocks
                          : 0;

    buf_printf(&out, "{\"request_received_ms\":%" PRIu64, clock_wall_ms() - (uint64_t)total_ms);
    if (rq->t_first_ns)
        buf_printf(&out, ",\"ttft_ms\":%.3f", (double)(rq->t_first_ns - rq->t_start_ns) / 1e6);
    buf_printf(&out, ",\"total_time_ms\":%.3f,\"kv_hit_rate\":%.6g}", total_ms, hit_rate);
    return str_from(arena_strdup(rq->arena, buf_str(&out)));
}

static void complete(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    if (!rq->in.stream) {
        chunk_put_folded(&rq->chunk, &body, buf_str(&rq->text), &rq->end, &rq->usage);
        http_respond(rq->x, 200, "application/json", buf_str(&body));
        request_finish(rq);
        return;
    }
    if (rq->in.wants_tracking)
        rq->end.timing_json = timing_json(rq);
    chunk_put_end(&rq->chunk, &rq->out, &rq->end, usage_in_chunks(rq));
    if (rq->in.include_usage)
        chunk_put_usage(&rq->chunk, &rq->out, &rq->usage);
    chunk_put_done(&rq->out);
    flush(rq);
    http_stream_end(rq->x);
    request_finish(rq);
}

/* --- tokens ------------------------------------------------------------------------------------
 */

static void note_first_token(struct request *rq, uint64_t now_ns)
{
    rq->t_first_ns = now_ns;
    metric_observe(metric_with(rq->s->metrics.ttft, rq->m->label),
                   (double)(now_ns - rq->t_start_ns) / 1e9);
    booking_prefill_done(rq->booking);
    if (rq->is_queued)
        metric_add(rq->queued, -1);
    rq->is_queued = false;
}

static void note_tokens(struct request *rq, size_t n)
{
    uint64_t now_ns = clock_now_ns();

    if (n == 0)
        return;
    if (rq->n_output == 0) {
        note_first_token(rq, now_ns);
    } else {
        struct metric *itl = metric_with(rq->s->metrics.itl, rq->m->label);
        double each = (double)(now_ns - rq->t_last_ns) / 1e9 / (double)n;

        for (size_t i = 0; i < n; i++)
            metric_observe(itl, each);
    }
    rq->t_last_ns = now_ns;
    rq->n_output += n;
    rq->usage.completion_tokens = rq->n_output;
    metric_add(metric_with(rq->s->metrics.output_total, rq->m->label), (double)n);
}

/* Grown output is booked a block at a time (--track-output-blocks, router.md §4.4). */
static void note_output_blocks(struct request *rq)
{
    uint32_t block = scheduler_block_size(rq->m->scheduler);
    uint64_t before = (rq->prompt.len + block - 1) / block;
    uint64_t blocks = (rq->prompt.len + rq->n_output + block - 1) / block - before;
    const struct opt_u64 *expected = &rq->in.expected_output_tokens;
    double decay = 1;

    if (!rq->s->route.track_output_blocks || blocks <= rq->n_output_blocks)
        return;
    rq->n_output_blocks = blocks;
    if (expected->set)
        decay = fmax(0, 1 - (double)rq->n_output / (double)MAX(expected->v, UINT64_C(1)));
    booking_output_block(rq->booking, decay);
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

/* Decodes the ids of one item. */
static void take_ids(struct request *rq, const struct engine_output *o)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; i < o->n_token_ids && !rq->ended; i++) {
        struct str piece = detok_push(&rq->detok, o->token_ids[i]);

        switch (stop_push(&rq->stop, o->token_ids[i], piece, &text)) {
        case STOP_GO_ON:
            break;
        case STOP_AT_ID:
            end_with(rq, "stop", STR_NULL);
            break;
        case STOP_AT_STRING:
            end_at_stop_string(rq);
            break;
        }
    }
    if (o->finish != FINISH_NONE && !rq->ended)
        stop_flush(&rq->stop, &text);
    if (text.len || (o->n_token_ids && !rq->ended))
        emit_text(rq, text.len ? buf_str(&text) : STR(""));
}

/* Usage that only the engine knows: cached tokens (wire.md §5.2). */
static void take_usage(struct request *rq, struct str json)
{
    struct json_pull p;
    struct str key, details = STR_NULL;
    uint64_t cached;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return;
    while (json_pull_key(&p, &key)) {
        if (str_is(key, "prompt_tokens_details") && json_pull_peek(&p) == JSON_KIND_OBJECT)
            json_pull_skip(&p, &details);
        else if (str_is(key, "prompt_tokens"))
            (void)!json_pull_u64(&p, &rq->usage.prompt_tokens);
        else
            json_pull_skip(&p, NULL);
    }
    if (!details.len)
        return;
    rq->usage.details_json = str_from(arena_strdup(rq->arena, details));
    json_pull_init(&p, details);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key)) {
            if (str_is(key, "cached_tokens") && json_pull_peek(&p) == JSON_KIND_NUMBER &&
                json_pull_u64(&p, &cached))
                metric_observe(metric_with(rq->s->metrics.cached_tokens, rq->m->label),
                               (double)cached);
            else
                json_pull_skip(&p, NULL);
        }
}

/* --- the stream's callbacks --------------------------------------------------------------------
 */

/* A worker may name status and words itself: {"message":s,"code":n} (wire.md §6.2). */
static void fail_with_worker_text(struct request *rq, struct str text)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str key, message = text;
    struct json_pull p;
    uint64_t code = 500;

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

static void on_item(void *arg, const struct wire_item *item)
{
    struct request *rq = arg;
    struct engine_output o;
    struct err e;

    if (rq->ended)
        return;
    rq->n_items++;
    if (item->is_error) {
        rq->stream = plane_stream_cancel(rq->stream);
        fail_with_worker_text(rq, item->error);
        return;
    }
    if (item->data.len == 0)
        return; /* an annotation */
    start_decoding(rq);
    if (engine_output_parse(&rq->reader, item->data, &o, &e) < 0) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "Failed to read the worker's output: %s", e.text);
        return;
    }
    if (o.finish == FINISH_ERROR) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "%.*s", STR_ARG(o.finish_error));
        return;
    }
    note_tokens(rq, o.n_token_ids);
    note_output_blocks(rq);
    if (o.completion_usage_json.len)
        take_usage(rq, o.completion_usage_json);
    if (o.has_text)
        emit_text(rq, o.text);
    else
        take_ids(rq, &o);
    if (o.finish != FINISH_NONE && !rq->ended)
        end_with(rq, finish_word(o.finish), o.stop_reason_json);
    /* The engine goes on until it is told: a stop that only we know of ends the stream here. */
    if (rq->ended && o.finish == FINISH_NONE) {
        rq->stream = plane_stream_cancel(rq->stream);
        complete(rq);
    }
}

static void on_batch_end(void *arg)
{
    struct request *rq = arg;

    flush(rq);
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
    start_decoding(rq);
    if (!rq->ended) {
        AUTO(buf_done) struct buf text = BUF_NULL;

        stop_flush(&rq->stop, &text);
        if (text.len)
            emit_text(rq, buf_str(&text));
        end_with(rq, "stop", STR_NULL);
    }
    complete(rq);
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct request *rq = arg;

    rq->stream = NULL;
    if (rq->ended) {
        complete(rq); /* the answer was whole; only the farewell is missing */
        return;
    }
    log_debug(&LG, "stream failed", LOG_STR("request_id", rq->id),
              LOG_STR("kind", plane_failure_name(kind)), LOG_STR("why", text));
    /* Nothing was generated: another worker may do it. */
    if (plane_failure_is_retryable(kind) || (kind == PLANE_BROKEN && rq->n_output == 0)) {
        request_retry(rq, plane_failure_name(kind));
        return;
    }
    if (kind == PLANE_ENGINE)
        request_fail(
            rq, 500,
            "Failed to generate completions: Failed to establish a streaming connection: %s", text);
    else
        request_fail(rq, 500, "%s", text);
}

const struct plane_handlers REQUEST_STREAM_HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed, .batch_end = on_batch_end};
