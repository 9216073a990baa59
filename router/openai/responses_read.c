/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/responses_read.h"

#include <string.h>

#include "lib/base/err.h"
#include "router/openai/chat_build.h"

/* --- input ------------------------------------------------------------------------------------ */

/* The chat as it grows. Lists are walked to their ends: what comes last is kept. */
struct talk {
    struct json *messages, *last;
};

static struct json *add_message(struct talk *t, const char *role)
{
    t->last = json_add(t->messages, json_new_object());
    (void)json_set_cstr(t->last, "role", role);
    return t->last;
}

/* Parts that are text; others are none that a template takes. */
static bool add_parts(struct json *message, const struct json *content, struct api_error *e)
{
    static const char *const kinds[] = {"input_text", "output_text", "text"};
    struct json *parts = json_set(message, "content", json_new_array());

    for (const struct json *p = json_first(content); p; p = json_next(p)) {
        const char *text = json_get_cstr(p, "text");
        struct json *part;

        if (!chat_is_one_of(json_get_cstr(p, "type"), kinds, ARRAY_LEN(kinds)) || !text)
            return chat_invalid(e, "input", "parts that are text");
        part = json_add(parts, json_new_object());
        (void)json_set_cstr(part, "type", "text");
        (void)json_set_cstr(part, "text", text);
    }
    return true;
}

/* The turn of the assistant that goes on, or a new one: its thoughts, words and calls are a message. */
static struct json *assistant_turn(struct talk *t)
{
    return t->last && chat_is(t->last, "role", "assistant") ? t->last : add_message(t, "assistant");
}

static struct json *speaker(struct talk *t, const char *role)
{
    struct json *turn;

    if (strcmp(role, "assistant") != 0)
        return add_message(t, strcmp(role, "developer") == 0 ? "system" : role);
    turn = assistant_turn(t);
    return json_get(turn, "content") || json_get(turn, "tool_calls") ? add_message(t, role) : turn;
}

static bool add_said(struct talk *t, const struct json *item, struct api_error *e)
{
    static const char *const roles[] = {"user", "system", "developer", "assistant"};
    const char *role = json_get_cstr(item, "role");
    const struct json *content = json_get(item, "content");
    struct json *m;

    if (!chat_is_one_of(role, roles, ARRAY_LEN(roles)))
        return chat_invalid(e, "input", "the role user, system, developer or assistant");
    if (!json_is_string(content) && !json_is_array(content))
        return chat_invalid(e, "input", "content that is a string or an array");
    m = speaker(t, role);
    if (json_is_array(content))
        return add_parts(m, content, e);
    (void)json_set_cstr(m, "content", json_cstr(content));
    return true;
}

static bool add_call(struct talk *t, const struct json *item, struct api_error *e)
{
    const char *id = json_get_cstr(item, "call_id"), *name = json_get_cstr(item, "name");
    const char *arguments = json_get_cstr(item, "arguments");

    if (!id || !name || !arguments)
        return chat_invalid(e, "input", "call_id, name and arguments of a function_call");
    chat_add_call(assistant_turn(t), id, name, arguments);
    return true;
}

static bool add_call_output(struct talk *t, const struct json *item, struct api_error *e)
{
    const char *id = json_get_cstr(item, "call_id");
    const struct json *output = json_get(item, "output");
    struct json *m;

    if (!id || (!json_is_string(output) && !json_is_array(output)))
        return chat_invalid(e, "input", "call_id and output of a function_call_output");
    m = add_message(t, "tool");
    (void)json_set_cstr(m, "tool_call_id", id);
    if (json_is_array(output))
        return add_parts(m, output, e);
    (void)json_set_cstr(m, "content", json_cstr(output));
    return true;
}

/* Of what was thought, what clients were told. */
static bool add_thoughts(struct talk *t, const struct json *item)
{
    AUTO(buf_done) struct buf all = BUF_NULL;
    struct json *turn = assistant_turn(t);

    for (const struct json *p = json_first(json_get(item, "summary")); p; p = json_next(p)) {
        const char *text = json_get_cstr(p, "text");

        if (text && all.len)
            buf_put_char(&all, '\n');
        if (text)
            buf_put_cstr(&all, text);
    }
    if (all.len)
        (void)json_set_cstr(turn, "reasoning_content", buf_cstr(&all));
    return true;
}

static bool add_item(struct talk *t, const struct json *item, struct api_error *e)
{
    const char *type = json_get_cstr(item, "type");

    if (!json_is_object(item))
        return chat_invalid(e, "input", "items that are objects");
    if (!type || strcmp(type, "message") == 0)
        return add_said(t, item, e);
    if (strcmp(type, "function_call") == 0)
        return add_call(t, item, e);
    if (strcmp(type, "function_call_output") == 0)
        return add_call_output(t, item, e);
    if (strcmp(type, "reasoning") == 0)
        return add_thoughts(t, item);
    return strcmp(type, "item_reference") == 0
               ? true
               : chat_invalid(e, "input", "items that are messages, calls or outputs of calls");
}

static bool add_input(struct json *chat, const struct json *body, struct api_error *e)
{
    struct talk talk = {.messages = json_need_array(chat, "messages")}, *t = &talk;
    const struct json *input = json_get(body, "input");
    const char *instructions = json_get_cstr(body, "instructions");

    if (instructions)
        (void)json_set_cstr(add_message(t, "system"), "content", instructions);
    if (json_is_string(input)) {
        (void)json_set_cstr(add_message(t, "user"), "content", json_cstr(input));
        return true;
    }
    if (!json_is_array(input))
        return chat_invalid(e, "input", "a string or an array of input items");
    for (const struct json *item = json_first(input); item; item = json_next(item))
        if (!add_item(t, item, e))
            return false;
    return t->last ? true : api_fail(e, 400, "input", "Messages array cannot be empty");
}

/* --- tools ------------------------------------------------------------------------------------ */

static bool add_tools(struct json *chat, const struct json *tools, struct api_error *e)
{
    static const char *const keys[] = {"name", "description", "parameters", "strict"};

    if (!tools || json_is_null(tools))
        return true;
    if (!json_is_array(tools))
        return chat_invalid(e, "tools", "an array");
    for (const struct json *t = json_first(tools); t; t = json_next(t)) {
        struct json *function;

        if (!chat_is(t, "type", "function"))
            return api_fail(e, 400, "tools",
                            "Failed to convert responses request: tools other than functions are "
                            "not supported");
        function = chat_add_tool(chat);
        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
            chat_move(function, keys[i], t, keys[i]);
    }
    return true;
}

/* A word, {"type":"function","name":…}, or {"type":"allowed_tools","mode":…}. */
static bool add_tool_choice(struct json *chat, const struct json *choice, struct api_error *e)
{
    if (!choice || json_is_null(choice))
        return true;
    if (json_is_string(choice)) {
        (void)json_set(chat, "tool_choice", json_dup(choice));
        return true;
    }
    if (chat_is(choice, "type", "allowed_tools") && json_get_cstr(choice, "mode")) {
        (void)json_set_cstr(chat, "tool_choice", json_get_cstr(choice, "mode"));
        return true;
    }
    if (!chat_is(choice, "type", "function") || !json_get_cstr(choice, "name"))
        return chat_invalid(e, "tool_choice", "a word or the name of a function");
    chat_choose_tool(chat, json_get_cstr(choice, "name"));
    return true;
}

/* --- the rest --------------------------------------------------------------------------------- */

static void add_format(struct json *chat, const struct json *body)
{
    static const char *const keys[] = {"name", "description", "schema", "strict"};
    const struct json *format = json_path(body, "text", "format", NULL);
    struct json *to, *schema;

    if (!json_is_object(format))
        return;
    to = json_need_object(chat, "response_format");
    chat_move(to, "type", format, "type");
    if (!chat_is(format, "type", "json_schema"))
        return;
    schema = json_need_object(to, "json_schema");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        chat_move(schema, keys[i], format, keys[i]);
}

static void add_numbers(struct json *chat, const struct json *body)
{
    static const char *const same[] = {"model", "stream", "temperature",
                                       "top_p", "nvext",  "service_tier"};

    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        chat_move(chat, same[i], body, same[i]);
    if (json_is_string(json_get(body, "user"))) /* whatever else it is, it is passed over */
        chat_move(chat, "user", body, "user");
    chat_move(chat, "max_tokens", body, "max_output_tokens");
    chat_move(chat, "reasoning_effort", json_get(body, "reasoning"), "effort");
}

static bool check_supported(const struct json *body, struct api_error *e)
{
    static const char *const keys[] = {"previous_response_id", "prompt", "max_tool_calls"};
    bool background;
    int64_t n;

    if (json_get_bool(body, "background", &background) && background)
        return api_fail(e, 501, "background", "Validation: `background: true` is not supported.");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (json_get(body, keys[i]) && !json_is_null(json_get(body, keys[i])))
            return api_fail(e, 501, keys[i], "Validation: `%s` is not supported.", keys[i]);
    if (json_get_i64(body, "max_output_tokens", &n) && n < 1)
        return api_fail(e, 400, "max_output_tokens",
                        "Validation: Max tokens must be greater than 0, got %lld", (long long)n);
    return true;
}

static struct str printed(struct arena *a, const struct json *v, const char *otherwise)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (!v || json_is_null(v))
        return str_from(otherwise);
    json_print(v, &out);
    return str_from(arena_strdup(a, buf_str(&out)));
}

/* As the reference repeats a tool: with `strict`, on unless it is said. */
static struct str printed_tools(struct arena *a, const struct json *tools)
{
    AUTO(json_free) struct json *all = json_dup(tools);

    for (struct json *t = json_first(all); t; t = json_next(t))
        if (!json_get(t, "strict"))
            (void)json_set_bool(t, "strict", true);
    return printed(a, all, "[]");
}

static void fill_echo(struct responses_echo *to, const struct json *body, struct arena *a)
{
    *to = (struct responses_echo){
        .instructions = printed(a, json_get(body, "instructions"), "null"),
        .max_output_tokens = printed(a, json_get(body, "max_output_tokens"), "null"),
        .metadata = printed(a, json_get(body, "metadata"), "{}"),
        .parallel_tool_calls = printed(a, json_get(body, "parallel_tool_calls"), "true"),
        .prompt_cache_key = printed(a, json_get(body, "prompt_cache_key"), "null"),
        .reasoning = printed(a, json_get(body, "reasoning"), "null"),
        .safety_identifier = printed(a, json_get(body, "safety_identifier"), "null"),
        .service_tier = printed(a, json_get(body, "service_tier"), "\"auto\""),
        .store = printed(a, json_get(body, "store"), "false"),
        .temperature = printed(a, json_get(body, "temperature"), "1.0"),
        .text = printed(a, json_get(body, "text"), "{\"format\":{\"type\":\"text\"}}"),
        .tool_choice = printed(a, json_get(body, "tool_choice"), "\"auto\""),
        .tools = printed_tools(a, json_get(body, "tools")),
        .top_p = printed(a, json_get(body, "top_p"), "1.0"),
        .truncation = printed(a, json_get(body, "truncation"), "\"disabled\""),
    };
}

bool responses_request_parse(struct str body, struct arena *a, struct openai_request *ret,
                             struct responses_echo *ret_echo, struct api_error *e)
{
    AUTO(json_free) struct json *in = NULL;
    AUTO(json_free) struct json *chat = json_new_object();
    struct err why;

    *ret = (struct openai_request){.api = API_CHAT};
    if (json_parse_wide(&in, body, &why) < 0)
        return api_malformed(e, NULL, "Failed to parse the request body as JSON: %s", why.text);
    if (!json_is_object(in))
        return api_malformed(e, NULL, "The request body must be a JSON object");
    if (!add_input(chat, in, e) || !add_tools(chat, json_get(in, "tools"), e) ||
        !add_tool_choice(chat, json_get(in, "tool_choice"), e) || !check_supported(in, e))
        return false;
    if (!json_get(in, "model"))
        return api_fail(e, 400, "model", "Validation: model must not be empty");
    add_format(chat, in);
    add_numbers(chat, in);
    fill_echo(ret_echo, in, a);
    return chat_parse(chat, a, ret, e);
}
