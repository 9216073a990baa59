/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat_probe.h"

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/template.h"

#define PROBE "template_probe"
#define FIRST "\\u0001thoughts_probe_a\\u0001"
#define LAST "\\u0001thoughts_probe_b\\u0001"
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define ARGUMENTS "{\\\"probe\\\": \\\"value\\\"}"
#define CALL(arguments)                                                                            \
    "\"tool_calls\":[{\"id\":\"call_probe\",\"type\":\"function\",\"function\":{\"name\":"         \
    "\"probe\",\"arguments\":" arguments "}}]"
#define TOOL_ANSWER "{\"role\":\"tool\",\"tool_call_id\":\"call_probe\",\"content\":\"r\"}"
#define TOOLS                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"probe\",\"description\":\"\","               \
    "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]"

static struct json *parsed(const char *text)
{
    struct json *v = NULL;
    struct err e;

    return json_parse(&v, str_from(text), &e) == 0 ? v : NULL;
}

/* False: the template refuses these messages. */
static bool renders(const struct chat_probe *p, const char *messages, bool answer, struct buf *out)
{
    AUTO(json_free) struct json *vars = json_dup(p->tokens);
    struct template_context in = {.vars = vars, .now = &(struct tm){.tm_mday = 1}};
    struct err e;

    (void)json_set(vars, "messages", parsed(messages));
    (void)json_set(vars, "tools", p->with_tools ? parsed(TOOLS) : json_new_null());
    (void)json_set_bool(vars, "add_generation_prompt", answer);
    return template_render(p->template, &in, out, &e) == 0;
}

static bool refuses(const struct chat_probe *p, const char *messages)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    return !renders(p, messages, false, &out);
}

static bool shows(const struct chat_probe *p, const char *messages, bool answer, const char *text)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    return renders(p, messages, answer, &out) && str_has(buf_str(&out), str_from(text));
}

bool chat_probe_wants_parts(const struct chat_probe *p)
{
    static const char parts[] =
        "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" PROBE "\"}]}]";

    return shows(p, parts, false, PROBE) && !shows(p, "[" SAYS("user", PROBE) "]", false, PROBE);
}

static void probe_roles(const struct chat_probe *p, struct chat_rules *rules)
{
    if (refuses(p, "[" SAYS("system", "s") "," SAYS("user", "u") "]"))
        return; /* it refuses more than an order */
    rules->one_system =
        refuses(p, "[" SAYS("system", "s") "," SAYS("user", "u") "," SAYS("system", "s") "]") ||
        refuses(p, "[" SAYS("system", "s") "," SAYS("user", "u") "," SAYS(
                       "assistant", "a") "," SAYS("system", "s") "," SAYS("user", "u") "]");
    rules->users_alternate =
        refuses(p, "[" SAYS("system", "s") "," SAYS("user", "u") "," SAYS("user", "v") "]");
}

/* Some templates look whether arguments are text only to refuse it. */
static bool prints_arguments(const struct chat_probe *p)
{
    static const char messages[] =
        "[" SAYS("user", "u") ",{\"role\":\"assistant\",\"content\":\"\"," CALL(
            "\"" ARGUMENTS "\"") "}," TOOL_ANSWER "]";

    return str_has(p->source, STR("arguments is string")) &&
           shows(p, messages, true, "{\"probe\": \"value\"}");
}

static bool shows_thoughts(const struct chat_probe *p, bool text, const char *thoughts,
                           const char *mark)
{
    AUTO(buf_done) struct buf messages = BUF_NULL;

    buf_printf(&messages,
               "[" SAYS("user", "u") ",{\"role\":\"assistant\",\"content\":\"\","
                                     "\"reasoning_content\":%s,%s}," TOOL_ANSWER "]",
               thoughts, text ? CALL("\"{}\"") : CALL("{}"));
    return shows(p, buf_cstr(&messages), true, mark);
}

/* A text is shown, and of an array of texts nothing. */
static bool joins_thoughts(const struct chat_probe *p, bool text)
{
    static const char one[] = "\"" FIRST "\"", two[] = "[\"" FIRST "\",\"" LAST "\"]";
    static const char a[] = "\1thoughts_probe_a\1", b[] = "\1thoughts_probe_b\1";

    return shows_thoughts(p, text, one, a) && !shows_thoughts(p, text, two, a) &&
           !shows_thoughts(p, text, two, b);
}

void chat_probe_rules(const struct chat_probe *p, struct chat_rules *rules)
{
    probe_roles(p, rules);
    rules->arguments_stay = prints_arguments(p);
    rules->reads_thoughts = str_has(p->source, STR("reasoning_content"));
    rules->joins_thoughts = rules->reads_thoughts && joins_thoughts(p, rules->arguments_stay);
}

/* Nothing but the content, and parts as they print. */
static bool only_passes(const struct chat_probe *p)
{
    AUTO(buf_done) struct buf text = BUF_NULL, parts = BUF_NULL;

    if (!renders(p, "[" SAYS("user", PROBE) "]", false, &text) ||
        !str_is(str_trim(buf_str(&text)), PROBE))
        return false;
    return renders(p,
                   "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" PROBE "\"},"
                   "{\"type\":\"image\"}]}]",
                   false, &parts) &&
           str_has(buf_str(&parts), STR("[")) && str_has(buf_str(&parts), STR("type"));
}

const char *chat_probe_media(const struct chat_probe *p)
{
    if (str_has(p->source, STR("<|end|>")) && str_has(p->source, STR("<|assistant|>")))
        return "<|image_{n}|>"; /* Phi-3 vision */
    if (str_has(p->source, STR("USER:")) && str_has(p->source, STR("ASSISTANT:")))
        return "<image>"; /* LLaVA 1.5 */
    return only_passes(p) ? "" : NULL;
}
