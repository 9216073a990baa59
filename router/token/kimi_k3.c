/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of Kimi K3: elements between <|open|>name …<|sep|> and <|close|>name<|sep|>, where the four
 * marks are single tokens and all else is text that cannot become one. The words to the model are
 * those of the code that is published beside its weights: other words are another prompt.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/chat_native.h"
#include "router/token/python_text.h"

#define OPEN "<|open|>"
#define CLOSE "<|close|>"
#define SEP "<|sep|>"
#define END "<|end_of_msg|>"
#define MEDIUM "<|media_pad|>"

/* A call of the assistant's last message; or a result, of the call in that place. */
struct called {
    const char *id, *name;
    size_t place, nth; /* among the results */
    const struct json *result;
};

struct kimi {
    const struct chat_native_input *in;
    bool thinks;
    struct called *calls, *by_id; /* owned: in their order; sorted by id and place */
    size_t n_calls, n_results;    /* so far */
    struct buf *out;
};

/* --- pieces ----------------------------------------------------------------------------------- */

/* What was put since the last piece is one of its own. */
static void cut(struct kimi *k)
{
    text_pieces_add(k->in->pieces, k->out->len, false);
}

static void put_mark(struct kimi *k, const char *mark)
{
    cut(k);
    buf_put_cstr(k->out, mark);
    text_pieces_add(k->in->pieces, k->out->len, true);
}

static void put(struct kimi *k, const char *text)
{
    buf_put_cstr(k->out, text);
}

static void open_element(struct kimi *k, const char *name)
{
    put_mark(k, OPEN);
    put(k, name);
}

/* The value is a piece: it is cut into tokens as if nothing stood around it. */
static void put_attribute(struct kimi *k, const char *key, const char *value)
{
    buf_printf(k->out, " %s=\"", key);
    cut(k);
    for (; *value; value++)
        if (*value == '&')
            put(k, "&amp;");
        else if (*value == '"')
            put(k, "&quot;");
        else
            buf_put_char(k->out, *value);
    cut(k);
    put(k, "\"");
}

static void open_plain(struct kimi *k, const char *name)
{
    open_element(k, name);
    put_mark(k, SEP);
}

static void close_element(struct kimi *k, const char *name)
{
    put_mark(k, CLOSE);
    put(k, name);
    put_mark(k, SEP);
}

static void close_message(struct kimi *k)
{
    close_element(k, "message");
    put_mark(k, END);
}

/* What the system says of itself. */
static void open_note(struct kimi *k, const char *type)
{
    open_element(k, "message");
    put_attribute(k, "role", "system");
    put_attribute(k, "type", type);
    put_mark(k, SEP);
}

/* --- what the model is told before and behind the messages ------------------------------------- */

static void put_tools(struct kimi *k)
{
    if (!k->in->tools)
        return;
    open_note(k, "tool-declare");
    put(k, "# Tools\nHere are the available tools, described in JSONSchema.\n\n```json\n");
    serde_put_sorted(k->out, k->in->tools);
    put(k, "\n```");
    close_message(k);
}

/* How much is thought, as the reference takes it: three words of the four that the model knows. */
static int put_effort(struct kimi *k, struct err *e)
{
    static const char *const efforts[] = {"low", "high", "max"};
    const struct json *asked = json_get(k->in->args, "thinking_effort");
    const char *effort = json_cstr(asked ? asked : json_get(k->in->args, "reasoning_effort"));
    bool known = false;

    if (!k->thinks)
        return 0;
    effort = effort ? effort : "max";
    for (size_t i = 0; i < ARRAY_LEN(efforts); i++)
        known |= strcmp(effort, efforts[i]) == 0;
    if (!known)
        return err_set(e, -EINVAL, "the model's effort is low, high or max");
    open_note(k, "thinking-effort");
    put(k, "`thinking_effort` guides on how much to think in your thinking channel (not including "
           "the response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
           "Now the system is invoked with `thinking_effort=");
    put(k, effort);
    put(k, "`.");
    close_message(k);
    return 0;
}

static void put_choice(struct kimi *k)
{
    const struct chat_choice *choice = &k->in->choice;

    if (!choice->nothing && !choice->something && !choice->named.len)
        return;
    open_note(k, "tool-choice");
    if (choice->nothing)
        put(k, "The system is invoked with `tool_choice=none`.\n"
               "You MUST NOT call any tools in the next message.");
    else if (choice->something)
        put(k, "The system is invoked with `tool_choice=required`.\n"
               "You MUST call tools in the next message.");
    else
        buf_printf(k->out,
                   "The system is invoked with `tool_choice=specified`.\n"
                   "You MUST call the tool `%.*s` in the next message.",
                   STR_ARG(choice->named));
    close_message(k);
}

static void put_format(struct kimi *k)
{
    const char *type = json_get_cstr(k->in->response_format, "type");
    const struct json *schema = json_path(k->in->response_format, "json_schema", "schema", NULL);
    bool has_schema = type && strcmp(type, "json_schema") == 0;

    if (!has_schema && (!type || strcmp(type, "json_object") != 0))
        return;
    open_note(k, "response-format");
    buf_printf(k->out,
               "The system is invoked with `response_format=%s`.\n"
               "Your response must be raw JSON data without markdown code blocks (```json) or any "
               "additional formatting.",
               type);
    if (has_schema) {
        put(k, "\nThe JSON data must match the following schema:\n```json\n");
        serde_put_sorted(k->out, schema);
        put(k, "\n```");
    }
    close_message(k);
}

/* --- messages --------------------------------------------------------------------------------- */

static bool is_of(const struct json *message, const char *role)
{
    const char *has = json_get_cstr(message, "role");

    return has && strcmp(has, role) == 0;
}

/* Each part is a piece; images are marks, and other media nothing. */
static void put_content(struct kimi *k, const struct json *content)
{
    const struct json *one = json_is_array(content) ? json_first(content) : content;

    for (; one; one = json_is_array(content) ? json_next(one) : NULL) {
        const char *text = json_is_string(one) ? json_cstr(one) : json_get_cstr(one, "text");
        const char *type = json_get_cstr(one, "type");

        if (type && strcmp(type, "image_url") == 0)
            put_mark(k, MEDIUM);
        else if (text)
            put(k, text);
        cut(k);
    }
}

static void put_thoughts(struct kimi *k, const struct json *thoughts)
{
    const struct json *one = json_is_array(thoughts) ? json_first(thoughts) : thoughts;
    bool any = false;

    if (!k->thinks)
        return;
    open_plain(k, "think");
    for (; one; one = json_is_array(thoughts) ? json_next(one) : NULL) {
        const char *text = json_cstr(one);

        if (text && text[0])
            buf_printf(k->out, "%s%s", any ? "\n" : "", text);
        any = any || (text && text[0]);
    }
    close_element(k, "think");
}

static const char *type_of(const struct json *v)
{
    return json_is_string(v)              ? "string"
           : json_is_object(v)            ? "object"
           : json_is_array(v)             ? "array"
           : json_is_null(v)              ? "null"
           : json_bool(v, &(bool){false}) ? "boolean"
                                          : "number";
}

static int put_arguments(struct kimi *k, const struct json *function, struct err *e)
{
    struct str text = str_from(json_get_cstr(function, "arguments"));
    AUTO(json_free) struct json *arguments = NULL;
    struct err why;

    if (str_trim(text).len == 0)
        return 0;
    if (json_parse_wide(&arguments, text, &why) < 0 || !json_is_object(arguments))
        return err_set(e, -EINVAL, "the arguments of a call must be a JSON object");
    JSON_FOREACH (value, arguments) {
        open_element(k, "argument");
        put_attribute(k, "key", json_key(value));
        put_attribute(k, "type", type_of(value));
        put_mark(k, SEP);
        if (json_is_string(value))
            put(k, json_cstr(value));
        else
            text_put_json(k->out, value, FLOAT_SERDE);
        close_element(k, "argument");
    }
    return 0;
}

static int compare_ids(const void *a, const void *b)
{
    const struct called *left = a, *right = b;
    int order = strcmp(left->id, right->id);

    return order ? order : (left->place > right->place) - (left->place < right->place);
}

/* For the results that follow. */
static void remember_calls(struct kimi *k, const struct json *calls)
{
    size_t n = json_len(calls);

    k->calls = xreallocarray(k->calls, n + 1, sizeof(*k->calls));
    k->by_id = xreallocarray(k->by_id, n + 1, sizeof(*k->by_id));
    k->n_calls = k->n_results = 0;
    JSON_FOREACH (call, calls) {
        const char *id = json_get_cstr(call, "id");
        const char *name = json_get_cstr(json_get(call, "function"), "name");

        k->calls[k->n_calls] =
            (struct called){.id = id ? id : "", .name = name ? name : "", .place = k->n_calls};
        k->n_calls++;
    }
    memcpy(k->by_id, k->calls, n * sizeof(*k->by_id));
    qsort(k->by_id, n, sizeof(*k->by_id), compare_ids);
}

static int put_calls(struct kimi *k, const struct json *calls, struct err *e)
{
    size_t n = 0;
    int r = 0;

    remember_calls(k, calls);
    if (k->n_calls == 0)
        return 0;
    open_plain(k, "tools");
    JSON_FOREACH (call, calls) {
        const struct json *function = json_get(call, "function");
        const char *name = json_get_cstr(function, "name");
        char index[24];

        (void)snprintf(index, sizeof(index), "%zu", ++n);
        open_element(k, "call");
        put_attribute(k, "tool", name ? name : "");
        put_attribute(k, "index", index);
        put_mark(k, SEP);
        r = put_arguments(k, function, e);
        if (r < 0)
            return r;
        close_element(k, "call");
    }
    close_element(k, "tools");
    return 0;
}

static void open_message(struct kimi *k, const struct json *message, const char *role)
{
    const char *name = json_get_cstr(message, "name");

    open_element(k, "message");
    put_attribute(k, "role", role);
    if (name && name[0])
        put_attribute(k, "name", name);
    put_mark(k, SEP);
}

static int put_answer(struct kimi *k, const struct json *message, struct err *e)
{
    int r;

    open_message(k, message, "assistant");
    put_thoughts(k, json_get(message, "reasoning_content"));
    open_plain(k, "response");
    put_content(k, json_get(message, "content"));
    close_element(k, "response");
    r = put_calls(k, json_get(message, "tool_calls"), e);
    close_message(k);
    return r;
}

/* --- results ---------------------------------------------------------------------------------- */

/* The place of the call that a result answers, of several the first; that of the end when there is none. */
static size_t place_of(const struct kimi *k, const struct json *result)
{
    const char *id = json_get_cstr(result, "tool_call_id");
    size_t low = 0, high = k->n_calls;

    while (id && low < high) {
        size_t mid = low + (high - low) / 2;

        if (strcmp(k->by_id[mid].id, id) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return id && low < k->n_calls && strcmp(k->by_id[low].id, id) == 0 ? k->by_id[low].place
                                                                       : k->n_calls;
}

static int put_result(struct kimi *k, const struct json *result, size_t place, struct err *e)
{
    char index[24];

    if (place >= k->n_calls)
        return err_set(e, -EINVAL, "a message of a tool answers no call");
    (void)snprintf(index, sizeof(index), "%zu", ++k->n_results);
    open_element(k, "message");
    put_attribute(k, "role", "tool");
    put_attribute(k, "tool", k->calls[place].name);
    put_attribute(k, "index", index);
    put_mark(k, SEP);
    put_content(k, json_get(result, "content"));
    close_message(k);
    return 0;
}

static int compare_places(const void *a, const void *b)
{
    const struct called *left = a, *right = b;

    if (left->place == right->place) /* of one call: as they came */
        return (left->nth > right->nth) - (left->nth < right->nth);
    return left->place < right->place ? -1 : 1;
}

/* Of results one behind the other: in the order of the calls, where all of them name one; else the
 * calls are answered in turn. Returns what comes behind them. */
static const struct json *put_results(struct kimi *k, const struct json *first, int *r,
                                      struct err *e)
{
    struct called *run = NULL;
    size_t n = 0, cap = 0;
    const struct json *end = first;
    bool known = true;

    for (; is_of(end, "tool"); end = json_next(end)) {
        if (n == cap)
            run = xreallocarray(run, cap = cap ? 2 * cap : 8, sizeof(*run));
        run[n] = (struct called){.place = place_of(k, end), .nth = n, .result = end};
        known = known && run[n].place < k->n_calls;
        n++;
    }
    if (known)
        qsort(run, n, sizeof(*run), compare_places);
    for (size_t i = 0; i < n && *r == 0; i++)
        *r = put_result(k, run[i].result, known ? run[i].place : k->n_results, e);
    free(run);
    return end;
}

/* --- all of it -------------------------------------------------------------------------------- */

static int put_message(struct kimi *k, const struct json *message, struct err *e)
{
    bool is_system = is_of(message, "system") || is_of(message, "developer");

    if (is_of(message, "assistant"))
        return put_answer(k, message, e);
    if (!is_system && !is_of(message, "user"))
        return err_set(e, -EINVAL, "the model knows no messages of this role");
    open_message(k, message, is_system ? "system" : "user");
    put_content(k, json_get(message, "content"));
    close_message(k);
    return 0;
}

static int put_messages(struct kimi *k, struct err *e)
{
    const struct json *m = json_first(k->in->messages);
    int r = 0;

    while (m && r == 0) {
        if (is_of(m, "tool")) {
            m = put_results(k, m, &r, e);
        } else {
            r = put_message(k, m, e);
            m = json_next(m);
        }
    }
    return r;
}

/* The arguments ask for thoughts unless they say otherwise; a tool that must be called leaves none. */
static bool asks_for_thoughts(const struct chat_native_input *in)
{
    bool on;

    if (in->choice.named.len)
        return false;
    return json_get_bool(in->args, "thinking", &on) ||
                   json_get_bool(in->args, "enable_thinking", &on)
               ? on
               : true;
}

int kimi_k3_put(const struct chat_native_input *in, struct buf *out, struct err *e)
{
    struct kimi k = {.in = in, .thinks = asks_for_thoughts(in), .out = out};
    int r;

    put_tools(&k);
    r = put_effort(&k, e);
    if (r == 0)
        r = put_messages(&k, e);
    free(k.calls);
    free(k.by_id);
    if (r < 0)
        return r;
    put_choice(&k);
    put_format(&k);
    if (in->ends_with_messages)
        return 0;
    open_element(&k, "message");
    put_attribute(&k, "role", "assistant");
    put_mark(&k, SEP);
    open_plain(&k, k.thinks ? "think" : "response");
    return 0;
}
