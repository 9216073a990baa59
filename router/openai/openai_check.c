/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request must be over several keys, once all of them are read.
 */
#include "router/openai/openai_read.h"

static bool has_prompts(const struct openai_request *r)
{
    for (size_t i = 0; i < r->n_prompts; i++)
        if (r->prompts[i].text.len == 0 && r->prompts[i].n_ids == 0)
            return false;
    return r->n_prompts > 0;
}

size_t openai_request_choices(const struct openai_request *r)
{
    size_t n = r->sampling.n.set ? (size_t)r->sampling.n.v : 1;

    return r->api == API_COMPLETIONS ? n * r->n_prompts : n;
}

static bool check_subject(const struct openai_request *r, struct api_error *e)
{
    if (!r->model.ptr)
        return api_malformed(e, "model", "Validation: model must not be empty");
    if (r->model.len == 0)
        return api_fail(e, 400, "model", "Validation: model must not be empty");
    if (r->api == API_CHAT && !r->messages)
        return api_malformed(e, "messages", "Validation: messages must not be empty");
    if (r->api == API_CHAT && json_len(r->messages) == 0)
        return api_fail(e, 400, "messages", "Validation: messages must not be empty");
    if (r->api == API_COMPLETIONS && !has_prompts(r))
        return api_fail(e, 400, "prompt", "Validation: prompt must not be empty");
    if (openai_request_choices(r) > OPENAI_CHOICES_MAX)
        return api_fail(e, 400, "n", "Validation: more than %d choices, prompts times n",
                        OPENAI_CHOICES_MAX);
    if (r->sampling.n.set && r->sampling.n.v > 1 && r->sampling.temperature.set &&
        !(r->sampling.temperature.v > 0))
        return api_fail(e, 400, "n", "Validation: n above 1 needs a temperature above 0");
    if (r->sampling.best_of.set && r->sampling.n.set && r->sampling.best_of.v < r->sampling.n.v)
        return api_fail(e, 400, "best_of", "Validation: best_of must be at least n");
    if (r->has_stream_options && !r->stream)
        return api_fail(e, 400, "stream_options", "Validation: stream_options needs stream");
    return true;
}

/* An answer may be all calls, and a function of old may have none; everybody else says something. */
static bool lacks_content(const struct json *message)
{
    const char *role = json_get_cstr(message, "role");

    return !json_get(message, "content") && role && strcmp(role, "assistant") != 0 &&
           strcmp(role, "function") != 0;
}

/* Text, parts, or nothing (an assistant that only calls tools). */
static bool is_content(const struct json *v)
{
    return !v || json_is_null(v) || json_is_string(v) || json_is_array(v);
}

static bool check_messages(const struct openai_request *r, struct api_error *e)
{
    size_t i = 0;

    JSON_FOREACH (m, r->messages) {
        const char *wrong = !json_get_cstr(m, "role") ? "missing field `role`"
                            : lacks_content(m)        ? "missing field `content`"
                            : !is_content(json_get(m, "content"))
                                ? "content: expected a string or an array"
                                : NULL;

        if (wrong)
            return api_malformed(
                e, "messages",
                "Failed to deserialize the JSON body into the target type: messages[%zu]: %s", i,
                wrong);
        i++;
    }
    return true;
}

/* Who insists on a tool must have it (as in 1.x; 0.9.0 lets it pass without effect). */
static bool check_tools(const struct openai_request *r, struct api_error *e)
{
    size_t i = 0;

    JSON_FOREACH (tool, r->tools) {
        const char *name = json_get_cstr(json_get(tool, "function"), "name");

        if (!name || !name[0])
            return api_fail(e, 400, "tools",
                            "Validation: Function name at index %zu cannot be empty", i);
        i++;
    }
    if (r->tool_choice == TOOL_REQUIRED && i == 0)
        return api_fail(e, 400, "tool_choice",
                        "Validation: tool_choice is \"required\" but tools is empty");
    if (r->tool_choice == TOOL_NAMED && !guided_find_tool(r->tools, r->named_tool))
        return api_fail(e, 400, "tool_choice",
                        "Validation: tool named \"%.*s\" in tool_choice is not present in tools",
                        STR_ARG(str_head(r->named_tool, 64)));
    return true;
}

/* Either of them; both at once contradict each other, and the head of an answer is on by default. */
static bool check_end(const struct openai_request *r, struct api_error *e)
{
    bool answer = !r->generation_prompt.set || r->generation_prompt.v;

    return answer && r->continue_message.v
               ? api_fail(e, 400, "continue_final_message",
                          "Validation: continue_final_message needs add_generation_prompt false")
               : true;
}

static bool check_format(const struct openai_request *r, struct api_error *e)
{
    struct str format = r->guided.response_format, type = json_pull_member(format, "type");
    struct str schema = json_pull_member(format, "json_schema");

    if (!format.len || str_is(type, "\"text\"") || str_is(type, "\"json_object\""))
        return true;
    if (!str_is(type, "\"json_schema\""))
        return api_malformed(e, "response_format",
                             "Failed to deserialize the JSON body into the target type: "
                             "response_format: expected the type text, json_object or json_schema");
    return json_pull_member(schema, "name").len && json_pull_member(schema, "schema").len
               ? true
               : api_malformed(e, "response_format",
                               "Failed to deserialize the JSON body into the target type: "
                               "response_format.json_schema: expected name and schema");
}

/* As both releases; of chat only 1.6.1 refuses it, and clients of 0.9.0 are served. */
static bool check_length(const struct openai_request *r, struct api_error *e)
{
    return r->api == API_COMPLETIONS && r->max_tokens.set && r->max_tokens.v == 0
               ? api_fail(e, 400, "max_tokens", "Validation: max_tokens must be greater than 0")
               : true;
}

bool openai_check(const struct openai_request *r, struct api_error *e)
{
    return check_subject(r, e) && check_messages(r, e) && check_tools(r, e) && check_end(r, e) &&
           check_format(r, e) && check_length(r, e);
}

bool openai_content_is_json(struct str content_type)
{
    struct str rest = content_type, type = STR_NULL;

    (void)str_cut(&rest, ';', &type);
    type = str_trim(type);
    return str_eq_nocase(type, STR("application/json")) ||
           (type.len > strlen("application/+json") &&
            str_eq_nocase(str_head(type, strlen("application/")), STR("application/")) &&
            str_eq_nocase(str_skip(type, type.len - strlen("+json")), STR("+json")));
}
