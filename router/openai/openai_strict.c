/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the reference refuses in a chat and the table of keys does not look at: members of messages, calls, tools and
 * the form of answers that are not of their type. 0.9.0 knows fewer of them than 1.6.1
 * (e2e/test_bodies_interop.py).
 */
#include "router/openai/openai_read.h"

#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/openai/chat_build.h"

/* What a member may be; nothing and null too, unless it is needed. */
enum member_type {
    IS_TEXT,
    IS_BOOL,
    IS_OBJECT,
    IS_NAMED,
    IS_CALL,
    IS_PARTIAL,
    IS_THOUGHTS,
    IS_NOTHING
};

enum member_need {
    MAY_BE,
    MUST_BE,
    LOOKED_AT_BY_1 /* may be; 0.9.0 does not look at it */
};

struct member_rule {
    const char *key;
    enum member_type type;
    enum member_need need;
};

enum { PARTS_OF_TEXT = 1, PARTS_OF_REFUSAL = 2, PARTS_OF_MEDIA = 4, PARTS_OF_SOUND = 8 };

struct role_rule {
    const char *role;
    unsigned parts;     /* 0 = a text alone */
    bool needs_content; /* else it may be null */
    struct member_rule members[8];
};

#define NO_TOOLS                                                                                   \
    {                                                                                              \
        "tools", IS_NOTHING, LOOKED_AT_BY_1                                                        \
    }
#define NO_PARTIAL                                                                                 \
    {                                                                                              \
        "partial", IS_NOTHING, LOOKED_AT_BY_1                                                      \
    }
#define NAME                                                                                       \
    {                                                                                              \
        "name", IS_TEXT, MAY_BE                                                                    \
    }
static const struct role_rule ROLES[] = {
    {"user", PARTS_OF_TEXT | PARTS_OF_MEDIA | PARTS_OF_SOUND, true, {NAME, NO_TOOLS, NO_PARTIAL}},
    {"system", PARTS_OF_TEXT, true, {NAME, NO_PARTIAL}},
    {"developer", PARTS_OF_TEXT, true, {NAME, NO_TOOLS, NO_PARTIAL}},
    {"tool",
     PARTS_OF_TEXT | PARTS_OF_MEDIA,
     true,
     {{"tool_call_id", IS_TEXT, MUST_BE}, NO_TOOLS, NO_PARTIAL}},
    {"function", 0, false, {{"name", IS_TEXT, MUST_BE}, NO_TOOLS, NO_PARTIAL}},
    {"assistant",
     PARTS_OF_TEXT | PARTS_OF_REFUSAL,
     false,
     {NAME,
      NO_TOOLS,
      {"refusal", IS_TEXT, MAY_BE},
      {"audio", IS_NAMED, MAY_BE},
      {"function_call", IS_CALL, MAY_BE},
      {"partial", IS_PARTIAL, LOOKED_AT_BY_1},
      {"reasoning_content", IS_THOUGHTS, LOOKED_AT_BY_1},
      {"reasoning", IS_THOUGHTS, LOOKED_AT_BY_1}}},
};

/* Where in the body something is wrong. */
struct place {
    struct api_error *e;
    const char *list; /* of the body; "messages" */
    size_t i;
    bool of_1; /* as 1.6.1 looks at it, else as 0.9.0 */
};

static bool wrong(const struct place *at, const char *what, const char *want)
{
    return api_malformed(at->e, at->list,
                         "Failed to deserialize the JSON body into the target type: %s[%zu].%s: "
                         "expected %s",
                         at->list, at->i, what, want);
}

/* --- members ---------------------------------------------------------------------------------- */

/* Of a message and what it is made of, a tool and an answer's form; of others the last one counts. */
static bool come_once(const struct json *object, struct api_error *e)
{
    static const char *const keys[] = {
        "role",        "content",     "name",      "tool_calls",    "tool_call_id",
        "refusal",     "audio",       "function",  "function_call", "reasoning_content",
        "type",        "text",        "image_url", "video_url",     "audio_url",
        "input_audio", "url",         "detail",    "uuid",          "data",
        "format",      "id",          "arguments", "description",   "parameters",
        "strict",      "json_schema", "schema"};

    return chat_has_once(object, keys, ARRAY_LEN(keys), e);
}

static bool is_thoughts(const struct json *v)
{
    JSON_FOREACH (one, v)
        if (!json_is_string(one))
            return false;
    return json_is_string(v) || json_is_array(v);
}

static bool is_true(const struct json *v)
{
    bool flag = false;

    return json_bool(v, &flag) && flag;
}

static bool fits(const struct json *v, enum member_type type)
{
    switch (type) {
    case IS_TEXT:
        return json_is_string(v);
    case IS_BOOL:
        return json_kind_of(v) == JSON_KIND_BOOL;
    case IS_OBJECT:
        return json_is_object(v);
    case IS_NAMED:
        return json_get_cstr(v, "id") != NULL;
    case IS_CALL:
        return json_get_cstr(v, "name") && json_get_cstr(v, "arguments");
    case IS_PARTIAL: /* of models that go on with a message, which we serve none of */
        return json_kind_of(v) == JSON_KIND_BOOL && !is_true(v);
    case IS_THOUGHTS:
        return is_thoughts(v);
    case IS_NOTHING:
        break;
    }
    return false;
}

static const char *wanted(enum member_type type)
{
    static const char *const words[] = {
        [IS_TEXT] = "a string",
        [IS_BOOL] = "a boolean",
        [IS_OBJECT] = "an object",
        [IS_NAMED] = "an object with an id",
        [IS_CALL] = "name and arguments",
        [IS_PARTIAL] = "false: the model cannot go on with a message",
        [IS_THOUGHTS] = "a string or an array of strings",
        [IS_NOTHING] = "nothing in a message of this role",
    };

    return words[type];
}

static bool check_member(const struct json *object, const struct member_rule *rule,
                         const struct place *at)
{
    const struct json *v = json_get(object, rule->key);
    bool nothing = !v || json_is_null(v);

    if (rule->need == LOOKED_AT_BY_1 && !at->of_1)
        return true;
    return (nothing ? rule->need != MUST_BE : fits(v, rule->type))
               ? true
               : wrong(at, rule->key, wanted(rule->type));
}

/* --- content ---------------------------------------------------------------------------------- */

static bool has_type(const struct json *v, const char *type)
{
    const char *has = json_get_cstr(v, "type");

    return has && strcmp(has, type) == 0;
}

/* As far as what fetches it cannot be expected to make something of anything else. */
static bool is_url(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.");

    return n && s[n] == ':' && s[n + 1];
}

static bool is_medium(const struct json *part, bool of_1)
{
    static const char *const types[] = {"image_url", "video_url", "audio_url"};

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const char *url = json_get_cstr(json_get(part, types[i]), "url");

        if (has_type(part, types[i]))
            return url ? is_url(url) : of_1 && json_get_cstr(part, "uuid");
    }
    return false;
}

static bool is_part(const struct json *part, unsigned kinds, bool of_1)
{
    const struct json *sound = json_get(part, "input_audio");

    if (has_type(part, "text"))
        return kinds & PARTS_OF_TEXT && json_get_cstr(part, "text");
    if (has_type(part, "refusal"))
        return kinds & PARTS_OF_REFUSAL && json_get_cstr(part, "refusal");
    if (has_type(part, "input_audio"))
        return kinds & PARTS_OF_SOUND && json_get_cstr(sound, "data") &&
               json_get_cstr(sound, "format");
    return kinds & PARTS_OF_MEDIA && is_medium(part, of_1);
}

static bool part_comes_once(const struct json *part, struct api_error *e)
{
    JSON_FOREACH (member, part)
        if (json_is_object(member) && !come_once(member, e))
            return false;
    return come_once(part, e);
}

static bool check_content(const struct json *message, const struct role_rule *rule,
                          const struct place *at)
{
    const struct json *content = json_get(message, "content");
    unsigned parts = rule->parts;

    if (!at->of_1 && strcmp(rule->role, "tool") == 0)
        parts &= PARTS_OF_TEXT;
    if (!content || json_is_null(content))
        return rule->needs_content ? wrong(at, "content", "a string or an array") : true;
    if (json_is_array(content) && !rule->parts)
        return wrong(at, "content", "a string");
    JSON_FOREACH (part, content) {
        if (!is_part(part, parts, at->of_1))
            return wrong(at, "content", "parts that a message of this role may have");
        if (!part_comes_once(part, at->e))
            return false;
    }
    return true;
}

/* --- calls and tools -------------------------------------------------------------------------- */

static bool are_arguments(const struct json *v, bool of_1)
{
    AUTO(json_free) struct json *parsed = NULL;
    struct str text = str_from(json_cstr(v));
    struct err e;

    if (!of_1)
        return json_is_string(v);
    return json_is_object(v) ||
           (json_is_string(v) &&
            (text.len == 0 || (json_parse_wide(&parsed, text, &e) == 0 && json_is_object(parsed))));
}

static bool check_calls(const struct json *message, const struct place *at)
{
    const struct json *calls = json_get(message, "tool_calls");

    if (!calls || json_is_null(calls))
        return true;
    if (!json_is_array(calls))
        return wrong(at, "tool_calls", "an array");
    JSON_FOREACH (call, calls) {
        const struct json *function = json_get(call, "function");

        if (!json_get_cstr(call, "id") ||
            ((json_get(call, "type") || !at->of_1) && !has_type(call, "function")))
            return wrong(at, "tool_calls", "an id and the type function");
        if (!json_get_cstr(function, "name"))
            return wrong(at, "tool_calls", "the name of a function");
        if (!are_arguments(json_get(function, "arguments"), at->of_1))
            return wrong(at, "tool_calls", "arguments that are a JSON object");
        if (!come_once(call, at->e) || !come_once(function, at->e))
            return false;
    }
    return true;
}

/* Tools that a message brings along are for models whose prompts we do not make. */
static bool check_system(const struct json *message, const struct place *at)
{
    const struct json *tools = json_get(message, "tools");

    return !tools || json_is_null(tools) || (json_is_array(tools) && json_len(tools) == 0)
               ? true
               : wrong(at, "tools", "none: the model takes them beside messages alone");
}

static bool check_message(const struct json *m, const struct place *at)
{
    const char *role = json_get_cstr(m, "role");
    const struct role_rule *rule = NULL;

    for (size_t i = 0; i < ARRAY_LEN(ROLES); i++)
        if (role && strcmp(role, ROLES[i].role) == 0)
            rule = &ROLES[i];
    if (!come_once(m, at->e))
        return false;
    if (!rule)
        return wrong(at, "role", "developer, system, user, assistant, tool or function");
    for (size_t i = 0; i < ARRAY_LEN(rule->members) && rule->members[i].key; i++)
        if (!check_member(m, &rule->members[i], at))
            return false;
    if (at->of_1 && strcmp(role, "system") == 0 && !check_system(m, at))
        return false;
    if (strcmp(role, "assistant") != 0)
        return check_content(m, rule, at);
    if (at->of_1 && json_get(m, "reasoning") && json_get(m, "reasoning_content"))
        return wrong(at, "reasoning", "nothing beside reasoning_content");
    return check_content(m, rule, at) && check_calls(m, at);
}

enum { NAME_MAX_OF_0_9 = 64 }; /* characters; anything else may be in it */

static bool is_function_name(const char *name, bool of_1)
{
    size_t n = 0;

    if (!of_1) {
        for (; *name; name++)
            n += (*name & 0xc0) != 0x80;
        return n <= NAME_MAX_OF_0_9;
    }

    return name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] ==
           '\0';
}

static bool check_tool(const struct json *tool, const struct place *at)
{
    static const struct member_rule members[] = {{"name", IS_TEXT, MUST_BE},
                                                 {"description", IS_TEXT, MAY_BE},
                                                 {"parameters", IS_OBJECT, LOOKED_AT_BY_1},
                                                 {"strict", IS_BOOL, MAY_BE}};
    const struct json *function = json_get(tool, "function");

    if (!come_once(tool, at->e) || !come_once(function, at->e))
        return false;
    if (!has_type(tool, "function"))
        return wrong(at, "type", "function");
    for (size_t i = 0; i < ARRAY_LEN(members); i++)
        if (!check_member(function, &members[i], at))
            return false;
    return is_function_name(json_get_cstr(function, "name"), at->of_1)
               ? true
               : api_fail(at->e, 400, "tools",
                          "Validation: Function at index %zu has an invalid name: %s", at->i,
                          at->of_1 ? "letters, digits, _ and - are allowed"
                                   : "64 characters are allowed");
}

/* --- the form of answers ---------------------------------------------------------------------- */

static bool check_schema(const struct openai_request *r, bool of_1, struct api_error *e)
{
    static const struct member_rule members[] = {{"name", IS_TEXT, MUST_BE},
                                                 {"schema", IS_OBJECT, MUST_BE},
                                                 {"description", IS_TEXT, MAY_BE},
                                                 {"strict", IS_BOOL, MAY_BE}};
    AUTO(json_free) struct json *format = NULL;
    const struct json *schema;
    struct err why;

    if (!r->guided.response_format.len ||
        json_parse_wide(&format, r->guided.response_format, &why) < 0)
        return true;
    schema = json_get(format, "json_schema");
    if (!come_once(format, e) || !come_once(schema, e))
        return false;
    if (!has_type(format, "json_schema"))
        return true;
    for (size_t i = 0; i < ARRAY_LEN(members); i++) {
        const struct json *v = json_get(schema, members[i].key);

        if (!v || json_is_null(v)
                ? members[i].need == MUST_BE
                : !fits(v, members[i].type) && (of_1 || members[i].type != IS_OBJECT))
            return api_malformed(e, "response_format",
                                 "Failed to deserialize the JSON body into the target type: "
                                 "response_format.json_schema.%s: expected %s",
                                 members[i].key, wanted(members[i].type));
    }
    return json_get_cstr(schema, "name")[0]
               ? true
               : api_fail(e, 400, "response_format",
                          "Validation: response_format.json_schema.name must not be empty");
}

bool openai_check_strictly(const struct openai_request *r, bool of_1, struct api_error *e)
{
    struct place at = {.e = e, .list = "messages", .of_1 = of_1};

    JSON_FOREACH (m, r->messages) {
        if (!check_message(m, &at))
            return false;
        at.i++;
    }
    at = (struct place){.e = e, .list = "tools", .of_1 = of_1};
    JSON_FOREACH (tool, r->tools) {
        if (!check_tool(tool, &at))
            return false;
        at.i++;
    }
    return check_schema(r, of_1, e);
}
