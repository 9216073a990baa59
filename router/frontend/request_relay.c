/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request on a plain OpenAI server: its body goes there nearly as it came, the answer comes back
 * nearly as it was written. What the router needs is read in passing: tokens, usage, the end.
 *
 * Of /v1/responses and /v1/messages that an engine does not serve it gets the chats that they are
 * made, and the answer is made of its chunks, as for workers of Dynamo that take chats as they are.
 *
 * Until the engine's first token nothing reaches the client, so that another may take over.
 */
#include <errno.h>

#include "lib/base/log.h"
#include "lib/base/json_put.h"
#include "lib/net/http_client.h"
#include "lib/net/sse.h"
#include "router/frontend/request_relay.h"
#include "router/frontend/request_state.h"
#include "router/frontend/request_text.h"
#include "router/openai/messages.h"
#include "router/openai/relay_own.h"

static const struct log_target LG = {"commutator::frontend::relay"};

enum {
    EVENT_BYTES_MAX = 8 << 20,
    ANSWER_BYTES_MAX = 64 << 20,
    ERROR_BYTES_MAX = 64 << 10,
    BACKLOG_HIGH = 256 << 10, /* beyond, the engine is not read until the client has taken it */
    HEADERS_MAX = 8,
};

/* How the engine is asked. */
enum relay_way {
    RELAY_CHATS,      /* a chat or its kin */
    RELAY_OWN,        /* another API, which it serves itself */
    RELAY_TRANSLATED, /* …which it does not: as a chat */
};

struct relay {
    struct request *rq;
    enum relay_way way;
    struct http_call *call;
    struct sse_reader *events; /* NULL: the answer is one body */
    struct relay_change change;
    struct buf body, scratch;
    struct buf held;         /* the chunk that ended a choice, until what comes next */
    struct opt_u64 sequence; /* of the last event of /v1/responses */
    bool told_error;         /* by an event of its own */
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
    buf_done(&r->held);
    free(r);
    return NULL;
}

void relay_resume(struct relay *r)
{
    http_call_resume(r->call);
}

/* That of OpenAI's API is flat. */
static void put_response_error(const struct relay *r, struct buf *out, const struct api_error *e)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    json_put_member_cstr(&j, "type", "error");
    json_put_member_cstr(&j, "code", api_error_type(e->status));
    json_put_member_cstr(&j, "message", e->text);
    json_put_member_cstr(&j, "param", NULL);
    json_put_member_u64(&j, "sequence_number", r->sequence.set ? r->sequence.v + 1 : 0);
    json_put_object_end(&j);
}

void request_relay_put_error(struct request *rq, const struct api_error *e)
{
    AUTO(buf_done) struct buf data = BUF_NULL;

    if (rq->relay->told_error)
        return;
    if (rq->dialect == &MESSAGES)
        MESSAGES.put_error(&data, e);
    else
        put_response_error(rq->relay, &data, e);
    sse_put_named(&rq->out, STR("error"), buf_str(&data));
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
    rq->own.said = a->error.len > 0;
    request_fail_as(rq, &e);
}

/* In the form that the engine answers in. */
static int read_answer(struct relay *r, struct str json, struct relay_answer *ret, struct err *e)
{
    return r->way == RELAY_OWN ? relay_own_read(json, &r->scratch, ret, e)
                               : relay_answer_read(json, &r->scratch, ret, e);
}

static void pass_event(struct relay *r, struct str event, struct str json)
{
    AUTO(buf_done) struct buf changed = BUF_NULL;
    uint64_t n;

    if (str_parse_u64(json_pull_member(json, "sequence_number"), &n))
        r->sequence = OPT_U64(n);
    relay_own_put(&changed, json, r->change.model);
    sse_put_named(&r->rq->out, event, buf_str(&changed));
}

/* Behind the first token its client gets it as the engine wrote it. */
static bool take_error(struct relay *r, const struct sse_event *ev, const struct relay_answer *a)
{
    struct request *rq = r->rq;

    if (r->way == RELAY_OWN && (rq->begun || rq->n_output)) {
        pass_event(r, ev->event, ev->data);
        r->told_error = true;
    }
    fail_with(rq, a->status ? a->status : 500, a);
    return false;
}

static void put_chunk(struct relay *r, struct str json, const struct relay_change *change)
{
    AUTO(buf_done) struct buf changed = BUF_NULL;

    relay_answer_put(&changed, json, change);
    sse_put_data(&r->rq->out, buf_str(&changed));
}

static struct str fingerprint_of(struct str json)
{
    struct str v = json_pull_member(json, "system_fingerprint");

    return str_is(v, "null") ? STR_NULL : v;
}

/*
 * vLLM has its fingerprint in the chunk of the usage where that is asked for, as it always is here,
 * else in those that end a choice: there a client that wants no usage looks for it.
 */
static bool may_get_fingerprint(const struct request *rq, const struct relay_answer *a,
                                struct str json)
{
    return a->has_finish && !rq->in.include_usage && !fingerprint_of(json).len;
}

static void release_held(struct relay *r, struct str fingerprint_json)
{
    struct relay_change change = r->change;

    if (!r->held.len)
        return;
    change.fingerprint_json = fingerprint_json;
    put_chunk(r, buf_str(&r->held), &change);
    buf_clear(&r->held);
}

/* The chunk that we asked for, and the client has not. */
static bool is_own_usage(const struct request *rq, const struct relay_answer *a)
{
    return !a->has_choices && a->completion_tokens.set && !rq->in.include_usage;
}

/* False when the request has ended. */
static bool take_chunk(struct relay *r, const struct sse_event *ev)
{
    struct request *rq = r->rq;
    struct str json = ev->data;
    struct relay_answer a;
    struct err e;
    int code = read_answer(r, json, &a, &e);

    release_held(r, code == 0 && is_own_usage(rq, &a) ? fingerprint_of(json) : STR_NULL);
    if (code < 0) {
        request_fail(rq, 502, "Failed to read the engine's output: %s", e.text);
        return false;
    }
    if (a.is_error)
        return take_error(r, ev, &a);
    if (r->way == RELAY_TRANSLATED) {
        rq->ended |= a.has_finish;
        return request_text_take(rq, json);
    }
    request_note_answer(rq, &a);
    rq->ended |= a.has_finish;
    if (r->way == RELAY_OWN) {
        pass_event(r, ev->event, json);
        return true;
    }
    if (is_own_usage(rq, &a))
        return true;
    if (may_get_fingerprint(rq, &a, json))
        buf_put_str(&r->held, json);
    else
        put_chunk(r, json, &r->change);
    return true;
}

static void on_head(void *arg, int status)
{
    struct relay *r = arg;

    r->status = status;
}

/* All has come. */
static void end_stream(struct request *rq)
{
    release_held(rq->relay, STR_NULL);
    if (rq->relay->way == RELAY_TRANSLATED)
        rq->form->end(rq);
    else
        request_complete_stream(rq);
}

/* Some say it where others end the stream at once. */
static bool is_farewell(const struct relay *r, const struct sse_event *ev)
{
    return r->way != RELAY_OWN && str_is(ev->data, "[DONE]");
}

static bool take_event(struct relay *r, const struct sse_event *ev)
{
    if (!str_is(ev->data, "[DONE]"))
        return !ev->data.len || take_chunk(r, ev);
    sse_put_named(&r->rq->out, ev->event, ev->data); /* in its own words */
    return true;
}

static void take_events(struct relay *r, struct str bytes)
{
    struct request *rq = r->rq;
    struct sse_event ev;

    sse_reader_feed(r->events, bytes);
    while (sse_reader_next(r->events, &ev)) {
        if (is_farewell(r, &ev)) {
            end_stream(rq);
            return;
        }
        if (!take_event(r, &ev))
            return;
    }
    if (sse_reader_failed(r->events)) {
        release_held(r, STR_NULL);
        request_fail(rq, 502, "The engine's stream cannot be read");
        return;
    }
    if (rq->out.len > EVENT_BYTES_MAX) {
        request_fail(rq, 502, "The engine's events are longer than %d bytes", EVENT_BYTES_MAX);
        return;
    }
    if (rq->in.stream && (rq->n_output || rq->ended))
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

/* Such a path it does not know. */
static bool is_unknown(int status)
{
    return status == 404 || status == 405 || status == 501;
}

/* As for workers of Dynamo. */
static void count_here(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct messages_facts facts = {.strips_preamble = rq->s->strips_preamble};
    struct api_error e;

    if (!messages_count(http_request(rq->x)->body, &facts, &e)) {
        request_fail_as(rq, &e);
        return;
    }
    messages_put_count(&body, &facts);
    http_respond(rq->x, 200, "application/json", buf_str(&body));
    request_finish(rq);
}

/* From now on it gets chats. */
static void translate(struct request *rq)
{
    uint64_t id = rq->decision.candidates[rq->decision.chosen].worker.worker_id;
    const struct pool_worker *w;

    pool_note_lack(rq->m->pool, id, rq->own.api->lack);
    rq->relay = relay_cancel(rq->relay);
    w = pool_worker(rq->m->pool, id);
    if (w)
        request_relay(rq, w);
    else
        request_retry(rq, "unreachable");
}

/* What an engine says of an API that only it understands reaches the client as it is. */
static void refuse_in_own_words(struct relay *r, const struct relay_answer *a)
{
    struct request *rq = r->rq;

    if (!a->is_error && is_unknown(r->status)) {
        request_fail(rq, 404, "The engine of this model does not serve %s", rq->own.api->path);
        return;
    }
    rq->own.refusal = buf_str(&r->body);
    fail_with(rq, r->status, a);
}

static void take_refusal(struct relay *r)
{
    struct request *rq = r->rq;
    struct relay_answer a;
    struct err e;
    bool readable;

    if (may_be_better_elsewhere(r->status)) {
        request_retry(rq, "refused");
        return;
    }
    if (rq->own.api == &OWN_COUNT && is_unknown(r->status)) {
        count_here(rq);
        return;
    }
    if (r->way == RELAY_OWN && is_unknown(r->status) && rq->in.made_chat.len) {
        translate(rq);
        return;
    }
    readable = relay_answer_read(buf_str(&r->body), &r->scratch, &a, &e) == 0;
    if (!readable)
        a = (struct relay_answer){.status = r->status};
    if (r->way == RELAY_OWN && (readable || is_unknown(r->status)))
        refuse_in_own_words(r, &a);
    else
        fail_with(rq, r->status, &a);
}

static void take_whole(struct relay *r)
{
    struct request *rq = r->rq;
    AUTO(buf_done) struct buf changed = BUF_NULL;
    struct relay_answer a;
    struct err e;

    if (read_answer(r, buf_str(&r->body), &a, &e) < 0) {
        request_fail(rq, 502, "Failed to read the engine's answer: %s", e.text);
        return;
    }
    if (http_stream_has_begun(rq->x)) { /* by a sign of life */
        request_fail(rq, 502, "The engine gave no stream of events");
        return;
    }
    a.has_text = rq->in.api != API_EMBEDDINGS; /* an empty answer took a token, too */
    request_note_answer(rq, &a);
    if (r->way == RELAY_OWN)
        relay_own_put(&changed, buf_str(&r->body), r->change.model);
    else
        relay_answer_put(&changed, buf_str(&r->body), &r->change);
    http_respond(rq->x, 200, "application/json", buf_str(&changed));
    request_finish(rq);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct relay *r = arg;
    struct request *rq = r->rq;

    r->call = NULL;
    release_held(r, STR_NULL);
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
        end_stream(rq); /* only the farewell is missing */
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

const char *request_authorization(struct request *rq, const struct pool_worker *w)
{
    static const char name[] = "authorization";
    struct str sent = http1_header_get(http_request(rq->x), name);
    AUTO(buf_done) struct buf ours = BUF_NULL;

    if (!w->api_key)
        return sent.len ? header(rq, name, sent) : NULL;
    buf_printf(&ours, "Bearer %s", w->api_key);
    return header(rq, name, buf_str(&ours));
}

static void put_headers(struct request *rq, const struct pool_worker *w,
                        const char *ret[HEADERS_MAX])
{
    uint32_t rank = rq->decision.candidates[rq->decision.chosen].worker.dp_rank;
    const struct plane_header passed_on[] = {{"traceparent", str_from(rq->attempt.trace.parent)},
                                             {"tracestate", rq->trace.state}};
    size_t n = 0;

    ret[n++] = "content-type: application/json";
    ret[n++] = header(rq, "x-request-id", str_from(rq->id));
    ret[n] = request_authorization(rq, w);
    n += ret[n] != NULL;
    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++)
        if (passed_on[i].value.len)
            ret[n++] = header(rq, passed_on[i].name, passed_on[i].value);
    if (w->dp_size > 1) {
        AUTO(mem_free) char *text = xasprintf("%u", rank);

        ret[n++] = header(rq, "x-data-parallel-rank", str_from(text));
    }
    ret[n] = NULL;
}

static enum relay_way way_of(const struct request *rq, const struct pool_worker *w)
{
    if (!rq->own.api)
        return RELAY_CHATS;
    return (w->lacks & rq->own.api->lack) && rq->in.made_chat.len ? RELAY_TRANSLATED : RELAY_OWN;
}

static const char *path_of(const struct relay *r)
{
    enum api api = r->rq->in.api;

    return r->way == RELAY_OWN     ? r->rq->own.api->path
           : api == API_CHAT       ? "/v1/chat/completions"
           : api == API_EMBEDDINGS ? "/v1/embeddings"
                                   : "/v1/completions";
}

static void put_body(const struct relay *r, const struct pool_worker *w, struct buf *out)
{
    struct request *rq = r->rq;
    struct str body = http_request(rq->x)->body;
    AUTO(buf_done) struct buf chat = BUF_NULL;
    enum relay_usage usage = r->way == RELAY_OWN ? RELAY_AS_IS
                             : r->events         ? RELAY_STREAM
                                                 : RELAY_WHOLE;

    if (r->way == RELAY_TRANSLATED) {
        rq->dialect->put_chat(&chat, body, rq->in.made_chat);
        body = buf_str(&chat);
    }
    relay_request_put(out, body, str_from(w->engine_model), usage);
}

void request_relay(struct request *rq, const struct pool_worker *w)
{
    AUTO(mem_free) char *url = NULL;
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct relay *r = xcalloc(1, sizeof(*r));
    const char *headers[HEADERS_MAX];
    struct http_call_spec spec = {.method = "POST",
                                  .headers = headers,
                                  .connect_ms = rq->s->engine_connect_ms,
                                  .head = on_head,
                                  .data = on_data,
                                  .done = on_done,
                                  .arg = r};

    r->rq = rq;
    r->way = way_of(rq, w);
    rq->own.answers = r->way == RELAY_OWN;
    if (r->way == RELAY_TRANSLATED)
        rq->form = &REQUEST_OF_TEXT;
    if (rq->in.stream || r->way == RELAY_TRANSLATED)
        r->events = sse_reader_new(EVENT_BYTES_MAX);
    if (!str_is(rq->in.model, w->engine_model))
        r->change.model = rq->in.model;
    r->change.hide_usage = rq->in.stream && !rq->in.include_usage && !rq->in.continuous_usage;
    put_headers(rq, w, headers);
    put_body(r, w, &body);
    url = xasprintf("%s%s", w->address, path_of(r));
    spec.url = url;
    spec.body = buf_str(&body);
    rq->relay = r;
    r->call = http_client_start(rq->s->engines, &spec);
}
