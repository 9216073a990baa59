/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"

struct chat {
    struct template *usual, *with_tools; /* owned; with_tools NULL: the usual one serves both */
    struct json *tokens;                 /* owned object: bos_token and the like */
    enum template_style style;
    bool wants_parts;
};

/* --- loading ---------------------------------------------------------------------------------- */

/* The reference of 0.9.0 drops every newline of a template file, and so its prompts depend on it. */
static int parse_file(struct chat *c, struct str file, struct err *e)
{
    AUTO(buf_done) struct buf flat = BUF_NULL;
    struct str line;
    bool more = true;

    if (c->style != TEMPLATE_DYNAMO_0_9)
        return template_parse(&c->usual, file, c->style, e);
    while (more) {
        more = str_cut(&file, '\n', &line);
        buf_put_str(&flat, line);
    }
    return template_parse(&c->usual, buf_str(&flat), c->style, e);
}

static struct template **place_named(struct chat *c, const char *name)
{
    if (name && strcmp(name, "default") == 0)
        return &c->usual;
    return name && strcmp(name, "tool_use") == 0 ? &c->with_tools : NULL;
}

static int parse_named(struct chat *c, const char *name, const char *source, struct err *e)
{
    struct template **place = place_named(c, name);

    if (!place || !source)
        return 0; /* other names serve other purposes */
    *place = template_free(*place);
    return template_parse(place, str_from(source), c->style, e);
}

/* {"name": n, "template": t} or {n: t}. */
static int parse_entry(struct chat *c, const struct json *entry, struct err *e)
{
    const char *source = json_get_cstr(entry, "template");

    if (source)
        return parse_named(c, json_get_cstr(entry, "name"), source, e);
    JSON_FOREACH (m, entry) {
        int r = parse_named(c, json_key(m), json_cstr(m), e);

        if (r < 0)
            return r;
    }
    return 0;
}

static int parse_config(struct chat *c, const struct json *config, struct err *e)
{
    const struct json *source = json_get(config, "chat_template");

    if (json_is_string(source))
        return template_parse(&c->usual, str_from(json_cstr(source)), c->style, e);
    if (json_is_array(source))
        JSON_FOREACH (entry, source) {
            int r = parse_entry(c, entry, e);

            if (r < 0)
                return r;
        }
    return c->usual ? 0 : err_set(e, -ENOENT, "tokenizer_config.json: no chat_template");
}

/* A special token is a string, or an object that holds it. */
static void load_tokens(struct chat *c, const struct json *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};

    c->tokens = json_new_object();
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct json *v = json_get(config, names[i]);
        const char *text = json_is_object(v) ? json_get_cstr(v, "content") : json_cstr(v);

        if (text)
            (void)json_set_cstr(c->tokens, names[i], text);
    }
}

#define PROBE "template_probe"

/* Whether the text of a message with this content shows up in the prompt. */
static bool shows(const struct chat *c, const char *content)
{
    AUTO(buf_done) struct buf out = BUF_NULL, text = BUF_NULL;
    AUTO(json_free) struct json *vars = NULL;
    struct template_context in = {.over = c->tokens, .now = &(struct tm){.tm_mday = 1}};
    struct err e;

    buf_printf(&text,
               "{\"messages\":[{\"role\":\"user\",\"content\":%s}],"
               "\"add_generation_prompt\":false}",
               content);
    if (json_parse(&vars, buf_str(&text), &e) < 0)
        return false;
    in.vars = vars;
    if (template_render(c->usual, &in, &out, &e) < 0)
        return false;
    return str_has(buf_str(&out), STR(PROBE));
}

int chat_load(struct chat **ret, const struct json *config, struct str file,
              enum template_style style, struct err *e)
{
    AUTO(chat_free) struct chat *c = xcalloc(1, sizeof(*c));
    int r;

    c->style = style;
    r = file.ptr ? parse_file(c, file, e) : parse_config(c, config, e);
    if (r < 0)
        return r;
    load_tokens(c, config);
    c->wants_parts =
        shows(c, "[{\"type\":\"text\",\"text\":\"" PROBE "\"}]") && !shows(c, "\"" PROBE "\"");
    *ret = TAKE(c);
    return 0;
}

struct chat *chat_free(struct chat *c)
{
    if (!c)
        return NULL;
    (void)template_free(c->usual);
    (void)template_free(c->with_tools);
    (void)json_free(c->tokens);
    free(c);
    return NULL;
}

bool chat_wants_parts(const struct chat *c)
{
    return c->wants_parts;
}

/* --- messages --------------------------------------------------------------------------------- */

static struct json *text_part(const char *text)
{
    struct json *part = json_new_object();

    (void)json_set_cstr(part, "type", "text");
    (void)json_set_cstr(part, "text", text);
    return part;
}

/* The kind that a template knows a media part by; NULL for other parts. */
static const char *media_kind(const struct json *part)
{
    static const struct {
        const char *type, *kind;
    } kinds[] = {
        {"image_url", "image"}, {"image", "image"},     {"video_url", "video"},
        {"video", "video"},     {"audio_url", "audio"}, {"input_audio", "audio"},
        {"audio", "audio"},
    };
    const char *type = json_get_cstr(part, "type");

    for (size_t i = 0; type && i < ARRAY_LEN(kinds); i++)
        if (strcmp(type, kinds[i].type) == 0)
            return kinds[i].kind;
    return NULL;
}

static bool is_all_text(const struct json *parts)
{
    JSON_FOREACH (part, parts)
        if (!json_get_cstr(part, "text") || media_kind(part))
            return false;
    return true;
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

static struct json *without_media(const struct json *parts)
{
    struct json *out = json_new_array();

    JSON_FOREACH (part, parts) {
        const char *kind = media_kind(part);
        struct json *copy = kind ? json_new_object() : json_dup(part);

        if (kind)
            (void)json_set_cstr(copy, "type", kind);
        (void)json_add(out, copy);
    }
    return out;
}

static void normalize_content(const struct chat *c, struct json *message)
{
    const struct json *content = json_get(message, "content");
    struct json *better = NULL;

    if (json_is_array(content) && is_all_text(content) && !c->wants_parts) {
        better = joined(content);
    } else if (json_is_array(content)) {
        better = without_media(content);
    } else if (json_is_string(content) && c->wants_parts) {
        better = json_new_array();
        (void)json_add(better, text_part(json_cstr(content)));
    }
    if (better)
        (void)json_set(message, "content", better);
}

/* Arguments come as the text of a JSON object; templates want the object. */
static void parse_arguments(struct json *function)
{
    const char *text = json_get_cstr(function, "arguments");
    struct json *value = NULL;
    struct err e;

    if (text && json_parse(&value, str_from(text), &e) == 0)
        (void)json_set(function, "arguments", value);
}

static struct json *normalize_messages(const struct chat *c, const struct json *messages)
{
    struct json *all = json_dup(messages);

    JSON_FOREACH (message, all) {
        normalize_content(c, message);
        JSON_FOREACH (call, json_get(message, "tool_calls"))
            parse_arguments(json_get(call, "function"));
        parse_arguments(json_get(message, "function_call"));
    }
    return all;
}

static struct json *normalize_tools(const struct chat *c, const struct json *tools)
{
    struct json *all = json_dup(tools);

    JSON_FOREACH (tool, all) {
        struct json *function = json_get(tool, "function");
        struct json *parameters = json_path(tool, "function", "parameters", NULL);

        /* As 1.x does: templates join descriptions without asking for them. */
        if (c->style != TEMPLATE_DYNAMO_0_9 && json_is_object(function) &&
            !json_get(function, "description"))
            (void)json_set_cstr(function, "description", "");
        if (!json_is_object(parameters))
            continue;
        if (!json_get(parameters, "type"))
            (void)json_set_cstr(parameters, "type", "object");
        (void)json_need_object(parameters, "properties");
    }
    return all;
}

/* --- rendering -------------------------------------------------------------------------------- */

static int check(const struct chat_input *in, struct err *e)
{
    size_t i = 0;

    if (!json_is_array(in->messages))
        return err_set(e, -EINVAL, "messages must be an array");
    JSON_FOREACH (message, in->messages) {
        if (!json_is_object(message))
            return err_set(e, -EINVAL, "messages[%zu] must be an object", i);
        i++;
    }
    if (in->tools && !json_is_null(in->tools) && !json_is_array(in->tools))
        return err_set(e, -EINVAL, "tools must be an array");
    if (in->args && !json_is_null(in->args) && !json_is_object(in->args))
        return err_set(e, -EINVAL, "chat template arguments must be an object");
    return 0;
}

/* The text of the last message; of parts, that of the last one. Empty = it has none. */
static struct str last_text(const struct json *messages)
{
    const struct json *content = json_get(json_at(messages, json_len(messages) - 1), "content");
    const char *text = json_is_array(content)
                           ? json_get_cstr(json_at(content, json_len(content) - 1), "text")
                           : json_cstr(content);

    return text ? str_from(text) : STR_NULL;
}

/* Cuts what the template put behind the last message, from @begin on, as transformers does: where
 * its text stands last, with the blanks at its end when they are still there. */
static int cut_to_message(const struct json *messages, struct buf *out, size_t begin, struct err *e)
{
    struct str text = last_text(messages), trimmed = str_trim(text);
    struct str prompt = str_skip(buf_str(out), begin);
    size_t n_blanks = trimmed.len ? (size_t)(text.ptr + text.len - trimmed.ptr) - trimmed.len : 0;

    for (size_t at = prompt.len; trimmed.len && at-- > 0;) {
        struct str rest = str_skip(prompt, at);

        if (!str_starts(rest, trimmed))
            continue;
        if (!str_starts(rest, str_slice(trimmed.ptr, trimmed.len + n_blanks)))
            n_blanks = 0;
        buf_truncate(out, begin + at + trimmed.len + n_blanks);
        return 0;
    }
    return err_set(e, -EINVAL,
                   "continue_final_message: the text of the last message is not in the prompt");
}

int chat_render(const struct chat *c, const struct chat_input *in, struct buf *out, struct err *e)
{
    AUTO(json_free) struct json *vars = NULL;
    struct template_context context;
    bool has_tools = json_is_array(in->tools);
    size_t begin = out->len;
    int r = check(in, e);

    if (r < 0)
        return r;
    vars = json_dup(c->tokens);
    (void)json_set(vars, "messages", normalize_messages(c, in->messages));
    if (has_tools)
        (void)json_set(vars, "tools", normalize_tools(c, in->tools));
    (void)json_set_bool(vars, "add_generation_prompt", in->end == CHAT_ANSWER);
    context = (struct template_context){
        .vars = vars, .over = in->args, .now = in->now, .steps = in->steps};
    r = template_render(c->with_tools && json_len(in->tools) > 0 ? c->with_tools : c->usual,
                        &context, out, e);
    return r < 0 || in->end != CHAT_CONTINUE ? r : cut_to_message(in->messages, out, begin, e);
}
