/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading calls of tools as models write them. Arguments become JSON; where they are JSON already
 * they stay as the model wrote them.
 */
#include "router/openai/reply_calls.h"

#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "router/openai/reply_harmony.h"
#include "router/openai/reply_thoughts.h"

enum { CALLS_MAX = 128, LITERAL_DEPTH = 32 };

static bool has_nul(struct str s)
{
    return s.len && memchr(s.ptr, '\0', s.len);
}

bool reply_add_call(struct reply_found *f, struct str name, struct str arguments, struct str id)
{
    const struct str parts[] = {name, arguments, id};

    if (name.len == 0 || f->n == CALLS_MAX)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (has_nul(parts[i]))
            return false;
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        buf_put_str(&f->text, parts[i]);
        buf_put_char(&f->text, '\0');
    }
    f->n++;
    return true;
}

void reply_tell_found(struct reply_found *f, reply_fn tell, void *arg)
{
    const char *p = buf_cstr(&f->text);

    for (size_t i = 0; i < f->n; i++) {
        struct reply_part part = {.kind = REPLY_CALL, .name = str_from(p)};

        part.text = str_from(p + part.name.len + 1);
        part.id = str_from(part.text.ptr + part.text.len + 1);
        p = part.id.ptr + part.id.len + 1;
        part.more = i + 1 < f->n;
        tell(arg, &part);
    }
}

static bool add(struct reply_found *f, struct str name, struct str arguments)
{
    return reply_add_call(f, name, arguments, STR_NULL);
}

/* --- JSON ------------------------------------------------------------------------------------- */

static bool is_json(struct str text)
{
    AUTO(json_free) struct json *v = NULL;
    struct err e;

    return json_parse_wide(&v, text, &e) == 0;
}

bool reply_compact_json(struct str text, struct buf *ret)
{
    bool in_string = false;

    if (!is_json(text))
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];

        if (!in_string && (c == ' ' || c == '\t' || c == '\n' || c == '\r'))
            continue;
        buf_put_char(ret, c);
        if (c == '"')
            in_string = !in_string;
        else if (c == '\\' && ++i < text.len)
            buf_put_char(ret, text.ptr[i]);
    }
    return true;
}

/* {"name": n, @key: object, or a text that holds one} */
static bool read_named(struct str text, const char *key, struct reply_found *f)
{
    AUTO(buf_done) struct buf name_scratch = BUF_NULL, scratch = BUF_NULL;
    struct str arguments = json_pull_member(text, key), name = STR_NULL;
    struct json_pull p;

    json_pull_init(&p, json_pull_member(text, "name"));
    if (json_pull_peek(&p) != JSON_KIND_STRING || !json_pull_string(&p, &name_scratch, &name))
        return false;
    json_pull_init(&p, arguments);
    if (json_pull_peek(&p) == JSON_KIND_STRING &&
        (!json_pull_string(&p, &scratch, &arguments) || !is_json(arguments)))
        return false;
    return add(f, name, arguments.len ? arguments : STR("{}"));
}

static bool read_object(struct str text, struct reply_found *f)
{
    const char *key = json_pull_member(text, "arguments").len ? "arguments" : "parameters";

    return read_named(text, key, f);
}

static bool read_array(struct str text, struct reply_found *f)
{
    struct json_pull p;
    struct str one;

    json_pull_init(&p, text);
    if (!json_pull_array(&p))
        return false;
    while (json_pull_element(&p))
        if (!json_pull_skip(&p, &one) || !read_object(one, f))
            return false;
    return true;
}

/* One object or an array of them. */
static bool read_json(struct str text, struct reply_found *f)
{
    text = str_trim(text);
    if (!is_json(text))
        return false;
    return text.ptr[0] == '[' ? read_array(text, f) : read_object(text, f);
}

/* Behind it the mark that ends it may stand, or a part of it where the answer was cut off. */
static bool read_mistral(struct str text, struct reply_found *f)
{
    bool is_whole;
    size_t n = reply_find_json_end(text, &is_whole);
    struct str rest = str_trim(str_skip(text, n));

    return is_whole && str_starts(STR("[/TOOL_CALLS]"), rest) && read_json(str_head(text, n), f);
}

/* Several, with ";" between. */
static bool read_json_list(struct str text, struct reply_found *f)
{
    struct str part;

    if (read_json(text, f))
        return true;
    buf_clear(&f->text);
    f->n = 0;
    for (bool more = true; more;) {
        more = str_cut(&text, ';', &part);
        if (!read_json(part, f))
            return false;
    }
    return true;
}

/* {"name": n, "args": object} */
bool reply_read_inkling(struct str text, struct reply_found *f)
{
    text = str_trim(text);
    return is_json(text) && text.ptr[0] == '{' && read_named(text, "args", f);
}

/* The mark may stand in a text of the arguments. */
size_t reply_find_inkling_end(struct str text, bool *ret_found)
{
    static const char mark[] = "<|end_message|>";
    size_t n = reply_find_mark(text, mark, ret_found);
    bool in_string = false;

    if (!*ret_found)
        return n;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"')
            in_string = !in_string;
        else if (in_string && text.ptr[i] == '\\')
            i++;
        else if (!in_string && str_starts(str_skip(text, i), STR(mark)))
            return i;
    }
    *ret_found = false;
    return text.len;
}

static bool read_arguments(struct str text, struct reply_found *f)
{
    text = str_trim(text);
    return is_json(text) && add(f, f->named, text);
}

bool reply_take_to(struct str *rest, const char *mark, struct str *ret)
{
    const char *hit = rest->len ? memmem(rest->ptr, rest->len, mark, strlen(mark)) : NULL;

    if (!hit)
        return false;
    *ret = str_head(*rest, (size_t)(hit - rest->ptr));
    *rest = str_skip(*rest, ret->len + strlen(mark));
    return true;
}

/* --- DeepSeek --------------------------------------------------------------------------------- */

#define DS(word) "<\xef\xbd\x9ctool\xe2\x96\x81" word "\xef\xbd\x9c>"
#define DS_SEP "<\xef\xbd\x9ctool\xe2\x96\x81sep\xef\xbd\x9c>"

static bool add_compact(struct reply_found *f, struct str name, struct str arguments, struct str id)
{
    AUTO(buf_done) struct buf compact = BUF_NULL;

    return reply_compact_json(str_trim(arguments), &compact) &&
           reply_add_call(f, name, buf_str(&compact), id);
}

/* Blocks of begin, [type] sep name, arguments (in V3 fenced), end. */
static bool read_deepseek(struct str text, struct reply_found *f, bool fenced)
{
    struct str block, part, name, arguments;

    while (reply_take_to(&text,
                         DS("call\xe2\x96\x81"
                            "begin"),
                         &part)) {
        if (!reply_take_to(&text,
                           DS("call\xe2\x96\x81"
                              "end"),
                           &block) ||
            !reply_take_to(&block, DS_SEP, &name))
            return false;
        arguments = block;
        if (fenced &&
            (!reply_take_to(&block, "\n", &name) || !reply_take_to(&block, "```json", &part) ||
             !reply_take_to(&block, "```", &arguments)))
            return false;
        if (!add_compact(f, str_trim(name), arguments, STR_NULL))
            return false;
    }
    return true;
}

static bool read_deepseek_v3(struct str text, struct reply_found *f)
{
    return read_deepseek(text, f, true);
}

static bool read_deepseek_v3_1(struct str text, struct reply_found *f)
{
    return read_deepseek(text, f, false);
}

/* --- Kimi ------------------------------------------------------------------------------------- */

/* <|tool_call_begin|> [functions.]NAME:N <|tool_call_argument_begin|> JSON <|tool_call_end|> …;
 * what stands before the arguments is the id, by which the next prompt names the call. */
static bool read_kimi(struct str text, struct reply_found *f)
{
    struct str part, id, name, arguments;

    while (reply_take_to(&text, "<|tool_call_begin|>", &part)) {
        if (!reply_take_to(&text, "<|tool_call_argument_begin|>", &id) ||
            !reply_take_to(&text, "<|tool_call_end|>", &arguments))
            return false;
        id = str_trim(id);
        name = str_skip(id, str_starts(id, STR("functions.")) ? strlen("functions.") : 0);
        if (!reply_take_to(&name, ":", &part) || !add_compact(f, part, arguments, id))
            return false;
    }
    return true;
}

/* --- Python ----------------------------------------------------------------------------------- */

struct python {
    struct str rest;
    int depth;
};

static void skip_blanks(struct python *p)
{
    while (p->rest.len && strchr(" \t\r\n", p->rest.ptr[0]) && p->rest.ptr[0])
        p->rest = str_skip(p->rest, 1);
}

static bool take_char(struct python *p, char c)
{
    skip_blanks(p);
    if (!p->rest.len || p->rest.ptr[0] != c)
        return false;
    p->rest = str_skip(p->rest, 1);
    return true;
}

static bool take_word(struct python *p, const char *word)
{
    if (!str_starts(p->rest, str_from(word)))
        return false;
    p->rest = str_skip(p->rest, strlen(word));
    return true;
}

/* Letters, digits, "_" and "." */
static struct str take_name(struct python *p)
{
    size_t n = 0;

    skip_blanks(p);
    while (n < p->rest.len && (p->rest.ptr[n] == '_' || p->rest.ptr[n] == '.' ||
                               (p->rest.ptr[n] >= '0' && p->rest.ptr[n] <= '9') ||
                               ((p->rest.ptr[n] | 0x20) >= 'a' && (p->rest.ptr[n] | 0x20) <= 'z')))
        n++;
    p->rest = str_skip(p->rest, n);
    return str_slice(p->rest.ptr - n, n);
}

static bool put_string(struct python *p, struct json_put *j)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    static const char from[] = "ntr0", to[] = "\n\t\r";
    char quote = p->rest.ptr[0];

    for (p->rest = str_skip(p->rest, 1); p->rest.len; p->rest = str_skip(p->rest, 1)) {
        char c = p->rest.ptr[0];
        const char *known;

        if (c == quote) {
            p->rest = str_skip(p->rest, 1);
            json_put_str(j, buf_str(&text));
            return true;
        }
        if (c == '\\' && p->rest.len > 1) {
            p->rest = str_skip(p->rest, 1);
            c = p->rest.ptr[0];
            known = c ? strchr(from, c) : NULL;
            if (known && *known != '0')
                c = to[known - from];
            else if (!strchr("\\'\"", c))
                buf_put_char(&text, '\\');
        }
        buf_put_char(&text, c);
    }
    return false;
}

static bool put_literal(struct python *p, struct json_put *j);

static bool put_list(struct python *p, struct json_put *j, char end)
{
    json_put_array(j);
    while (!take_char(p, end))
        if (!put_literal(p, j) || (!take_char(p, ',') && !(p->rest.len && p->rest.ptr[0] == end)))
            return false;
    json_put_array_end(j);
    return true;
}

static bool put_dict(struct python *p, struct json_put *j)
{
    json_put_object(j);
    while (!take_char(p, '}')) {
        AUTO(buf_done) struct buf key = BUF_NULL;
        struct json_put k = json_put_on(&key);

        skip_blanks(p);
        if (!p->rest.len || !strchr("'\"", p->rest.ptr[0]) || !put_string(p, &k) ||
            !take_char(p, ':'))
            return false;
        /* The key is JSON already, so it is written as a value, and the colon by hand. */
        json_put_raw(j, buf_str(&key));
        buf_put_char(j->out, ':');
        j->comma = false;
        if (!put_literal(p, j) || (!take_char(p, ',') && !(p->rest.len && p->rest.ptr[0] == '}')))
            return false;
    }
    json_put_object_end(j);
    return true;
}

static bool put_number(struct python *p, struct json_put *j)
{
    size_t n = 0;
    struct str text;

    while (n < p->rest.len && p->rest.ptr[n] && strchr("+-0123456789.eE", p->rest.ptr[n]))
        n++;
    text = str_head(p->rest, n);
    p->rest = str_skip(p->rest, n);
    if (n == 0 || !is_json(text))
        return false;
    json_put_raw(j, text);
    return true;
}

static bool put_nested(struct python *p, struct json_put *j)
{
    bool ok;

    if (++p->depth > LITERAL_DEPTH)
        return false;
    ok = take_char(p, '[')   ? put_list(p, j, ']')
         : take_char(p, '(') ? put_list(p, j, ')')
         : take_char(p, '{') ? put_dict(p, j)
                             : false;
    p->depth--;
    return ok;
}

static bool put_literal(struct python *p, struct json_put *j)
{
    skip_blanks(p);
    if (!p->rest.len)
        return false;
    if (strchr("'\"", p->rest.ptr[0]))
        return put_string(p, j);
    if (strchr("[({", p->rest.ptr[0]))
        return put_nested(p, j);
    if (take_word(p, "True") || take_word(p, "true")) {
        json_put_bool(j, true);
    } else if (take_word(p, "False") || take_word(p, "false")) {
        json_put_bool(j, false);
    } else if (take_word(p, "None") || take_word(p, "null")) {
        json_put_null(j);
    } else {
        return put_number(p, j);
    }
    return true;
}

/* name(key=literal, …) */
static bool read_python_call(struct python *p, struct reply_found *f)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct str name = take_name(p), key;

    if (!take_char(p, '('))
        return false;
    json_put_object(&j);
    while (!take_char(p, ')')) {
        key = take_name(p);
        if (!key.len || !take_char(p, '='))
            return false;
        json_put_key_str(&j, key);
        if (!put_literal(p, &j) || (!take_char(p, ',') && !(p->rest.len && p->rest.ptr[0] == ')')))
            return false;
    }
    json_put_object_end(&j);
    return add(f, name, buf_str(&out));
}

/* [f(x=1), g()] and nothing behind it */
static bool read_python(struct str text, struct reply_found *f)
{
    struct python p = {.rest = text};

    if (!take_char(&p, '['))
        return false;
    while (!take_char(&p, ']'))
        if (!read_python_call(&p, f) ||
            (!take_char(&p, ',') && !(p.rest.len && p.rest.ptr[0] == ']')))
            return false;
    skip_blanks(&p);
    return p.rest.len == 0;
}

/* --- table ------------------------------------------------------------------------------------ */

const struct reply_calls REPLY_ANSWER_IS_CALLS = {.name = "", .read = read_json};
const struct reply_calls REPLY_ANSWER_IS_ARGUMENTS = {.name = "", .read = read_arguments};

#define DS_BEGIN                                                                                   \
    DS("calls\xe2\x96\x81"                                                                         \
       "begin")
#define DS_END                                                                                     \
    DS("calls\xe2\x96\x81"                                                                         \
       "end")

#define DSML                                                                                       \
    "\xef\xbd\x9c"                                                                                 \
    "DSML"                                                                                         \
    "\xef\xbd\x9c"
#define DSML_CALLS "<" DSML "tool_calls>"
#define DSML_CALLS_END "</" DSML "tool_calls>"
#define KIMI_BEGIN "<|tool_calls_section_begin|>"
#define KIMI_END "<|tool_calls_section_end|>"
#define M3_BEGIN "]<]minimax[>[<tool_call>"
#define M3_END "]<]minimax[>[</tool_call>"
#define K3_BEGIN "<|open|>tools<|sep|>"
#define K3_END "<|close|>tools<|sep|>"

#define BARE_JSON .bare = true, .read = read_json

const struct reply_calls REPLY_CALLS[] = {
    {.name = "hermes", BARE_JSON, .begin = "<tool_call>", .end = "</tool_call>"},
    {.name = "qwen25", BARE_JSON, .begin = "<tool_call>", .end = "</tool_call>"},
    {.name = "nemotron_deci", BARE_JSON, .begin = "<TOOLCALL>", .end = "</TOOLCALL>"},
    {.name = "default", BARE_JSON, .begin = "<TOOLCALL>", .end = "</TOOLCALL>"},
    {.name = "llama3_json",
     .begin = "<|python_tag|>",
     .first = '{',
     .end = "",
     .read = read_json_list,
     .find_end = reply_find_json_list_end},
    {.name = "mistral",
     .special = true,
     .bare = true,
     .begin = "[TOOL_CALLS]",
     .end = "",
     .read = read_mistral,
     .find_end = reply_find_mistral_end},
    {.name = "phi4", BARE_JSON, .begin = "functools", .end = "", .find_end = reply_find_json_end},
    {.name = "jamba", BARE_JSON, .begin = "<tool_calls>", .end = "</tool_calls>"},
    {.name = "pythonic",
     .first = '[',
     .end = "",
     .read = read_python,
     .find_end = reply_find_python_end},
    {.name = "qwen3_coder",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .read = reply_read_elements},
    {.name = "qwen3", .begin = "<tool_call>", .end = "</tool_call>", .read = reply_read_elements},
    {.name = "nemotron_nano",
     .begin = "<tool_call>",
     .end = "</tool_call>",
     .read = reply_read_elements},
    {.name = "deepseek_v3", .begin = DS_BEGIN, .end = DS_END, .read = read_deepseek_v3},
    {.name = "deepseek_v3_1", .begin = DS_BEGIN, .end = DS_END, .read = read_deepseek_v3_1},
    {.name = "deepseek_v3_2",
     .begin = "<" DSML "function_calls>",
     .end = "</" DSML "function_calls>",
     .read = reply_read_dsml},
    {.name = "deepseek_v4", .begin = DSML_CALLS, .end = DSML_CALLS_END, .read = reply_read_dsml},
    {.name = "deepseek-v4", .begin = DSML_CALLS, .end = DSML_CALLS_END, .read = reply_read_dsml},
    {.name = "deepseekv4", .begin = DSML_CALLS, .end = DSML_CALLS_END, .read = reply_read_dsml},
    {.name = "deepseek_v41",
     .special = true,
     .begin = "<" DSML " calls>",
     .end = "</" DSML " calls>",
     .read = reply_read_dsml_v41},
    {.name = "minimax_m2",
     .begin = "<minimax:tool_call>",
     .end = "</minimax:tool_call>",
     .read = reply_read_invokes},
    {.name = "glm45", .begin = "<tool_call>", .end = "</tool_call>", .read = reply_read_pairs},
    {.name = "glm47", .begin = "<tool_call>", .end = "</tool_call>", .read = reply_read_pairs},
    {.name = "kimi_k2", .special = true, .begin = KIMI_BEGIN, .end = KIMI_END, .read = read_kimi},
    {.name = "kimi_k25", .special = true, .begin = KIMI_BEGIN, .end = KIMI_END, .read = read_kimi},
    {.name = "minimax_m3",
     .special = true,
     .begin = M3_BEGIN,
     .end = M3_END,
     .read = reply_read_minimax_m3},
    {.name = "minimax-m3",
     .special = true,
     .begin = M3_BEGIN,
     .end = M3_END,
     .read = reply_read_minimax_m3},
    {.name = "minimax_m3_nom",
     .special = true,
     .begin = M3_BEGIN,
     .end = M3_END,
     .read = reply_read_minimax_m3},
    {.name = "minimax-m3-nom",
     .special = true,
     .begin = M3_BEGIN,
     .end = M3_END,
     .read = reply_read_minimax_m3},
    {.name = "kimi_k3",
     .special = true,
     .begin = K3_BEGIN,
     .end = K3_END,
     .read = reply_read_kimi_k3,
     .frame = &REPLY_KIMI_FRAME},
    {.name = "kimi-k3",
     .special = true,
     .begin = K3_BEGIN,
     .end = K3_END,
     .read = reply_read_kimi_k3,
     .frame = &REPLY_KIMI_FRAME},
    {.name = "gemma4",
     .special = true,
     .begin = "<|tool_call>",
     .end = "<tool_call|>",
     .read = reply_read_gemma,
     .find_end = reply_find_gemma_end},
    {.name = "gemma-4",
     .special = true,
     .begin = "<|tool_call>",
     .end = "<tool_call|>",
     .read = reply_read_gemma,
     .find_end = reply_find_gemma_end},
    {.name = "inkling",
     .special = true,
     .begin = "<|content_invoke_tool_json|>",
     .end = "<|end_message|>",
     .read = reply_read_inkling,
     .find_end = reply_find_inkling_end,
     .frame = &REPLY_INKLING_FRAME},
    {.name = "harmony", .special = true, .dialect = &HARMONY_GPT_OSS},
    {.name = "muse", .special = true, .dialect = &HARMONY_MUSE},
    {.name = "muse_glimmer", .special = true, .dialect = &HARMONY_MUSE},
};
const size_t REPLY_CALLS_N = ARRAY_LEN(REPLY_CALLS);
