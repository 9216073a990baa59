/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of DeepSeek V3.2, as its encoding_dsv32.py writes them.
 */
#include "router/token/deepseek.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/chat_native.h"

static const char TOOLS[] =
    "\n\n## Tools\n\n"
    "You have access to a set of tools you can use to answer the user's question.\n"
    "You can invoke functions by writing a \"<" DEEPSEEK_MARK "function_calls>\" block like the "
    "following as part of your reply to the user:\n"
    "<" DEEPSEEK_MARK "function_calls>\n"
    "<" DEEPSEEK_MARK "invoke name=\"$FUNCTION_NAME\">\n"
    "<" DEEPSEEK_MARK "parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</" DEEPSEEK_MARK "parameter>\n...\n"
    "</" DEEPSEEK_MARK "invoke>\n"
    "<" DEEPSEEK_MARK "invoke name=\"$FUNCTION_NAME2\">\n...\n"
    "</" DEEPSEEK_MARK "invoke>\n"
    "</" DEEPSEEK_MARK "function_calls>\n\n"
    "String and scalar parameters should be specified as is without any escaping or quotes, while "
    "lists and objects should use JSON format. The \"string\" attribute should be set to \"true\" "
    "for string type parameters and \"false\" for other types (numbers, booleans, arrays, "
    "objects).\n\n"
    "If the thinking_mode is enabled, then after function results you should strongly consider "
    "outputting a thinking block. Here is an example:\n\n"
    "<" DEEPSEEK_MARK "function_calls>\n...\n</" DEEPSEEK_MARK "function_calls>\n\n"
    "<function_results>\n...\n</function_results>\n\n" DEEPSEEK_THINK
    "...thinking about results" DEEPSEEK_THOUGHT "\n\n"
    "Here are the functions available in JSONSchema format:\n<functions>\n";
static const struct deepseek_words WORDS = {"function_calls", "invoke", "parameter"};

struct v32 {
    const struct chat_native_input *in;
    const struct json *system; /* where tools are told */
    const struct json *last;   /* of the user or developer; NULL = none */
    bool thinks;
    /* Of the messages so far. */
    const struct json *assistant;
    size_t n_results; /* since then */
    bool past_last;   /* @last was one of them */
    struct buf *out;
};

static void put_system(struct v32 *v, const struct json *message)
{
    buf_put_cstr(v->out, deepseek_content(message));
    if (message != v->system)
        return;
    if (v->in->tools) {
        buf_put_cstr(v->out, TOOLS);
        deepseek_put_schemas(v->in->tools, v->out);
        buf_put_cstr(v->out, "\n</functions>\n");
    }
    deepseek_put_format(v->in->response_format, v->out);
}

/* Only what is asked last is thought about. */
static void begin_answer(struct v32 *v, const struct json *message)
{
    buf_put_cstr(v->out, DEEPSEEK_ASSISTANT);
    buf_put_cstr(v->out, message == v->last && v->thinks ? DEEPSEEK_THINK : DEEPSEEK_THOUGHT);
}

static int put_asked(struct v32 *v, const struct json *message, struct err *e)
{
    bool is_developer = deepseek_is(message, "developer");

    if (is_developer && !json_get_cstr(message, "content"))
        return err_set(e, -EINVAL, "a message of the developer needs content");
    buf_put_cstr(v->out, DEEPSEEK_USER);
    if (is_developer)
        buf_put_cstr(v->out, "\n\n# The user's message is: ");
    buf_put_cstr(v->out, deepseek_content(message));
    begin_answer(v, message);
    return 0;
}

/* Their mark is there already, behind the user's message. */
static void put_thoughts(struct v32 *v, const struct json *thoughts)
{
    const struct json *one = json_is_array(thoughts) ? json_first(thoughts) : thoughts;
    bool any = false;

    for (; one; one = json_is_array(thoughts) ? json_next(one) : NULL) {
        const char *text = json_cstr(one);

        if (!text || !text[0])
            continue;
        buf_printf(v->out, "%s%s", any ? "\n" : "", text);
        any = true;
    }
    if (any)
        buf_put_cstr(v->out, DEEPSEEK_THOUGHT);
}

static void put_answer(struct v32 *v, const struct json *message)
{
    if (v->thinks && v->past_last)
        put_thoughts(v, json_get(message, "reasoning_content"));
    buf_put_cstr(v->out, deepseek_content(message));
    deepseek_put_calls(json_get(message, "tool_calls"), &WORDS, v->in->floats, v->out);
    buf_put_cstr(v->out, DEEPSEEK_END);
    v->assistant = message;
    v->n_results = 0;
}

static void put_result(struct v32 *v, const struct json *message)
{
    if (++v->n_results == 1)
        buf_put_cstr(v->out, "\n\n<function_results>");
    buf_printf(v->out, "\n<result>%s</result>", deepseek_content(message));
    if (!v->assistant || v->n_results != json_len(json_get(v->assistant, "tool_calls")))
        return;
    buf_put_cstr(v->out, "\n</function_results>\n\n");
    buf_put_cstr(v->out, v->thinks && v->past_last ? DEEPSEEK_THINK : DEEPSEEK_THOUGHT);
}

static int put_message(struct v32 *v, const struct json *message, struct err *e)
{
    int r = 0;

    if (deepseek_is(message, "system"))
        put_system(v, message);
    else if (deepseek_is(message, "user") || deepseek_is(message, "developer"))
        r = put_asked(v, message, e);
    else if (deepseek_is(message, "assistant"))
        put_answer(v, message);
    else if (deepseek_is(message, "tool"))
        put_result(v, message);
    else
        r = err_set(e, -EINVAL, "the model knows no messages of this role");
    v->past_last = v->past_last || message == v->last;
    return r;
}

int deepseek_v32_put(const struct chat_native_input *in, struct buf *out, struct err *e)
{
    struct v32 v = {.in = in, .thinks = deepseek_thinks(in->args), .out = out};
    int r = 0;

    deepseek_flatten(in->messages);
    v.system = deepseek_system(in->messages, in->tools || in->response_format);
    JSON_FOREACH (message, in->messages)
        if (deepseek_is(message, "user") || deepseek_is(message, "developer"))
            v.last = message;
    buf_put_cstr(out, DEEPSEEK_BEGIN);
    JSON_FOREACH (message, in->messages)
        if (r == 0)
            r = put_message(&v, message, e);
    return r;
}
