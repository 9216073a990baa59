/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/responses.h"

#include <inttypes.h>
#include <string.h>

#include "router/openai/dialect_chat.h"
#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_put.h"

static void make_id(char *ret)
{
    char uuid[UUID_TEXT_SIZE];
    size_t n = 0;

    random_uuid(uuid);
    for (const char *c = uuid; *c; c++)
        if (*c != '-')
            ret[n++] = *c;
    ret[n] = '\0';
}

void responses_init(struct responses *r, const struct responses_echo *echo, struct str model,
                    uint64_t created)
{
    *r = (struct responses){.echo = *echo, .model = model, .created = created};
    make_id(r->id);
    make_id(r->message_id);
}

void responses_done(struct responses *r)
{
    buf_done(&r->said);
    buf_done(&r->calls);
    buf_done(&r->call_ids);
}

/* What ended an answer before it was whole; NULL = nothing did. */
static const char *cut_by(const struct dialect_end *e)
{
    if (!e->end)
        return NULL;
    if (strcmp(e->end->finish, "length") == 0)
        return "max_output_tokens";
    return strcmp(e->end->finish, "content_filter") == 0 ? "content_filter" : NULL;
}

/* Neither ended nor failed: it goes on. */
static const char *status_of(const struct dialect_end *e)
{
    if (e->failed)
        return "failed";
    return !e->end ? "in_progress" : cut_by(e) ? "incomplete" : "completed";
}

/* What failed behind its end was said in full. */
static const char *message_status(const struct dialect_end *e)
{
    return !e->end || cut_by(e) ? "incomplete" : "completed";
}

/* --- items ------------------------------------------------------------------------------------ */

static void put_part(struct buf *out, struct str text)
{
    buf_put_cstr(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[],\"text\":");
    chunk_put_string(out, text.ptr ? text : STR(""));
    buf_put_char(out, '}');
}

/* @text NULL = it has no part yet. */
static void put_message(const struct responses *r, struct buf *out, const struct str *text,
                        const char *status)
{
    buf_put_cstr(out, "{\"type\":\"message\",\"content\":[");
    if (text)
        put_part(out, *text);
    buf_printf(out, "],\"id\":\"msg_%s\",\"role\":\"assistant\",\"status\":\"%s\"}", r->message_id,
               status);
}

/* A call as chunks have it. */
struct call {
    size_t at;                      /* among the items */
    const char *item_id;            /* borrowed from the answer */
    struct str id, name, arguments; /* JSON strings */
};

static void put_call(struct buf *out, const struct call *c, struct str arguments_json,
                     const char *status)
{
    buf_put_cstr(out, "{\"type\":\"function_call\",\"arguments\":");
    buf_put_str(out, arguments_json);
    buf_put_cstr(out, ",\"call_id\":");
    buf_put_str(out, c->id);
    buf_put_cstr(out, ",\"name\":");
    buf_put_str(out, c->name);
    buf_printf(out, ",\"id\":\"fc_%s\",\"status\":\"%s\"}", c->item_id, status);
}

static void add_comma(struct buf *list)
{
    if (list->len)
        buf_put_char(list, ',');
}

/* Calls of the answer from @first on. */
struct calls {
    struct buf text;
    struct json_pull pull;
    size_t next;
};

static void calls_done(struct calls *w)
{
    buf_done(&w->text);
}
DEFINE_CLEANUP_EMBEDDED(struct calls, calls_done)

static void calls_of(struct calls *w, struct str calls_json, size_t first)
{
    *w = (struct calls){.next = first};
    buf_put_char(&w->text, '[');
    buf_put_str(&w->text, calls_json);
    buf_put_char(&w->text, ']');
    json_pull_init(&w->pull, buf_str(&w->text));
    (void)!json_pull_array(&w->pull);
}

static bool next_call(const struct responses *r, struct calls *w, struct call *ret)
{
    struct str item, function;

    if (w->next == r->n_calls || !json_pull_element(&w->pull) || !json_pull_skip(&w->pull, &item))
        return false;
    function = json_pull_member(item, "function");
    *ret = (struct call){.at = w->next + (r->has_message && r->message_at <= w->next),
                         .item_id = buf_str(&r->call_ids).ptr + w->next * UUID_TEXT_SIZE,
                         .id = json_pull_member(item, "id"),
                         .name = json_pull_member(function, "name"),
                         .arguments = json_pull_member(function, "arguments")};
    w->next++;
    return true;
}

/* Keeps calls, an id for each. */
static void keep_calls(struct responses *r, struct str calls_json)
{
    AUTO(calls_done) struct calls new;
    char id[UUID_TEXT_SIZE] = "";

    calls_of(&new, calls_json, 0);
    while (json_pull_element(&new.pull) && json_pull_skip(&new.pull, NULL)) {
        make_id(id);
        buf_put_str(&r->call_ids, str_slice(id, sizeof(id)));
        r->n_calls++;
    }
    add_comma(&r->calls);
    buf_put_str(&r->calls, calls_json);
}

static void put_said(const struct responses *r, struct buf *output, const struct dialect_end *end)
{
    struct str said = buf_str(&r->said);

    add_comma(output);
    put_message(r, output, &said, message_status(end));
}

/* All items. */
static void put_output(const struct responses *r, struct buf *output, const struct dialect_end *end)
{
    AUTO(calls_done) struct calls all;
    struct call c;

    calls_of(&all, buf_str(&r->calls), 0);
    while (next_call(r, &all, &c)) {
        if (r->has_message && c.at == r->message_at + 1)
            put_said(r, output, end);
        add_comma(output);
        put_call(output, &c, c.arguments, "completed");
    }
    if (r->has_message && r->message_at == r->n_calls)
        put_said(r, output, end);
}

/* --- the object ------------------------------------------------------------------------------- */

static void put_usage(struct buf *out, const struct usage *u)
{
    uint64_t cached = 0;

    if (!u) {
        buf_put_cstr(out, "null");
        return;
    }
    (void)!str_parse_u64(json_pull_member(u->prompt_details_json, "cached_tokens"), &cached);
    buf_printf(out,
               "{\"input_tokens\":%" PRIu64 ",\"input_tokens_details\":{\"cached_tokens\":%" PRIu64
               "},\"output_tokens\":%" PRIu64
               ",\"output_tokens_details\":{\"reasoning_tokens\":%" PRIu64
               "},\"total_tokens\":%" PRIu64 "}",
               u->prompt_tokens, cached, u->completion_tokens, u->reasoning_tokens.v,
               u->prompt_tokens + u->completion_tokens);
}

static void put_member(struct buf *out, const char *key, struct str json)
{
    buf_printf(out, ",\"%s\":", key);
    buf_put_str(out, json);
}

/* 1.6.1's words for a status. */
static const char *code_of(int status)
{
    if (status == 429)
        return "rate_limit_exceeded";
    return status < 500 ? "invalid_prompt" : "server_error";
}

static void put_error(struct buf *out, const struct api_error *failed)
{
    if (!failed) {
        buf_put_cstr(out, "null");
        return;
    }
    buf_printf(out, "{\"code\":\"%s\",\"message\":", code_of(failed->status));
    chunk_put_string(out, str_from(failed->text));
    buf_put_char(out, '}');
}

/* All but the brace that ends it. */
static void put_members(const struct responses *r, struct buf *out, struct str output,
                        const struct dialect_end *end)
{
    const struct responses_echo *e = &r->echo;
    const char *cut = cut_by(end);

    buf_printf(
        out,
        "{\"background\":false,\"billing\":null,\"conversation\":null,\"created_at\":%" PRIu64
        ",\"completed_at\":",
        r->created);
    if (end->end && !end->failed && !cut)
        buf_put_u64dec(out, end->completed);
    else
        buf_put_cstr(out, "null");
    buf_put_cstr(out, ",\"error\":");
    put_error(out, end->failed);
    buf_printf(out, ",\"id\":\"resp_%s\",\"incomplete_details\":", r->id);
    if (cut)
        buf_printf(out, "{\"reason\":\"%s\"}", cut);
    else
        buf_put_cstr(out, "null");
    put_member(out, "instructions", e->instructions);
    put_member(out, "max_output_tokens", e->max_output_tokens);
    put_member(out, "max_tool_calls", STR("null"));
    put_member(out, "metadata", e->metadata);
    buf_put_cstr(out, ",\"model\":");
    chunk_put_string(out, r->model);
    buf_put_cstr(out, ",\"object\":\"response\",\"output\":[");
    buf_put_str(out, output);
    buf_put_char(out, ']');
    put_member(out, "parallel_tool_calls", e->parallel_tool_calls);
    put_member(out, "previous_response_id", STR("null"));
    put_member(out, "prompt", STR("null"));
    put_member(out, "prompt_cache_key", e->prompt_cache_key);
    put_member(out, "prompt_cache_retention", STR("null"));
    put_member(out, "reasoning", e->reasoning);
    put_member(out, "safety_identifier", e->safety_identifier);
    put_member(out, "service_tier", e->service_tier);
    buf_printf(out, ",\"status\":\"%s\"", status_of(end));
    put_member(out, "temperature", e->temperature);
    put_member(out, "text", e->text);
    put_member(out, "tool_choice", e->tool_choice);
    put_member(out, "tools", e->tools);
    put_member(out, "top_logprobs", STR("0"));
    put_member(out, "top_p", e->top_p);
    put_member(out, "truncation", e->truncation);
    buf_put_cstr(out, ",\"usage\":");
    put_usage(out, end->usage);
    put_member(out, "presence_penalty", STR("0.0"));
    put_member(out, "frequency_penalty", STR("0.0"));
    put_member(out, "store", e->store);
}

/* --- events ----------------------------------------------------------------------------------- */

static void begin_event(struct responses *r, struct buf *out, const char *type)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\",\"sequence_number\":%" PRIu64, type, type,
               r->seq++);
}

static void begin_item_event(struct responses *r, struct buf *out, const char *type, size_t at)
{
    begin_event(r, out, type);
    buf_printf(out, ",\"output_index\":%zu,\"item\":", at);
}

static void end_event(struct buf *out)
{
    buf_put_cstr(out, "}\n\n");
}

static void put_state(struct responses *r, struct buf *out, const char *type, struct str output,
                      const struct dialect_end *end)
{
    begin_event(r, out, type);
    buf_put_cstr(out, ",\"response\":");
    put_members(r, out, output, end);
    buf_put_char(out, '}');
    end_event(out);
}

void responses_put_begin(struct responses *r, struct buf *out)
{
    const struct dialect_end none = {0};

    if (r->seq > 0)
        return;
    put_state(r, out, "response.created", STR_NULL, &none);
    put_state(r, out, "response.in_progress", STR_NULL, &none);
}

static void put_at_message(const struct responses *r, struct buf *out)
{
    buf_printf(out, ",\"item_id\":\"msg_%s\",\"output_index\":%zu,\"content_index\":0",
               r->message_id, r->message_at);
}

static void open_message(struct responses *r, struct buf *out)
{
    r->has_message = true;
    r->message_at = r->n_calls;
    begin_item_event(r, out, "response.output_item.added", r->message_at);
    put_message(r, out, NULL, "in_progress");
    end_event(out);
    begin_event(r, out, "response.content_part.added");
    put_at_message(r, out);
    buf_put_cstr(out, ",\"part\":");
    put_part(out, STR_NULL);
    end_event(out);
}

static void tell_text(struct responses *r, struct buf *out, struct str text)
{
    if (!r->has_message)
        open_message(r, out);
    buf_put_str(&r->said, text);
    begin_event(r, out, "response.output_text.delta");
    put_at_message(r, out);
    buf_put_cstr(out, ",\"delta\":");
    chunk_put_string(out, text);
    buf_put_cstr(out, ",\"logprobs\":[]");
    end_event(out);
}

static void open_call(struct responses *r, struct buf *out, const struct call *c)
{
    begin_item_event(r, out, "response.output_item.added", c->at);
    put_call(out, c, STR("\"\""), "in_progress");
    end_event(out);
    begin_event(r, out, "response.function_call_arguments.delta");
    buf_printf(out, ",\"item_id\":\"fc_%s\",\"output_index\":%zu,\"delta\":", c->item_id, c->at);
    buf_put_str(out, c->arguments);
    end_event(out);
}

static void tell_calls(struct responses *r, struct buf *out, struct str calls_json)
{
    AUTO(calls_done) struct calls new;
    struct call c;

    calls_of(&new, calls_json, r->n_calls);
    keep_calls(r, calls_json);
    while (next_call(r, &new, &c))
        open_call(r, out, &c);
}

void responses_put_delta(struct responses *r, struct buf *out, const struct chunk_delta *d)
{
    if (d->text.len)
        tell_text(r, out, d->text);
    if (d->calls_json.len)
        tell_calls(r, out, d->calls_json);
}

static void close_call(struct responses *r, struct buf *out, const struct call *c)
{
    buf_put_cstr(out, "event: response.function_call_arguments.done\ndata: "
                      "{\"type\":\"response.function_call_arguments.done\",\"name\":");
    buf_put_str(out, c->name);
    buf_printf(out,
               ",\"sequence_number\":%" PRIu64
               ",\"item_id\":\"fc_%s\",\"output_index\":%zu,\"arguments\":",
               r->seq++, c->item_id, c->at);
    buf_put_str(out, c->arguments);
    end_event(out);
    begin_item_event(r, out, "response.output_item.done", c->at);
    put_call(out, c, c->arguments, "completed");
    end_event(out);
}

static void close_calls(struct responses *r, struct buf *out)
{
    AUTO(calls_done) struct calls all;
    struct call c;

    calls_of(&all, buf_str(&r->calls), 0);
    while (next_call(r, &all, &c))
        close_call(r, out, &c);
}

static void close_message(struct responses *r, struct buf *out, const char *status)
{
    struct str said = buf_str(&r->said);

    begin_event(r, out, "response.output_text.done");
    put_at_message(r, out);
    buf_put_cstr(out, ",\"text\":");
    chunk_put_string(out, said);
    buf_put_cstr(out, ",\"logprobs\":[]");
    end_event(out);
    begin_event(r, out, "response.content_part.done");
    put_at_message(r, out);
    buf_put_cstr(out, ",\"part\":");
    put_part(out, said);
    end_event(out);
    begin_item_event(r, out, "response.output_item.done", r->message_at);
    put_message(r, out, &said, status);
    end_event(out);
}

void responses_put_end(struct responses *r, struct buf *out, const struct dialect_end *end)
{
    AUTO(buf_done) struct buf output = BUF_NULL;
    AUTO(mem_free) char *type = xasprintf("response.%s", status_of(end));

    responses_put_begin(r, out);
    if (end->end)
        close_calls(r, out);
    if (r->has_message)
        close_message(r, out, message_status(end));
    if (!end->end) /* as there: calls are closed by the end, or else last */
        close_calls(r, out);
    put_output(r, &output, end);
    put_state(r, out, type, buf_str(&output), end);
}

void responses_put_body(struct responses *r, struct buf *out, const struct chunk_delta *whole,
                        const struct chunk *chunk, const struct dialect_end *end)
{
    AUTO(buf_done) struct buf output = BUF_NULL;

    if (whole->calls_json.len)
        keep_calls(r, whole->calls_json);
    r->has_message = whole->text.len || r->n_calls == 0;
    r->message_at = r->n_calls;
    buf_put_str(&r->said, whole->text);
    put_output(r, &output, end);
    put_members(r, out, buf_str(&output), end);
    if (end->nvext_json.len)
        put_member(out, "nvext", end->nvext_json);
    else
        chunk_put_nvext(chunk, out, end->end);
    buf_put_char(out, '}');
}

/* --- as a dialect ----------------------------------------------------------------------------- */

struct responses *responses_new(const struct responses_echo *echo, struct str model,
                                uint64_t created)
{
    struct responses *r = xcalloc(1, sizeof(*r));

    responses_init(r, echo, model, created);
    return r;
}

static void begin(void *self, struct buf *out)
{
    responses_put_begin(self, out);
}

static void delta(void *self, struct buf *out, const struct chunk_delta *d,
                  const struct usage *usage)
{
    (void)usage;
    responses_put_delta(self, out, d);
}

static void end_stream(void *self, struct buf *out, const struct dialect_end *end)
{
    responses_put_end(self, out, end);
}

static void body(void *self, struct buf *out, const struct chunk_delta *whole,
                 const struct chunk *chunk, const struct dialect_end *end)
{
    responses_put_body(self, out, whole, chunk, end);
}

static void free_answer(void *self)
{
    if (self)
        responses_done(self);
    free(self);
}

const struct dialect RESPONSES = {.endpoint = "responses",
                                  .put_begin = begin,
                                  .put_delta = delta,
                                  .put_end = end_stream,
                                  .put_chat = responses_put_chat,
                                  .put_body = body,
                                  .put_error = api_error_put,
                                  .free = free_answer};
