/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/call_tags.h"

#include <string.h>

#include "lib/base/json_put.h"

/* Calls lie between marks, each alone or all in a block. */
struct form {
    const char *parser;
    const char *trigger;           /* the text from which the grammar holds */
    const char *before, *after;    /* around a tool's name */
    const char *end;               /* of a call */
    const char *style;             /* of its arguments */
    const char *block, *block_end; /* around all calls; NULL = none */
    const char *const *excludes;   /* what is in no text outside of calls; NULL = anything may be */
    bool counts;                   /* a call has a number behind its name */
    bool bare_name;                /* a named call is all of the answer */
    bool empty_is_nothing;         /* no argument and none allowed: no text at all */
};

static const char *const GLM_MARKS[] = {"<think>",    "</think>",    "</tool_call>", "<arg_key>",
                                        "</arg_key>", "<arg_value>", "</arg_value>", NULL};

#define JSON_CALL                                                                                  \
    .trigger = "<tool_call>", .before = "<tool_call>\n{\"name\": \"",                              \
    .after = "\", \"arguments\": ", .end = "}\n</tool_call>", .style = "json"
#define XML_CALL                                                                                   \
    .trigger = "<tool_call>\n<function=", .before = "<tool_call>\n<function=", .after = ">\n",     \
    .end = "\n</function>\n</tool_call>", .style = "qwen_xml", .empty_is_nothing = true
#define DSML "｜DSML｜"
#define DSML_CALLS(word)                                                                           \
    .trigger = "<" DSML word ">", .block = "<" DSML word ">\n", .block_end = "</" DSML word ">",   \
    .before = "<" DSML "invoke name=\"", .after = "\">\n", .end = "</" DSML "invoke>\n",           \
    .style = "deepseek_xml"

static const struct form FORMS[] = {
    {"hermes", JSON_CALL},
    {"qwen25", JSON_CALL},
    {"qwen3_coder", XML_CALL},
    {"nemotron_nano", XML_CALL},
    {"deepseek_v3_2", DSML_CALLS("function_calls")},
    {"deepseek_v4", DSML_CALLS("tool_calls")},
    {"deepseek-v4", DSML_CALLS("tool_calls")},
    {"deepseekv4", DSML_CALLS("tool_calls")},
    {"inkling", .trigger = "<|content_invoke_tool_json|>",
     .before = "<|content_invoke_tool_json|>{\"name\": \"",
     .after = "\", \"args\": ", .end = "}<|end_message|>", .style = "json"},
    {"glm47", .trigger = "<tool_call>", .before = "<tool_call>", .after = "", .end = "</tool_call>",
     .style = "glm_xml", .excludes = GLM_MARKS, .bare_name = true},
    {"kimi_k2", .trigger = "<|tool_calls_section_begin|>", .block = "<|tool_calls_section_begin|>",
     .block_end = "<|tool_calls_section_end|>", .before = "<|tool_call_begin|>functions.",
     .after = ":", .end = "<|tool_call_end|>", .style = "json", .counts = true},
};

static const struct form *find_form(const char *parser)
{
    for (size_t i = 0; parser && i < ARRAY_LEN(FORMS); i++)
        if (strcmp(FORMS[i].parser, parser) == 0)
            return &FORMS[i];
    return NULL;
}

struct making {
    struct json_put j;
    const struct form *form;
    const struct call_tags *conf;
    const struct call_wish *wish;
};

static bool is_forced(const struct call_wish *w)
{
    return w->choice == TOOL_REQUIRED || w->choice == TOOL_NAMED;
}

static void open_typed(struct making *m, const char *type)
{
    json_put_object(&m->j);
    json_put_member_cstr(&m->j, "type", type);
}

static void open_list(struct making *m, const char *key)
{
    json_put_key(&m->j, key);
    json_put_array(&m->j);
}

static void put_text(struct making *m, const char *value)
{
    open_typed(m, "const_string");
    json_put_member_cstr(&m->j, "value", value);
    json_put_object_end(&m->j);
}

/* --- arguments -------------------------------------------------------------------------------- */

static bool allows_nothing(const struct json *schema)
{
    bool more = true;

    return json_is_object(schema) && json_len(json_get(schema, "properties")) == 0 &&
           json_get_bool(schema, "additionalProperties", &more) && !more;
}

/* NULL = anything goes. */
static const struct json *schema_of(const struct making *m, const struct json *function)
{
    bool strict = true;

    if (!m->conf->strict && json_get_bool(function, "strict", &strict) && !strict)
        return NULL;
    return json_get(function, "parameters");
}

static void put_arguments(struct making *m, const struct json *function)
{
    const struct json *schema = schema_of(m, function);
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (m->form->empty_is_nothing && allows_nothing(schema)) {
        put_text(m, "");
        return;
    }
    if (json_is_object(schema))
        json_print(schema, &text);
    else
        buf_put_cstr(&text, "true");
    open_typed(m, "json_schema");
    json_put_key(&m->j, "json_schema");
    json_put_raw(&m->j, buf_str(&text));
    json_put_member_cstr(&m->j, "style", m->form->style);
    json_put_object_end(&m->j);
}

static void put_number(struct making *m)
{
    open_typed(m, "regex");
    json_put_member_cstr(&m->j, "pattern", "\\d+");
    json_put_object_end(&m->j);
}

/* A number, a mark, the arguments. */
static void put_counted(struct making *m, const struct json *function)
{
    open_typed(m, "sequence");
    open_list(m, "elements");
    put_number(m);
    put_text(m, "<|tool_call_argument_begin|>");
    put_arguments(m, function);
    json_put_array_end(&m->j);
    json_put_object_end(&m->j);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void put_call(struct making *m, const struct json *tool)
{
    const struct json *function = json_get(tool, "function");
    AUTO(buf_done) struct buf begin = BUF_NULL;

    buf_put_cstr(&begin, m->form->before);
    buf_put_cstr(&begin, json_get_cstr(function, "name"));
    buf_put_cstr(&begin, m->form->after);
    open_typed(m, "tag");
    json_put_member_str(&m->j, "begin", buf_str(&begin));
    json_put_key(&m->j, "content");
    if (m->form->counts)
        put_counted(m, function);
    else
        put_arguments(m, function);
    json_put_member_cstr(&m->j, "end", m->form->end);
    json_put_object_end(&m->j);
}

static void put_calls(struct making *m)
{
    const struct call_wish *w = m->wish;

    if (w->choice == TOOL_NAMED) {
        put_call(m, guided_find_tool(w->tools, w->named));
        return;
    }
    JSON_FOREACH (tool, w->tools)
        put_call(m, tool);
}

static void put_counts(struct making *m, bool some)
{
    json_put_member_bool(&m->j, "at_least_one", some);
    json_put_member_bool(&m->j, "stop_after_first", m->wish->one);
}

static void put_joined(struct making *m)
{
    open_typed(m, "tags_with_separator");
    open_list(m, "tags");
    put_calls(m);
    json_put_array_end(&m->j);
    json_put_member_cstr(&m->j, "separator", "");
    put_counts(m, true);
    json_put_object_end(&m->j);
}

static void put_block(struct making *m)
{
    open_typed(m, "tag");
    json_put_member_cstr(&m->j, "begin", m->form->block);
    json_put_key(&m->j, "content");
    put_joined(m);
    json_put_member_cstr(&m->j, "end", m->form->block_end);
    json_put_object_end(&m->j);
}

/* --- formats ---------------------------------------------------------------------------------- */

/* Text, in which a mark begins what the grammar holds for. */
static void put_triggered(struct making *m)
{
    open_typed(m, "triggered_tags");
    open_list(m, "triggers");
    json_put_cstr(&m->j, m->form->trigger);
    json_put_array_end(&m->j);
    open_list(m, "tags");
    if (m->form->block)
        put_block(m);
    else
        put_calls(m);
    json_put_array_end(&m->j);
    put_counts(m, is_forced(m->wish));
    if (m->form->excludes) {
        open_list(m, "excludes");
        for (const char *const *mark = m->form->excludes; *mark; mark++)
            json_put_cstr(&m->j, *mark);
        json_put_array_end(&m->j);
    }
    json_put_object_end(&m->j);
}

/* Nothing but the block. */
static void put_only_block(struct making *m)
{
    open_typed(m, "sequence");
    open_list(m, "elements");
    put_text(m, m->form->block);
    if (m->wish->choice == TOOL_NAMED)
        put_calls(m);
    else
        put_joined(m);
    put_text(m, m->form->block_end);
    json_put_array_end(&m->j);
    json_put_object_end(&m->j);
}

static void put_format(struct making *m)
{
    if (m->form->counts && is_forced(m->wish))
        put_only_block(m);
    else if (m->form->bare_name && m->wish->choice == TOOL_NAMED)
        put_calls(m);
    else
        put_triggered(m);
}

static bool any_strict(const struct json *tools)
{
    bool strict;

    JSON_FOREACH (tool, tools)
        if (json_get_bool(json_get(tool, "function"), "strict", &strict) && strict)
            return true;
    return false;
}

static bool wants_tags(const struct call_tags *c, const struct call_wish *w, const struct form *f)
{
    if (json_len(w->tools) == 0 || w->choice == TOOL_NONE)
        return false;
    if (is_forced(w)) /* no other rule makes calls that counts are in */
        return c->on || f->counts;
    return c->on && (c->always || w->one || any_strict(w->tools));
}

void call_tags_put(const struct call_tags *c, const struct call_wish *w, struct buf *out)
{
    struct making m = {.j = json_put_on(out), .form = find_form(c->parser), .conf = c, .wish = w};

    if (!m.form || !wants_tags(c, w, m.form))
        return;
    if (w->choice == TOOL_NAMED && !guided_find_tool(w->tools, w->named))
        return;
    json_put_object(&m.j);
    json_put_key(&m.j, "structural_tag");
    open_typed(&m, "structural_tag");
    json_put_key(&m.j, "format");
    put_format(&m);
    json_put_object_end(&m.j);
    json_put_object_end(&m.j);
}
