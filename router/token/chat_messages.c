/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_messages.h"

#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/str.h"

/* --- what the reference knows ------------------------------------------------------------------
 */

/* Keys in the order in which it writes them. */
static const char *const ASSISTANT_1[] = {"content", "reasoning_content", "refusal",       "name",
                                          "audio",   "tool_calls",        "function_call", NULL};
static const char *const ASSISTANT_0_9[] = {"content",    "refusal",       "name", "audio",
                                            "tool_calls", "function_call", NULL};
static const char *const NAMED[] = {"content", "name", NULL};
static const char *const TOOL[] = {"content", "tool_call_id", NULL};
static const char *const FUNCTION[] = {"name", "description", "parameters", "strict", NULL};
static const char *const CALLED[] = {"name", "arguments", NULL};

/* NULL for a role that it does not know. */
static const char *const *keys_of(const char *role, enum chat_release release)
{
    static const char *const named[] = {"system", "developer", "user", "function"};

    for (size_t i = 0; role && i < ARRAY_LEN(named); i++)
        if (strcmp(role, named[i]) == 0)
            return NAMED;
    if (role && strcmp(role, "tool") == 0)
        return TOOL;
    if (role && strcmp(role, "assistant") == 0)
        return release == CHAT_OF_1 ? ASSISTANT_1 : ASSISTANT_0_9;
    return NULL;
}

static void copy(struct json *to, const char *key, const struct json *v)
{
    if (v && !json_is_null(v))
        (void)json_set(to, key, json_dup(v));
}

static struct json *known_members(const struct json *object, const char *const *keys)
{
    struct json *out = json_new_object();

    for (size_t i = 0; keys[i]; i++)
        copy(out, keys[i], json_get(object, keys[i]));
    return out;
}

/* {"type", @key: {…}} with what it knows of the function; @id where there is one. */
static struct json *known_function(const struct json *v, const char *const *keys)
{
    struct json *out = json_new_object();
    const char *type = json_get_cstr(v, "type");

    copy(out, "id", json_get(v, "id"));
    (void)json_set_cstr(out, "type", type ? type : "function");
    (void)json_set(out, "function", known_members(json_get(v, "function"), keys));
    return out;
}

static struct json *known_functions(const struct json *all, const char *const *keys)
{
    struct json *out = json_new_array();

    JSON_FOREACH (one, all)
        (void)json_add(out, known_function(one, keys));
    return out;
}

/* Some clients say `reasoning`. */
static void take_thoughts(struct json *to, const struct json *message)
{
    const struct json *thoughts = json_get(message, "reasoning_content");

    if (!thoughts)
        thoughts = json_get(message, "reasoning");
    if (json_is_string(thoughts) || json_is_array(thoughts))
        copy(to, "reasoning_content", thoughts);
}

static struct json *known_message(const struct json *message, enum chat_release release)
{
    const char *role = json_get_cstr(message, "role");
    const char *const *keys = keys_of(role, release);
    struct json *out;

    if (!keys)
        return json_dup(message);
    out = json_new_object();
    (void)json_set_cstr(out, "role", role);
    if (strcmp(role, "function") == 0) /* the only one whose nothing is told */
        (void)json_set(out, "content", json_new_null());
    for (size_t i = 0; keys[i]; i++) {
        const struct json *v = json_get(message, keys[i]);

        if (strcmp(keys[i], "reasoning_content") == 0)
            take_thoughts(out, message);
        else if (strcmp(keys[i], "tool_calls") == 0 && json_is_array(v))
            (void)json_set(out, keys[i], known_functions(v, CALLED));
        else if (strcmp(keys[i], "function_call") == 0 && json_is_object(v))
            (void)json_set(out, keys[i], known_members(v, CALLED));
        else
            copy(out, keys[i], v);
    }
    return out;
}

/* --- who may follow whom, in 1.x ---------------------------------------------------------------
 */

static bool is_of(const struct json *message, const char *role)
{
    const char *has = json_get_cstr(message, "role");

    return has && strcmp(has, role) == 0;
}

static struct json *text_part(const char *text)
{
    struct json *part = json_new_object();

    (void)json_set_cstr(part, "type", "text");
    (void)json_set_cstr(part, "text", text);
    return part;
}

static void add_text(struct json *parts, const char *text)
{
    if (text && text[0])
        (void)json_add(parts, text_part(text));
}

static struct json *as_parts(struct json *content)
{
    struct json *parts;

    if (json_is_array(content))
        return content;
    parts = json_new_array();
    add_text(parts, json_cstr(content));
    (void)json_free(content);
    return parts;
}

static struct json *joined_texts(const char *a, const char *b)
{
    AUTO(mem_free) char *text = xasprintf("%s%s%s", a, a[0] && b[0] ? "\n\n" : "", b);

    return json_new_cstr(text);
}

/* Both contents in one. Takes @a; it may be NULL. */
static struct json *joined_content(struct json *a, const struct json *b)
{
    struct json *out = a;

    if (!a)
        return json_dup(b);
    if (json_is_string(a) && json_is_string(b)) {
        out = joined_texts(json_cstr(a), json_cstr(b));
        (void)json_free(a);
    } else if (json_is_array(b)) {
        out = as_parts(a);
        JSON_FOREACH (part, b)
            (void)json_add(out, json_dup(part));
    } else if (json_is_array(a)) {
        add_text(a, json_cstr(b));
    }
    return out;
}

/* The content ends up behind the other keys. */
static void join_messages(struct json *into, const struct json *from)
{
    struct json *content = joined_content(json_take(into, "content"), json_get(from, "content"));

    if (content)
        (void)json_set(into, "content", content);
}

/* System messages at the front become one, those further back the user's; the user's next to each
 * other become one. Takes @all. */
static struct json *normalize_roles(struct json *all, const struct chat_rules *rules)
{
    struct json *out = json_new_array(), *m, *last = NULL;
    bool at_front = true;

    while ((m = json_take_at(all, 0))) {
        bool is_system = is_of(m, "system"), joins = false;

        at_front = at_front && is_system;
        if (is_system && rules->one_system) {
            joins = at_front && last;
            if (!at_front)
                (void)json_set_cstr(m, "role", "user");
        }
        if (rules->users_alternate && is_of(m, "user"))
            joins = last && is_of(last, "user");
        if (joins) {
            join_messages(last, m);
            (void)json_free(m);
        } else {
            last = json_add(out, m);
        }
    }
    (void)json_free(all);
    return out;
}

/* --- content -----------------------------------------------------------------------------------
 */

/* The kind that a template knows a media part by; NULL for other parts. */
static const char *media_kind(const struct json *part, enum chat_release release)
{
    static const struct {
        const char *type, *kind;
        bool as_sent; /* only there */
    } kinds[] = {
        {"image_url", "image", false},  {"image", "image", false},
        {"video_url", "video", false},  {"video", "video", false},
        {"audio_url", "audio", false},  {"audio", "audio", false},
        {"input_audio", "audio", true},
    };
    const char *type = json_get_cstr(part, "type");

    for (size_t i = 0; type && i < ARRAY_LEN(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0 && (!kinds[i].as_sent || release == CHAT_AS_SENT))
            return kinds[i].kind;
    return NULL;
}

static bool is_all_text(const struct json *parts, enum chat_release release)
{
    JSON_FOREACH (part, parts)
        if (!json_get_cstr(part, "text") || media_kind(part, release))
            return false;
    return release == CHAT_AS_SENT || json_len(parts) > 0;
}

static struct json *joined(const struct json *parts)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    JSON_FOREACH (part, parts) {
        if (part != json_first(parts))
            buf_put_char(&text, '\n');
        buf_put_cstr(&text, json_get_cstr(part, "text"));
    }
    return json_new_str(buf_str(&text));
}

static struct json *known_part(const struct json *part, enum chat_release release)
{
    const char *kind = media_kind(part, release), *text = json_get_cstr(part, "text");
    struct json *out;

    if (kind) {
        out = json_new_object();
        (void)json_set_cstr(out, "type", kind);
        return out;
    }
    return text && release != CHAT_AS_SENT ? text_part(text) : json_dup(part);
}

static struct json *known_parts(const struct json *parts, enum chat_release release)
{
    struct json *out = json_new_array();

    JSON_FOREACH (part, parts)
        (void)json_add(out, known_part(part, release));
    return out;
}

/* @sign with the number of the medium for {n}. */
static void put_medium(struct buf *out, const char *sign, unsigned number)
{
    const char *n = strstr(sign, "{n}");

    if (n)
        buf_printf(out, "%.*s%u%s", (int)(n - sign), sign, number, n + strlen("{n}"));
    else
        buf_put_cstr(out, sign);
}

static struct json *with_media(const struct json *parts, const char *sign)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    unsigned n = 0;

    JSON_FOREACH (part, parts)
        if (json_get_cstr(part, "text"))
            buf_put_cstr(&text, json_get_cstr(part, "text"));
        else if (json_get(part, "type"))
            put_medium(&text, sign, ++n);
    return json_new_str(buf_str(&text));
}

static void normalize_content(struct json *message, const struct chat_rules *rules)
{
    const struct json *content = json_get(message, "content");
    struct json *better = NULL;

    if (json_is_array(content) && is_all_text(content, rules->release) && !rules->wants_parts) {
        better = joined(content);
    } else if (json_is_array(content) && json_len(content) && rules->media && !rules->wants_parts) {
        better = with_media(content, rules->media);
    } else if (json_is_array(content)) {
        better = known_parts(content, rules->release);
    } else if (json_is_string(content) && rules->wants_parts) {
        better = json_new_array();
        (void)json_add(better, text_part(json_cstr(content)));
    }
    if (better)
        (void)json_set(message, "content", better);
}

/* --- calls -------------------------------------------------------------------------------------
 */

/* Arguments come as the text of a JSON object; most templates want the object. */
static void parse_arguments(struct json *function)
{
    const char *text = json_get_cstr(function, "arguments");
    struct json *value = NULL;
    struct err e;

    if (text && json_parse_wide(&value, str_from(text), &e) == 0)
        (void)json_set(function, "arguments", value);
}

static void print_arguments(struct json *function)
{
    const struct json *value = json_get(function, "arguments");

    if (json_is_object(value)) {
        AUTO(mem_free) char *text = json_to_cstr(value);

        (void)json_set_cstr(function, "arguments", text);
    }
}

static void normalize_calls(struct json *message, const struct chat_rules *rules)
{
    JSON_FOREACH (call, json_get(message, "tool_calls")) {
        struct json *function = json_get(call, "function");

        if (rules->arguments_stay)
            print_arguments(function);
        else
            parse_arguments(function);
    }
    parse_arguments(json_get(message, "function_call"));
}

/* --- thoughts ----------------------------------------------------------------------------------
 */

/* Each thought between @before and @after, @between them. False: there is none. */
static bool put_thoughts(const struct json *thoughts, const char *before, const char *after,
                         const char *between, struct buf *out)
{
    const struct json *one = json_is_array(thoughts) ? json_first(thoughts) : thoughts;
    bool any = false;

    for (; one; one = json_is_array(thoughts) ? json_next(one) : NULL) {
        const char *text = json_cstr(one);

        if (!text || !text[0])
            continue;
        buf_printf(out, "%s%s%s%s", any ? between : "", before, text, after);
        any = true;
    }
    return any;
}

static void put_before(struct json *message, const char *thoughts)
{
    struct json *content = json_get(message, "content");

    if (json_is_array(content)) {
        (void)json_insert(content, 0, text_part(thoughts));
    } else {
        const char *text = json_cstr(content);
        AUTO(mem_free) char *both = xasprintf("%s%s", thoughts, text ? text : "");

        (void)json_set_cstr(message, "content", both);
    }
}

/* The reference fills the gap of a member that it takes out with the last one, and templates that
 * print a whole message show it. Takes @object. */
static struct json *without(struct json *object, const char *key)
{
    struct json *out = json_new_object(), *last = json_first(object), *v;

    JSON_FOREACH (member, object)
        last = member;
    while ((v = json_first(object))) {
        AUTO(mem_free) char *name = xstrdup(json_key(v));

        if (v != last && strcmp(name, key) == 0) {
            AUTO(mem_free) char *moved = xstrdup(json_key(last));

            (void)json_set(out, moved, json_take(object, moved));
            json_del(object, name);
        } else if (strcmp(name, key) == 0) {
            json_del(object, name);
        } else {
            (void)json_set(out, name, json_take(object, name));
        }
    }
    (void)json_free(object);
    return out;
}

/* Takes and returns the message. */
static struct json *with_thoughts(struct json *message, const struct chat_rules *rules)
{
    const struct json *thoughts = json_get(message, "reasoning_content");
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (!thoughts || !is_of(message, "assistant"))
        return message;
    if (!rules->reads_thoughts) {
        if (!put_thoughts(thoughts, "<think>", "</think>", "", &text))
            return message;
        put_before(message, buf_cstr(&text));
        return without(message, "reasoning_content");
    }
    if (rules->joins_thoughts && json_is_array(thoughts)) {
        (void)put_thoughts(thoughts, "", "", "\n", &text);
        (void)json_set(message, "reasoning_content", json_new_str(buf_str(&text)));
    }
    return message;
}

/* --- all of it ---------------------------------------------------------------------------------
 */

struct json *chat_known_messages(const struct json *messages, enum chat_release release)
{
    struct json *all = json_new_array();

    JSON_FOREACH (message, messages)
        (void)json_add(all, release == CHAT_AS_SENT ? json_dup(message)
                                                    : known_message(message, release));
    return all;
}

struct json *chat_messages(const struct json *messages, const struct chat_rules *rules)
{
    struct json *all = chat_known_messages(messages, rules->release);
    struct json *out = json_new_array(), *m;

    if (rules->one_system || rules->users_alternate)
        all = normalize_roles(all, rules);
    while ((m = json_take_at(all, 0))) {
        normalize_content(m, rules);
        normalize_calls(m, rules);
        (void)json_add(out, rules->release == CHAT_OF_1 ? with_thoughts(m, rules) : m);
    }
    (void)json_free(all);
    return out;
}

/* Templates join descriptions without asking for them. */
static void normalize_function(struct json *function, enum chat_release release)
{
    struct json *parameters = json_get(function, "parameters");

    if (release != CHAT_OF_0_9 && json_is_object(function) &&
        !json_is_string(json_get(function, "description")))
        (void)json_set_cstr(function, "description", "");
    if (!json_is_object(parameters))
        return;
    if (!json_get(parameters, "type"))
        (void)json_set_cstr(parameters, "type", "object");
    if (!json_get(parameters, "properties"))
        (void)json_set(parameters, "properties", json_new_object());
}

struct json *chat_tools(const struct json *tools, const struct chat_rules *rules)
{
    struct json *all =
        rules->release == CHAT_AS_SENT ? json_dup(tools) : known_functions(tools, FUNCTION);

    JSON_FOREACH (tool, all)
        normalize_function(json_get(tool, "function"), rules->release);
    return all;
}

struct json *chat_response_format(struct str text)
{
    static const char *const schema_keys[] = {"description", "name", "schema", "strict", NULL};
    AUTO(json_free) struct json *sent = NULL;
    const struct json *schema;
    struct json *out;
    struct err e;

    if (text.len == 0 || json_parse_wide(&sent, text, &e) < 0)
        return NULL;
    out = json_new_object();
    copy(out, "type", json_get(sent, "type"));
    schema = json_get(sent, "json_schema");
    if (json_is_object(schema))
        (void)json_set(out, "json_schema", known_members(schema, schema_keys));
    return out;
}
