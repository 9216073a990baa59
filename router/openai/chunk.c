/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chunk.h"

#include "lib/base/json_put.h"
#include "lib/net/sse.h"
#include "router/openai/api_error.h"

void chunk_init(struct chunk *c, enum api api, struct str id, struct str model, uint64_t created)
{
    bool chat = api == API_CHAT;

    *c = (struct chunk){.api = api};
    buf_put_cstr(&c->head, chat ? "{\"id\":\"chatcmpl-" : "{\"id\":\"cmpl-");
    json_escape(&c->head, id);
    buf_put_cstr(&c->head, "\",\"choices\":[");

    buf_put_cstr(&c->tail, "],\"created\":");
    buf_put_u64dec(&c->tail, created);
    buf_put_cstr(&c->tail, ",\"model\":\"");
    json_escape(&c->tail, model);
    buf_put_char(&c->tail, '"');

    buf_put_str(&c->after, buf_str(&c->tail));
    buf_put_cstr(&c->after,
                 chat ? ",\"service_tier\":null,\"system_fingerprint\":null,"
                        "\"object\":\"chat.completion.chunk\",\"usage\":"
                      : ",\"system_fingerprint\":null,\"object\":\"text_completion\",\"usage\":");
    chunk_choose(c, 0);
}

static void put_index(const struct chunk *c, struct buf *out)
{
    buf_put_cstr(out, "\"index\":");
    buf_put_u64dec(out, c->index);
}

void chunk_choose(struct chunk *c, uint32_t index)
{
    c->index = index;
    buf_clear(&c->before);
    buf_put_cstr(&c->before, "data: ");
    buf_put_str(&c->before, buf_str(&c->head));
    if (c->api == API_CHAT) {
        buf_put_char(&c->before, '{');
        put_index(c, &c->before);
        buf_put_cstr(&c->before, ",\"delta\":{\"content\":");
    } else {
        buf_put_cstr(&c->before, "{\"text\":");
    }
}

void chunk_done(struct chunk *c)
{
    buf_done(&c->before);
    buf_done(&c->after);
    buf_done(&c->head);
    buf_done(&c->tail);
    buf_done(&c->worker);
}

static void put_completion_details(struct buf *out, const struct usage *u)
{
    if (!u->reasoning_tokens.set && !u->completion_json.len)
        return;
    buf_put_cstr(out, ",\"completion_tokens_details\":{");
    buf_put_str(out, u->completion_json);
    if (u->reasoning_tokens.set) {
        buf_put_cstr(out,
                     u->completion_json.len ? ",\"reasoning_tokens\":" : "\"reasoning_tokens\":");
        buf_put_u64dec(out, u->reasoning_tokens.v);
    }
    buf_put_char(out, '}');
}

static void put_usage(struct buf *out, const struct usage *u)
{
    if (!u) {
        buf_put_cstr(out, "null");
        return;
    }
    buf_put_cstr(out, "{\"prompt_tokens\":");
    buf_put_u64dec(out, u->prompt_tokens);
    buf_put_cstr(out, ",\"completion_tokens\":");
    buf_put_u64dec(out, u->completion_tokens);
    buf_put_cstr(out, ",\"total_tokens\":");
    buf_put_u64dec(out, u->prompt_tokens + u->completion_tokens);
    if (u->details_json.len) {
        buf_put_cstr(out, ",\"prompt_tokens_details\":");
        buf_put_str(out, u->details_json);
    }
    put_completion_details(out, u);
    buf_put_char(out, '}');
}

static void put_text(struct buf *out, struct str text)
{
    if (!text.ptr) {
        buf_put_cstr(out, "null");
        return;
    }
    buf_put_char(out, '"');
    json_escape(out, text);
    buf_put_char(out, '"');
}

static void put_finish(struct buf *out, const struct chunk_end *end)
{
    if (!end || !end->finish)
        return;
    buf_put_cstr(out, ",\"finish_reason\":\"");
    buf_put_cstr(out, end->finish);
    buf_put_char(out, '"');
    if (end->stop_reason_json.len) {
        buf_put_cstr(out, ",\"stop_reason\":");
        buf_put_str(out, end->stop_reason_json);
    }
}

static void put_nvext(const struct chunk *c, struct buf *out, const struct chunk_end *end)
{
    if (!c->worker.len)
        return;
    buf_put_cstr(out, ",\"nvext\":");
    buf_put_str(out, buf_str(&c->worker));
    if (end && end->timing_json.len) {
        buf_put_cstr(out, ",\"timing\":");
        buf_put_str(out, end->timing_json);
    }
    buf_put_char(out, '}');
}

static void put_logprobs(struct buf *out, const struct chunk_delta *d)
{
    if (!d->logprobs_json.len)
        return;
    buf_put_cstr(out, ",\"logprobs\":");
    buf_put_str(out, d->logprobs_json);
}

/* What stands behind the content of a chat delta. */
static void put_delta_end(struct buf *out, const struct chunk_delta *d)
{
    buf_put_cstr(out, ",\"function_call\":null,\"tool_calls\":");
    if (d->calls_json.len) {
        buf_put_char(out, '[');
        buf_put_str(out, d->calls_json);
        buf_put_char(out, ']');
    } else {
        buf_put_cstr(out, "null");
    }
    buf_put_cstr(out, ",\"role\":\"assistant\",\"refusal\":null,\"reasoning_content\":");
    put_text(out, d->reasoning.len ? d->reasoning : STR_NULL);
    buf_put_char(out, '}');
}

static void put_chunk(const struct chunk *c, struct buf *out, const struct chunk_delta *d,
                      const struct chunk_end *end, const struct usage *usage)
{
    buf_put_str(out, buf_str(&c->before));
    put_text(out, d->text);
    if (c->api == API_CHAT) {
        put_delta_end(out, d);
        put_finish(out, end);
        put_logprobs(out, d);
    } else {
        buf_put_char(out, ',');
        put_index(c, out);
        put_logprobs(out, d);
        put_finish(out, end);
    }
    buf_put_char(out, '}');
    buf_put_str(out, buf_str(&c->after));
    put_usage(out, usage);
    put_nvext(c, out, end);
    buf_put_cstr(out, "}\n\n");
}

void chunk_tell_workers(struct chunk *c, uint64_t prefill_id, uint64_t decode_id)
{
    buf_clear(&c->worker);
    buf_put_cstr(&c->worker, "{\"worker_id\":{\"prefill_worker_id\":");
    buf_put_u64dec(&c->worker, prefill_id);
    buf_put_cstr(&c->worker, ",\"decode_worker_id\":");
    buf_put_u64dec(&c->worker, decode_id);
    buf_put_char(&c->worker, '}');
}

void chunk_tell_tokens(struct chunk *c, const uint32_t *ids, size_t n)
{
    buf_put_cstr(&c->worker, ",\"token_ids\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_put_char(&c->worker, ',');
        buf_put_u64dec(&c->worker, ids[i]);
    }
    buf_put_char(&c->worker, ']');
}

void chunk_put_text(const struct chunk *c, struct buf *out, struct str text,
                    const struct usage *usage)
{
    put_chunk(c, out, &(struct chunk_delta){.text = text}, NULL, usage);
}

void chunk_put_delta(const struct chunk *c, struct buf *out, const struct chunk_delta *delta,
                     const struct usage *usage)
{
    put_chunk(c, out, delta, NULL, usage);
}

void chunk_put_end(const struct chunk *c, struct buf *out, const struct chunk_delta *delta,
                   const struct chunk_end *end, const struct usage *usage)
{
    put_chunk(c, out, delta, end, usage);
}

void chunk_put_usage(const struct chunk *c, struct buf *out, const struct usage *usage)
{
    buf_put_cstr(out, "data: ");
    buf_put_str(out, buf_str(&c->head));
    buf_put_str(out, buf_str(&c->after));
    put_usage(out, usage);
    buf_put_cstr(out, "}\n\n");
}

void chunk_put_done(struct buf *out)
{
    sse_put_data(out, STR("[DONE]"));
}

void chunk_put_error(struct buf *out, int status, struct str text)
{
    struct api_error e;

    (void)api_fail(&e, status, NULL, "%.*s", STR_ARG(text));
    /* The comment is the reference's form; the data is what OpenAI clients raise as an error. */
    buf_put_cstr(out, "event: error\n: ");
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\n')
            buf_put_cstr(out, "\n: ");
        else if (text.ptr[i] != '\r')
            buf_put_char(out, text.ptr[i]);
    }
    buf_put_cstr(out, "\ndata: ");
    api_error_put(out, &e);
    buf_put_cstr(out, "\n\n");
}

void chunk_put_annotation(struct buf *out, const char *name, struct str text)
{
    buf_put_cstr(out, "event: ");
    buf_put_cstr(out, name);
    buf_put_cstr(out, "\n: ");
    put_text(out, text);
    buf_put_cstr(out, "\n\n");
}

/* The message of a folded chat answer. */
static void put_message(struct buf *out, const struct chunk_delta *d)
{
    buf_put_cstr(out, ",\"message\":{");
    if (d->text.len) {
        buf_put_cstr(out, "\"content\":");
        put_text(out, d->text);
        buf_put_char(out, ',');
    }
    if (d->calls_json.len) {
        buf_put_cstr(out, "\"tool_calls\":[");
        buf_put_str(out, d->calls_json);
        buf_put_cstr(out, "],");
    }
    buf_put_cstr(out, "\"role\":\"assistant\",\"reasoning_content\":");
    put_text(out, d->reasoning.len ? d->reasoning : STR_NULL);
    buf_put_char(out, '}');
}

void chunk_put_choice(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end)
{
    if (c->api == API_CHAT) {
        buf_put_char(out, '{');
        put_index(c, out);
        put_message(out, whole);
        put_finish(out, end);
        put_logprobs(out, whole);
    } else {
        buf_put_cstr(out, "{\"text\":");
        put_text(out, whole->text.ptr ? whole->text : STR(""));
        buf_put_char(out, ',');
        put_index(c, out);
        put_logprobs(out, whole);
        put_finish(out, end);
    }
    buf_put_char(out, '}');
}

void chunk_put_body(const struct chunk *c, struct buf *out, struct str choices,
                    const struct chunk_end *end, const struct usage *usage)
{
    buf_put_str(out, buf_str(&c->head));
    buf_put_str(out, choices);
    buf_put_str(out, buf_str(&c->tail));
    buf_put_cstr(out, c->api == API_CHAT ? ",\"object\":\"chat.completion\",\"usage\":"
                                         : ",\"system_fingerprint\":null,"
                                           "\"object\":\"text_completion\",\"usage\":");
    put_usage(out, usage);
    put_nvext(c, out, end);
    buf_put_char(out, '}');
}

void chunk_put_folded(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end, const struct usage *usage)
{
    AUTO(buf_done) struct buf choice = BUF_NULL;

    chunk_put_choice(c, &choice, whole, end);
    chunk_put_body(c, out, buf_str(&choice), end, usage);
}
