/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/regex.h"

#include <errno.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum {
    PATTERN_MAX = 64 << 10,
    MATCH_LIMIT = 1000000,
    MATCH_LIMIT_PER_BYTE = 16,
    DEPTH_LIMIT = 10000,
    HEAP_KIB = 16384
};

struct regex {
    pcre2_code *code;
    bool jit;
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* --- translation ------------------------------------------------------------------------------ */

struct translation {
    struct str in;
    size_t at;
    bool in_class;
    enum regex_flavour flavour;
    struct buf out;
};

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Superscripts and fractions of Latin-1, which Oniguruma counts as word characters. */
#define LATIN_NUMBERS "\\xb2\\xb3\\xb9\\xbc-\\xbe"

/* Inside a class the members stand alone, outside they need brackets. */
static void put_class(struct translation *t, bool negated, const char *members)
{
    if (!t->in_class)
        buf_put_cstr(&t->out, negated ? "[^" : "[");
    buf_put_cstr(&t->out, members);
    if (!t->in_class)
        buf_put_char(&t->out, ']');
}

static int translate_escape(struct translation *t, struct err *e)
{
    const char *word = t->flavour == REGEX_RUST ? WORD "\\p{Join_Control}" : WORD LATIN_NUMBERS;
    char c;

    if (t->at + 1 >= t->in.len)
        return err_set(e, -EINVAL, "pattern ends in a backslash");
    c = t->in.ptr[t->at + 1];
    t->at += 2;
    switch (c) {
    case 's':
        buf_put_cstr(&t->out, "\\p{White_Space}");
        return 0;
    case 'S':
        buf_put_cstr(&t->out, "\\P{White_Space}");
        return 0;
    case 'w':
        put_class(t, false, word);
        return 0;
    case 'W':
        if (t->in_class)
            return err_set(e, -ENOTSUP, "\\W inside a character class");
        put_class(t, true, word);
        return 0;
    case 'X': /* grapheme clusters of newer Unicode there */
        if (t->flavour != REGEX_RUST)
            return err_set(e, -ENOTSUP, "\\X in a pattern");
        buf_put_cstr(&t->out, "\\X");
        return 0;
    case 'h': /* a hexadecimal digit there, a blank here */
    case 'H':
    case 'R':
    case 'Z':
    case 'g':
    case 'k':
    case 'y':
    case 'Y':
    case 'K':
    case 'M':
    case 'C':
    case 'N':
    case 'O':
    case 'Q':
    case 'E':
        return err_set(e, -ENOTSUP, "\\%c in a pattern", c);
    default:
        buf_put_char(&t->out, '\\');
        buf_put_char(&t->out, c);
        return 0;
    }
}

static int translate_in_class(struct translation *t, struct err *e)
{
    struct str rest = str_skip(t->in, t->at);

    if (str_starts(rest, STR("&&")) || str_starts(rest, STR("[")))
        return err_set(e, -ENOTSUP, "set operations in a character class");
    if (rest.ptr[0] == ']')
        t->in_class = false;
    buf_put_char(&t->out, rest.ptr[0]);
    t->at++;
    return 0;
}

static void enter_class(struct translation *t)
{
    t->in_class = true;
    buf_put_char(&t->out, '[');
    t->at++;
    if (t->at < t->in.len && t->in.ptr[t->at] == '^') {
        buf_put_char(&t->out, '^');
        t->at++;
    }
}

static int translate(struct translation *t, struct err *e)
{
    int r = 0;

    while (r == 0 && t->at < t->in.len) {
        char c = t->in.ptr[t->at];

        if (c == '\\') {
            r = translate_escape(t, e);
        } else if (t->in_class) {
            r = translate_in_class(t, e);
        } else if (c == '[') {
            enter_class(t);
        } else {
            buf_put_char(&t->out, c);
            t->at++;
        }
    }
    return r;
}

/* --- compiling -------------------------------------------------------------------------------- */

static int compile(struct regex *re, struct str pattern, uint32_t options, struct err *e)
{
    PCRE2_SIZE at;
    int code;

    re->code =
        pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, PCRE2_UTF | options, &code, &at, NULL);
    if (!re->code) {
        char text[128] = "";

        (void)pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
        return err_set(e, -EINVAL, "pattern, at byte %zu: %s", at, text);
    }
    /* Without JIT (a hardened kernel may forbid it) the interpreter gives the same matches. */
    re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
    return 0;
}

int regex_compile(struct regex **ret, struct str pattern, enum regex_flavour flavour, struct err *e)
{
    AUTO(regex_free) struct regex *re = xcalloc(1, sizeof(*re));
    struct translation t = {.in = pattern, .flavour = flavour};
    int r;

    if (pattern.len > PATTERN_MAX)
        return err_set(e, -E2BIG, "pattern of %zu bytes", pattern.len);
    if (flavour == REGEX_LITERAL) {
        r = compile(re, pattern, PCRE2_LITERAL, e);
    } else {
        r = translate(&t, e);
        if (r == 0)
            r = compile(
                re, buf_str(&t.out),
                PCRE2_UCP | PCRE2_MULTILINE | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C, e);
        buf_done(&t.out);
    }
    if (r < 0)
        return r;
    *ret = TAKE(re);
    return 0;
}

struct regex *regex_free(struct regex *re)
{
    if (!re)
        return NULL;
    pcre2_code_free(re->code);
    free(re);
    return NULL;
}

/* --- matching --------------------------------------------------------------------------------- */

struct regex_scratch *regex_scratch_new(void)
{
    struct regex_scratch *s = xcalloc(1, sizeof(*s));

    s->data = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(32 << 10, 1 << 20, NULL);
    if (!s->data || !s->context || !s->stack)
        abort(); /* as every small allocation of ours does */
    (void)pcre2_set_depth_limit(s->context, DEPTH_LIMIT);
    (void)pcre2_set_heap_limit(s->context, HEAP_KIB);
    pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return s;
}

struct regex_scratch *regex_scratch_free(struct regex_scratch *s)
{
    if (!s)
        return NULL;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    free(s);
    return NULL;
}

int regex_find(const struct regex *re, struct regex_scratch *s, struct str text, size_t from,
               size_t *ret_start, size_t *ret_end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)(text.ptr ? text.ptr : "");
    const PCRE2_SIZE *span;
    uint64_t limit = MATCH_LIMIT + (uint64_t)MATCH_LIMIT_PER_BYTE * (text.len - from);
    int r;

    /* Linear work is fine for any text: a run of blanks may be as long as the prompt. */
    (void)pcre2_set_match_limit(s->context, (uint32_t)MIN(limit, (uint64_t)UINT32_MAX));
    if (re->jit)
        r = pcre2_jit_match(re->code, subject, text.len, from, PCRE2_NO_UTF_CHECK, s->data,
                            s->context);
    else
        r = pcre2_match(re->code, subject, text.len, from, PCRE2_NO_UTF_CHECK, s->data, s->context);
    if (r == PCRE2_ERROR_NOMATCH)
        return 0;
    if (r < 0)
        return -E2BIG;
    span = pcre2_get_ovector_pointer(s->data);
    *ret_start = span[0];
    *ret_end = span[1];
    return REGEX_FOUND;
}
