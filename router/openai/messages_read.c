/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/messages_read.h"

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
    static const char *const types[] = {"text",     "thinking",        "redacted_thinking",
                                        "tool_use", "server_tool_use", "tool_result"};

    return chat_is_one_of(type_of(block), types, ARRAY_LEN(types));
}

static bool is_call(const struct json *block)
{
    return chat_is(block, "type", "tool_use") || chat_is(block, "type", "server_tool_use");
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
        else if (chat_is(b, "type", "text") && !json_get_cstr(b, "text"))
            return chat_invalid(e, "messages", "the text of a block");
    return true;
}

static struct json *add_message(struct json *messages, const char *role)
{
    struct json *m = json_add(messages, json_new_object());

    (void)json_set_cstr(m, "role", role);
    return m;
}

/* --- messages of the user and the system ------------------------------------------------------- */

static void end_text(struct json *messages, const char *role, struct buf *text, bool *has_text)
{
    if (*has_text)
        (void)json_set_cstr(add_message(messages, role), "content", buf_cstr(text));
    buf_clear(text);
    *has_text = false;
}

static bool add_result(struct json *messages, const struct json *block, struct api_error *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    const struct json *content = json_get(block, "content");
    const char *id = json_get_cstr(block, "tool_use_id");
    struct json *m;

    if (!id)
        return chat_invalid(e, "messages", "the tool_use_id of a tool_result");
    if (json_is_string(content))
        buf_put_cstr(&text, json_cstr(content));
    else if (json_is_array(content))
        for (const struct json *part = json_first(content); part; part = json_next(part)) {
            const char *said = json_get_cstr(part, "text");

            if (!chat_is(part, "type", "text") || !said)
                return api_fail(e, 400, "messages",
                                "a block of a tool_result is not supported: only text is");
            buf_put_cstr(&text, said);
        }
    m = add_message(messages, "tool");
    (void)json_set_cstr(m, "content", buf_cstr(&text));
    (void)json_set_cstr(m, "tool_call_id", id);
    return true;
}

/* Results of tools are messages of their own, with what was said before and behind them around. */
static bool add_said(struct json *messages, const char *role, const struct json *content,
                     struct api_error *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    bool has_text = false;

    if (json_is_string(content)) {
        (void)json_set_cstr(add_message(messages, role), "content", json_cstr(content));
        return true;
    }
    for (const struct json *b = json_first(content); b; b = json_next(b)) {
        if (chat_is(b, "type", "text")) {
            buf_put_cstr(&text, json_get_cstr(b, "text"));
            has_text = true;
        } else if (chat_is(b, "type", "tool_result")) {
            end_text(messages, role, &text, &has_text);
            if (!add_result(messages, b, e))
                return false;
        }
    }
    end_text(messages, role, &text, &has_text);
    return true;
}

/* --- those of the assistant -------------------------------------------------------------------- */

static bool add_use(struct json *message, const struct json *block, struct api_error *e)
{
    const char *id = json_get_cstr(block, "id"), *name = json_get_cstr(block, "name");
    AUTO(mem_free) char *input = NULL;

    if (!id || !name || !json_is_object(json_get(block, "input")))
        return chat_invalid(e, "messages", "id, name and input of a tool_use");
    input = json_to_cstr(json_get(block, "input"));
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
    const struct json *all = json_get(body, "messages");
    size_t i = 0;

    if (!json_is_array(all))
        return chat_invalid(e, "messages", "an array");
    if (!json_len(all))
        return api_fail(e, 400, "messages", "messages: field required");
    for (const struct json *m = json_first(all); m; m = json_next(m), i++) {
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

        if (chat_is(m, "role", "assistant")
                ? !add_answer(messages, content, e)
                : !add_said(messages, json_get_cstr(m, "role"), content, e))
            return false;
    }
    return json_len(messages) ? true
                              : api_fail(e, 400, "messages", "Messages array cannot be empty");
}

static bool add_tools(struct json *chat, const struct json *tools, struct api_error *e)
{
    size_t i = 0;

    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools))
        return chat_invalid(e, "tools", "an array");
    for (const struct json *t = json_first(tools); t; t = json_next(t), i++) {
        const char *type = json_get_cstr(t, "type");
        struct json *function;

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

static bool read_body(struct json **ret, struct str body, struct api_error *e)
{
    struct err why;

    if (json_parse_wide(ret, body, &why) < 0)
        return api_malformed(e, NULL, "Failed to parse the request body as JSON: %s", why.text);
    if (!json_is_object(*ret))
        return api_malformed(e, NULL, "The request body must be a JSON object");
    if (!json_get_cstr(*ret, "model"))
        return chat_invalid(e, "model", "the name of a model");
    return check_messages(*ret, e);
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
    ret->estimate = facts->estimate;
    return true;
}
