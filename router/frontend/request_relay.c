/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request on a plain OpenAI server: its body goes there nearly as it came, the answer comes back
 * nearly as it was written. What the router needs is read in passing: tokens, usage, the end.
 *
 * Until the engine's first token nothing reaches the client, so that another may take over.
 */
#include <errno.h>

#include "lib/base/log.h"
#include "lib/net/http_client.h"
#include "lib/net/sse.h"
#include "router/frontend/request_relay.h"
#include "router/frontend/request_state.h"
#include "router/openai/relay.h"

static const struct log_target LG = {"commutator::frontend::relay"};

enum {
    EVENT_BYTES_MAX = 8 << 20,
    ANSWER_BYTES_MAX = 64 << 20,
    ERROR_BYTES_MAX = 64 << 10,
    BACKLOG_HIGH = 256 << 10, /* beyond, the engine is not read until the client has taken it */
    HEADERS_MAX = 8,
};

struct relay {
    struct request *rq;
    struct http_call *call;
    struct sse_reader *events; /* NULL: the answer is one body */
    struct relay_change change;
    struct buf body, scratch;
    int status;
};

struct relay *relay_cancel(struct relay *r)
{
    if (!r)
        return NULL;
    (void)http_call_cancel(r->call);
    sse_reader_free(r->events);
    buf_done(&r->body);
    buf_done(&r->scratch);
    free(r);
    return NULL;
}

void relay_resume(struct relay *r)
{
    http_call_resume(r->call);
}

/* --- what the engine says --------------------------------------------------------------------- */

static void take_usage(struct request *rq, const struct relay_answer *a)
{
    if (a->prompt_tokens.set)
        rq->usage.prompt_tokens = a->prompt_tokens.v;
    if (!a->cached_tokens.set)
        return;
    if (rq->cached_tokens == DECISION_UNKNOWN)
        metric_observe(metric_with(rq->s->metrics.cached_tokens, rq->m->label),
                       (double)a->cached_tokens.v);
    rq->cached_tokens = a->cached_tokens.v;
}

/* What is said with the last chunk corrects the count. */
static void take_tokens(struct request *rq, const struct relay_answer *a)
{
    uint64_t told = a->completion_tokens.v;

    if (a->has_text) {
        request_note_output(rq, told > rq->n_output ? told - rq->n_output : 1);
    } else if (told > rq->n_output && rq->n_output) {
        metric_add(metric_with(rq->s->metrics.output_total, rq->m->label),
                   (double)(told - rq->n_output));
        rq->n_output = told;
    }
}

void request_note_answer(struct request *rq, const struct relay_answer *a)
{
    take_usage(rq, a);
    take_tokens(rq, a);
}

static void fail_with(struct request *rq, int status, const struct relay_answer *a)
{
    AUTO(mem_free) char *param = a->param.len ? str_dup(a->param) : NULL;
    struct api_error e;

    if (a->error.len)
        (void)api_fail(&e, status, param, "%.*s", STR_ARG(a->error));
    else
        (void)api_fail(&e, status, param, "The engine answered with status %d", status);
    request_fail_as(rq, &e);
}

/* False when the request has ended. */
static bool take_chunk(struct relay *r, struct str json)
{
    struct request *rq = r->rq;
    AUTO(buf_done) struct buf changed = BUF_NULL;
    struct relay_answer a;
    struct err e;

    if (relay_answer_read(json, &r->scratch, &a, &e) < 0) {
        request_fail(rq, 502, "Failed to read the engine's output: %s", e.text);
        return false;
    }
    if (a.is_error) {
        fail_with(rq, a.status ? a.status : 500, &a);
        return false;
    }
    request_note_answer(rq, &a);
    rq->ended |= a.has_finish;
    if (!a.has_choices && a.completion_tokens.set && !rq->in.include_usage)
        return true; /* the chunk that we asked for */
    relay_answer_put(&changed, json, &r->change);
    sse_put_data(&rq->out, buf_str(&changed));
    return true;
}

static void on_head(void *arg, int status)
{
    struct relay *r = arg;

    r->status = status;
}

static void take_events(struct relay *r, struct str bytes)
{
    struct request *rq = r->rq;
    struct sse_event ev;

    sse_reader_feed(r->events, bytes);
    while (sse_reader_next(r->events, &ev)) {
        if (str_is(ev.data, "[DONE]")) {
            request_complete_stream(rq);
            return;
        }
        if (ev.data.len && !take_chunk(r, ev.data))
            return;
    }
    if (sse_reader_failed(r->events)) {
        request_fail(rq, 502, "The engine's stream cannot be read");
        return;
    }
    if (rq->n_output || rq->ended)
        request_flush(rq);
    if (rq->begun && http_stream_backlog(rq->x) > BACKLOG_HIGH)
        http_call_pause(r->call);
}

static void on_data(void *arg, struct str bytes)
{
    struct relay *r = arg;
    size_t max = r->status == 200 ? ANSWER_BYTES_MAX : ERROR_BYTES_MAX;

    if (r->status == 200 && r->events)
        take_events(r, bytes);
    else if (r->body.len + bytes.len <= max)
        buf_put_str(&r->body, bytes);
    else if (r->status == 200)
        request_fail(r->rq, 502, "The engine's answer is longer than %d bytes", ANSWER_BYTES_MAX);
}

/* --- how it ends ------------------------------------------------------------------------------ */

/* Somebody else may have room, or be alive. */
static bool may_be_better_elsewhere(int status)
{
    return status == 429 || status == 502 || status == 503 || status == 504;
}

static void take_refusal(struct relay *r)
{
    struct request *rq = r->rq;
    struct relay_answer a;
    struct err e;

    if (may_be_better_elsewhere(r->status)) {
        request_retry(rq, "refused");
        return;
    }
    if (relay_answer_read(buf_str(&r->body), &r->scratch, &a, &e) < 0)
        a = (struct relay_answer){.is_error = true};
    fail_with(rq, r->status, &a);
}

static void take_whole(struct relay *r)
{
    struct request *rq = r->rq;
    AUTO(buf_done) struct buf changed = BUF_NULL;
    struct relay_answer a;
    struct err e;

    if (relay_answer_read(buf_str(&r->body), &r->scratch, &a, &e) < 0) {
        request_fail(rq, 502, "Failed to read the engine's answer: %s", e.text);
        return;
    }
    a.has_text = rq->in.api != API_EMBEDDINGS; /* an empty answer took a token, too */
    request_note_answer(rq, &a);
    relay_answer_put(&changed, buf_str(&r->body), &r->change);
    http_respond(rq->x, 200, "application/json", buf_str(&changed));
    request_finish(rq);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct relay *r = arg;
    struct request *rq = r->rq;

    r->call = NULL;
    if (error < 0 && rq->n_output == 0 && !rq->begun) {
        log_debug(&LG, "engine failed", LOG_REQUEST(rq->id, &rq->trace), LOG_STR("why", why));
        request_retry(rq, error == -ETIMEDOUT ? "timeout"
                          : status            ? "broken_early"
                                              : "unreachable");
    } else if (error < 0) {
        request_fail(rq, 500, "Stream ended before generation completed");
    } else if (status != 200) {
        take_refusal(r);
    } else if (!r->events) {
        take_whole(r);
    } else if (rq->ended) {
        request_complete_stream(rq); /* only the farewell is missing */
    } else if (rq->n_output == 0) {
        request_retry(rq, "broken_early");
    } else {
        request_fail(rq, 500, "Stream ended before generation completed");
    }
}

/* --- start ------------------------------------------------------------------------------------ */

static const char *header(struct request *rq, const char *name, struct str value)
{
    AUTO(buf_done) struct buf line = BUF_NULL;

    buf_printf(&line, "%s: %.*s", name, STR_ARG(value));
    return arena_strdup(rq->arena, buf_str(&line));
}

static void put_headers(struct request *rq, const struct pool_worker *w,
                        const char *ret[HEADERS_MAX])
{
    uint32_t rank = rq->decision.candidates[rq->decision.chosen].worker.dp_rank;
    const struct plane_header passed_on[] = {
        {"authorization", http1_header_get(http_request(rq->x), "authorization")},
        {"traceparent", str_from(rq->attempt.trace.parent)},
        {"tracestate", rq->trace.state}};
    size_t n = 0;

    ret[n++] = "content-type: application/json";
    ret[n++] = header(rq, "x-request-id", str_from(rq->id));
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++)
        if (passed_on[i].value.len)
            ret[n++] = header(rq, passed_on[i].name, passed_on[i].value);
    if (w->dp_size > 1) {
        AUTO(mem_free) char *text = xasprintf("%u", rank);

        ret[n++] = header(rq, "x-data-parallel-rank", str_from(text));
    }
    ret[n] = NULL;
}

static const char *path_of(enum api api)
{
    return api == API_CHAT         ? "chat/completions"
           : api == API_EMBEDDINGS ? "embeddings"
                                   : "completions";
}

void request_relay(struct request *rq, const struct pool_worker *w)
{
    AUTO(mem_free)
    char *url = xasprintf("%s/v1/%s", w->address, path_of(rq->in.api));
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct relay *r = xcalloc(1, sizeof(*r));
    const char *headers[HEADERS_MAX];
    struct http_call_spec spec = {.method = "POST",
                                  .url = url,
                                  .headers = headers,
                                  .connect_ms = rq->s->engine_connect_ms,
                                  .head = on_head,
                                  .data = on_data,
                                  .done = on_done,
                                  .arg = r};

    r->rq = rq;
    if (rq->in.stream)
        r->events = sse_reader_new(EVENT_BYTES_MAX);
    if (!str_is(rq->in.model, w->engine_model))
        r->change.model = rq->in.model;
    r->change.hide_usage = rq->in.stream && !rq->in.include_usage && !rq->in.continuous_usage;
    put_headers(rq, w, headers);
    relay_request_put(&body, http_request(rq->x)->body, str_from(w->engine_model), rq->in.stream);
    spec.body = buf_str(&body);
    rq->relay = r;
    r->call = http_client_start(rq->s->engines, &spec);
}
