/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lexer of templates. White space beside tags is settled here: trim_blocks and lstrip_blocks are
 * on, "-" takes all white space away on its side, "+" keeps what the two settings would take.
 */
#include "router/token/jinja_ast.h"

#include <errno.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "router/token/utf8.h"

struct lexer {
    struct arena *a;
    struct str src;
    size_t at;
    uint32_t line;
    bool line_start; /* nothing but a line end stands right before `at` */
    struct jinja_token *tokens;
    size_t n, cap;
    struct err *e;
};

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static char peek(const struct lexer *l, size_t ahead)
{
    return l->at + ahead < l->src.len ? l->src.ptr[l->at + ahead] : '\0';
}

static bool looks_at(const struct lexer *l, const char *text)
{
    return str_starts(str_skip(l->src, l->at), str_from(text));
}

static void skip(struct lexer *l, size_t n)
{
    for (; n > 0 && l->at < l->src.len; n--)
        l->line += l->src.ptr[l->at++] == '\n';
}

static void skip_blanks(struct lexer *l)
{
    while (l->at < l->src.len && is_blank(l->src.ptr[l->at]))
        skip(l, 1);
}

static int fail(struct lexer *l, int code, const char *why)
{
    return err_set(l->e, code, "line %u: %s", l->line, why);
}

static struct jinja_token *push(struct lexer *l, enum jinja_token_kind kind, struct str text)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 256;
        l->tokens = xreallocarray(l->tokens, l->cap, sizeof(*l->tokens));
    }
    l->tokens[l->n] = (struct jinja_token){.kind = kind, .line = l->line, .text = text};
    return &l->tokens[l->n++];
}

/* --- text and the white space around tags ----------------------------------------------------- */

static struct str strip_end(struct str text)
{
    while (text.len > 0 && is_blank(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

/* Blanks between the start of the line and a tag go. */
static struct str strip_indent(const struct lexer *l, struct str text)
{
    size_t at = text.len;

    while (at > 0 && text.ptr[at - 1] != '\n' && is_blank(text.ptr[at - 1]))
        at--;
    if (at == 0 ? l->line_start : text.ptr[at - 1] == '\n')
        text.len = at;
    return text;
}

/* @tag is the second character of the tag that ends the text. */
static void push_text(struct lexer *l, struct str text, char tag, char control)
{
    uint32_t line = l->line;

    if (control == '-')
        text = strip_end(text);
    else if (tag != '{' && control != '+')
        text = strip_indent(l, text);
    if (text.len > 0)
        push(l, JINJA_TEXT, text)->line = line;
}

/* Behind the end of a tag; `at` stands behind its last character. */
static void trim_after(struct lexer *l, bool block, char control)
{
    size_t before = l->at;

    if (control == '-')
        skip_blanks(l);
    else if (block && control != '+')
        skip(l, peek(l, 0) == '\n' ? 1 : looks_at(l, "\r\n") ? 2 : 0);
    l->line_start = l->at > before && l->src.ptr[l->at - 1] == '\n';
}

/* --- inside of tags --------------------------------------------------------------------------- */

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* @n hexadecimal digits at `at`; false when there are fewer. */
static bool read_hex(struct lexer *l, int n, uint32_t *ret)
{
    uint32_t cp = 0;

    for (int i = 0; i < n; i++) {
        int v = hex_value(peek(l, (size_t)i));

        if (v < 0)
            return false;
        cp = cp << 4 | (uint32_t)v;
    }
    skip(l, (size_t)n);
    *ret = cp;
    return true;
}

static bool read_escape(struct lexer *l, struct buf *out)
{
    static const char from[] = "ntrbfva", to[] = "\n\t\r\b\f\v\a";
    char c = peek(l, 0);
    const char *known = c ? strchr(from, c) : NULL;
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t cp;

    if (c >= '0' && c <= '7') {
        cp = 0;
        for (int i = 0; i < 3 && peek(l, 0) >= '0' && peek(l, 0) <= '7'; i++, skip(l, 1))
            cp = cp * 8 + (uint32_t)(peek(l, 0) - '0');
        utf8_append(out, cp);
        return true;
    }
    skip(l, 1);
    if (digits) {
        if (!read_hex(l, digits, &cp) || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            return false;
        utf8_append(out, cp);
    } else if (known) {
        buf_put_char(out, to[known - from]);
    } else if (c == '\\' || c == '\'' || c == '"') {
        buf_put_char(out, c);
    } else if (c != '\n') { /* an unknown escape stands for itself */
        buf_put_char(out, '\\');
        buf_put_char(out, c);
    }
    return true;
}

static int lex_string(struct lexer *l)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    uint32_t line = l->line;
    char quote = peek(l, 0);

    skip(l, 1);
    while (l->at < l->src.len && peek(l, 0) != quote) {
        bool escape = peek(l, 0) == '\\';

        if (!escape)
            buf_put_char(&text, peek(l, 0));
        skip(l, 1);
        if (escape && !read_escape(l, &text))
            return fail(l, -EINVAL, "malformed escape in a string");
    }
    if (l->at == l->src.len)
        return fail(l, -EINVAL, "string without an end");
    skip(l, 1);
    push(l, JINJA_STR, str_slice(arena_strdup(l->a, buf_str(&text)), text.len))->line = line;
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Single underscores may divide them. */
static void skip_digits(struct lexer *l)
{
    while (is_digit(peek(l, 0)) || (peek(l, 0) == '_' && is_digit(peek(l, 1))))
        skip(l, 1);
}

/* 0x1f, 0o17, 0b1: @base of the number that begins here, 0 when it is a decimal one. */
static unsigned number_base(const struct lexer *l)
{
    char c = (char)(peek(l, 1) | 0x20);
    unsigned base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;

    return peek(l, 0) == '0' && base && hex_value(peek(l, 2)) >= 0 ? base : 0;
}

static int lex_based(struct lexer *l, unsigned base)
{
    size_t n = 2;
    uint64_t v;
    struct jinja_token *t;

    while (hex_value(peek(l, n)) >= 0)
        n++;
    t = push(l, JINJA_INT, str_slice(l->src.ptr + l->at, n));
    if (!str_parse_base(str_skip(t->text, 2), base, &v) || v > INT64_MAX)
        return fail(l, -EINVAL, "malformed number");
    t->i = (int64_t)v;
    skip(l, n);
    return 0;
}

/* @text without its underscores. */
static struct str plain_number(struct lexer *l, struct str text)
{
    char *copy;
    size_t n = 0;

    if (str_index(text, '_') == text.len)
        return text;
    copy = arena_alloc(l->a, text.len);
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '_')
            copy[n++] = text.ptr[i];
    return str_slice(copy, n);
}

static int lex_number(struct lexer *l)
{
    size_t start = l->at, sign;
    bool is_float = false;
    struct jinja_token *t;
    struct str text;

    if (number_base(l))
        return lex_based(l, number_base(l));
    skip_digits(l);
    if (peek(l, 0) == '.' && is_digit(peek(l, 1))) {
        is_float = true;
        skip(l, 1);
        skip_digits(l);
    }
    sign = peek(l, 1) == '-' || peek(l, 1) == '+' ? 1 : 0;
    if ((peek(l, 0) | 0x20) == 'e' && is_digit(peek(l, 1 + sign))) {
        is_float = true;
        skip(l, 1 + sign);
        skip_digits(l);
    }
    text = plain_number(l, str_slice(l->src.ptr + start, l->at - start));
    t = push(l, is_float ? JINJA_FLOAT : JINJA_INT, text);
    if (is_float ? !str_parse_f64(text, &t->f) : !str_parse_i64(text, &t->i))
        return fail(l, -EINVAL, "number out of range");
    return 0;
}

static int lex_operator(struct lexer *l)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    size_t n = 1;

    for (size_t i = 0; i < ARRAY_LEN(two); i++)
        if (looks_at(l, two[i]))
            n = 2;
    if (n == 1 && !strchr("+-*/%~<>=()[]{}.,:|", peek(l, 0)))
        return fail(l, -EINVAL, "unexpected character in a tag");
    push(l, JINJA_OP, str_slice(l->src.ptr + l->at, n));
    skip(l, n);
    return 0;
}

static bool is_name(char c)
{
    return is_digit(c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

static int lex_one(struct lexer *l)
{
    char c = peek(l, 0);
    size_t n = 0;

    if (c == '"' || c == '\'')
        return lex_string(l);
    if (is_digit(c))
        return lex_number(l);
    if (!is_name(c))
        return lex_operator(l);
    while (is_name(peek(l, n)))
        n++;
    push(l, JINJA_NAME, str_slice(l->src.ptr + l->at, n));
    skip(l, n);
    return 0;
}

/* Braces opened inside of the tag: "}}" only ends it when there are none. */
static int brace_change(const struct jinja_token *t)
{
    if (t->kind != JINJA_OP)
        return 0;
    return str_is(t->text, "{") ? 1 : str_is(t->text, "}") ? -1 : 0;
}

static int lex_inside(struct lexer *l, bool block)
{
    const char *end = block ? "%}" : "}}";
    int braces = 0;

    for (;;) {
        char control = peek(l, 0);
        size_t n = control == '-' || control == '+' ? 1 : 0;

        if (l->at == l->src.len)
            return fail(l, -EINVAL, "tag without an end");
        if (braces == 0 && str_starts(str_skip(l->src, l->at + n), str_from(end))) {
            push(l, block ? JINJA_BLOCK_END : JINJA_VAR_END, STR_NULL);
            skip(l, n + 2);
            trim_after(l, block, n ? control : '\0');
            return 0;
        }
        if (is_blank(control)) {
            skip(l, 1);
            continue;
        }
        if (lex_one(l) < 0)
            return -EINVAL;
        braces += brace_change(&l->tokens[l->n - 1]);
    }
}

/* --- tags ------------------------------------------------------------------------------------- */

static int lex_comment(struct lexer *l)
{
    const char *end = memmem(l->src.ptr + l->at, l->src.len - l->at, "#}", 2);
    char control;

    if (!end)
        return fail(l, -EINVAL, "comment without an end");
    control = end > l->src.ptr + l->at ? end[-1] : '\0';
    skip(l, (size_t)(end - l->src.ptr) + 2 - l->at);
    trim_after(l, true, control == '-' || control == '+' ? control : '\0');
    return 0;
}

/* Whether a block tag holding just @name stands at `at`: its length, how it ends; 0 when not. */
static size_t match_tag(const struct lexer *l, size_t at, const char *name, char *ret_begin,
                        char *ret_end)
{
    struct str s = str_skip(l->src, at);
    size_t i = 2;

    if (!str_starts(s, STR("{%")))
        return 0;
    *ret_begin = i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+') ? s.ptr[i++] : '\0';
    while (i < s.len && is_blank(s.ptr[i]))
        i++;
    if (!str_starts(str_skip(s, i), str_from(name)))
        return 0;
    i += strlen(name);
    while (i < s.len && is_blank(s.ptr[i]))
        i++;
    *ret_end = i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+') ? s.ptr[i++] : '\0';
    return str_starts(str_skip(s, i), STR("%}")) ? i + 2 : 0;
}

/* Text between {% raw %} and {% endraw %} is no template; `at` stands behind the first tag. */
static int lex_raw(struct lexer *l)
{
    size_t start = l->at;

    for (size_t at = start; at < l->src.len; at++) {
        char begin, end;
        size_t n = match_tag(l, at, "endraw", &begin, &end);

        if (n == 0)
            continue;
        push_text(l, str_slice(l->src.ptr + start, at - start), '%', begin);
        skip(l, at - start + n);
        trim_after(l, true, end);
        return 0;
    }
    return fail(l, -EINVAL, "raw without endraw");
}

static int lex_tag(struct lexer *l)
{
    char tag = peek(l, 1), begin, end;
    size_t n = tag == '%' ? match_tag(l, l->at, "raw", &begin, &end) : 0;

    if (n > 0 && end != '+') { /* "+" makes it a tag that nobody knows */
        skip(l, n);
        trim_after(l, false, end);
        return lex_raw(l);
    }
    n = peek(l, 2) == '-' || peek(l, 2) == '+' ? 3 : 2;
    skip(l, n);
    if (tag == '#')
        return lex_comment(l);
    push(l, tag == '%' ? JINJA_BLOCK_BEGIN : JINJA_VAR_BEGIN, STR_NULL);
    return lex_inside(l, tag == '%');
}

/* Where the next tag begins; the end of the source when there is none. */
static size_t next_tag(const struct lexer *l)
{
    for (size_t at = l->at; at + 1 < l->src.len; at++)
        if (l->src.ptr[at] == '{' && strchr("{%#", l->src.ptr[at + 1]) && l->src.ptr[at + 1])
            return at;
    return l->src.len;
}

static int lex_all(struct lexer *l)
{
    while (l->at < l->src.len) {
        size_t tag = next_tag(l);
        struct str text = str_slice(l->src.ptr + l->at, tag - l->at);
        int r;

        if (tag == l->src.len) {
            push(l, JINJA_TEXT, text);
            return 0;
        }
        push_text(l, text, l->src.ptr[tag + 1], tag + 2 < l->src.len ? l->src.ptr[tag + 2] : '\0');
        skip(l, text.len);
        r = lex_tag(l);
        if (r < 0)
            return r;
    }
    return 0;
}

int jinja_lex(struct str source, struct arena *a, struct jinja_token **ret, struct err *e)
{
    struct lexer l = {.a = a, .src = source, .line = 1, .line_start = true, .e = e};
    int r;

    if (str_ends(l.src, STR("\n"))) /* one line end at the end is not part of the template */
        l.src.len--;
    if (str_ends(l.src, STR("\r")) && l.src.len < source.len)
        l.src.len--;
    r = lex_all(&l);
    if (r == 0) {
        push(&l, JINJA_END, STR_NULL);
        *ret = arena_alloc(a, l.n * sizeof(*l.tokens));
        memcpy(*ret, l.tokens, l.n * sizeof(*l.tokens));
    }
    free(l.tokens);
    return r;
}
