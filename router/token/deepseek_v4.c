/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of DeepSeek V4, as its encoding_dsv4.py writes them, and of V4.1: its system messages have a
 * mark, its developers are the system's, it sees images, and effort is a number.
 */
#include "router/token/deepseek.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/mem.h"
#include "router/token/chat_native.h"

#define IMAGE "<｜deepseek_image｜>"

static const char EFFORT_HIGH[] =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve "
    "the root cause, rigorously stress-testing your logic against all potential paths, edge cases, "
    "and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";
static const char EFFORT_MAX[] =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every causal "
    "chain to its root, and resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles "
    "and are certain that no assumption remains unchecked and no error remains undiscovered.\n\n";

/* @calls, @invoke and @parameter differ by a blank alone. */
#define TOOLS(calls, invoke, parameter)                                                            \
    "\n\n## Tools\n\n"                                                                             \
    "You have access to a set of tools to help answer the user's question. You can invoke tools "  \
    "by writing a \"<" DEEPSEEK_MARK calls ">\" block like the following:\n\n"                     \
    "<" DEEPSEEK_MARK calls ">\n"                                                                  \
    "<" DEEPSEEK_MARK invoke " name=\"$TOOL_NAME\">\n"                                             \
    "<" DEEPSEEK_MARK parameter                                                                    \
    " name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE</" DEEPSEEK_MARK parameter   \
    ">\n...\n"                                                                                     \
    "</" DEEPSEEK_MARK invoke ">\n"                                                                \
    "<" DEEPSEEK_MARK invoke " name=\"$TOOL_NAME2\">\n...\n"                                       \
    "</" DEEPSEEK_MARK invoke ">\n"                                                                \
    "</" DEEPSEEK_MARK calls ">\n\n"                                                               \
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "  \
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "                 \
    "`string=\"false\"`.\n\n"                                                                      \
    "If thinking_mode is enabled (triggered by " DEEPSEEK_THINK "), you MUST output your "         \
    "complete reasoning inside " DEEPSEEK_THINK "..." DEEPSEEK_THOUGHT " BEFORE any tool calls "   \
    "or final response.\n\n"                                                                       \
    "Otherwise, output directly after " DEEPSEEK_THOUGHT " with tool calls or final response.\n\n" \
    "### Available Tool Schemas\n\n"
static const char AFTER_TOOLS[] = "\n\nYou MUST strictly follow the above defined tool name and "
                                  "parameter schemas to invoke tool calls.\n";

/* What one release of the model has. */
struct v4_style {
    struct deepseek_words words;
    const char *tools;
    bool is_v41;
};
static const struct v4_style V4 = {
    {"tool_calls", "invoke", "parameter"}, TOOLS("tool_calls", "invoke", "parameter"), false};
static const struct v4_style V41 = {
    {" calls", " invoke", " parameter"}, TOOLS(" calls", " invoke", " parameter"), true};

/* A message, or what the user and tools said one behind the other. */
struct turn {
    const struct json *message; /* the first */
    size_t n;
    bool is_asked, is_answer, is_system; /* none of them: of a developer */
};

struct v4 {
    const struct chat_native_input *in;
    const struct v4_style *style;
    const struct json *system; /* where tools are told */
    bool thinks;
    bool forgets; /* thoughts before the last question */
    struct turn *turns;
    size_t n_turns, last; /* the one that asked last; SIZE_MAX = none */
    struct buf *out;
};

/* --- turns ------------------------------------------------------------------------------------ */

static bool is_said(const struct json *message)
{
    return deepseek_is(message, "user") || deepseek_is(message, "tool");
}

static int take_turns(struct v4 *v, struct err *e)
{
    v->turns = xcalloc(json_len(v->in->messages) + 1, sizeof(*v->turns));
    JSON_FOREACH (message, v->in->messages) {
        struct turn *t = &v->turns[v->n_turns];
        bool is_developer = deepseek_is(message, "developer");

        if (is_said(message) && v->n_turns > 0 && t[-1].is_asked) {
            t[-1].n++;
            continue;
        }
        *t = (struct turn){.message = message,
                           .n = 1,
                           .is_asked = is_said(message),
                           .is_answer = deepseek_is(message, "assistant"),
                           .is_system = deepseek_is(message, "system") ||
                                        (v->style->is_v41 && is_developer)};
        if (!t->is_asked && !t->is_answer && !t->is_system && !is_developer)
            return err_set(e, -EINVAL, "the model knows no messages of this role");
        if (is_developer && !t->is_system && !deepseek_content(message)[0])
            return err_set(e, -EINVAL, "a message of the developer needs content");
        v->n_turns++;
    }
    return 0;
}

static bool asks(const struct v4 *v, size_t i)
{
    const struct turn *t = &v->turns[i];

    return t->is_asked ||
           (v->style->is_v41 ? t->is_system && i > 0 : !t->is_system && !t->is_answer);
}

static void find_last(struct v4 *v)
{
    v->last = SIZE_MAX;
    for (size_t i = 0; i < v->n_turns; i++)
        if (asks(v, i))
            v->last = i;
}

/* With thoughts, what a developer said before the last question is forgotten, too. */
static void forget_developers(struct v4 *v)
{
    size_t n = 0;

    if (!v->thinks || !v->forgets || v->style->is_v41 || v->last == SIZE_MAX)
        return;
    for (size_t i = 0; i < v->n_turns; i++) {
        const struct turn *t = &v->turns[i];

        if (i >= v->last || t->is_asked || t->is_answer || t->is_system)
            v->turns[n++] = *t;
    }
    v->last -= v->n_turns - n;
    v->n_turns = n;
}

/* --- system ----------------------------------------------------------------------------------- */

static const char *effort_of(const struct v4 *v)
{
    const struct json *effort = json_get(v->in->args, "reasoning_effort");
    const char *word = json_cstr(effort);

    if (word && strcmp(word, "max") == 0)
        return EFFORT_MAX;
    return word && (strcmp(word, "low") == 0 || strcmp(word, "minimal") == 0) ? "" : EFFORT_HIGH;
}

static int budget_of(const struct v4 *v, int64_t *ret, struct err *e)
{
    static const struct {
        const char *word;
        int64_t budget;
    } words[] = {{"none", 75}, {"low", 50}, {"high", 75}, {"max", 100}};
    const struct json *effort = json_get(v->in->args, "reasoning_effort");

    *ret = 75;
    if (!effort || json_is_null(effort) ||
        (json_i64(effort, ret) && *ret >= 1 && *ret <= 100 && !json_is_float(effort)))
        return 0;
    for (size_t i = 0; json_cstr(effort) && i < ARRAY_LEN(words); i++)
        if (strcmp(json_cstr(effort), words[i].word) == 0) {
            *ret = words[i].budget;
            return 0;
        }
    return err_set(
        e, -EINVAL,
        "the model's reasoning_effort is none, low, high, max or a number from 1 to 100");
}

/* What stands before the first message. */
static int put_begin(struct v4 *v, struct err *e)
{
    int64_t budget;
    int r = v->style->is_v41 ? budget_of(v, &budget, e) : 0;

    if (r < 0 || !v->thinks)
        return r;
    if (v->style->is_v41)
        buf_printf(v->out,
                   "Reasoning Effort: %lld (range 1-100, the higher the value, the more thorough "
                   "the reasoning)\n\n",
                   (long long)budget);
    else
        buf_put_cstr(v->out, effort_of(v));
    return 0;
}

static void put_system(struct v4 *v, const struct json *message)
{
    buf_put_cstr(v->out, deepseek_content(message));
    if (message != v->system)
        return;
    if (v->in->tools) {
        buf_put_cstr(v->out, v->style->tools);
        deepseek_put_schemas(v->in->tools, v->out);
        buf_put_cstr(v->out, AFTER_TOOLS);
    }
    deepseek_put_format(v->in->response_format, v->out);
}

/* --- what was said ---------------------------------------------------------------------------- */

/* The place of the call that @result answers among the last calls; 0 for one that is not known. */
static size_t call_index(const struct json *calls, const struct json *result)
{
    const char *id = json_get_cstr(result, "tool_call_id");
    size_t i = 0, found = 0;

    JSON_FOREACH (call, calls) {
        const char *has = json_get_cstr(call, "id");

        if (id && has && has[0] && strcmp(id, has) == 0)
            found = i; /* of several the last */
        i++;
    }
    return found;
}

struct result {
    const struct json *message;
    size_t call, place;
};

static int compare_results(const void *a, const void *b)
{
    const struct result *x = a, *y = b;

    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Results of tools come in the order of the calls, in the places where there are any. */
static void put_asked(struct v4 *v, const struct turn *t, const struct json *calls)
{
    AUTO(mem_free) struct result *results = xcalloc(t->n, sizeof(*results));
    const struct json *message = t->message;
    size_t n = 0, next = 0;

    for (size_t i = 0; i < t->n; i++, message = json_next(message))
        if (deepseek_is(message, "tool")) {
            results[n] = (struct result){message, call_index(calls, message), n};
            n++;
        }
    qsort(results, n, sizeof(*results), compare_results);
    buf_put_cstr(v->out, DEEPSEEK_USER);
    message = t->message;
    for (size_t i = 0; i < t->n; i++, message = json_next(message)) {
        bool is_result = deepseek_is(message, "tool");
        const struct json *said = is_result ? results[next++].message : message;

        buf_printf(v->out, "%s%s%s%s", i ? "\n\n" : "", is_result ? "<tool_result>" : "",
                   deepseek_content(said), is_result ? "</tool_result>" : "");
    }
}

static void put_answer(struct v4 *v, size_t i)
{
    const struct json *message = v->turns[i].message;
    const char *thoughts = json_get_cstr(message, "reasoning_content");

    if (v->thinks && (!v->forgets || v->last == SIZE_MAX || i > v->last))
        buf_printf(v->out, "%s" DEEPSEEK_THOUGHT, thoughts ? thoughts : "");
    buf_put_cstr(v->out, deepseek_content(message));
    deepseek_put_calls(json_get(message, "tool_calls"), &v->style->words, v->in->floats, v->out);
    buf_put_cstr(v->out, DEEPSEEK_END);
}

/* Where the answer comes next. */
static void begin_answer(struct v4 *v, size_t i)
{
    const struct turn *t = &v->turns[i];
    bool thinks = v->thinks && (!v->forgets || v->last == SIZE_MAX || i >= v->last);

    if (i + 1 < v->n_turns && !v->turns[i + 1].is_answer)
        return;
    if (t->is_answer || (t->is_system && !(v->style->is_v41 && i > 0)))
        return;
    buf_put_cstr(v->out, DEEPSEEK_ASSISTANT);
    buf_put_cstr(v->out, thinks ? DEEPSEEK_THINK : DEEPSEEK_THOUGHT);
}

static int put_turns(struct v4 *v, struct err *e)
{
    const struct json *calls = NULL;

    buf_put_cstr(v->out, DEEPSEEK_BEGIN);
    for (size_t i = 0; i < v->n_turns; i++) {
        const struct turn *t = &v->turns[i];

        if (v->style->is_v41 && (t->is_system || (i == 0 && v->thinks)))
            buf_put_cstr(v->out, "<｜System｜>");
        if (i == 0) {
            int r = put_begin(v, e);

            if (r < 0)
                return r;
        }
        if (t->is_system)
            put_system(v, t->message);
        else if (t->is_asked)
            put_asked(v, t, calls);
        else if (t->is_answer)
            put_answer(v, i);
        else
            buf_printf(v->out, DEEPSEEK_USER "%s", deepseek_content(t->message));
        if (t->is_answer && json_is_array(json_get(t->message, "tool_calls")))
            calls = json_get(t->message, "tool_calls");
        begin_answer(v, i);
    }
    return 0;
}

/* --- both ------------------------------------------------------------------------------------- */

static int put_chat(const struct chat_native_input *in, const struct v4_style *style,
                    const struct json *system, struct buf *out, struct err *e)
{
    const char *effort = json_get_cstr(in->args, "reasoning_effort");
    struct v4 v = {.in = in,
                   .style = style,
                   .system = system,
                   .thinks = deepseek_thinks(in->args) && !(effort && strcmp(effort, "none") == 0),
                   .forgets = !in->tools,
                   .out = out};
    bool drops = true;
    int r;

    (void)json_get_bool(in->args, "drop_thinking", &drops);
    v.forgets = v.forgets && drops;
    r = take_turns(&v, e);
    if (r == 0) {
        find_last(&v);
        forget_developers(&v);
        r = put_turns(&v, e);
    }
    free(v.turns);
    return r;
}

int deepseek_v4_put(const struct chat_native_input *in, struct buf *out, struct err *e)
{
    deepseek_flatten(in->messages);
    return put_chat(in, &V4, deepseek_system(in->messages, in->tools || in->response_format), out,
                    e);
}

/* The encoder of the model puts each image where its mark is, so no text may have one. */
static int flatten_v41(struct json *message, struct err *e)
{
    const struct json *content = json_get(message, "content");
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (json_is_string(content) && strstr(json_cstr(content), IMAGE))
        return err_set(e, -EINVAL, "images come as parts of the content, not as marks in a text");
    if (!json_is_array(content))
        return 0;
    JSON_FOREACH (part, content) {
        const char *words = json_get_cstr(part, "text"), *type = json_get_cstr(part, "type");

        if (part != json_first(content))
            buf_put_cstr(&text, "\n\n");
        if (words && strstr(words, IMAGE))
            return err_set(e, -EINVAL,
                           "images come as parts of the content, not as marks in a text");
        if (!words && !(type && strcmp(type, "image_url") == 0))
            return err_set(e, -EINVAL, "the model reads texts and images alone");
        buf_put_cstr(&text, words ? words : IMAGE);
    }
    (void)json_set(message, "content", json_new_str(buf_str(&text)));
    return 0;
}

/* Tools are told in the first message. */
static const struct json *system_v41(const struct chat_native_input *in)
{
    struct json *first = json_first(in->messages), *made;

    if (!in->tools && !in->response_format)
        return NULL;
    if (deepseek_is(first, "system") || deepseek_is(first, "developer"))
        return first;
    made = json_new_object();
    (void)json_set_cstr(made, "role", "system");
    return json_insert(in->messages, 0, made);
}

int deepseek_v41_put(const struct chat_native_input *in, struct buf *out, struct err *e)
{
    JSON_FOREACH (message, in->messages) {
        int r = flatten_v41(message, e);

        if (r < 0)
            return r;
    }
    return put_chat(in, &V41, system_v41(in), out, e);
}
