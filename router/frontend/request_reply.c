/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model said, as the client gets it: told apart into thoughts, content and calls of tools
 * when the model's card says how, with log probabilities beside it, in chunks or gathered.
 */
#include "lib/base/digest.h"
#include "lib/base/json_put.h"
#include "router/frontend/request_state.h"

/* --- chunks ----------------------------------------------------------------------------------- */

const struct usage *request_usage_in_chunks(const struct request *rq)
{
    return rq->in.continuous_usage ? &rq->usage : NULL;
}

static void gather(struct buf *all, struct str text)
{
    if (all->len + text.len <= TEXT_BYTES_MAX)
        buf_put_str(all, text);
}

static void emit(struct request *rq, struct chunk_delta *d)
{
    AUTO(buf_done) struct buf logprobs = BUF_NULL;
    struct request_reply *rr = &rq->reply;

    if (!rq->in.stream) {
        gather(&rq->text, d->text);
        gather(&rr->thoughts, d->reasoning);
        if (d->calls_json.len && rr->calls.len)
            gather(&rr->calls, STR(","));
        gather(&rr->calls, d->calls_json);
        return;
    }
    logprobs_take(&rr->logprobs, &logprobs);
    d->logprobs_json = buf_str(&logprobs);
    chunk_put_delta(&rq->chunk, &rq->out, d, request_usage_in_chunks(rq));
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

static void tell_part(void *arg, const struct reply_part *part)
{
    struct request *rq = arg;
    struct buf *block = &rq->reply.block;
    struct chunk_delta d = {.text = STR_NULL};

    switch (part->kind) {
    case REPLY_CONTENT:
        d.text = part->text;
        break;
    case REPLY_THOUGHT:
        d.reasoning = part->text;
        break;
    case REPLY_CALL:
        if (block->len)
            buf_put_char(block, ',');
        put_call(rq, part, block);
        rq->reply.n_calls++;
        if (part->more) /* the calls of a block are told together */
            return;
        d.text = STR("");
        d.calls_json = buf_str(block);
        break;
    }
    emit(rq, &d);
    if (part->kind == REPLY_CALL)
        buf_clear(block);
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
    if (in->tool_choice == TOOL_REQUIRED)
        return &REPLY_ANSWER_IS_CALLS;
    if (in->tool_choice == TOOL_NAMED)
        return &REPLY_ANSWER_IS_ARGUMENTS;
    return reply_find_calls(rq->m->card->tool_call_parser);
}

static bool switched_off(const struct json *args, const char *key)
{
    bool on;

    return json_get_bool(args, key, &on) && !on;
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
    if (thoughts)
        rq->usage.reasoning_tokens = OPT_U64(0);
    if (switched_off(rq->in.template_args, "enable_thinking") ||
        switched_off(rq->in.template_args, "thinking"))
        reply_expect_no_thoughts(rq->reply.parser);
}

void request_reply_done(struct request *rq)
{
    rq->reply.parser = reply_free(rq->reply.parser);
    logprobs_done(&rq->reply.logprobs);
    buf_done(&rq->reply.thoughts);
    buf_done(&rq->reply.calls);
    buf_done(&rq->reply.block);
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
    struct chunk_delta d = {.text = text};

    if (!rq->reply.parser) {
        emit(rq, &d);
        return;
    }
    push_parser(rq, text);
    if (rq->in.stream && rq->reply.logprobs.n) { /* of tokens whose text is held back, or none */
        d.text = STR("");
        emit(rq, &d);
    }
}

void request_reply_logprobs(struct request *rq, struct logprobs_item *it, uint32_t id,
                            struct str piece)
{
    logprobs_add(&rq->reply.logprobs, it, id, piece);
}

void request_reply_end(struct request *rq, struct str text)
{
    bool named = rq->in.tool_choice == TOOL_NAMED;
    AUTO(buf_done) struct buf logprobs = BUF_NULL;
    struct chunk_delta last = {.text = rq->in.api == API_CHAT ? STR_NULL : STR("")};

    if (rq->in.stream && !rq->reply.parser) {
        logprobs_take(&rq->reply.logprobs, &logprobs);
        last.logprobs_json = buf_str(&logprobs);
        last.text = text.len ? text : last.text;
    } else if (text.len || rq->reply.logprobs.n) {
        request_reply_push(rq, text);
    } else if (rq->reply.parser) {
        push_parser(rq, text);
    }
    if (rq->reply.parser)
        reply_end(rq->reply.parser);
    /* An answer that had to be one call stops as any other, where it is streamed (wire.md §8.9). */
    if (rq->reply.n_calls && strcmp(rq->end.finish, "stop") == 0 && !(named && rq->in.stream))
        rq->end.finish = "tool_calls";
    if (rq->in.stream)
        chunk_put_end(&rq->chunk, &rq->out, &last, &rq->end, request_usage_in_chunks(rq));
}

void request_reply_put_choice(struct request *rq, struct buf *out)
{
    AUTO(buf_done) struct buf logprobs = BUF_NULL;
    struct chunk_delta whole = {.text = buf_str(&rq->text),
                                .reasoning = buf_str(&rq->reply.thoughts),
                                .calls_json = buf_str(&rq->reply.calls)};

    logprobs_take(&rq->reply.logprobs, &logprobs);
    whole.logprobs_json = buf_str(&logprobs);
    chunk_put_choice(&rq->chunk, out, &whole, &rq->end);
}

void request_reply_put_folded(struct request *rq, struct buf *out)
{
    AUTO(buf_done) struct buf choice = BUF_NULL;

    request_reply_put_choice(rq, &choice);
    chunk_put_body(&rq->chunk, out, buf_str(&choice), &rq->end, &rq->usage);
}

/* --- annotations ------------------------------------------------------------------------------ */

void request_annotate(struct request *rq)
{
    AUTO(buf_done) struct buf ids = BUF_NULL;
    struct json_put j = json_put_on(&ids);

    if (!rq->in.stream || !rq->m->tokenizer || rq->tokenize_r < 0)
        return;
    if (rq->in.tell_id && rq->choice == 0)
        chunk_put_annotation(&rq->out, "request_id", str_from(rq->id));
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
