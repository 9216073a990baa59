/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers that take requests of the OpenAI API as they are (ModelInput::Text): the body goes there,
 * chunks come back. There are no tokens here, so such requests are routed by load, and one whose
 * worker is lost goes to another only while nothing was said.
 */
#include "router/frontend/request_text.h"

#include "lib/base/json_put.h"
#include "lib/net/sse.h"
#include "router/frontend/request_batch.h"
#include "router/frontend/request_relay.h"
#include "router/openai/relay.h"
#include "router/openai/worker_answer.h"

struct request_text {
    struct worker_answer *answer;
    struct buf scratch;
    size_t begin; /* of rq->out that is this worker's; valid while nothing was sent */
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
    rq->text_answer->begin = rq->out.len;
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
    buf_done(&t->scratch);
    free(t);
}

static int put_chunk(struct request *rq, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf chunk = BUF_NULL;
    struct request_text *t = text_of(rq);
    int r;

    if (!rq->in.stream)
        return worker_answer_gather(t->answer, json, e);
    r = worker_answer_put_chunk(t->answer, json, &chunk, e);
    if (r == 0)
        sse_put_data(&rq->out, buf_str(&chunk));
    return r;
}

static void take(struct request *rq, struct str data)
{
    struct request_text *t = text_of(rq);
    struct relay_answer a;
    struct err e;

    if (relay_answer_read(data, &t->scratch, &a, &e) < 0 || put_chunk(rq, data, &e) < 0) {
        rq->stream = plane_stream_cancel(rq->stream);
        request_fail(rq, 500, "Failed to read the worker's output: %s", e.text);
        return;
    }
    request_note_answer(rq, &a);
}

void request_text_put_choices(struct request *rq, struct buf *out)
{
    worker_answer_put_choices(text_of(rq)->answer, out);
}

void request_text_put_body(struct request *rq, struct str choices, struct buf *out)
{
    worker_answer_put_body(text_of(rq)->answer, choices, out);
}

static void end(struct request *rq)
{
    AUTO(buf_done) struct buf choices = BUF_NULL, body = BUF_NULL;

    if (rq->batch) {
        request_batch_complete(rq);
        return;
    }
    if (rq->in.stream) {
        request_complete_stream(rq);
        return;
    }
    request_text_put_choices(rq, &choices);
    request_text_put_body(rq, buf_str(&choices), &body);
    http_respond(rq->x, 200, "application/json", buf_str(&body));
    request_finish(rq);
}

const struct request_form REQUEST_OF_TEXT = {
    .put = put_request, .take = take, .end = end, .reset = reset, .answers_late = true};
