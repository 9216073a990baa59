/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/deepseek.h"

#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"

/* --- what is asked for ------------------------------------------------------------------------ */

bool deepseek_thinks(const struct json *args)
{
    const char *mode = json_get_cstr(args, "thinking_mode");
    bool on;

    if (json_get_bool(args, "thinking", &on) || json_get_bool(args, "enable_thinking", &on))
        return on;
    return !mode || strcmp(mode, "chat") != 0;
}

/* --- messages --------------------------------------------------------------------------------- */

bool deepseek_is(const struct json *message, const char *role)
{
    const char *has = json_get_cstr(message, "role");

    return has && strcmp(has, role) == 0;
}

const char *deepseek_content(const struct json *message)
{
    const char *text = json_get_cstr(message, "content");

    return text ? text : "";
}

void deepseek_flatten(struct json *messages)
{
    JSON_FOREACH (message, messages) {
        const struct json *content = json_get(message, "content");
        AUTO(buf_done) struct buf text = BUF_NULL;

        if (!json_is_array(content))
            continue;
        JSON_FOREACH (part, content)
            if (json_get_cstr(part, "text"))
                buf_put_cstr(&text, json_get_cstr(part, "text"));
        (void)json_set(message, "content", json_new_str(buf_str(&text)));
    }
}

const struct json *deepseek_system(struct json *messages, bool tells)
{
    struct json *made;

    if (!tells)
        return NULL;
    JSON_FOREACH (message, messages)
        if (deepseek_is(message, "system"))
            return message;
    made = json_new_object();
    (void)json_set_cstr(made, "role", "system");
    return json_insert(messages, 0, made);
}

/* --- tools ------------------------------------------------------------------------------------ */

void deepseek_put_schemas(const struct json *tools, struct buf *out)
{
    JSON_FOREACH (tool, tools) {
        if (tool != json_first(tools))
            buf_put_char(out, '\n');
        python_put_json(out, json_get(tool, "function"));
    }
}

void deepseek_put_format(const struct json *response_format, struct buf *out)
{
    if (!response_format)
        return;
    buf_put_cstr(out, "\n\n## Response Format:\n\n"
                      "You MUST strictly adhere to the following schema to reply:\n");
    python_put_json(out, response_format);
}

static void put_parameter(const struct json *value, const char *key, const char *word,
                          enum float_form floats, struct buf *out)
{
    buf_printf(out, "<" DEEPSEEK_MARK "%s name=\"%s\" string=\"%s\">", word, key,
               json_is_string(value) ? "true" : "false");
    if (json_is_string(value))
        buf_put_cstr(out, json_cstr(value));
    else
        text_put_json(out, value, floats);
    buf_printf(out, "</" DEEPSEEK_MARK "%s>", word);
}

/* What is no JSON object is one argument of that name. */
static void put_parameters(const struct json *function, const char *word, enum float_form floats,
                           struct buf *out)
{
    const char *text = json_get_cstr(function, "arguments");
    AUTO(json_free) struct json *arguments = NULL;
    struct err e;

    if (!text || json_parse_wide(&arguments, str_from(text), &e) < 0 ||
        !json_is_object(arguments)) {
        put_parameter(json_get(function, "arguments"), "arguments", word, floats, out);
        return;
    }
    JSON_FOREACH (value, arguments) {
        if (value != json_first(arguments))
            buf_put_char(out, '\n');
        put_parameter(value, json_key(value), word, floats, out);
    }
}

void deepseek_put_calls(const struct json *calls, const struct deepseek_words *w,
                        enum float_form floats, struct buf *out)
{
    if (json_len(calls) == 0)
        return;
    buf_printf(out, "\n\n<" DEEPSEEK_MARK "%s>\n", w->calls);
    JSON_FOREACH (call, calls) {
        const struct json *function = json_get(call, "function");
        const char *name = json_get_cstr(function, "name");

        buf_printf(out, "<" DEEPSEEK_MARK "%s name=\"%s\">\n", w->invoke, name ? name : "");
        put_parameters(function, w->parameter, floats, out);
        buf_printf(out, "\n</" DEEPSEEK_MARK "%s>\n", w->invoke);
    }
    buf_printf(out, "</" DEEPSEEK_MARK "%s>", w->calls);
}
