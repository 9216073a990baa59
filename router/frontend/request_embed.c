/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of /v1/embeddings: several inputs are one request, to a worker that takes their ids, or
 * what the client wrote. Their blocks are not kept by engines, so they are routed by load; a worker
 * that is lost is replaced until the answer is whole.
 */
#include <errno.h>

#include "lib/base/err.h"
#include "router/frontend/request_state.h"
#include "router/openai/embeddings.h"

enum { IDS_MAX = 1 << 26 }; /* of all inputs: more than a body of the usual limit has */

/* --- inputs as ids ----------------------------------------------------------------------------- */

/* How many tokens of a text count; only 1.x lets clients say it. */
static int text_limit(struct request *rq, size_t *ret)
{
    int64_t wanted = rq->in.embedding.truncate.v, context = rq->m->card->context_length;

    *ret = SIZE_MAX;
    if (!rq->in.embedding.truncate.set)
        return 0;
    if (wanted < -1)
        return err_set(&rq->tokenize_error, -ERANGE,
                       "truncate_prompt_tokens must be -1 or more, not %lld", (long long)wanted);
    if (context > 0 && wanted > context && rq->in.n_prompts && !rq->in.prompts[0].is_ids)
        return err_set(&rq->tokenize_error, -ERANGE,
                       "truncate_prompt_tokens is %lld, more than the %lld tokens of the model",
                       (long long)wanted, (long long)context);
    if (wanted >= 0 || context > 0)
        *ret = (size_t)(wanted >= 0 ? wanted : context);
    return 0;
}

static int add_ids(struct request *rq, const struct openai_prompt *p)
{
    uint32_t limit = rq->m->vocabulary;

    for (size_t i = 0; i < p->n_ids && model_is_of_1(rq->m); i++)
        if (p->ids[i] >= limit)
            return err_set(&rq->tokenize_error, -ERANGE,
                           "input has token id %u, outside the model's vocabulary of %u", p->ids[i],
                           limit);
    if (p->n_ids)
        memcpy(token_ids_reserve(&rq->prompt, p->n_ids), p->ids, p->n_ids * sizeof(*p->ids));
    rq->prompt.len += p->n_ids;
    return 0;
}

/* 0.9.0 makes a prompt of it, whatever the file does to prompts; 1.x what the model's authors embedded. */
static int add_text(struct request *rq, struct str text, size_t limit)
{
    const struct opt_bool *special = &rq->in.embedding.special;
    size_t before = rq->prompt.len;
    int r;

    if (!model_is_of_1(rq->m))
        return tokenizer_encode(rq->m->tokenizer, rq->scratch, text, &rq->prompt,
                                &rq->tokenize_error);
    r = tokenizer_encode_embedded(rq->m->tokenizer, rq->scratch, text, !special->set || special->v,
                                  &rq->prompt, &rq->tokenize_error);
    if (r == 0 && rq->prompt.len - before > limit)
        rq->prompt.len = before + limit;
    return r;
}

void request_embed_tokenize(struct request *rq)
{
    const struct openai_request *in = &rq->in;
    size_t limit;

    rq->input_ends = arena_alloc(rq->arena, (in->n_prompts + 1) * sizeof(*rq->input_ends));
    rq->tokenize_r = text_limit(rq, &limit);
    for (size_t i = 0; i < in->n_prompts && rq->tokenize_r == 0; i++) {
        const struct openai_prompt *p = &in->prompts[i];

        rq->tokenize_r = p->is_ids ? add_ids(rq, p) : add_text(rq, p->text, limit);
        rq->input_ends[i] = rq->prompt.len;
        if (rq->tokenize_r == 0 && rq->prompt.len > IDS_MAX)
            rq->tokenize_r =
                err_set(&rq->tokenize_error, -E2BIG, "input has more than %d tokens", IDS_MAX);
    }
    if (rq->tokenize_r == 0 && !model_is_of_1(rq->m) && in->n_prompts && !in->prompts[0].is_ids)
        rq->tokenize_r = tokenizer_shape_together(rq->m->tokenizer, &rq->prompt, rq->input_ends,
                                                  in->n_prompts, IDS_MAX, &rq->tokenize_error);
}

/* --- the request and its answer ---------------------------------------------------------------- */

static void put_request(struct request *rq, struct buf *out)
{
    const struct embeddings_ids ids = {rq->prompt.ptr, rq->input_ends, rq->in.n_prompts};

    if (rq->m->takes_text)
        embeddings_put_body(out, http_request(rq->x)->body, model_is_of_1(rq->m));
    else
        embeddings_put_ids(out, &rq->in, &ids, str_from(rq->m->card->mdc_sum));
}

static struct embeddings_answer *vectors_of(struct request *rq)
{
    if (!rq->vectors) {
        rq->vectors = xcalloc(1, sizeof(*rq->vectors));
        rq->vectors->base64 = str_is(rq->in.embedding.format, "base64");
    }
    return rq->vectors;
}

static void reset(struct request *rq)
{
    if (rq->vectors)
        embeddings_answer_done(rq->vectors);
    free(rq->vectors);
    rq->vectors = NULL;
}

static void take(struct request *rq, struct str data)
{
    struct embeddings_answer *a = vectors_of(rq);
    struct err e;
    int r = rq->m->takes_text ? embeddings_add_answer(a, data, &e)
                              : embeddings_add_vectors(a, data, &e);

    if (r == 0 && a->data.len <= TEXT_BYTES_MAX)
        return;
    rq->stream = plane_stream_cancel(rq->stream);
    request_fail(rq, 500, "Failed to read the worker's output: %s",
                 r < 0 ? e.text : "it is too long");
}

static void end(struct request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;

    embeddings_put(vectors_of(rq), rq->in.model, &body);
    http_respond(rq->x, 200, "application/json", buf_str(&body));
    request_finish(rq);
}

const struct request_form REQUEST_OF_VECTORS = {
    .put = put_request, .take = take, .end = end, .reset = reset};
