/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chunk.h"

#include <inttypes.h>

#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"
#include "lib/net/sse.h"

#define COMPLETION_TAIL ",\"system_fingerprint\":null,\"object\":\"text_completion\""

void chunk_init(struct chunk *c, enum api api, const struct chunk_style *style, struct str id,
                struct str model, uint64_t created)
{
    bool chat = api == API_CHAT;

    *c = (struct chunk){.api = api, .style = style};
    buf_put_cstr(&c->head, chat ? "{\"id\":\"chatcmpl-" : "{\"id\":\"cmpl-");
    json_escape(&c->head, id);
    buf_put_cstr(&c->head, "\",\"choices\":[");

    buf_put_cstr(&c->tail, "],\"created\":");
    buf_put_u64dec(&c->tail, created);
    buf_put_cstr(&c->tail, ",\"model\":\"");
    json_escape(&c->tail, model);
    buf_put_char(&c->tail, '"');

    buf_put_str(&c->after, buf_str(&c->tail));
    buf_put_cstr(&c->after, chat ? style->chat_tail : COMPLETION_TAIL);
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
    c->begun = false;
    buf_clear(&c->before);
    buf_put_cstr(&c->before, "data: ");
    buf_put_str(&c->before, buf_str(&c->head));
    if (c->api == API_CHAT) {
        buf_put_char(&c->before, '{');
        put_index(c, &c->before);
        buf_put_cstr(&c->before, ",\"delta\":{");
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
    buf_done(&c->ids);
}

/* The members of @json called @names; those that are null or absent only if @nulls. @reasoning is
 * that of one of them, if set. */
static void put_details(struct buf *out, struct str json, const char *const *names, size_t n,
                        bool nulls, const struct opt_u64 *reasoning)
{
    const char *before = "";

    for (size_t i = 0; i < n; i++) {
        struct str value = json_pull_member(json, names[i]);
        bool counted = reasoning->set && strcmp(names[i], "reasoning_tokens") == 0;

        if (!counted && (!value.len || str_is(value, "null"))) {
            if (!nulls)
                continue;
            value = STR("null");
        }
        buf_printf(out, "%s\"%s\":", before, names[i]);
        before = ",";
        if (counted)
            buf_put_u64dec(out, reasoning->v);
        else
            buf_put_str(out, value);
    }
}

static void put_usage_details(const struct chunk *c, struct buf *out, const struct usage *u)
{
    static const char *const prompt[] = {"audio_tokens", "cached_tokens"};
    static const char *const completion[] = {"accepted_prediction_tokens", "audio_tokens",
                                             "reasoning_tokens", "rejected_prediction_tokens"};
    bool nulls = c->api == API_COMPLETIONS || c->style->tells_null_details;

    if (u->prompt_details_json.len) {
        buf_put_cstr(out, ",\"prompt_tokens_details\":{");
        put_details(out, u->prompt_details_json, prompt, ARRAY_LEN(prompt), nulls,
                    &(struct opt_u64){0});
        buf_put_char(out, '}');
    }
    if (c->style->tells_details && (u->reasoning_tokens.set || u->completion_details_json.len)) {
        buf_put_cstr(out, ",\"completion_tokens_details\":{");
        put_details(out, u->completion_details_json, completion, ARRAY_LEN(completion), nulls,
                    &u->reasoning_tokens);
        buf_put_char(out, '}');
    }
}

static void put_usage(const struct chunk *c, struct buf *out, const struct usage *u)
{
    if (!u) {
        buf_put_cstr(out, c->api == API_CHAT ? c->style->chat_no_usage : ",\"usage\":null");
        return;
    }
    buf_put_cstr(out, ",\"usage\":{\"prompt_tokens\":");
    buf_put_u64dec(out, u->prompt_tokens);
    buf_put_cstr(out, ",\"completion_tokens\":");
    buf_put_u64dec(out, u->completion_tokens);
    buf_put_cstr(out, ",\"total_tokens\":");
    buf_put_u64dec(out, u->prompt_tokens + u->completion_tokens);
    put_usage_details(c, out, u);
    buf_put_char(out, '}');
}

static void put_member(struct buf *members, const char *name, struct str json)
{
    if (members->len)
        buf_put_char(members, ',');
    buf_printf(members, "\"%s\":", name);
    buf_put_str(members, json);
}

static void put_ids(const struct chunk *c, struct buf *members)
{
    if (!c->tells_ids)
        return;
    put_member(members, "completion_token_ids", STR("["));
    buf_put_str(members, buf_str(&c->ids));
    buf_put_char(members, ']');
}

/* The ids stand before the timing in a body, behind it in a chunk. */
static void put_nvext(const struct chunk *c, struct buf *out, const struct chunk_end *end,
                      bool is_body)
{
    AUTO(buf_done) struct buf members = BUF_NULL;

    buf_put_str(&members, buf_str(&c->worker));
    if (is_body)
        put_ids(c, &members);
    if (end && end->timing_json.len)
        put_member(&members, "timing", end->timing_json);
    if (!is_body)
        put_ids(c, &members);
    if (end && end->prompt_ids_json.len)
        put_member(&members, "prompt_token_ids", end->prompt_ids_json);
    if (!members.len)
        return;
    buf_put_cstr(out, ",\"nvext\":{");
    buf_put_str(out, buf_str(&members));
    buf_put_char(out, '}');
}

void chunk_put_nvext(const struct chunk *c, struct buf *out, const struct chunk_end *end)
{
    put_nvext(c, out, end, true);
}

void chunk_tell_ids(struct chunk *c, const uint32_t *ids, size_t n)
{
    c->tells_ids = true;
    for (size_t i = 0; i < n; i++) {
        if (c->ids.len)
            buf_put_char(&c->ids, ',');
        buf_put_u64dec(&c->ids, ids[i]);
    }
}

/* What stands behind the text of a completion's choice. */
static void put_completion_end(const struct chunk *c, struct buf *out, const struct chunk_delta *d,
                               const struct chunk_end *end)
{
    buf_put_char(out, ',');
    put_index(c, out);
    if (d->logprobs_json.len) {
        buf_put_cstr(out, ",\"logprobs\":");
        buf_put_str(out, d->logprobs_json);
    }
    if (end && end->finish) {
        buf_put_cstr(out, ",\"finish_reason\":\"");
        buf_put_cstr(out, end->finish);
        buf_put_char(out, '"');
    }
    buf_put_char(out, '}');
}

static void put_chunk(struct chunk *c, struct buf *out, const struct chunk_delta *d,
                      const struct chunk_end *end, const struct usage *usage)
{
    buf_put_str(out, buf_str(&c->before));
    if (c->api == API_CHAT) {
        c->style->put_delta(out, d, !c->begun);
        buf_put_char(out, '}');
        c->style->put_end(out, d, end);
        buf_put_char(out, '}');
    } else {
        chunk_put_string(out, d->text.ptr ? d->text : STR(""));
        put_completion_end(c, out, d, end);
    }
    c->begun = true;
    buf_put_str(out, buf_str(&c->after));
    put_usage(c, out, usage);
    put_nvext(c, out, end, false);
    buf_clear(&c->ids);
    buf_put_cstr(out, "}\n\n");
}

static void put_worker(struct buf *out, const char *which, uint64_t id, const uint32_t *rank)
{
    buf_printf(out, "\"%s_worker_id\":%" PRIu64, which, id);
    if (rank)
        buf_printf(out, ",\"%s_dp_rank\":%" PRIu32, which, *rank);
}

void chunk_tell_workers(struct chunk *c, const struct chunk_workers *w)
{
    bool ranks = w->has_ranks && c->style->tells_dp_ranks;

    buf_clear(&c->worker);
    buf_put_cstr(&c->worker, "\"worker_id\":{");
    put_worker(&c->worker, "prefill", w->prefill_id, ranks ? &w->prefill_rank : NULL);
    if (!w->no_decode) {
        buf_put_char(&c->worker, ',');
        put_worker(&c->worker, "decode", w->decode_id, ranks ? &w->decode_rank : NULL);
    }
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

void chunk_put_delta(struct chunk *c, struct buf *out, const struct chunk_delta *d,
                     const struct usage *usage)
{
    bool adds =
        d->text.len || d->reasoning.len || d->calls_json.len || d->logprobs_json.len || c->ids.len;

    if (adds || usage || c->style->tells_empty || (c->api == API_CHAT && !c->begun))
        put_chunk(c, out, d, NULL, usage);
}

void chunk_put_text(struct chunk *c, struct buf *out, struct str text, const struct usage *usage)
{
    chunk_put_delta(c, out, &(struct chunk_delta){.text = text}, usage);
}

void chunk_put_end(struct chunk *c, struct buf *out, const struct chunk_delta *delta,
                   const struct chunk_end *end, const struct usage *usage)
{
    put_chunk(c, out, delta, end, usage);
}

void chunk_put_usage(const struct chunk *c, struct buf *out, const struct usage *usage)
{
    buf_put_cstr(out, "data: ");
    buf_put_str(out, buf_str(&c->head));
    buf_put_str(out, buf_str(&c->after));
    put_usage(c, out, usage);
    buf_put_cstr(out, "}\n\n");
}

void chunk_put_calls_event(const struct chunk *c, struct buf *out, struct str calls_json)
{
    AUTO(buf_done) struct buf list = BUF_NULL;
    struct json_pull p;
    struct str call;

    buf_put_char(&list, '[');
    buf_put_str(&list, calls_json);
    buf_put_char(&list, ']');
    json_pull_init(&p, buf_str(&list));
    (void)!json_pull_array(&p);
    while (json_pull_element(&p) && json_pull_skip(&p, &call)) {
        buf_printf(out, "event: tool_call_dispatch\ndata: {\"choice_index\":%" PRIu32, c->index);
        buf_put_cstr(out, ",\"tool_call\":");
        buf_put_str(out, call);
        buf_put_cstr(out, "}\n\n");
    }
}

void chunk_put_thoughts_event(const struct chunk *c, struct buf *out, struct str thoughts)
{
    buf_printf(out, "event: reasoning_dispatch\ndata: {\"index\":%" PRIu32, c->index);
    buf_put_cstr(out, ",\"reasoning_content\":");
    chunk_put_string(out, thoughts);
    buf_put_cstr(out, "}\n\n");
}

void chunk_put_done(struct buf *out)
{
    sse_put_data(out, STR("[DONE]"));
}

void chunk_put_annotation(struct buf *out, const char *name, struct str text)
{
    buf_put_cstr(out, "event: ");
    buf_put_cstr(out, name);
    buf_put_cstr(out, "\n: ");
    chunk_put_string(out, text);
    buf_put_cstr(out, "\n\n");
}

void chunk_put_choice(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end)
{
    if (c->api == API_CHAT) {
        buf_put_char(out, '{');
        put_index(c, out);
        buf_put_cstr(out, ",\"message\":{");
        c->style->put_message(out, whole);
        buf_put_char(out, '}');
        c->style->put_end(out, whole, end);
        buf_put_char(out, '}');
    } else {
        buf_put_cstr(out, "{\"text\":");
        chunk_put_string(out, whole->text.ptr ? whole->text : STR(""));
        put_completion_end(c, out, whole, end);
    }
}

void chunk_put_body(const struct chunk *c, struct buf *out, struct str choices,
                    const struct chunk_end *end, const struct usage *usage)
{
    buf_put_str(out, buf_str(&c->head));
    buf_put_str(out, choices);
    buf_put_str(out, buf_str(&c->tail));
    buf_put_cstr(out, c->api == API_CHAT ? ",\"object\":\"chat.completion\"" : COMPLETION_TAIL);
    put_usage(c, out, usage);
    chunk_put_nvext(c, out, end);
    buf_put_char(out, '}');
}

void chunk_put_folded(const struct chunk *c, struct buf *out, const struct chunk_delta *whole,
                      const struct chunk_end *end, const struct usage *usage)
{
    AUTO(buf_done) struct buf choice = BUF_NULL;

    chunk_put_choice(c, &choice, whole, end);
    chunk_put_body(c, out, buf_str(&choice), end, usage);
}
