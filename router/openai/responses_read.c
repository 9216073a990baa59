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

static const char *text_of(const struct json *part)
{
    static const char *const kinds[] = {"input_text", "output_text", "text"};

    if (chat_is_one_of(json_get_cstr(part, "type"), kinds, ARRAY_LEN(kinds)))
        return json_get_cstr(part, "text");
    return chat_is(part, "type", "refusal") ? json_get_cstr(part, "refusal") : NULL;
}

/* One that its URL says; no files are kept here. */
static bool add_image(struct json *parts, const struct json *part, struct api_error *e)
{
    static const char *const details[] = {"auto", "low", "high"};
    const char *url = json_get_cstr(part, "image_url"), *detail = json_get_cstr(part, "detail");

    if (!url)
        return chat_invalid(e, "input", "images that an image_url says");
    if (detail && !chat_is_one_of(detail, details, ARRAY_LEN(details)))
        return chat_invalid(e, "input", "an image's detail auto, low or high");
    chat_add_image(parts, url, detail ? detail : "auto");
    return true;
}

/* What the user or a tool says: text and images. */
static bool add_parts(struct json *message, const struct json *content, struct api_error *e)
{
    struct json *parts = json_set(message, "content", json_new_array());

    JSON_FOREACH (p, content) {
        if (chat_is(p, "type", "input_image")) {
            if (!add_image(parts, p, e))
                return false;
        } else if (text_of(p) && !chat_is(p, "type", "refusal")) {
            chat_add_text(parts, text_of(p));
        } else {
            return chat_invalid(e, "input", "parts that are text or images");
        }
    }
    return true;
}

/* What the others say: a text. Of what cannot be said in one, nothing is told. */
static bool join_parts(struct json *message, const struct json *content, struct api_error *e)
{
    AUTO(buf_done) struct buf all = BUF_NULL;

    JSON_FOREACH (p, content) {
        if (chat_is(p, "type", "input_image") || chat_is(p, "type", "input_file"))
            continue;
        if (!text_of(p))
            return chat_invalid(e, "input", "parts that are text");
        buf_put_cstr(&all, text_of(p));
    }
    (void)json_set_cstr(message, "content", buf_cstr(&all));
    return true;
}

static bool any_image(const struct json *content)
{
    JSON_FOREACH (p, content)
        if (chat_is(p, "type", "input_image"))
            return true;
    return false;
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
        return strcmp(role, "user") == 0 ? add_parts(m, content, e) : join_parts(m, content, e);
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

/* Files have no place in it. */
static bool join_output(struct json *message, const struct json *output, struct api_error *e)
{
    JSON_FOREACH (p, output)
        if (!text_of(p))
            return chat_invalid(e, "input", "outputs that are text or images");
    return join_parts(message, output, e);
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
    if (any_image(output))
        return add_parts(m, output, e);
    if (json_is_array(output))
        return join_output(m, output, e);
    (void)json_set_cstr(m, "content", json_cstr(output));
    return true;
}

/* The texts of an item's list, with @between. False: it is no list of them. */
static bool join_texts(const struct json *list, const char *between, struct buf *out)
{
    if (list && !json_is_null(list) && !json_is_array(list))
        return false;
    JSON_FOREACH (p, list) {
        if (!json_get_cstr(p, "text"))
            return false;
        if (out->len)
            buf_put_cstr(out, between);
        buf_put_cstr(out, json_get_cstr(p, "text"));
    }
    return true;
}

/* What was thought, else what clients were told of it. */
static bool add_thoughts(struct talk *t, const struct json *item, struct api_error *e)
{
    AUTO(buf_done) struct buf all = BUF_NULL;
    AUTO(buf_done) struct buf summary = BUF_NULL;
    struct json *turn = assistant_turn(t);

    if (!join_texts(json_get(item, "content"), "", &all) ||
        !join_texts(json_get(item, "summary"), "\n", &summary))
        return chat_invalid(e, "input", "thoughts that are lists of texts");
    if (all.len || summary.len)
        (void)json_set_cstr(turn, "reasoning_content", buf_cstr(all.len ? &all : &summary));
    return true;
}

/* What tools of OpenAI's own servers did, and what no template knows. */
static bool is_passed_over(const char *type)
{
    static const char *const types[] = {"item_reference",
                                        "web_search_call",
                                        "file_search_call",
                                        "image_generation_call",
                                        "computer_call",
                                        "computer_call_output",
                                        "code_interpreter_call",
                                        "local_shell_call",
                                        "local_shell_call_output",
                                        "mcp_list_tools",
                                        "mcp_call",
                                        "mcp_approval_request",
                                        "mcp_approval_response",
                                        "custom_tool_call",
                                        "custom_tool_call_output",
                                        "compaction"};

    return chat_is_one_of(type, types, ARRAY_LEN(types));
}

static bool add_item(struct talk *t, const struct json *item, struct api_error *e)
{
    const char *type = json_get_cstr(item, "type");

    if (!json_is_object(item))
        return chat_invalid(e, "input", "items that are objects");
    if (!type && json_get(item, "type") && !json_is_null(json_get(item, "type")))
        return chat_invalid(e, "input", "the type of an item as a word");
    if (!type || strcmp(type, "message") == 0)
        return add_said(t, item, e);
    if (strcmp(type, "function_call") == 0)
        return add_call(t, item, e);
    if (strcmp(type, "function_call_output") == 0)
        return add_call_output(t, item, e);
    if (strcmp(type, "reasoning") == 0)
        return add_thoughts(t, item, e);
    return is_passed_over(type)
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
    JSON_FOREACH (m, talk.messages)
        if (json_len(m) == 1) /* a turn of which nothing is told */
            (void)json_set_cstr(m, "content", "");
    return t->last ? true : api_fail(e, 400, "input", "Messages array cannot be empty");
}

/* --- tools ------------------------------------------------------------------------------------ */

static bool add_tools(struct json *chat, const struct json *tools, struct api_error *e)
{
    static const char *const keys[] = {"name", "description", "parameters", "strict"};
    static const char *const type[] = {"type"};

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
        if (!chat_has_once(t, type, 1, e) || !chat_has_once(t, keys, ARRAY_LEN(keys), e))
            return false;
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

/* Members that are read, and so are judged. */
static bool check_types(const struct json *body, struct api_error *e)
{
    static const char *const keys[] = {"background",
                                       "conversation",
                                       "include",
                                       "input",
                                       "instructions",
                                       "max_output_tokens",
                                       "max_tool_calls",
                                       "metadata",
                                       "model",
                                       "nvext",
                                       "parallel_tool_calls",
                                       "previous_response_id",
                                       "prompt",
                                       "prompt_cache_key",
                                       "reasoning",
                                       "safety_identifier",
                                       "service_tier",
                                       "store",
                                       "stream",
                                       "temperature",
                                       "text",
                                       "tool_choice",
                                       "tools",
                                       "top_logprobs",
                                       "top_p",
                                       "truncation"};
    const struct json *instructions = json_get(body, "instructions");
    const struct json *format = json_path(body, "text", "format", NULL);

    if (!chat_has_once(body, keys, ARRAY_LEN(keys), e) ||
        !chat_has_once(json_get(body, "nvext"), NULL, 0, e))
        return false;
    if (instructions && !json_is_null(instructions) && !json_is_string(instructions))
        return chat_invalid(e, "instructions", "a string");
    if (!chat_may_be_object(json_get(body, "text")) || (format && !json_is_object(format)))
        return chat_invalid(e, "text", "an object whose format is one");
    if (!chat_may_be_object(json_get(body, "reasoning")))
        return chat_invalid(e, "reasoning", "an object");
    return json_is_float(json_get(body, "max_output_tokens"))
               ? chat_invalid(e, "max_output_tokens", "a whole number")
               : true;
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
    if (!check_types(in, e) || !add_input(chat, in, e) ||
        !add_tools(chat, json_get(in, "tools"), e) ||
        !add_tool_choice(chat, json_get(in, "tool_choice"), e) || !check_supported(in, e))
        return false;
    if (!json_get(in, "model"))
        return api_fail(e, 400, "model", "Validation: model must not be empty");
    add_format(chat, in);
    add_numbers(chat, in);
    fill_echo(ret_echo, in, a);
    return chat_parse(chat, a, ret, e);
}
