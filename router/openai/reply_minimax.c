/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of MiniMax M3: each mark has the same few characters before it, and arguments are elements
 * that bear their names, one in another:
 *
 *     <invoke name="NAME"> <KEY>VALUE</KEY> <KEY> <item>VALUE</item> … </KEY> … </invoke> …
 *
 * Repeated names make a list, and so do items where the schema says so. Values are what the schema
 * says, else texts.
 */
#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "router/openai/reply_calls.h"

enum { DEPTH_MAX = 32, MEMBERS_MAX = 256 };

#define NS "]<]minimax[>["

/* One element; false at the end of @rest or of what can be read. */
static bool take_element(struct str *rest, struct str *ret_name, struct str *ret_body)
{
    AUTO(buf_done) struct buf end = BUF_NULL;
    struct str part;

    if (!reply_take_to(rest, NS "<", &part) || !reply_take_to(rest, ">", ret_name))
        return false;
    if (!ret_name->len || ret_name->ptr[0] == '/' || memchr(ret_name->ptr, '\0', ret_name->len))
        return false;
    buf_printf(&end, NS "</%.*s>", STR_ARG(*ret_name));
    return reply_take_to(rest, buf_cstr(&end), ret_body);
}

static void put_leaf(struct json_put *j, struct str text, const struct json *schema)
{
    static const struct {
        const char *name, *text;
    } escapes[] = {{"&lt;", "<"},    {"&gt;", ">"},   {"&amp;", "&"},
                   {"&quot;", "\""}, {"&#x27;", "'"}, {"&#39;", "'"}};
    AUTO(buf_done) struct buf plain = BUF_NULL;

    while (text.len) {
        size_t i = 0;

        while (i < ARRAY_LEN(escapes) && !str_starts(text, str_from(escapes[i].name)))
            i++;
        if (i < ARRAY_LEN(escapes))
            buf_put_cstr(&plain, escapes[i].text);
        else
            buf_put_char(&plain, text.ptr[0]);
        text = str_skip(text, i < ARRAY_LEN(escapes) ? strlen(escapes[i].name) : 1);
    }
    reply_put_value(j, buf_str(&plain), schema);
}

static bool put_body(struct json_put *j, struct str body, const struct json *schema, int depth);

static bool put_items(struct json_put *j, struct str body, const struct json *schema, int depth)
{
    struct str name, item;

    json_put_array(j);
    while (take_element(&body, &name, &item))
        if (!put_body(j, item, json_get(schema, "items"), depth))
            return false;
    json_put_array_end(j);
    return true;
}

struct member {
    struct str name, body;
    bool put;
};

/* All elements of @body; -1 when they are too many. */
static int take_members(struct str body, struct member *members)
{
    struct member m = {0};
    int n = 0;

    while (take_element(&body, &m.name, &m.body)) {
        if (n == MEMBERS_MAX)
            return -1;
        members[n++] = m;
    }
    return n;
}

/* The first of @members, and those after it that share its name: one value, or a list of several. */
static bool put_named(struct json_put *j, struct member *members, int n, const struct json *schema,
                      int depth)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put values = json_put_on(&out);
    int n_values = 0;

    for (int i = 0; i < n; i++) {
        if (members[i].put || !str_eq(members[i].name, members[0].name))
            continue;
        if (!put_body(&values, members[i].body, schema, depth))
            return false;
        members[i].put = true;
        n_values++;
    }
    if (n_values > 1)
        json_put_array(j);
    json_put_raw(j, buf_str(&out));
    if (n_values > 1)
        json_put_array_end(j);
    return true;
}

static bool put_members(struct json_put *j, struct str body, const struct json *schema, int depth)
{
    AUTO(mem_free) struct member *members = xcalloc(MEMBERS_MAX, sizeof(*members));
    int n = take_members(body, members);

    if (n < 0)
        return false;
    json_put_object(j);
    for (int i = 0; i < n; i++) {
        if (members[i].put)
            continue;
        json_put_key_str(j, members[i].name);
        if (!put_named(j, members + i, n - i, reply_property(schema, members[i].name), depth))
            return false;
    }
    json_put_object_end(j);
    return true;
}

static bool put_body(struct json_put *j, struct str body, const struct json *schema, int depth)
{
    struct str rest = body, name, value;
    const char *type = json_get_cstr(schema, "type");

    if (depth > DEPTH_MAX)
        return false;
    if (!take_element(&rest, &name, &value))
        put_leaf(j, body, schema);
    else if (type && strcmp(type, "array") == 0 && str_is(name, "item"))
        return put_items(j, body, schema, depth + 1);
    else
        return put_members(j, body, schema, depth + 1);
    return true;
}

bool reply_read_minimax_m3(struct str text, struct reply_found *f)
{
    struct str part, mark, body, name;

    while (reply_take_to(&text, NS "<invoke name=", &part)) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct json_put j = json_put_on(&out);

        if (!reply_take_to(&text, ">", &mark) || !reply_take_to(&text, NS "</invoke>", &body))
            return false;
        name = str_trim(mark);
        if (name.len > 1 && strchr("'\"", name.ptr[0]) && name.ptr[0] == name.ptr[name.len - 1])
            name = str_slice(name.ptr + 1, name.len - 2);
        if (!put_members(&j, body, reply_schema(f, name), 0) ||
            !reply_add_call(f, name, buf_str(&out), STR_NULL))
            return false;
    }
    return true;
}
