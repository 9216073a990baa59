/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/messages.h"

#include <inttypes.h>
#include <string.h>

#include "router/openai/dialect_chat.h"
#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_tree.h"

enum block { BLOCK_NONE, BLOCK_THOUGHTS, BLOCK_TEXT };

struct messages {
    struct str model;
    uint64_t estimate;
    size_t n_blocks; /* begun */
    enum block open; /* the last of them; NONE = it is closed */
    bool begun;
};

struct messages *messages_new(struct str model, uint64_t estimate)
{
    struct messages *m = xcalloc(1, sizeof(*m));

    m->model = model;
    m->estimate = estimate;
    return m;
}

static void free_answer(void *self)
{
    free(self);
}

/* A new one, with the dashes of a UUID left out. */
static void put_id(struct buf *out, const char *prefix)
{
    char uuid[UUID_TEXT_SIZE];

    random_uuid(uuid);
    buf_printf(out, "\"id\":\"%s_", prefix);
    for (const char *c = uuid; *c; c++)
        if (*c != '-')
            buf_put_char(out, *c);
    buf_put_char(out, '"');
}

/* --- members ----------------------------------------------------------------------------------- */

/* Tokens of the prompt that were found in caches do not count as its input. */
static void put_usage(struct buf *out, const struct usage *u, bool total)
{
    static const struct usage none = {0};
    uint64_t cached = 0;

    u = u ? u : &none;
    (void)!str_parse_u64(json_pull_member(u->prompt_details_json, "cached_tokens"), &cached);
    buf_printf(out,
               ",\"usage\":{\"input_tokens\":%" PRIu64 ",\"output_tokens\":%" PRIu64
               ",\"cache_creation_input_tokens\":0",
               u->prompt_tokens - MIN(u->prompt_tokens, cached), u->completion_tokens);
    if (u->prompt_details_json.len && cached)
        buf_printf(out, ",\"cache_read_input_tokens\":%" PRIu64, cached);
    if (total)
        buf_printf(out, ",\"total_tokens\":%" PRIu64, u->prompt_tokens + u->completion_tokens);
    buf_put_char(out, '}');
}

/* A string that stopped it; empty = none did. */
static struct str stop_sequence(const struct chunk_end *end)
{
    return str_starts(end->stop_reason_json, STR("\"")) ? end->stop_reason_json : STR_NULL;
}

static const char *stop_reason(const struct chunk_end *end)
{
    static const struct {
        const char *finish, *reason;
    } words[] = {
        {"length", "max_tokens"}, {"tool_calls", "tool_use"}, {"content_filter", "refusal"}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(end->finish, words[i].finish) == 0)
            return words[i].reason;
    return stop_sequence(end).len ? "stop_sequence" : "end_turn";
}

/* --- calls ------------------------------------------------------------------------------------- */

/* Of a chunk: its `tool_calls` without the brackets. */
struct calls {
    struct buf text;
    struct json_pull pull;
};

static void calls_done(struct calls *c)
{
    buf_done(&c->text);
}
DEFINE_CLEANUP_EMBEDDED(struct calls, calls_done)

static void calls_of(struct calls *c, struct str calls_json)
{
    *c = (struct calls){.text = BUF_NULL};
    buf_put_char(&c->text, '[');
    buf_put_str(&c->text, calls_json);
    buf_put_char(&c->text, ']');
    json_pull_init(&c->pull, buf_str(&c->text));
    (void)!json_pull_array(&c->pull);
}

/* JSON strings, both. */
static bool next_call(struct calls *c, struct str *name, struct str *arguments)
{
    struct str item, function;

    if (!json_pull_element(&c->pull) || !json_pull_skip(&c->pull, &item))
        return false;
    function = json_pull_member(item, "function");
    *name = json_pull_member(function, "name");
    *arguments = json_pull_member(function, "arguments");
    return true;
}

static void put_call(struct buf *out, struct str name, struct str input)
{
    buf_put_cstr(out, "{\"type\":\"tool_use\",");
    put_id(out, "toolu");
    buf_put_cstr(out, ",\"name\":");
    buf_put_str(out, name);
    buf_put_cstr(out, ",\"input\":");
    buf_put_str(out, input);
    buf_put_char(out, '}');
}

/* What a call is made with has to be an object: nothing is, of what is none. */
static void put_read_call(struct buf *out, struct str name, struct str arguments_json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(json_free) struct json *tree = NULL;
    struct json_pull p;
    struct str text = STR_NULL;
    struct err why;

    json_pull_init(&p, arguments_json);
    if (!json_pull_string(&p, &scratch, &text) || json_parse_wide(&tree, text, &why) < 0 ||
        !json_is_object(tree))
        text = STR("{}");
    put_call(out, name, text);
}

/* --- the message ------------------------------------------------------------------------------- */

static void put_head(const struct messages *m, struct buf *out, struct str content)
{
    buf_put_char(out, '{');
    put_id(out, "msg");
    buf_put_cstr(out, ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    buf_put_str(out, content);
    buf_put_cstr(out, "],\"model\":");
    chunk_put_string(out, m->model);
}

static void comma(struct buf *list)
{
    if (list->len)
        buf_put_char(list, ',');
}

static void put_blocks(struct buf *out, const struct chunk_delta *whole)
{
    AUTO(calls_done) struct calls all;
    struct str name, arguments;

    if (whole->reasoning.len) {
        buf_put_cstr(out, "{\"type\":\"thinking\",\"thinking\":");
        chunk_put_string(out, whole->reasoning);
        buf_put_cstr(out, ",\"signature\":\"\"}");
    }
    calls_of(&all, whole->calls_json);
    while (next_call(&all, &name, &arguments)) {
        comma(out);
        put_read_call(out, name, arguments);
    }
    if (!whole->text.len && out->len)
        return;
    comma(out);
    buf_put_cstr(out, "{\"type\":\"text\",\"text\":");
    chunk_put_string(out, whole->text.ptr ? whole->text : STR(""));
    buf_put_char(out, '}');
}

static void put_body(void *self, struct buf *out, const struct chunk_delta *whole,
                     const struct chunk *chunk, const struct dialect_end *end)
{
    AUTO(buf_done) struct buf content = BUF_NULL;
    struct str sequence = stop_sequence(end->end);

    put_blocks(&content, whole);
    put_head(self, out, buf_str(&content));
    buf_printf(out, ",\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(end->end));
    buf_put_str(out, sequence.len ? sequence : STR("null"));
    put_usage(out, end->usage, false);
    chunk_put_nvext(chunk, out, end->end);
    buf_put_char(out, '}');
}

/* --- events ------------------------------------------------------------------------------------ */

static void begin_event(struct buf *out, const char *type)
{
    buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void end_event(struct buf *out)
{
    buf_put_cstr(out, "}\n\n");
}

static void put_begin(void *self, struct buf *out)
{
    struct messages *m = self;

    if (m->begun)
        return;
    m->begun = true;
    begin_event(out, "message_start");
    buf_put_cstr(out, ",\"message\":");
    put_head(m, out, STR_NULL);
    buf_put_cstr(out, ",\"stop_reason\":null,\"stop_sequence\":null");
    put_usage(out, &(struct usage){.prompt_tokens = m->estimate}, false);
    buf_put_char(out, '}');
    end_event(out);
}

static void begin_at(const struct messages *m, struct buf *out, const char *type)
{
    begin_event(out, type);
    buf_printf(out, ",\"index\":%zu", m->n_blocks - 1);
}

static void start_block(struct messages *m, struct buf *out)
{
    m->n_blocks++;
    begin_at(m, out, "content_block_start");
    buf_put_cstr(out, ",\"content_block\":");
}

/* @kind "text" makes {"type":"text_delta","text":…}; @member the name of its value. */
static void put_piece(const struct messages *m, struct buf *out, const char *kind,
                      const char *member, struct str json, const struct usage *usage)
{
    begin_at(m, out, "content_block_delta");
    buf_printf(out, ",\"delta\":{\"type\":\"%s_delta\",\"%s\":", kind, member);
    buf_put_str(out, json);
    buf_put_char(out, '}');
    put_usage(out, usage, true);
    end_event(out);
}

static void stop_block(const struct messages *m, struct buf *out)
{
    begin_at(m, out, "content_block_stop");
    end_event(out);
}

static void close_block(struct messages *m, struct buf *out, const struct usage *usage)
{
    if (m->open == BLOCK_NONE)
        return;
    if (m->open == BLOCK_THOUGHTS) /* which clients want to see; there is none here to verify */
        put_piece(m, out, "signature", "signature", STR("\"erased\""), usage);
    stop_block(m, out);
    m->open = BLOCK_NONE;
}

static void tell(struct messages *m, struct buf *out, enum block block, struct str text,
                 const struct usage *usage)
{
    static const char *const names[] = {[BLOCK_THOUGHTS] = "thinking", [BLOCK_TEXT] = "text"};
    AUTO(buf_done) struct buf json = BUF_NULL;

    if (!text.len)
        return;
    if (m->open != block) {
        close_block(m, out, usage);
        m->open = block;
        start_block(m, out);
        buf_printf(out, "{\"type\":\"%s\",\"%s\":\"\"%s}", names[block], names[block],
                   block == BLOCK_THOUGHTS ? ",\"signature\":\"\"" : "");
        end_event(out);
    }
    chunk_put_string(&json, text);
    put_piece(m, out, names[block], names[block], buf_str(&json), usage);
}

static void tell_calls(struct messages *m, struct buf *out, struct str calls_json,
                       const struct usage *usage)
{
    AUTO(calls_done) struct calls new;
    struct str name, arguments;

    close_block(m, out, usage);
    calls_of(&new, calls_json);
    while (next_call(&new, &name, &arguments)) {
        start_block(m, out);
        put_call(out, name, STR("{}"));
        end_event(out);
        put_piece(m, out, "input_json", "partial_json", arguments, usage);
        stop_block(m, out);
    }
}

static void put_delta(void *self, struct buf *out, const struct chunk_delta *d,
                      const struct usage *usage)
{
    tell(self, out, BLOCK_THOUGHTS, d->reasoning, usage);
    tell(self, out, BLOCK_TEXT, d->text, usage);
    if (d->calls_json.len)
        tell_calls(self, out, d->calls_json, usage);
}

static const char *error_type(int status)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"},
                 {404, "not_found_error"},      {413, "request_too_large"},
                 {429, "rate_limit_error"},     {503, "overloaded_error"},
                 {529, "overloaded_error"}};

    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].status == status)
            return types[i].type;
    return status < 500 ? "invalid_request_error" : "api_error";
}

static void put_error(struct buf *out, const struct api_error *e)
{
    buf_printf(
        out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", error_type(e->status));
    chunk_put_string(out, str_from(e->text));
    buf_put_cstr(out, "}}");
}

static void put_end(void *self, struct buf *out, const struct dialect_end *end)
{
    struct messages *m = self;
    struct str sequence;

    put_begin(m, out);
    if (end->failed) {
        buf_put_cstr(out, "event: error\ndata: ");
        put_error(out, end->failed);
        buf_put_cstr(out, "\n\n");
        return;
    }
    close_block(m, out, end->usage);
    begin_event(out, "message_delta");
    buf_printf(out, ",\"delta\":{\"stop_reason\":\"%s\"", stop_reason(end->end));
    sequence = stop_sequence(end->end);
    if (sequence.len) {
        buf_put_cstr(out, ",\"stop_sequence\":");
        buf_put_str(out, sequence);
    }
    buf_put_char(out, '}');
    put_usage(out, end->usage, false);
    end_event(out);
    begin_event(out, "message_stop");
    end_event(out);
}

const struct dialect MESSAGES = {.endpoint = "anthropic_messages",
                                 .put_begin = put_begin,
                                 .put_delta = put_delta,
                                 .put_end = put_end,
                                 .put_body = put_body,
                                 .put_chat = messages_put_chat,
                                 .put_error = put_error,
                                 .free = free_answer};
