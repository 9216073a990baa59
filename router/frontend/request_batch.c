/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several choices in one answer: n of them for each prompt. Each is a request of its own, routed and
 * booked alone, so that any worker will do; choices of a prompt find it in caches.
 *
 *     exchange ── batch ──┬─ request of choice 0      choice = prompt * n + k
 *                         ├─ request of choice 1 …
 *
 * Chunks are sent as they come. The answer fails with the first choice that fails. The batch lives
 * until its last request is freed, which may be on its way back from a pool thread.
 */
#include "router/frontend/request_batch.h"

#include "lib/base/json_tree.h"
#include "router/frontend/event_stream.h"
#include "router/frontend/request_text.h"

struct request_batch {
    struct serving *s;
    struct http_exchange *x;
    struct arena *arena;      /* of what requests view */
    struct openai_request in; /* owns the trees */
    struct trace_context trace;
    struct http_span span;
    char id[UUID_TEXT_SIZE];
    struct request **members; /* NULL = gone */
    struct buf *choices;      /* of an answer that is not streamed */
    size_t n, n_left, per_prompt;
    size_t refs; /* members that are not freed, and who works on the batch */
    bool ended;
    struct usage usage; /* of all */
    uint64_t created;
};

static void unref(struct request_batch *b)
{
    if (--b->refs > 0)
        return;
    for (size_t i = 0; i < b->n; i++)
        buf_done(&b->choices[i]);
    openai_request_done(&b->in);
    arena_free(b->arena);
    free(b->choices);
    free(b->members);
    free(b);
}

struct str request_batch_id(const struct request_batch *b)
{
    return str_from(b->id);
}

void request_batch_forget(struct request *rq)
{
    rq->batch->members[rq->choice] = NULL;
    unref(rq->batch);
}

/* Whoever takes texts knows n, and one prompt; plain OpenAI servers know both. */
size_t request_batch_size(const struct model *m, const struct openai_request *in)
{
    if (m->is_stock)
        return 1;
    return m->takes_text ? MAX(in->n_prompts, (size_t)1) : openai_request_choices(in);
}

/* Of all choices together, behind their own; which workers they went to, those tell. */
static void span_over(struct request_batch *b, const char *outcome)
{
    b->span.outcome = outcome;
    b->span.input_tokens = b->usage.prompt_tokens;
    b->span.output_tokens = b->usage.completion_tokens;
    span_http(&b->s->tracer, &b->trace, &b->span);
}

/* Nothing is answered any more; ends all but @but. */
static void end(struct request_batch *b, const struct request *but, enum decision_end how)
{
    b->refs++;
    b->ended = true;
    for (size_t i = 0; i < b->n; i++)
        if (b->members[i] && b->members[i] != but && !b->members[i]->gone)
            request_abandon(b->members[i], how);
    unref(b);
}

static void gone(void *arg)
{
    struct request_batch *b = arg;

    metric_add(b->s->metrics.disconnected, 1);
    b->refs++;
    end(b, NULL, DECISION_CLIENT_GONE);
    span_over(b, "cancelled");
    unref(b);
}

static void drained(void *arg)
{
    struct request_batch *b = arg;

    for (size_t i = 0; i < b->n; i++)
        if (b->members[i])
            request_resume(b->members[i]);
}

static void write_out(struct request_batch *b, struct str bytes)
{
    event_stream_open(b->x);
    http_stream_write(b->x, bytes);
}

void request_batch_write(struct request *rq)
{
    rq->begun = true;
    if (!rq->batch->ended)
        write_out(rq->batch, buf_str(&rq->out));
    buf_clear(&rq->out);
}

void request_batch_fail(struct request *rq, const struct api_error *e)
{
    struct request_batch *b = rq->batch;
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (b->ended)
        return;
    if (http_stream_has_begun(b->x)) {
        chunk_put_error(rq->m->chunks, &out, e->status, str_from(e->text));
        chunk_put_done(&out);
        http_stream_write(b->x, buf_str(&out));
        http_stream_end(b->x);
    } else {
        api_error_respond(b->x, e);
    }
    end(b, rq, DECISION_FAILED);
    span_over(b, "error");
}

/* All choices are made, the last by @rq. */
static void answer(struct request_batch *b, struct request *rq)
{
    AUTO(buf_done) struct buf out = BUF_NULL, choices = BUF_NULL;
    AUTO(chunk_done) struct chunk c;

    b->ended = true;
    chunk_init(&c, b->in.api, rq->m->chunks, str_from(b->id), b->in.model, b->created);
    if (b->in.stream) {
        if (b->in.include_usage && !rq->m->takes_text) /* who do it themselves */
            chunk_put_usage(&c, &out, &b->usage);
        chunk_put_done(&out);
        write_out(b, buf_str(&out));
        http_stream_end(b->x);
        return;
    }
    for (size_t i = 0; i < b->n; i++) {
        if (i > 0)
            buf_put_char(&choices, ',');
        buf_put_str(&choices, buf_str(&b->choices[i]));
    }
    if (rq->m->takes_text)
        request_text_put_body(rq, buf_str(&choices), &out);
    else
        chunk_put_body(&c, &out, buf_str(&choices), NULL, &b->usage);
    http_respond(b->x, 200, "application/json", buf_str(&out));
}

void request_batch_complete(struct request *rq)
{
    struct request_batch *b = rq->batch;
    bool answers;

    b->refs++;
    b->usage.completion_tokens += rq->usage.completion_tokens;
    if (rq->usage.reasoning_tokens.set)
        b->usage.reasoning_tokens =
            OPT_U64(b->usage.reasoning_tokens.v + rq->usage.reasoning_tokens.v);
    if (rq->choice % b->per_prompt == 0) /* of each prompt once */
        b->usage.prompt_tokens += rq->usage.prompt_tokens;
    if (rq->in.stream)
        request_batch_write(rq);
    else if (rq->m->takes_text)
        request_text_put_choices(rq, &b->choices[rq->choice]);
    else
        request_reply_put_choice(rq, &b->choices[rq->choice]);
    answers = --b->n_left == 0 && !b->ended;
    if (answers)
        answer(b, rq);
    request_finish(rq);
    if (answers)
        span_over(b, "success");
    unref(b);
}

/* The request for one choice: its own prompt, one choice, and a seed that differs. */
static struct request *new_member(struct request_batch *b, const struct request_parts *all,
                                  uint32_t choice)
{
    struct request_parts p = *all;
    char id[UUID_TEXT_SIZE];

    p.arena = arena_new();
    p.batch = b;
    p.trace = &b->trace;
    p.choice = choice;
    p.in.messages = b->in.messages ? json_dup(b->in.messages) : NULL;
    p.in.tools = b->in.tools ? json_dup(b->in.tools) : NULL;
    p.in.template_args = b->in.template_args ? json_dup(b->in.template_args) : NULL;
    if (b->in.n_prompts)
        p.in.prompt = b->in.prompts[choice / b->per_prompt];
    p.in.sampling.n.set &= p.m->takes_text;
    if (choice % b->per_prompt) /* told with the first choice of the prompt */
        p.in.tell_prompt = p.in.tell_tokens = false;
    if (p.in.sampling.seed.set)
        p.in.sampling.seed.v = (int64_t)((uint64_t)p.in.sampling.seed.v + choice % b->per_prompt);
    if (choice > 0) { /* the first has the id of the answer: GET /explain/{id} */
        random_uuid(id);
        p.id = id;
    }
    b->refs++;
    return request_new(&p);
}

void request_batch_serve(const struct request_parts *parts)
{
    const struct openai_request *in = &parts->in;
    struct request_batch *b;
    struct api_error e;

    if (in->query_only) {
        (void)api_fail(&e, 400, "n", "Validation: query_instance_id asks for one choice");
        api_error_respond(parts->x, &e);
        openai_request_done(&(struct openai_request){
            .messages = in->messages, .tools = in->tools, .template_args = in->template_args});
        arena_free(parts->arena);
        return;
    }
    b = xcalloc(1, sizeof(*b));
    *b = (struct request_batch){.s = parts->s,
                                .x = parts->x,
                                .arena = parts->arena,
                                .in = *in,
                                .n = request_batch_size(parts->m, in),
                                .n_left = request_batch_size(parts->m, in),
                                .per_prompt = request_batch_size(parts->m, in) /
                                              MAX(in->n_prompts, (size_t)1),
                                .refs = 1,
                                .created = clock_wall_ms() / 1000};
    request_take_trace(b->s, b->x, b->arena, &b->trace);
    b->span = request_http_span(parts);
    b->span.id = b->id;
    b->span.model = arena_strdup(b->arena, str_from(parts->m->label));
    b->members = xcalloc(b->n, sizeof(*b->members));
    b->choices = xcalloc(b->n, sizeof(*b->choices));
    for (size_t i = 0; i < b->n; i++)
        b->members[i] = new_member(b, parts, (uint32_t)i);
    (void)memcpy(b->id, b->members[0]->id, sizeof(b->id));
    request_tell_id(b->x, b->id);
    http_on_gone(b->x, gone, b);
    http_on_drained(b->x, drained, b);
    event_stream_keep_alive(b->x, b->in.stream ? b->s->keep_alive_ms : 0);
    for (size_t i = 0; i < b->n && !b->ended; i++)
        request_start(b->members[i]);
    unref(b);
}
