/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls whose arguments are elements: names and values between marks. What a value is says the
 * tool's schema; of a tool or an argument that the request does not describe it is text.
 */
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "router/openai/reply_calls.h"

/* --- values ----------------------------------------------------------------------------------- */

const struct json *reply_schema(const struct reply_found *f, struct str tool)
{
    JSON_FOREACH (it, f->tools) {
        const struct json *function = json_get(it, "function");
        const char *name = json_get_cstr(function, "name");

        if (name && str_is(tool, name))
            return json_get(function, "parameters");
    }
    return NULL;
}

const struct json *reply_property(const struct json *schema, struct str key)
{
    JSON_FOREACH (property, json_get(schema, "properties"))
        if (str_is(key, json_key(property)))
            return property;
    return NULL;
}

/* The schema of one argument; NULL when the request has none. */
static const struct json *argument_schema(const struct reply_found *f, struct str tool,
                                          struct str key)
{
    return reply_property(reply_schema(f, tool), key);
}

static bool kind_fits(enum json_kind kind, const char *type)
{
    static const struct {
        const char *type;
        enum json_kind kind;
    } kinds[] = {
        {"integer", JSON_KIND_NUMBER}, {"number", JSON_KIND_NUMBER}, {"boolean", JSON_KIND_BOOL},
        {"object", JSON_KIND_OBJECT},  {"array", JSON_KIND_ARRAY},   {"null", JSON_KIND_NULL},
    };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kind == kinds[i].kind;
    return false;
}

void reply_put_value(struct json_put *j, struct str text, const struct json *schema)
{
    AUTO(json_free) struct json *v = NULL;
    AUTO(buf_done) struct buf compact = BUF_NULL;
    const char *type = json_get_cstr(schema, "type");
    struct err e;

    if (!schema || !text.len || json_parse_wide(&v, text, &e) != 0 ||
        (type ? !kind_fits(json_kind_of(v), type) : json_is_string(v))) {
        json_put_str(j, text);
        return;
    }
    (void)reply_compact_json(text, &compact);
    json_put_raw(j, buf_str(&compact));
}

/* --- <function=NAME> <parameter=KEY> VALUE </parameter> … </function> -------------------------- */

bool reply_read_elements(struct str text, struct reply_found *f)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct str part, name, key, value, body;

    if (!reply_take_to(&text, "<function=", &part) || !reply_take_to(&text, ">", &name))
        return false;
    name = str_trim(name);
    body = text;
    (void)reply_take_to(&text, "</function>", &body);
    json_put_object(&j);
    while (reply_take_to(&body, "<parameter=", &part)) {
        if (!reply_take_to(&body, ">", &key) || !reply_take_to(&body, "</parameter>", &value))
            return false;
        /* One newline on each side belongs to the writing. */
        value = str_skip(value, str_starts(value, STR("\n")));
        value.len -= str_ends(value, STR("\n"));
        key = str_trim(key);
        json_put_key_str(&j, key);
        reply_put_value(&j, value, argument_schema(f, name, key));
    }
    json_put_object_end(&j);
    return reply_add_call(f, name, buf_str(&out), STR_NULL);
}

/* --- <invoke name="NAME"> <parameter name="KEY"> VALUE </parameter> … </invoke> … --------------- */

/* What a value is. */
enum values {
    BY_SCHEMA,
    TOLD,         /* string="true" or "false" */
    TOLD_EXACTLY, /* the same, with its blanks, and what is no JSON then is no call */
    TYPED,        /* type="string" or another */
    ANY_JSON,     /* JSON where it can be read as such */
};

/* One such way of writing. */
struct invokes {
    const char *invoke, *invoke_end, *parameter, *parameter_end;
    const char *close;      /* ends either mark that begins something */
    const char *name, *key; /* attributes */
    enum values values;
    const char *json, *json_end; /* instead of parameters: all arguments; NULL = no such form */
};

/* The value of @attribute in the rest of a mark, with or without quotes; empty = none. */
static struct str attribute_of(struct str rest, const char *attribute)
{
    struct str part, value;
    char quote;

    if (!reply_take_to(&rest, attribute, &part) || !rest.len)
        return STR_NULL;
    quote = rest.ptr[0];
    if (quote != '"' && quote != '\'')
        return str_trim(rest);
    value = str_skip(rest, 1);
    for (size_t n = 0; n < value.len; n++)
        if (value.ptr[n] == quote)
            return str_head(value, n);
    return STR_NULL;
}

static bool put_json_or_text(struct json_put *j, struct str text, bool is_text)
{
    AUTO(buf_done) struct buf compact = BUF_NULL;
    bool is_json = !is_text && reply_compact_json(text, &compact);

    if (is_json)
        json_put_raw(j, buf_str(&compact));
    else
        json_put_str(j, text);
    return is_json || is_text;
}

static bool put_invoked(struct json_put *j, enum values values, struct str mark, struct str value,
                        const struct json *schema)
{
    struct str type;

    switch (values) {
    case BY_SCHEMA:
        reply_put_value(j, str_trim(value), schema);
        return true;
    case TOLD:
        (void)put_json_or_text(j, str_trim(value), str_is(attribute_of(mark, "string="), "true"));
        return true;
    case TOLD_EXACTLY:
        return put_json_or_text(j, value, str_is(attribute_of(mark, "string="), "true"));
    case TYPED:
        type = attribute_of(mark, "type=");
        (void)put_json_or_text(j, value, !type.len || str_is(type, "string"));
        return true;
    case ANY_JSON:
        break;
    }
    (void)put_json_or_text(j, value, false);
    return true;
}

/* All arguments of a call as one JSON; false when it has parameters instead. */
static bool take_json(const struct invokes *marks, struct str body, struct buf *ret)
{
    struct str part, json = str_trim(body);

    if (!marks->json || !str_starts(json, str_from(marks->json)))
        return false;
    if (marks->json_end && (!reply_take_to(&json, marks->close, &part) ||
                            !reply_take_to(&json, marks->json_end, &part)))
        return false;
    return reply_compact_json(marks->json_end ? part : json, ret);
}

static bool read_invoke(const struct invokes *marks, struct str name, struct str body,
                        struct reply_found *f)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct str part, mark, key, value;

    if (take_json(marks, body, &out))
        return reply_add_call(f, name, buf_str(&out), STR_NULL);
    json_put_object(&j);
    while (reply_take_to(&body, marks->parameter, &part)) {
        if (!reply_take_to(&body, marks->close, &mark) ||
            !reply_take_to(&body, marks->parameter_end, &value))
            return false;
        key = attribute_of(mark, marks->key);
        json_put_key_str(&j, key);
        if (!put_invoked(&j, marks->values, mark, value, argument_schema(f, name, key)))
            return false;
    }
    json_put_object_end(&j);
    return reply_add_call(f, name, buf_str(&out), STR_NULL);
}

static bool read_invokes(const struct invokes *marks, struct str text, struct reply_found *f)
{
    struct str part, mark, body;

    while (reply_take_to(&text, marks->invoke, &part))
        if (!reply_take_to(&text, marks->close, &mark) ||
            !reply_take_to(&text, marks->invoke_end, &body) ||
            !read_invoke(marks, attribute_of(mark, marks->name), body, f))
            return false;
    return true;
}

bool reply_read_invokes(struct str text, struct reply_found *f)
{
    static const struct invokes plain = {
        .invoke = "<invoke",
        .invoke_end = "</invoke>",
        .parameter = "<parameter",
        .parameter_end = "</parameter>",
        .close = ">",
        .name = "name=",
        .key = "name=",
    };

    return read_invokes(&plain, text, f);
}

bool reply_read_atem(struct str text, struct reply_found *f)
{
    static const struct invokes atem = {
        .invoke = "<atem:invoke",
        .invoke_end = "</atem:invoke>",
        .parameter = "<atem:parameter",
        .parameter_end = "</atem:parameter>",
        .close = ">",
        .name = "name=",
        .key = "name=",
        .values = ANY_JSON,
    };

    return read_invokes(&atem, text, f);
}

/* <|open|>call tool="NAME"<|sep|> <|open|>argument key="KEY" type="TYPE"<|sep|>VALUE
 * <|close|>argument<|sep|> … <|close|>call<|sep|> … */
bool reply_read_kimi_k3(struct str text, struct reply_found *f)
{
    static const struct invokes kimi = {
        .invoke = "<|open|>call",
        .invoke_end = "<|close|>call<|sep|>",
        .parameter = "<|open|>argument",
        .parameter_end = "<|close|>argument<|sep|>",
        .close = "<|sep|>",
        .name = "tool=",
        .key = "key=",
        .values = TYPED,
        .json = "<|open|>json",
        .json_end = "<|close|>json<|sep|>",
    };

    return read_invokes(&kimi, text, f);
}

#define BAR "\xef\xbd\x9c"
/* V4.1 has a blank between the mark and the name of the tag. */
#define DSML(gap)                                                                                  \
    .invoke = "<" BAR "DSML" BAR gap "invoke", .invoke_end = "</" BAR "DSML" BAR gap "invoke>",    \
    .parameter = "<" BAR "DSML" BAR gap "parameter",                                               \
    .parameter_end = "</" BAR "DSML" BAR gap "parameter>", .close = ">",                           \
    .name = "name=", .key = "name="

bool reply_read_dsml(struct str text, struct reply_found *f)
{
    static const struct invokes dsml = {DSML(""), .values = TOLD};

    return read_invokes(&dsml, text, f);
}

bool reply_read_dsml_v41(struct str text, struct reply_found *f)
{
    static const struct invokes dsml = {DSML(" "), .values = TOLD_EXACTLY, .json = "{"};

    return read_invokes(&dsml, text, f);
}

/* --- NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> … -------------------------------- */

bool reply_read_pairs(struct str text, struct reply_found *f)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct str part, key, value, name = text, body = text;

    if (reply_take_to(&body, "<arg_key>", &name))
        body = str_skip(text, name.len);
    else
        body = STR_NULL;
    name = str_trim(name);
    if (!name.len || memchr(name.ptr, '<', name.len) || memchr(name.ptr, '{', name.len))
        return false;
    json_put_object(&j);
    while (reply_take_to(&body, "<arg_key>", &part)) {
        if (!reply_take_to(&body, "</arg_key>", &key) ||
            !reply_take_to(&body, "<arg_value>", &part) ||
            !reply_take_to(&body, "</arg_value>", &value))
            return false;
        key = str_trim(key);
        json_put_key_str(&j, key);
        reply_put_value(&j, str_trim(value), argument_schema(f, name, key));
    }
    json_put_object_end(&j);
    return reply_add_call(f, name, buf_str(&out), STR_NULL);
}
