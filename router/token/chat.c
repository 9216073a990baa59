/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chat.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/chat_gemma.h"
#include "router/token/chat_probe.h"

/* A template and what it asks of messages. */
struct side {
    struct template *template; /* owned */
    struct buf source;         /* until it is loaded */
    struct chat_rules rules;
};

struct chat {
    struct side usual, with_tools; /* one without a template: the usual one serves both */
    struct json *tokens;           /* owned object: bos_token and the like */
    enum template_style style;
    enum chat_release release;
    chat_native_fn native; /* writes prompts, without a template; or NULL */
};

/* --- loading ---------------------------------------------------------------------------------- */

static int parse_side(const struct chat *c, struct side *s, struct str source, struct err *e)
{
    int r;

    s->template = template_free(s->template);
    buf_clear(&s->source);
    if (c->release == CHAT_OF_1)
        chat_gemma_put(source, &s->source);
    else
        buf_put_str(&s->source, source);
    r = template_parse(&s->template, buf_str(&s->source), c->style, e);
    if (r == 0 && c->release == CHAT_OF_1)
        template_act_as_1(s->template);
    return r;
}

/* The reference of 0.9.0 drops every newline of a template file, and so its prompts depend on it. */
static int parse_file(struct chat *c, struct str file, struct err *e)
{
    AUTO(buf_done) struct buf flat = BUF_NULL;
    struct str line;
    bool more = true;

    if (c->style != TEMPLATE_DYNAMO_0_9)
        return parse_side(c, &c->usual, file, e);
    while (more) {
        more = str_cut(&file, '\n', &line);
        buf_put_str(&flat, line);
    }
    return parse_side(c, &c->usual, buf_str(&flat), e);
}

static struct side *place_named(struct chat *c, const char *name)
{
    if (name && strcmp(name, "default") == 0)
        return &c->usual;
    return name && strcmp(name, "tool_use") == 0 ? &c->with_tools : NULL;
}

static int parse_named(struct chat *c, const char *name, const char *source, struct err *e)
{
    struct side *place = place_named(c, name);

    if (!place || !source)
        return 0; /* other names serve other purposes */
    return parse_side(c, place, str_from(source), e);
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
        return parse_side(c, &c->usual, str_from(json_cstr(source)), e);
    if (json_is_array(source))
        JSON_FOREACH (entry, source) {
            int r = parse_entry(c, entry, e);

            if (r < 0)
                return r;
        }
    return c->usual.template ? 0 : err_set(e, -ENOENT, "tokenizer_config.json: no chat_template");
}

/* A special token is a string, or an object that holds it. The reference tells templates of three,
 * as none where there is none. */
static void load_tokens(struct chat *c, const struct json *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    size_t n = c->release == CHAT_AS_SENT ? ARRAY_LEN(names) : ARRAY_LEN(names) - 1;

    c->tokens = json_new_object();
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_get(config, names[i]);
        const char *text = json_is_object(v) ? json_get_cstr(v, "content") : json_cstr(v);

        if (text)
            (void)json_set_cstr(c->tokens, names[i], text);
        else if (c->release != CHAT_AS_SENT)
            (void)json_set(c->tokens, names[i], json_new_null());
    }
}

/* Both sides have rules, even of one template: what it refuses may depend on tools. */
static void find_rules(struct chat *c)
{
    struct side *sides[] = {&c->usual, &c->with_tools};
    struct chat_probe usual = {c->usual.template, buf_str(&c->usual.source), c->tokens, false};
    bool wants_parts = chat_probe_wants_parts(&usual);
    const char *media = c->release == CHAT_OF_1 && !wants_parts ? chat_probe_media(&usual) : NULL;

    for (size_t i = 0; i < ARRAY_LEN(sides); i++) {
        const struct side *of = sides[i]->template ? sides[i] : &c->usual;
        struct chat_probe p = {of->template, buf_str(&of->source), c->tokens, i > 0};

        sides[i]->rules =
            (struct chat_rules){.release = c->release, .wants_parts = wants_parts, .media = media};
        if (c->release == CHAT_OF_1)
            chat_probe_rules(&p, &sides[i]->rules);
    }
    buf_done(&c->usual.source);
    buf_done(&c->with_tools.source);
}

int chat_load(struct chat **ret, const struct json *config, struct str file,
              enum template_style style, enum chat_release release, struct err *e)
{
    AUTO(chat_free) struct chat *c = xcalloc(1, sizeof(*c));
    int r;

    c->style = style;
    c->release = release;
    r = file.ptr ? parse_file(c, file, e) : parse_config(c, config, e);
    if (r < 0)
        return r;
    load_tokens(c, config);
    find_rules(c);
    *ret = TAKE(c);
    return 0;
}

struct chat *chat_load_native(const struct chat_model *m, enum chat_release release)
{
    chat_native_fn native = chat_native_find(m->type, m->name, release);
    struct chat *c;

    if (!native)
        return NULL;
    c = xcalloc(1, sizeof(*c));
    c->release = release;
    c->native = native;
    return c;
}

struct chat *chat_free(struct chat *c)
{
    if (!c)
        return NULL;
    (void)template_free(c->usual.template);
    (void)template_free(c->with_tools.template);
    buf_done(&c->usual.source);
    buf_done(&c->with_tools.source);
    (void)json_free(c->tokens);
    free(c);
    return NULL;
}

bool chat_wants_parts(const struct chat *c)
{
    return c->usual.rules.wants_parts;
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

/* 1.x does not show tools that must not be called. */
static const struct json *shown_tools(const struct chat *c, const struct chat_input *in)
{
    bool hides = in->choice.nothing && c->release == CHAT_OF_1;

    return json_is_array(in->tools) && !hides ? in->tools : NULL;
}

static int render_native(const struct chat *c, const struct chat_input *in, struct buf *out,
                         struct err *e)
{
    const struct chat_rules rules = {.release = c->release};
    const struct json *shown = shown_tools(c, in);
    AUTO(json_free) struct json *messages = chat_known_messages(in->messages, c->release);
    AUTO(json_free) struct json *tools = shown ? chat_tools(shown, &rules) : NULL;
    AUTO(json_free) struct json *format = chat_response_format(in->response_format);
    AUTO(text_pieces_done) struct text_pieces pieces = {0};
    const struct chat_native_input native = {.messages = messages,
                                             .tools = json_len(tools) ? tools : NULL,
                                             .response_format = format,
                                             .args = json_is_object(in->args) ? in->args : NULL,
                                             .choice = in->choice,
                                             .floats = c->release == CHAT_OF_1 ? FLOAT_PYTHON
                                                                               : FLOAT_OLD_SERDE,
                                             .ends_with_messages = in->end == CHAT_MESSAGES,
                                             .pieces = in->pieces ? in->pieces : &pieces};
    size_t begin = out->len;
    int r = c->native(&native, out, e);

    if (r < 0) {
        buf_truncate(out, begin);
        text_pieces_done(native.pieces);
    }
    return r;
}

static int render_template(const struct chat *c, const struct chat_input *in, struct buf *out,
                           struct err *e)
{
    AUTO(json_free) struct json *vars = NULL;
    const struct json *tools = shown_tools(c, in);
    const struct side *side = json_len(tools) > 0 ? &c->with_tools : &c->usual;
    struct template_context context = {.over = in->args, .now = in->now, .steps = in->steps};

    vars = json_dup(c->tokens);
    (void)json_set(vars, "messages", chat_messages(in->messages, &side->rules));
    if (tools)
        (void)json_set(vars, "tools", chat_tools(tools, &side->rules));
    else if (c->release != CHAT_AS_SENT)
        (void)json_set(vars, "tools", json_new_null());
    (void)json_set_bool(vars, "add_generation_prompt", in->end == CHAT_ANSWER);
    context.vars = vars;
    if (c->release != CHAT_AS_SENT && json_is_object(in->args)) /* arguments hide nothing there */
        context = (struct template_context){
            .vars = in->args, .over = vars, .now = in->now, .steps = in->steps};
    return template_render(side->template ? side->template : c->usual.template, &context, out, e);
}

int chat_render(const struct chat *c, const struct chat_input *in, struct buf *out, struct err *e)
{
    size_t begin = out->len;
    int r = check(in, e);

    if (r == 0)
        r = c->native ? render_native(c, in, out, e) : render_template(c, in, out, e);
    return r < 0 || in->end != CHAT_CONTINUE ? r : cut_to_message(in->messages, out, begin, e);
}
