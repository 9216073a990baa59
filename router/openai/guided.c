/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/guided.h"

#include "lib/base/json_put.h"

const struct json *guided_find_tool(const struct json *tools, struct str name)
{
    JSON_FOREACH (tool, tools)
        if (str_is(name, json_get_cstr(json_get(tool, "function"), "name")))
            return tool;
    return NULL;
}

static void put_parameters(const struct json *tool, struct buf *out)
{
    const struct json *parameters = json_path(tool, "function", "parameters", NULL);

    if (json_is_object(parameters))
        json_print(parameters, out);
    else
        buf_put_cstr(out, "{\"type\":\"object\",\"properties\":{}}");
}

/* An array of calls, one alternative a tool. */
static void put_required(const struct json *tools, struct buf *out)
{
    bool some = false;

    buf_put_cstr(out, "{\"json\":{\"type\":\"array\",\"minItems\":1,\"items\":{\"type\":\"object\","
                      "\"anyOf\":[");
    JSON_FOREACH (tool, tools) {
        struct json_put j = json_put_on(out);

        buf_put_cstr(out, some ? "," : "");
        some = true;
        buf_put_cstr(out, "{\"properties\":{\"name\":{\"type\":\"string\",\"enum\":[");
        json_put_cstr(&j, json_get_cstr(json_get(tool, "function"), "name"));
        buf_put_cstr(out, "]},\"parameters\":");
        put_parameters(tool, out);
        buf_put_cstr(out, "},\"required\":[\"name\",\"parameters\"]}");
    }
    buf_put_cstr(out, "]}}}");
}

static void put_member(struct json_put *j, const char *key, struct str json)
{
    if (!json.len)
        return;
    json_put_key(j, key);
    json_put_raw(j, json);
}

static void put_explicit(const struct guided *g, struct buf *out)
{
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    put_member(&j, "json", g->json);
    put_member(&j, "regex", g->regex);
    put_member(&j, "choice", g->choice);
    put_member(&j, "grammar", g->grammar);
    put_member(&j, "backend", g->backend);
    put_member(&j, "whitespace_pattern", g->whitespace_pattern);
    json_put_object_end(&j);
}

/* {"type":"json_object"}, {"type":"json_schema","json_schema":{"schema":…}} */
static void put_format(struct str format, struct buf *out)
{
    struct str type = json_pull_member(format, "type");
    struct str schema = json_pull_member(json_pull_member(format, "json_schema"), "schema");

    if (str_is(type, "\"json_object\"")) {
        buf_put_cstr(out, "{\"json\":{\"type\":\"object\"}}");
    } else if (str_is(type, "\"json_schema\"") && schema.len) {
        buf_put_cstr(out, "{\"json\":");
        buf_put_str(out, schema);
        buf_put_char(out, '}');
    }
}

bool guided_put(const struct guided *g, enum tool_choice choice, struct str named,
                const struct json *tools, struct buf *out)
{
    size_t rules =
        (g->json.len > 0) + (g->regex.len > 0) + (g->choice.len > 0) + (g->grammar.len > 0);

    if (rules > 1)
        return false;
    if (rules == 1) {
        put_explicit(g, out);
    } else if (choice == TOOL_NAMED && guided_find_tool(tools, named)) {
        buf_put_cstr(out, "{\"json\":");
        put_parameters(guided_find_tool(tools, named), out);
        buf_put_char(out, '}');
    } else if (choice == TOOL_REQUIRED && json_len(tools) > 0) {
        put_required(tools, out);
    } else {
        put_format(g->response_format, out);
    }
    return true;
}
