/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/messages_read.h"

#include <inttypes.h>
#include <string.h>

#include "lib/base/err.h"
#include "router/openai/chat_build.h"

enum { IMAGE_BYTES = 256 }; /* that one counts for */

/* --- content ---------------------------------------------------------------------------------- */

/* Where a block stands. */
struct place {
    size_t message, block;
};

static const char *type_of(const struct json *block)
{
    const char *type = json_get_cstr(block, "type");

    return type ? type : "";
}

static bool cannot_take(struct api_error *e, const struct place *at, const char *type)
{
    return api_fail(e, 400, "messages",
                    "messages[%zu].content[%zu]: content block type \"%.64s\" is not supported",
                    at->message, at->block, type);
}

static bool is_known(const struct json *block)
{
    static const char *const types[] = {
        "text",     "thinking",        "redacted_thinking", "image",
        "tool_use", "server_tool_use", "tool_result",       "web_search_tool_result"};

    return chat_is_one_of(type_of(block), types, ARRAY_LEN(types));
}

static bool is_call(const struct json *block)
{
    return chat_is(block, "type", "tool_use") || chat_is(block, "type", "server_tool_use");
}

/* Members of a block that are read. */
static bool check_block(const struct json *b, struct api_error *e)
{
    const struct json *source = json_get(b, "source");

    if (chat_is(b, "type", "text") && !json_get_cstr(b, "text"))
        return chat_invalid(e, "messages", "the text of a block");
    if (chat_is(b, "type", "thinking") && !json_get_cstr(b, "thinking"))
        return chat_invalid(e, "messages", "the thinking of a block");
    if (chat_is(b, "type", "image") &&
        (!json_get_cstr(source, "type") || !json_get_cstr(source, "media_type") ||
         !json_get_cstr(source, "data")))
        return chat_invalid(e, "messages", "type, media_type and data of an image's source");
    return true;
}

static bool check_content(const struct json *message, size_t i, struct api_error *e)
{
    const struct json *content = json_get(message, "content");
    struct place at = {i, 0};

    if (json_is_string(content))
        return true;
    if (!json_is_array(content))
        return chat_invalid(e, "messages", "content that is a string or blocks");
    if (!json_len(content))
        return api_fail(e, 400, "messages",
                        "messages[%zu].content: must contain at least one content block", i);
    for (const struct json *b = json_first(content); b; b = json_next(b), at.block++)
        if (!is_known(b))
            return cannot_take(e, &at, type_of(b));
        else if (!check_block(b, e))
            return false;
    return true;
}

static struct json *add_message(struct json *messages, const char *role)
{
    struct json *m = json_add(messages, json_new_object());

    (void)json_set_cstr(m, "role", role);
    return m;
}

/* --- messages of the user and the system ------------------------------------------------------- */

/* What goes on as one message: texts that are joined, or parts as soon as there is an image. */
struct run {
    struct buf text;
    struct json *parts; /* NULL = none yet */
    bool has_image;
};

static void run_done(struct run *r)
{
    buf_done(&r->text);
    r->parts = json_free(r->parts);
    *r = (struct run){.parts = NULL};
}

static void run_add_text(struct run *r, const char *text)
{
    if (!r->parts)
        r->parts = json_new_array();
    chat_add_text(r->parts, text);
    buf_put_cstr(&r->text, text);
}

/* Its data, which engines take by URL. */
static bool run_add_image(struct run *r, const struct json *block, struct api_error *e)
{
    const struct json *source = json_get(block, "source");
    AUTO(buf_done) struct buf url = BUF_NULL;

    if (!chat_is(source, "type", "base64"))
        return api_fail(e, 400, "messages",
                        "unsupported image source type \"%.64s\"; only base64 is supported",
                        type_of(source));
    buf_put_cstr(&url, "data:");
    buf_put_cstr(&url, json_get_cstr(source, "media_type"));
    buf_put_cstr(&url, ";base64,");
    buf_put_cstr(&url, json_get_cstr(source, "data"));
    if (!r->parts)
        r->parts = json_new_array();
    chat_add_image(r->parts, buf_cstr(&url), NULL);
    r->has_image = true;
    return true;
}

/* Its content becomes the message's. */
static void run_put(struct run *r, struct json *message)
{
    if (r->has_image)
        (void)json_set(message, "content", TAKE(r->parts));
    else
        (void)json_set_cstr(message, "content", buf_cstr(&r->text));
    run_done(r);
}

static void end_run(struct json *messages, struct run *r)
{
    if (r->parts)
        run_put(r, add_message(messages, "user"));
}

static bool read_result(struct run *r, const struct json *content, struct api_error *e)
{
    if (json_is_string(content))
        run_add_text(r, json_cstr(content));
    if (!json_is_array(content))
        return true;
    JSON_FOREACH (part, content) {
        if (chat_is(part, "type", "image") && check_block(part, e)) {
            if (!run_add_image(r, part, e))
                return false;
        } else if (chat_is(part, "type", "text") && json_get_cstr(part, "text")) {
            run_add_text(r, json_get_cstr(part, "text"));
        } else {
            return api_fail(e, 400, "messages",
                            "a block of a tool_result is not supported: only text and images are");
        }
    }
    return true;
}

static bool add_result(struct json *messages, const struct json *block, struct api_error *e)
{
    const char *id = json_get_cstr(block, "tool_use_id");
    struct run run = {.parts = NULL};
    struct json *m;

    if (!id)
        return chat_invalid(e, "messages", "the tool_use_id of a tool_result");
    if (!read_result(&run, json_get(block, "content"), e)) {
        run_done(&run);
        return false;
    }
    m = add_message(messages, "tool");
    run_put(&run, m);
    (void)json_set_cstr(m, "tool_call_id", id);
    return true;
}

static bool add_blocks(struct json *messages, const struct json *content, struct run *run,
                       struct api_error *e)
{
    JSON_FOREACH (b, content) {
        if (chat_is(b, "type", "text")) {
            run_add_text(run, json_get_cstr(b, "text"));
        } else if (chat_is(b, "type", "image")) {
            if (!run_add_image(run, b, e))
                return false;
        } else if (chat_is(b, "type", "tool_result")) {
            end_run(messages, run);
            if (!add_result(messages, b, e))
                return false;
        }
    }
    end_run(messages, run);
    return true;
}

/* Results of tools are messages of their own, with what was said before and behind them around. */
static bool add_said(struct json *messages, const struct json *content, struct api_error *e)
{
    struct run run = {.parts = NULL};
    bool ok = true;

    if (json_is_string(content))
        (void)json_set_cstr(add_message(messages, "user"), "content", json_cstr(content));
    else
        ok = add_blocks(messages, content, &run, e);
    run_done(&run);
    return ok;
}

/* What the system says between others: its texts. */
static void add_rule(struct json *messages, const struct json *content)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (json_is_string(content))
        buf_put_cstr(&text, json_cstr(content));
    else
        JSON_FOREACH (b, content)
            if (chat_is(b, "type", "text"))
                buf_put_cstr(&text, json_get_cstr(b, "text"));
    (void)json_set_cstr(add_message(messages, "system"), "content", buf_cstr(&text));
}

/* --- those of the assistant -------------------------------------------------------------------- */

static bool add_use(struct json *message, const struct json *block, struct api_error *e)
{
    const char *id = json_get_cstr(block, "id"), *name = json_get_cstr(block, "name");
    const struct json *given = json_get(block, "input");
    AUTO(mem_free) char *input = NULL;

    if (!id || !name || (given && !json_is_object(given)))
        return chat_invalid(e, "messages", "id, name and input of a tool_use");
    input = given ? json_to_cstr(given) : xstrdup("{}");
    chat_add_call(message, id, name, input);
    return true;
}

/* Thoughts before each call, and behind the last: as one text, where nothing is called. */
static void add_thoughts(struct json *message, const struct json *content)
{
    struct json *parts = json_new_array();
    AUTO(buf_done) struct buf part = BUF_NULL;
    bool any = false;

    for (const struct json *b = json_first(content);; b = json_next(b)) {
        const char *thought =
            b && chat_is(b, "type", "thinking") ? json_get_cstr(b, "thinking") : NULL;

        if (thought && part.len)
            buf_put_char(&part, '\n');
        if (thought)
            buf_put_cstr(&part, thought);
        if (b && !is_call(b))
            continue;
        any |= part.len > 0;
        (void)json_add(parts, json_new_str(buf_str(&part)));
        buf_clear(&part);
        if (!b)
            break;
    }
    if (any && json_len(parts) == 1)
        (void)json_set_cstr(message, "reasoning_content", json_cstr(json_first(parts)));
    else if (any)
        (void)json_set(message, "reasoning_content", TAKE(parts));
    json_free(parts);
}

static bool add_answer(struct json *messages, const struct json *content, struct api_error *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json *m = add_message(messages, "assistant");
    bool has_text = false;

    if (json_is_string(content)) {
        (void)json_set_cstr(m, "content", json_cstr(content));
        return true;
    }
    add_thoughts(m, content);
    for (const struct json *b = json_first(content); b; b = json_next(b)) {
        if (is_call(b) && !add_use(m, b, e))
            return false;
        if (chat_is(b, "type", "text")) {
            buf_put_cstr(&text, json_get_cstr(b, "text"));
            has_text = true;
        }
    }
    if (has_text)
        (void)json_set_cstr(m, "content", buf_cstr(&text));
    return true;
}

/* --- the system's text ------------------------------------------------------------------------- */

/* A string, or blocks of text. */
static bool join_system(const struct json *system, struct buf *out, struct api_error *e)
{
    if (json_is_string(system)) {
        buf_put_cstr(out, json_cstr(system));
        return true;
    }
    if (!json_is_array(system))
        return chat_invalid(e, "system", "a string or blocks of text");
    for (const struct json *b = json_first(system); b; b = json_next(b)) {
        const char *text = json_get_cstr(b, "text");

        if (!text)
            return chat_invalid(e, "system", "a string or blocks of text");
        if (b != json_first(system))
            buf_put_char(out, '\n');
        buf_put_cstr(out, text);
    }
    return true;
}

static const char *without_preamble(const char *text)
{
    const char *end = strchr(text, '\n');
    struct str line = str_trim(str_from(text));

    return end && str_starts(line, STR("x-anthropic-billing-header:")) ? end + 1 : text;
}

/* The message of the system, if there is one. */
static bool add_system(struct json *messages, const struct json *body, bool strips,
                       struct api_error *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    const struct json *system = json_get(body, "system");
    const char *said;

    if (!system || json_is_null(system))
        return true;
    if (!join_system(system, &text, e))
        return false;
    said = buf_cstr(&text);
    (void)json_set_cstr(add_message(messages, "system"), "content",
                        strips ? without_preamble(said) : said);
    return true;
}

/* --- the rest ---------------------------------------------------------------------------------- */

static bool check_messages(const struct json *body, struct api_error *e)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    static const char *const members[] = {"role", "content"};
    const struct json *all = json_get(body, "messages");
    size_t i = 0;

    if (!json_is_array(all))
        return chat_invalid(e, "messages", "an array");
    if (!json_len(all))
        return api_fail(e, 400, "messages", "messages: field required");
    for (const struct json *m = json_first(all); m; m = json_next(m), i++) {
        if (!chat_has_once(m, members, ARRAY_LEN(members), e))
            return false;
        if (!chat_is_one_of(json_get_cstr(m, "role"), roles, ARRAY_LEN(roles)))
            return chat_invalid(e, "messages", "the role user, assistant or system");
        if (!check_content(m, i, e))
            return false;
    }
    return true;
}

static bool add_messages(struct json *messages, const struct json *body, struct api_error *e)
{
    for (const struct json *m = json_first(json_get(body, "messages")); m; m = json_next(m)) {
        const struct json *content = json_get(m, "content");

        if (chat_is(m, "role", "system"))
            add_rule(messages, content);
        else if (chat_is(m, "role", "assistant") ? !add_answer(messages, content, e)
                                                 : !add_said(messages, content, e))
            return false;
    }
    return json_len(messages) ? true
                              : api_fail(e, 400, "messages", "Messages array cannot be empty");
}

static bool add_tools(struct json *chat, const struct json *tools, struct api_error *e)
{
    static const char *const keys[] = {"name", "description", "input_schema", "type"};
    size_t i = 0;

    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools))
        return chat_invalid(e, "tools", "an array");
    for (const struct json *t = json_first(tools); t; t = json_next(t), i++) {
        const char *type = json_get_cstr(t, "type");
        struct json *function;

        if (!chat_has_once(t, keys, ARRAY_LEN(keys), e))
            return false;
        if (!type && json_get(t, "type") && !json_is_null(json_get(t, "type")))
            return chat_invalid(e, "tools", "the type of a tool as a word");
        if (type && strcmp(type, "custom") != 0)
            return api_fail(e, 400, "tools",
                            "tools[%zu]: server tool type \"%.64s\" is not supported", i, type);
        if (!json_get_cstr(t, "name"))
            return chat_invalid(e, "tools", "the name of a tool");
        if (!json_is_object(json_get(t, "input_schema")))
            return api_fail(e, 400, "tools",
                            "tools[%zu].input_schema: field required for client tools", i);
        function = chat_add_tool(chat);
        chat_move(function, "name", t, "name");
        chat_move(function, "description", t, "description");
        chat_move(function, "parameters", t, "input_schema");
    }
    return true;
}

static bool add_choice(struct json *chat, const struct json *choice, struct api_error *e)
{
    const char *name = json_get_cstr(choice, "name");

    if (!choice || json_is_null(choice))
        return true;
    if (chat_is(choice, "type", "auto") || chat_is(choice, "type", "none"))
        chat_move(chat, "tool_choice", choice, "type");
    else if (chat_is(choice, "type", "tool") && name)
        chat_choose_tool(chat, name);
    else if (chat_is(choice, "type", "any") || chat_is(choice, "type", "tool"))
        (void)json_set_cstr(chat, "tool_choice", "required");
    else
        return chat_invalid(e, "tool_choice", "the type auto, any, tool or none");
    return true;
}

/* Unless it is disabled: what models know it by. */
static void add_thinking(struct json *chat, const struct json *thinking)
{
    struct json *args;

    if (chat_is(thinking, "type", "disabled"))
        return;
    args = json_need_object(chat, "chat_template_args");
    (void)json_set_bool(args, "thinking", true);
    (void)json_set_bool(args, "enable_thinking", true);
    (void)json_set_bool(args, "truncate_history_thinking", false);
}

static void add_format(struct json *chat, const struct json *body)
{
    const struct json *format = json_path(body, "output_config", "format", NULL);
    struct json *to, *schema;

    if (!chat_is(format, "type", "json_schema"))
        return;
    to = json_need_object(chat, "response_format");
    (void)json_set_cstr(to, "type", "json_schema");
    schema = json_need_object(to, "json_schema");
    (void)json_set_cstr(schema, "name", "output");
    chat_move(schema, "schema", format, "schema");
}

static bool add_numbers(struct json *chat, const struct json *body, struct api_error *e)
{
    static const char *const same[] = {"model", "stream", "temperature", "top_p", "top_k", "nvext"};
    int64_t n;

    if (!json_get_i64(body, "max_tokens", &n))
        return chat_invalid(e, "max_tokens", "a number");
    if (n < 1)
        return api_fail(e, 400, "max_tokens", "max_tokens: must be greater than 0");
    if (json_get_i64(body, "top_k", &n) && n < 0)
        return chat_invalid(e, "top_k", "a number of 32 bits");
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        chat_move(chat, same[i], body, same[i]);
    chat_move(chat, "max_tokens", body, "max_tokens");
    chat_move(chat, "stop", body, "stop_sequences");
    return true;
}

/* --- counting ---------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct json *object, const char *key)
{
    const char *s = json_get_cstr(object, key);

    return s ? strlen(s) : 0;
}

static uint64_t bytes_of_tree(const struct json *object, const char *key)
{
    const struct json *v = json_get(object, key);
    AUTO(mem_free) char *text = v ? json_to_cstr(v) : NULL;

    return text ? strlen(text) : 0;
}

static uint64_t count_block(const struct json *b)
{
    uint64_t n = bytes_of(b, "text") + bytes_of(b, "thinking") + bytes_of(b, "data");

    if (chat_is(b, "type", "image"))
        return IMAGE_BYTES;
    if (is_call(b))
        n += bytes_of(b, "name") + bytes_of_tree(b, "input");
    if (chat_is(b, "type", "tool_result"))
        n += bytes_of(b, "content");
    return n;
}

/* Of a string or of blocks, which may have results with blocks of their own. */
static uint64_t count_content(const struct json *owner, const char *key)
{
    const struct json *content = json_get(owner, key);
    uint64_t n = bytes_of(owner, key);

    for (const struct json *b = json_first(content); json_is_array(content) && b;
         b = json_next(b)) {
        const struct json *parts = json_get(b, "content");

        n += count_block(b);
        for (const struct json *p = json_first(parts); json_is_array(parts) && p; p = json_next(p))
            n += count_block(p);
    }
    return n;
}

/* @system: an array with its message, or an empty one. */
static uint64_t estimate(const struct json *body, const struct json *system)
{
    uint64_t n = bytes_of(json_first(system), "content");

    for (const struct json *m = json_first(json_get(body, "messages")); m; m = json_next(m))
        n += bytes_of(m, "role") + count_content(m, "content");
    for (const struct json *t = json_first(json_get(body, "tools")); t; t = json_next(t))
        n += bytes_of(t, "name") + bytes_of(t, "description") + bytes_of_tree(t, "input_schema");
    return MAX(n / 3, UINT64_C(1));
}

/* --- both -------------------------------------------------------------------------------------- */

/* A whole number from 0 on, null or absent. */
static bool may_be_count(const struct json *v)
{
    int64_t n;

    return !v || json_is_null(v) || (!json_is_float(v) && json_i64(v, &n) && n >= 0);
}

/* Members that are read, and so are judged. */
static bool check_types(const struct json *body, struct api_error *e)
{
    static const char *const keys[] = {
        "cache_control", "container",     "max_tokens",   "messages",       "metadata", "model",
        "nvext",         "output_config", "service_tier", "stop_sequences", "stream",   "system",
        "temperature",   "thinking",      "tool_choice",  "tools",          "top_k",    "top_p"};
    const struct json *thinking = json_get(body, "thinking"),
                      *stops = json_get(body, "stop_sequences");
    const struct json *budget = json_get(thinking, "budget_tokens");
    const struct json *format = json_path(body, "output_config", "format", NULL);

    if (!chat_has_once(body, keys, ARRAY_LEN(keys), e) ||
        !chat_has_once(json_get(body, "nvext"), NULL, 0, e))
        return false;
    if (thinking && !json_is_null(thinking) &&
        (!json_get_cstr(thinking, "type") || !may_be_count(budget)))
        return chat_invalid(e, "thinking", "a type, and a number of budget_tokens");
    if (stops && !json_is_null(stops) && !json_is_array(stops))
        return chat_invalid(e, "stop_sequences", "an array");
    if (format && !json_is_null(format) && !chat_is(format, "type", "json_schema"))
        return chat_invalid(e, "output_config", "a format of the type json_schema");
    return json_is_float(json_get(body, "max_tokens"))
               ? chat_invalid(e, "max_tokens", "a whole number")
               : true;
}

static bool read_body(struct json **ret, struct str body, struct api_error *e)
{
    struct err why;

    if (json_parse_wide(ret, body, &why) < 0)
        return api_malformed(e, NULL, "Failed to parse the request body as JSON: %s", why.text);
    if (!json_is_object(*ret))
        return api_malformed(e, NULL, "The request body must be a JSON object");
    if (!json_get_cstr(*ret, "model"))
        return chat_invalid(e, "model", "the name of a model");
    return check_types(*ret, e) && check_messages(*ret, e);
}

bool messages_count(struct str body, struct messages_facts *facts, struct api_error *e)
{
    AUTO(json_free) struct json *in = NULL;
    AUTO(json_free) struct json *system = json_new_array();

    if (!read_body(&in, body, e) || !add_system(system, in, facts->strips_preamble, e))
        return false;
    facts->estimate = estimate(in, system);
    return true;
}

bool messages_request_parse(struct str body, struct arena *a, struct openai_request *ret,
                            struct messages_facts *facts, struct api_error *e)
{
    AUTO(json_free) struct json *in = NULL;
    AUTO(json_free) struct json *chat = json_new_object();
    struct json *messages = json_need_array(chat, "messages");

    *ret = (struct openai_request){.api = API_CHAT};
    if (!read_body(&in, body, e) || !add_system(messages, in, facts->strips_preamble, e))
        return false;
    facts->estimate = estimate(in, messages);
    if (!add_messages(messages, in, e) || !add_tools(chat, json_get(in, "tools"), e) ||
        !add_choice(chat, json_get(in, "tool_choice"), e) || !add_numbers(chat, in, e))
        return false;
    add_thinking(chat, json_get(in, "thinking"));
    add_format(chat, in);
    if (!chat_parse(chat, a, ret, e))
        return false;
    ret->thinks_by_default = !chat_is(json_get(in, "thinking"), "type", "enabled");
    ret->estimate = facts->estimate;
    return true;
}

void messages_put_count(struct buf *out, const struct messages_facts *facts)
{
    buf_printf(out, "{\"input_tokens\":%" PRIu64 "}", facts->estimate);
}
