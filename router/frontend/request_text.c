/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that take requests of the OpenAI API as they are (ModelInput::Text): the body goes there,
 * chunks come back. There are no tokens here, so such requests are routed by load, and one whose
 * worker is lost goes to another only while nothing was said. Requests of other APIs go there as the
 * chats that they are made, and their answers are made of what the chunks say.
 */
#include "router/frontend/request_text.h"

#include "lib/base/json_put.h"
#include "lib/net/sse.h"
#include "router/frontend/request_batch.h"
#include "router/frontend/request_relay.h"
#include "router/openai/relay.h"
#include "router/openai/worker_answer.h"
#include "router/openai/worker_said.h"

struct request_text {
    struct worker_answer *answer;
    struct buf scratch;
    size_t begin; /* of rq->out that is this worker's; valid while nothing was sent */
    /* of other APIs, which tell a call once it is whole */
    struct worker_said said;
    uint64_t n_told;             /* chunks that said something */
    struct worker_answer *calls; /* pieces of those not told yet; NULL = none */
};

/* --- the request ------------------------------------------------------------------------------- */

/* One of several prompts, for the member of a batch. */
static void put_prompt(const struct openai_prompt *p, struct buf *out)
{
    struct json_put j = json_put_on(out);

    if (p->is_ids)
        json_put_u32_array(&j, p->ids, p->n_ids);
    else
        json_put_str(&j, p->text);
}

static void put_request(struct request *rq, struct buf *out)
{
    AUTO(buf_done) struct buf prompt = BUF_NULL;

    if (rq->dialect) {
        rq->dialect->put_chat(out, http_request(rq->x)->body, rq->in.made_chat);
        return;
    }
    if (rq->batch)
        put_prompt(&rq->in.prompt, &prompt);
    relay_text_put(out, http_request(rq->x)->body, buf_str(&prompt));
}

/* --- the answer -------------------------------------------------------------------------------- */

static struct request_text *text_of(struct request *rq)
{
    uint32_t n = rq->in.sampling.n.set ? (uint32_t)rq->in.sampling.n.v : 1;

    if (rq->text_answer)
        return rq->text_answer;
    rq->text_answer = xcalloc(1, sizeof(*rq->text_answer));
    rq->text_answer->answer = worker_answer_new(rq->in.api, rq->m->chunks, rq->choice * n);
    if (rq->dialect && rq->in.stream)
        rq->dialect->put_begin(rq->told, &rq->out);
    rq->text_answer->begin = rq->out.len; /* another worker's events go on behind those that open */
    worker_said_init(&rq->text_answer->said);
    return rq->text_answer;
}

static void reset(struct request *rq)
{
    struct request_text *t = rq->text_answer;

    rq->text_answer = NULL;
    if (!t)
        return;
    if (!rq->n_output && rq->out.len > t->begin)
        buf_truncate(&rq->out, t->begin);
    worker_answer_free(t->answer);
    worker_answer_free(t->calls);
    worker_said_done(&t->said);
    buf_done(&t->scratch);
    free(t);
}

/* What was told of tokens. Messages tell what it may be meanwhile: a token a chunk. */
static const struct usage *usage_of(const struct request *rq, struct usage *guess)
{
    const struct usage *told = worker_said_usage(&rq->text_answer->said);

    if (told || !rq->in.estimate)
        return told;
    *guess = (struct usage){.prompt_tokens = rq->in.estimate,
                            .completion_tokens = rq->text_answer->n_told};
    return guess;
}

static void tell_said(struct request *rq)
{
    const struct worker_said *said = &rq->text_answer->said;
    struct chunk_delta d = {.text = buf_str(&said->text),
                            .reasoning = buf_str(&said->thoughts),
                            .calls_json = buf_str(&said->calls)};
    struct usage guess;

    if (d.text.len || d.reasoning.len || d.calls_json.len)
        rq->dialect->put_delta(rq->told, &rq->out, &d, usage_of(rq, &guess));
}

static void tell_calls(struct request *rq)
{
    AUTO(buf_done) struct buf choices = BUF_NULL;
    struct request_text *t = rq->text_answer;

    if (!t->calls)
        return;
    worker_answer_put_choices(t->calls, &choices);
    t->calls = worker_answer_free(t->calls);
    worker_said_read_calls(&t->said, buf_str(&choices));
    tell_said(rq);
}

/* Of a stream; @chunk is what @json was made. */
static int tell_chunk(struct request *rq, struct str json, struct str chunk, struct err *e)
{
    struct request_text *t = rq->text_answer;
    bool has_calls = worker_said_read_chunk(&t->said, chunk);

    if (t->calls && t->said.text.len) { /* they have ended */
        tell_calls(rq);
        (void)worker_said_read_chunk(&t->said, chunk);
    }
    t->n_told += has_calls || t->said.text.len || t->said.thoughts.len;
    tell_said(rq);
    if (!has_calls)
        return 0;
    if (!t->calls)
        t->calls = worker_answer_new(API_CHAT, rq->m->chunks, 0);
    return worker_answer_gather(t->calls, json, e);
}

static int put_chunk(struct request *rq, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf chunk = BUF_NULL;
    struct request_text *t = text_of(rq);
    int r;

    if (!rq->in.stream)
        return worker_answer_gather(t->answer, json, e);
    r = worker_answer_put_chunk(t->answer, json, &chunk, e);
    if (r < 0)
        return r;
    if (rq->dialect)
        return tell_chunk(rq, json, buf_str(&chunk), e);
    sse_put_data(&rq->out, buf_str(&chunk));
    return 0;
}

bool request_text_take(struct request *rq, struct str data)
{
    struct request_text *t = text_of(rq);
    struct relay_answer a;
    struct err e;

    if (relay_answer_read(data, &t->scratch, &a, &e) < 0 || put_chunk(rq, data, &e) < 0) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "Failed to read the worker's output: %s", e.text);
        return false;
    }
    request_note_answer(rq, &a);
    return true;
}

static void take(struct request *rq, struct str data)
{
    (void)request_text_take(rq, data);
}

void request_text_put_choices(struct request *rq, struct buf *out)
{
    worker_answer_put_choices(text_of(rq)->answer, out);
}

void request_text_put_body(struct request *rq, struct str choices, struct buf *out)
{
    worker_answer_put_body(text_of(rq)->answer, choices, out);
}

static struct dialect_end end_of(const struct request *rq, const struct usage *usage,
                                 struct chunk_end *end)
{
    const struct worker_said *said = &rq->text_answer->said;

    *end = (struct chunk_end){.finish = *said->finish ? said->finish : "stop",
                              .stop_reason_json = buf_str(&said->stop_json)};
    return (struct dialect_end){.end = end,
                                .usage = usage,
                                .completed = clock_wall_ms() / 1000,
                                .nvext_json = buf_str(&said->nvext)};
}

static void end_events(struct request *rq)
{
    struct dialect_end end;
    struct chunk_end last;
    struct usage guess;

    tell_calls(rq);
    end = end_of(rq, usage_of(rq, &guess), &last);
    rq->dialect->put_end(rq->told, &rq->out, &end);
    request_complete_stream(rq);
}

/* Of a choice, as such a request has one. */
static void end_body(struct request *rq, struct str choices, struct buf *out)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct worker_said *said = &rq->text_answer->said;
    struct dialect_end end;
    struct chunk_end last;

    request_text_put_body(rq, choices, &body);
    worker_said_read_first(said, choices);
    worker_said_read_rest(said, buf_str(&body));
    end = end_of(rq, worker_said_usage(said), &last);
    rq->dialect->put_body(rq->told, out,
                          &(struct chunk_delta){.text = buf_str(&said->text),
                                                .reasoning = buf_str(&said->thoughts),
                                                .calls_json = buf_str(&said->calls)},
                          &rq->chunk, &end);
}

static void end(struct request *rq)
{
    AUTO(buf_done) struct buf choices = BUF_NULL, body = BUF_NULL;

    (void)text_of(rq);
    if (rq->dialect && rq->in.stream) {
        end_events(rq);
        return;
    }
    if (rq->batch) {
        request_batch_complete(rq);
        return;
    }
    if (rq->in.stream) {
        request_complete_stream(rq);
        return;
    }
    request_text_put_choices(rq, &choices);
    if (rq->dialect)
        end_body(rq, buf_str(&choices), &body);
    else
        request_text_put_body(rq, buf_str(&choices), &body);
    http_respond(rq->x, 200, "application/json", buf_str(&body));
    request_finish(rq);
}

const struct request_form REQUEST_OF_TEXT = {
    .put = put_request, .take = take, .end = end, .reset = reset, .answers_late = true};
