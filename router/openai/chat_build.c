/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/chat_build.h"

#include <string.h>

bool chat_invalid(struct api_error *e, const char *param, const char *want)
{
    return api_malformed(
        e, param, "Failed to deserialize the JSON body into the target type: %s: expected %s",
        param, want);
}

bool chat_is(const struct json *object, const char *key, const char *word)
{
    const char *s = json_get_cstr(object, key);

    return s && strcmp(s, word) == 0;
}

bool chat_has_once(const struct json *object, const char *const *keys, size_t n,
                   struct api_error *e)
{
    JSON_FOREACH (member, object)
        if (json_is_repeated(member) && (!keys || chat_is_one_of(json_key(member), keys, n)))
            return api_malformed(
                e, NULL,
                "Failed to deserialize the JSON body into the target type: duplicate field `%s`",
                json_key(member));
    return true;
}

bool chat_may_be_object(const struct json *v)
{
    return !v || json_is_null(v) || json_is_object(v);
}

bool chat_is_one_of(const char *word, const char *const *words, size_t n)
{
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

void chat_move(struct json *to, const char *as, const struct json *from, const char *key)
{
    const struct json *v = json_get(from, key);

    if (v && !json_is_null(v))
        (void)json_set(to, as, json_dup(v));
}

void chat_add_text(struct json *parts, const char *text)
{
    struct json *part = json_add(parts, json_new_object());

    (void)json_set_cstr(part, "type", "text");
    (void)json_set_cstr(part, "text", text);
}

void chat_add_image(struct json *parts, const char *url, const char *detail)
{
    struct json *part = json_add(parts, json_new_object()), *source;

    (void)json_set_cstr(part, "type", "image_url");
    source = json_need_object(part, "image_url");
    (void)json_set_cstr(source, "url", url);
    if (detail)
        (void)json_set_cstr(source, "detail", detail);
}

void chat_add_call(struct json *message, const char *id, const char *name, const char *arguments)
{
    struct json *call = json_add(json_need_array(message, "tool_calls"), json_new_object());
    struct json *function;

    (void)json_set_cstr(call, "id", id);
    (void)json_set_cstr(call, "type", "function");
    function = json_need_object(call, "function");
    (void)json_set_cstr(function, "name", name);
    (void)json_set_cstr(function, "arguments", arguments);
}

struct json *chat_add_tool(struct json *chat)
{
    struct json *tool = json_add(json_need_array(chat, "tools"), json_new_object());

    (void)json_set_cstr(tool, "type", "function");
    return json_need_object(tool, "function");
}

void chat_choose_tool(struct json *chat, const char *name)
{
    struct json *named = json_need_object(chat, "tool_choice");

    (void)json_set_cstr(named, "type", "function");
    (void)json_set_cstr(json_need_object(named, "function"), "name", name);
}

bool chat_parse(const struct json *chat, struct arena *a, struct openai_request *ret,
                struct api_error *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct str kept;

    json_print(chat, &text);
    kept = str_from(arena_strdup(a, buf_str(&text)));
    if (!openai_request_parse(API_CHAT, kept, a, ret, e))
        return false;
    ret->made_chat = kept;
    return true;
}
