/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/dialect_chat.h"

#include "lib/base/err.h"
#include "router/openai/chat_build.h"

/* --- both -------------------------------------------------------------------------------------- */

/* What they ask of a stream: messages tell usage with each event. */
static void ask_for_stream(struct json *chat, bool continuous)
{
    struct json *options = json_set(chat, "stream_options", json_new_object());

    (void)json_set_bool(chat, "stream", true);
    (void)json_set_bool(options, "include_usage", true);
    (void)json_set_bool(options, "continuous_usage_stats", continuous);
}

static void rename_member(struct json *object, const char *from, const char *to)
{
    struct json *v = json_take(object, from);

    if (v)
        (void)json_set(object, to, v);
}

/* Parts, all of which are texts, as one. */
static void join_parts(struct json *message)
{
    AUTO(buf_done) struct buf all = BUF_NULL;

    for (const struct json *p = json_first(json_get(message, "content")); p; p = json_next(p)) {
        const char *text = json_get_cstr(p, "text");

        buf_put_cstr(&all, text ? text : "");
    }
    (void)json_set(message, "content", json_new_str(buf_str(&all)));
}

static void join_contents(struct json *chat, bool all)
{
    for (struct json *m = json_first(json_get(chat, "messages")); m; m = json_next(m)) {
        const struct json *content = json_get(m, "content");

        if (json_is_array(content) && (all || json_len(content) == 1 || chat_is(m, "role", "tool")))
            join_parts(m);
    }
}

/* Both texts have been read before: they are objects. */
static struct json *read_object(struct str text)
{
    struct json *v = NULL;
    struct err why;

    return json_parse_wide(&v, text, &why) < 0 ? json_new_object() : v;
}

/* --- /v1/responses ----------------------------------------------------------------------------- */

void responses_put_chat(struct buf *out, struct str body, struct str chat)
{
    static const char *const more[] = {"metadata", "store", "parallel_tool_calls", "top_logprobs"};
    AUTO(json_free) struct json *in = read_object(body);
    AUTO(json_free) struct json *to = read_object(chat);
    const char *effort = json_get_cstr(to, "reasoning_effort");

    for (size_t i = 0; i < ARRAY_LEN(more); i++)
        chat_move(to, more[i], in, more[i]);
    json_del(to, "user");
    if (chat_is(json_get(to, "response_format"), "type", "text"))
        json_del(to, "response_format");
    rename_member(to, "max_tokens", "max_completion_tokens");
    join_contents(to, false);
    if (effort) {
        struct json *args = json_need_object(to, "chat_template_args");

        (void)json_set_cstr(args, "reasoning_effort", effort);
        openai_settle_thinking(args);
    }
    ask_for_stream(to, false);
    json_print(to, out);
}

/* --- /v1/messages ------------------------------------------------------------------------------ */

static void ask_for_thoughts(struct json *chat, const struct json *thinking)
{
    json_del(chat, "chat_template_args");
    if (chat_is(thinking, "type", "enabled"))
        (void)json_set_bool(json_need_object(chat, "chat_template_args"), "enable_thinking", true);
}

static void name_format(struct json *chat)
{
    struct json *schema = json_path(chat, "response_format", "json_schema", NULL);

    if (!schema)
        return;
    (void)json_set_cstr(schema, "name", "response");
    (void)json_set_bool(schema, "strict", true);
}

static void ask_for_stop_reason(struct json *chat)
{
    struct json *fields = json_need_array(json_need_object(chat, "nvext"), "extra_fields");

    (void)json_add(fields, json_new_cstr("stop_reason"));
}

void messages_put_chat(struct buf *out, struct str body, struct str chat)
{
    AUTO(json_free) struct json *in = read_object(body);
    AUTO(json_free) struct json *to = read_object(chat);
    bool alone = false;

    rename_member(to, "max_tokens", "max_completion_tokens");
    if (json_get(to, "stop") && json_len(json_get(to, "stop")) == 0)
        json_del(to, "stop");
    if (json_get_bool(json_get(in, "tool_choice"), "disable_parallel_tool_use", &alone) && alone)
        (void)json_set_bool(to, "parallel_tool_calls", false);
    join_contents(to, true);
    ask_for_thoughts(to, json_get(in, "thinking"));
    name_format(to);
    ask_for_stop_reason(to);
    ask_for_stream(to, true);
    json_print(to, out);
}
