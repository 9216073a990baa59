/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model said, as the client gets it: told apart into thoughts, content and calls of tools
 * when the model's card says how, with log probabilities beside it, in chunks or gathered.
 */
#include "lib/base/digest.h"
#include "lib/base/json_put.h"
#include "router/frontend/request_state.h"

/* --- chunks ----------------------------------------------------------------------------------- */

static const struct usage *usage_in_chunks(const struct request *rq)
{
    return rq->in.continuous_usage ? &rq->usage : NULL;
}

static void gather(struct buf *all, struct str text)
{
    if (all->len + text.len <= TEXT_BYTES_MAX)
        buf_put_str(all, text);
}

static void gather_delta(struct request *rq, const struct chunk_delta *d)
{
    struct request_reply *rr = &rq->reply;

    gather(&rq->text, d->text);
    gather(&rr->thoughts, d->reasoning);
    if (d->calls_json.len && rr->calls.len)
        gather(&rr->calls, STR(","));
    gather(&rr->calls, d->calls_json);
}

/* Events for whom chunks come too late: calls before theirs, thoughts once something follows. */
static void dispatch(struct request *rq, const struct chunk_delta *d)
{
    struct buf *thoughts = &rq->reply.thoughts;

    if (rq->s->dispatches_calls && d->calls_json.len)
        chunk_put_calls_event(&rq->chunk, &rq->out, d->calls_json);
    if (!rq->s->dispatches_thoughts)
        return;
    if (!d->reasoning.len && thoughts->len) {
        chunk_put_thoughts_event(&rq->chunk, &rq->out, buf_str(thoughts));
        buf_clear(thoughts);
    }
    gather(thoughts, d->reasoning);
}

/* @end NULL = the answer goes on. */
static void emit(struct request *rq, struct chunk_delta *d, const struct chunk_end *end)
{
    AUTO(buf_done) struct buf logprobs = BUF_NULL;
    const struct usage *usage = usage_in_chunks(rq);

    if (!rq->in.stream) {
        gather_delta(rq, d);
        return;
    }
    logprobs_take(&rq->reply.logprobs, &logprobs);
    d->logprobs_json = buf_str(&logprobs);
    if (rq->dialect) {
        rq->dialect->put_delta(rq->told, &rq->out, d, &rq->usage);
        return;
    }
    dispatch(rq, d);
    if (end)
        chunk_put_end(&rq->chunk, &rq->out, d, end, usage);
    else
        chunk_put_delta(&rq->chunk, &rq->out, d, usage);
}

/* What was told and is no chunk yet: it may be the last, which carries the end. */
static void emit_next(struct request *rq, const struct chunk_end *end)
{
    struct reply_chunk *next = &rq->reply.next;
    struct chunk_delta d = {.text = !next->has_text  ? STR_NULL
                                    : next->text.len ? buf_str(&next->text)
                                                     : STR(""),
                            .reasoning = buf_str(&next->thoughts),
                            .calls_json = buf_str(&next->calls)};

    emit(rq, &d, end);
    buf_clear(&next->text);
    buf_clear(&next->thoughts);
    buf_clear(&next->calls);
    next->has_text = next->has_any = false;
}

/* {"index":i,"id":…,"type":"function","function":{"name":…,"arguments":…}}; folded without index. */
static void put_call(struct request *rq, const struct reply_part *part, struct buf *out)
{
    struct json_put j = json_put_on(out);
    char id[sizeof("call-") + UUID_TEXT_SIZE] = "call-";

    random_uuid(id + strlen(id));
    json_put_object(&j);
    if (rq->in.stream) {
        json_put_key(&j, "index");
        json_put_u64(&j, rq->reply.n_calls);
    }
    json_put_key(&j, "id");
    json_put_str(&j, part->id.len ? part->id : str_from(id));
    json_put_key(&j, "type");
    json_put_cstr(&j, "function");
    json_put_key(&j, "function");
    json_put_object(&j);
    json_put_key(&j, "name");
    json_put_str(&j, part->name);
    json_put_key(&j, "arguments");
    json_put_str(&j, part->text);
    json_put_object_end(&j);
    json_put_object_end(&j);
}

/* A call by a parser may be one of another tool than the one that is asked for. */
static bool is_unasked(const struct request *rq, const struct reply_part *part)
{
    const struct openai_request *in = &rq->in;

    return part->kind == REPLY_CALL && in->tagged && in->tool_choice == TOOL_NAMED &&
           !str_eq(part->name, in->named_tool);
}

/* Thoughts and content of an item are one chunk; calls, those of a block together, are another. */
static void tell_part(void *arg, const struct reply_part *part)
{
    struct request *rq = arg;
    struct request_reply *rr = &rq->reply;
    struct reply_chunk *next = &rr->next;

    bool joins = part->kind == REPLY_CALL ? rr->in_block : next->calls.len == 0;

    if (is_unasked(rq, part)) {
        rr->in_block = rr->in_block && part->more;
        return;
    }
    if (next->has_any && !joins)
        emit_next(rq, NULL);
    next->has_any = true;
    next->has_text |= part->kind != REPLY_THOUGHT;
    switch (part->kind) {
    case REPLY_CONTENT:
        buf_put_str(&next->text, part->text);
        break;
    case REPLY_THOUGHT:
        buf_put_str(&next->thoughts, part->text);
        break;
    case REPLY_CALL:
        if (next->calls.len)
            buf_put_char(&next->calls, ',');
        put_call(rq, part, &next->calls);
        rr->n_calls++;
        break;
    }
    rr->in_block = part->kind == REPLY_CALL && part->more;
}

/* --- the way of it ---------------------------------------------------------------------------- */

static void decode_token(void *arg, uint32_t id, struct buf *out)
{
    struct request *rq = arg;

    tokenizer_decode(rq->m->tokenizer, &id, 1, false, out);
}

static const struct reply_calls *calls_of(const struct request *rq)
{
    const struct openai_request *in = &rq->in;

    if (json_len(in->tools) == 0 || in->tool_choice == TOOL_NONE)
        return NULL;
    if (in->tagged)
        return reply_find_calls(rq->m->card->tool_call_parser);
    if (in->tool_choice == TOOL_REQUIRED)
        return &REPLY_ANSWER_IS_CALLS;
    if (in->tool_choice == TOOL_NAMED)
        return &REPLY_ANSWER_IS_ARGUMENTS;
    return reply_find_calls(rq->m->card->tool_call_parser);
}

/* As 1.6.1 reads it. An effort is among the template's arguments, however the body says it. */
static enum reply_asked asked_for_thoughts(const struct openai_request *in)
{
    static const char *const keys[] = {"enable_thinking", "thinking"};
    const char *said = json_get_cstr(in->template_args, "reasoning_effort");
    struct str name = said ? str_from(said) : in->reasoning_effort;
    struct str mode = str_from(json_get_cstr(in->template_args, "thinking_mode"));
    bool effort = name.len && !str_is(name, "none"), on;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_get_bool(in->template_args, keys[i], &on))
            return !on ? REPLY_ASKED_NONE : effort ? REPLY_ASKED_EFFORT : REPLY_ASKED;
    if (str_is(mode, "chat"))
        return REPLY_MODE_CHAT;
    return str_is(mode, "thinking") ? REPLY_MODE_THINKING : REPLY_ASKED_NOTHING;
}

/* The frontend of 0.9.0 does not look. */
void request_look_at_end(struct request *rq)
{
    rq->reply.opened = model_is_of_1(rq->m) &&
                       reply_prompt_opens(reply_find_thoughts(rq->m->card->reasoning_parser),
                                          buf_str(&rq->prompt_text));
}

void request_reply_start(struct request *rq)
{
    const struct reply_thoughts *thoughts = reply_find_thoughts(rq->m->card->reasoning_parser);
    const struct reply_calls *calls = calls_of(rq);

    rq->reply.logprobs = (struct logprobs){.api = rq->in.api, .decode = decode_token, .arg = rq};
    if (rq->in.api == API_CHAT && (thoughts || calls))
        rq->reply.parser = reply_new(thoughts, calls, rq->in.named_tool, tell_part, rq);
    if (!rq->reply.parser)
        return;
    reply_know_tools(rq->reply.parser, rq->in.tools);
    if (reply_expect_thoughts(rq->reply.parser, asked_for_thoughts(&rq->in)))
        rq->usage.reasoning_tokens = OPT_U64(0);
    if (rq->reply.opened)
        reply_open_thoughts(rq->reply.parser);
}

void request_reply_done(struct request *rq)
{
    rq->reply.parser = reply_free(rq->reply.parser);
    logprobs_done(&rq->reply.logprobs);
    buf_done(&rq->reply.thoughts);
    buf_done(&rq->reply.calls);
    buf_done(&rq->reply.next.text);
    buf_done(&rq->reply.next.thoughts);
    buf_done(&rq->reply.next.calls);
    rq->reply.n_calls = 0;
    rq->reply.n_read = 0;
    rq->reply.told_thoughts = false;
}

/* Tokens of an item count as a whole, as in 1.6.1. */
static void push_parser(struct request *rq, struct str text)
{
    struct request_reply *rr = &rq->reply;
    struct opt_u64 *thoughts = &rq->usage.reasoning_tokens;
    bool counts = reply_push(rr->parser, text) && thoughts->set && !rr->told_thoughts;

    if (counts)
        thoughts->v += rq->usage.completion_tokens - rr->n_read;
    rr->n_read = rq->usage.completion_tokens;
}

void request_reply_push(struct request *rq, struct str text)
{
    struct request_reply *rr = &rq->reply;
    struct chunk_delta d = {.text = text};

    if (!rr->parser) {
        emit(rq, &d, NULL);
        return;
    }
    push_parser(rq, text);
    if (rr->next.has_any) {
        emit_next(rq, NULL);
    } else if (rr->logprobs.n) { /* of tokens whose text is held back, or none */
        d.text = STR("");
        emit(rq, &d, NULL);
    } else if (!text.len || !calls_of(rq)) { /* what may become a call makes no chunk */
        d.text = STR_NULL;
        emit(rq, &d, NULL);
    }
}

void request_reply_logprobs(struct request *rq, struct logprobs_item *it, uint32_t id,
                            struct str piece)
{
    logprobs_add(&rq->reply.logprobs, it, id, piece);
}

void request_reply_end(struct request *rq, struct str text)
{
    bool as_any = rq->in.tool_choice == TOOL_NAMED && rq->in.stream &&
                  rq->m->chunks->named_call_stops; /* wire.md §8.9 */
    struct chunk_delta last = {.text = text};

    if (!rq->reply.parser) {
        emit(rq, &last, &rq->end);
        return;
    }
    push_parser(rq, text);
    reply_end(rq->reply.parser);
    if (rq->in.tool_choice == TOOL_NAMED || rq->in.tool_choice == TOOL_REQUIRED)
        if (rq->reply.next.has_any) /* all of the answer, which has ended before */
            emit_next(rq, NULL);
    if (rq->reply.n_calls && strcmp(rq->end.finish, "stop") == 0 && !as_any)
        rq->end.finish = "tool_calls";
    emit_next(rq, &rq->end);
}

/* All that was said. Borrows from @rq and @logprobs. */
static struct chunk_delta whole_of(struct request *rq, struct buf *logprobs)
{
    logprobs_take(&rq->reply.logprobs, logprobs);
    return (struct chunk_delta){.text = buf_str(&rq->text),
                                .reasoning = buf_str(&rq->reply.thoughts),
                                .calls_json = buf_str(&rq->reply.calls),
                                .logprobs_json = buf_str(logprobs)};
}

void request_reply_put_choice(struct request *rq, struct buf *out)
{
    AUTO(buf_done) struct buf logprobs = BUF_NULL;
    struct chunk_delta whole = whole_of(rq, &logprobs);

    chunk_put_choice(&rq->chunk, out, &whole, &rq->end);
}

void request_reply_put_folded(struct request *rq, struct buf *out)
{
    AUTO(buf_done) struct buf choice = BUF_NULL, logprobs = BUF_NULL;
    struct chunk_delta whole;

    if (rq->dialect) {
        whole = whole_of(rq, &logprobs);
        rq->dialect->put_body(rq->told, out, &whole, &rq->chunk,
                              &(struct dialect_end){.end = &rq->end,
                                                    .usage = &rq->usage,
                                                    .completed = clock_wall_ms() / 1000});
        return;
    }
    request_reply_put_choice(rq, &choice);
    chunk_put_body(&rq->chunk, out, buf_str(&choice), &rq->end, &rq->usage);
}

/* --- annotations ------------------------------------------------------------------------------ */

void request_annotate(struct request *rq)
{
    AUTO(buf_done) struct buf ids = BUF_NULL;
    struct json_put j = json_put_on(&ids);

    if (!rq->in.stream || rq->m->is_stock || rq->tokenize_r < 0)
        return;
    if (rq->in.tell_id && rq->choice == 0)
        chunk_put_annotation(&rq->out, "request_id", str_from(rq->id));
    if (!rq->m->tokenizer)
        return;
    if (rq->in.tell_prompt && rq->prompt_text.len)
        chunk_put_annotation(&rq->out, "formatted_prompt", buf_str(&rq->prompt_text));
    if (!rq->in.tell_tokens)
        return;
    json_put_array(&j);
    for (size_t i = 0; i < rq->prompt.len; i++)
        json_put_u64(&j, rq->prompt.ptr[i]);
    json_put_array_end(&j);
    chunk_put_annotation(&rq->out, "token_ids", buf_str(&ids));
}
