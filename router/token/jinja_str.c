/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of strings, as Python's str has them.
 */
#include "router/token/jinja_builtin.h"

#include "router/token/jinja_text.h"
#include "router/token/template.h"
#include "router/token/utf8.h"

#define METHOD(name)                                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)
#define METHOD_CASE(name, to)                                                                      \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)args;                                                                                \
        return jinja_change_case(run, in.s, to);                                                   \
    }

METHOD_CASE(str_upper, JINJA_UPPER)
METHOD_CASE(str_lower, JINJA_LOWER)
METHOD_CASE(str_capitalize, JINJA_CAPITALIZE)
METHOD_CASE(str_title, JINJA_TITLE)
METHOD_CASE(str_swapcase, JINJA_SWAPCASE)

/* --- looking for something -------------------------------------------------------------------- */

/* The part of @s that arguments @i and @i + 1 bound, in characters; *ret_start: where it begins.
 * False when nothing can be found there, not even an empty string. */
static bool cut(struct jinja_run *run, const struct jinja_args *args, size_t i, struct str *s,
                int64_t *ret_start)
{
    int64_t n = jinja_length(jinja_str(*s)), bounds[2] = {0, n};

    (void)jinja_spend(run, s->len / 16);
    for (size_t k = 0; k < 2; k++) {
        if (jinja_arg(args, i + k).kind != JINJA_V_NONE)
            bounds[k] = jinja_arg_int(run, args, i + k, bounds[k]);
        if (bounds[k] < 0)
            bounds[k] = MAX(bounds[k] + n, INT64_C(0));
    }
    *ret_start = bounds[0];
    if (bounds[0] > n)
        return false;
    bounds[1] = MIN(bounds[1], n);
    if (bounds[0] > bounds[1])
        return false;
    for (int64_t k = 0; k < bounds[0]; k++)
        *s = str_skip(*s, utf8_len(s->ptr[0]));
    n = 0;
    for (int64_t k = bounds[0]; k < bounds[1]; k++)
        n += (int64_t)utf8_len(s->ptr[n]);
    *s = str_head(*s, (size_t)n);
    return true;
}

/* One string, or a tuple of them of which any will do. */
static struct jinja_value any_end(struct jinja_run *run, struct str s,
                                  const struct jinja_args *args, bool start)
{
    struct jinja_value what = jinja_arg(args, 0), one = jinja_list_new(run);
    bool inside, found = false;
    int64_t from;

    if (what.kind == JINJA_V_STR)
        jinja_list_push(run, one, what);
    else if (jinja_is_list(what, JINJA_LIST_TUPLE))
        one = what;
    else
        return jinja_fail(run, "%.*s: expected a string", STR_ARG(args->callee));
    inside = cut(run, args, 1, &s, &from);
    for (size_t i = 0; i < one.list->n && !found; i++) {
        struct jinja_value part = one.list->items[i];

        if (part.kind != JINJA_V_STR)
            return jinja_fail(run, "%.*s: expected a string", STR_ARG(args->callee));
        found = inside && (start ? str_starts(s, part.s) : str_ends(s, part.s));
    }
    return jinja_bool(found);
}

METHOD(str_startswith)
{
    return any_end(run, in.s, args, true);
}

METHOD(str_endswith)
{
    return any_end(run, in.s, args, false);
}

/* -1 when it is not there; positions count characters. */
static int64_t position(struct jinja_run *run, struct str s, const struct jinja_args *args,
                        bool last)
{
    struct str what = jinja_arg_str(run, args, 0, STR(""));
    int64_t at = -1, start;

    if (!cut(run, args, 1, &s, &start))
        return -1;
    for (size_t i = 0; what.len <= s.len && i <= s.len - what.len; i++) {
        if (i < s.len && utf8_is_continuation(s.ptr[i]))
            continue;
        if (str_starts(str_skip(s, i), what)) {
            at = (int64_t)i;
            if (!last)
                break;
        }
    }
    return at < 0 ? -1 : start + jinja_length(jinja_str(str_head(s, (size_t)at)));
}

METHOD(str_find)
{
    return jinja_int(position(run, in.s, args, false));
}

METHOD(str_rfind)
{
    return jinja_int(position(run, in.s, args, true));
}

METHOD(str_index_of)
{
    int64_t at = position(run, in.s, args, false);

    return at < 0 ? jinja_fail(run, "index: not in the string") : jinja_int(at);
}

METHOD(str_rindex)
{
    int64_t at = position(run, in.s, args, true);

    return at < 0 ? jinja_fail(run, "rindex: not in the string") : jinja_int(at);
}

METHOD(str_count)
{
    struct str what = jinja_arg_str(run, args, 0, STR("")), s = in.s;
    int64_t n = 0, start;

    if (!cut(run, args, 1, &s, &start))
        return jinja_int(0);
    if (what.len == 0)
        return jinja_int(jinja_length(jinja_str(s)) + 1);
    for (const char *hit; s.len && (hit = memmem(s.ptr, s.len, what.ptr, what.len)); n++)
        s = str_skip(s, (size_t)(hit - s.ptr) + what.len);
    return jinja_int(n);
}

/* --- taking away and putting in --------------------------------------------------------------- */

METHOD(str_strip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, STR_NULL), true, true));
}

METHOD(str_lstrip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, STR_NULL), true, false));
}

METHOD(str_rstrip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, STR_NULL), false, true));
}

METHOD(str_removeprefix)
{
    struct str what = jinja_arg_str(run, args, 0, STR(""));

    return jinja_str(str_starts(in.s, what) ? str_skip(in.s, what.len) : in.s);
}

METHOD(str_removesuffix)
{
    struct str what = jinja_arg_str(run, args, 0, STR(""));

    return jinja_str(str_ends(in.s, what) ? str_head(in.s, in.s.len - what.len) : in.s);
}

METHOD(str_replace)
{
    struct str from = jinja_arg_str(run, args, 0, STR("")),
               to = jinja_arg_str(run, args, 1, STR(""));

    return jinja_replace(run, in.s, from, to, jinja_arg_int(run, args, 2, -1));
}

METHOD(str_join)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct jinja_value list = jinja_iterate(run, jinja_arg(args, 0));

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1 + in.s.len / 16); i++) {
        if (list.list->items[i].kind != JINJA_V_STR)
            return jinja_fail(run, "join: item %zu is %s", i, jinja_kind_name(list.list->items[i]));
        if (i > 0)
            buf_put_str(&out, in.s);
        buf_put_str(&out, list.list->items[i].s);
    }
    return jinja_str_from_buf(run, &out);
}

/* @before and @after characters of the fill around @s. */
static struct jinja_value pad(struct jinja_run *run, struct str s, const struct jinja_args *args,
                              int64_t before, int64_t after)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str fill = jinja_arg_str(run, args, 1, STR(" "));

    if (jinja_length(jinja_str(fill)) != 1)
        return jinja_fail(run, "%.*s: fill with one character", STR_ARG(args->callee));
    if (before + after > TEMPLATE_MAX_OUTPUT / 16)
        return jinja_fail(run, "%.*s: too wide", STR_ARG(args->callee));
    for (int64_t i = 0; i < before; i++)
        buf_put_str(&out, fill);
    buf_put_str(&out, s);
    for (int64_t i = 0; i < after; i++)
        buf_put_str(&out, fill);
    return jinja_str_from_buf(run, &out);
}

/* How many characters are missing to the width. */
static int64_t missing(struct jinja_run *run, struct jinja_value in, const struct jinja_args *args,
                       int64_t *ret_width)
{
    *ret_width = jinja_arg_int(run, args, 0, 80);
    return MAX(*ret_width - jinja_length(in), INT64_C(0));
}

METHOD(str_center)
{
    int64_t width, n = missing(run, in, args, &width), left = n / 2 + (n & width & 1);

    return pad(run, in.s, args, left, n - left);
}

METHOD(str_ljust)
{
    int64_t width, n = missing(run, in, args, &width);

    return pad(run, in.s, args, 0, n);
}

METHOD(str_rjust)
{
    int64_t width, n = missing(run, in, args, &width);

    return pad(run, in.s, args, n, 0);
}

METHOD(str_zfill)
{
    int64_t width, n = missing(run, in, args, &width);
    bool sign = str_starts(in.s, STR("-")) || str_starts(in.s, STR("+"));
    struct jinja_value zero = jinja_str(STR("0")), rest;
    struct jinja_args fill = {
        .values = (struct jinja_value[]){zero, zero}, .n = 2, .callee = args->callee, .given = 3};

    rest = pad(run, str_skip(in.s, sign), &fill, n, 0);
    return sign ? jinja_calculate(run, JINJA_ADD, jinja_str(str_head(in.s, 1)), rest) : rest;
}

/* --- parts ------------------------------------------------------------------------------------ */

/* Words between blanks; at most @most cuts. */
static struct jinja_value split_blanks(struct jinja_run *run, struct str s, int64_t most)
{
    struct jinja_value list = jinja_list_new(run);

    for (s = jinja_strip(s, STR_NULL, true, false); s.len > 0 && jinja_spend(run, 1);) {
        size_t n = 0;

        if (most-- == 0) { /* the rest, with the blanks at its end */
            jinja_list_push(run, list, jinja_str(s));
            break;
        }
        while (n < s.len && !jinja_is_space(utf8_get(s.ptr + n)))
            n += utf8_len(s.ptr[n]);
        jinja_list_push(run, list, jinja_str(str_head(s, n)));
        s = jinja_strip(str_skip(s, n), STR_NULL, true, false);
    }
    return list;
}

static struct jinja_value split_at(struct jinja_run *run, struct str s, struct str by, int64_t most)
{
    struct jinja_value list = jinja_list_new(run);

    while (most-- != 0 && jinja_spend(run, 1)) {
        const char *hit = s.len ? memmem(s.ptr, s.len, by.ptr, by.len) : NULL;
        size_t n = hit ? (size_t)(hit - s.ptr) : 0;

        if (!hit)
            break;
        jinja_list_push(run, list, jinja_str(str_head(s, n)));
        s = str_skip(s, n + by.len);
    }
    jinja_list_push(run, list, jinja_str(s));
    return list;
}

static struct jinja_value reversed(struct jinja_run *run, struct jinja_value list)
{
    const struct jinja_value bounds[3] = {jinja_none(), jinja_none(), jinja_int(-1)};

    return jinja_slice(run, list, bounds);
}

/* As the two above, from the end. */
static struct jinja_value rsplit_blanks(struct jinja_run *run, struct str s, int64_t most)
{
    struct jinja_value back = jinja_list_new(run);

    for (s = jinja_strip(s, STR_NULL, false, true); s.len > 0 && jinja_spend(run, 1);) {
        const char *word = s.ptr + s.len;

        if (most-- == 0) {
            jinja_list_push(run, back, jinja_str(s));
            break;
        }
        while (word > s.ptr && !jinja_is_space(utf8_get(utf8_prev(s.ptr, word))))
            word = utf8_prev(s.ptr, word);
        jinja_list_push(run, back, jinja_str(str_skip(s, (size_t)(word - s.ptr))));
        s = jinja_strip(str_head(s, (size_t)(word - s.ptr)), STR_NULL, false, true);
    }
    return reversed(run, back);
}

static struct jinja_value rsplit_at(struct jinja_run *run, struct str s, struct str by,
                                    int64_t most)
{
    struct jinja_value back = jinja_list_new(run);

    for (size_t at = s.len; most != 0 && at >= by.len && jinja_spend(run, 1);) {
        if (!str_starts(str_skip(s, at - by.len), by)) {
            at--;
            continue;
        }
        jinja_list_push(run, back, jinja_str(str_skip(s, at)));
        at -= by.len;
        s = str_head(s, at);
        most--;
    }
    jinja_list_push(run, back, jinja_str(s));
    return reversed(run, back);
}

METHOD(str_split)
{
    struct str by = jinja_arg_str(run, args, 0, STR_NULL);
    int64_t most = jinja_arg_int(run, args, 1, -1);

    if (!by.ptr)
        return split_blanks(run, in.s, most);
    return by.len ? split_at(run, in.s, by, most) : jinja_fail(run, "split: empty separator");
}

METHOD(str_rsplit)
{
    struct str by = jinja_arg_str(run, args, 0, STR_NULL);
    int64_t most = jinja_arg_int(run, args, 1, -1);

    if (!by.ptr)
        return rsplit_blanks(run, in.s, most);
    return by.len ? rsplit_at(run, in.s, by, most) : jinja_fail(run, "rsplit: empty separator");
}

METHOD(str_splitlines)
{
    struct jinja_value list = jinja_list_new(run);
    bool keep = jinja_truth(jinja_arg(args, 0));
    struct str rest = in.s;

    while (rest.len > 0 && jinja_spend(run, 1)) {
        size_t n = 0, end = 0;

        while (n < rest.len && (end = jinja_line_end(str_skip(rest, n))) == 0)
            n += utf8_len(rest.ptr[n]);
        jinja_list_push(run, list, jinja_str(str_head(rest, keep ? n + end : n)));
        rest = str_skip(rest, n + end);
    }
    return list;
}

/* (before, separator, after) of the first or last place. */
static struct jinja_value partition(struct jinja_run *run, struct str s,
                                    const struct jinja_args *args, bool last)
{
    struct jinja_value parts, out = jinja_list_of(run, JINJA_LIST_TUPLE);
    struct str by = jinja_arg_str(run, args, 0, STR(""));

    if (by.len == 0)
        return jinja_fail(run, "%.*s: empty separator", STR_ARG(args->callee));
    parts = last ? rsplit_at(run, s, by, 1) : split_at(run, s, by, 1);
    if (parts.list->n == 2) {
        jinja_list_push(run, out, parts.list->items[0]);
        jinja_list_push(run, out, jinja_str(by));
        jinja_list_push(run, out, parts.list->items[1]);
        return out;
    }
    jinja_list_push(run, out, jinja_str(last ? STR("") : s));
    jinja_list_push(run, out, jinja_str(STR("")));
    jinja_list_push(run, out, jinja_str(last ? s : STR("")));
    return out;
}

METHOD(str_partition)
{
    return partition(run, in.s, args, false);
}

METHOD(str_rpartition)
{
    return partition(run, in.s, args, true);
}

/* --- what it consists of ---------------------------------------------------------------------- */

static bool letter_or_digit(uint32_t cp)
{
    return jinja_is_letter(cp) || jinja_is_digit(cp);
}

static struct jinja_value consists(struct str s, bool (*of)(uint32_t cp), bool when_empty)
{
    if (s.len == 0)
        return jinja_bool(when_empty);
    for (; s.len > 0; s = str_skip(s, utf8_len(s.ptr[0])))
        if (!of(utf8_get(s.ptr)))
            return jinja_bool(false);
    return jinja_bool(true);
}

static bool is_ascii(uint32_t cp)
{
    return cp < 0x80;
}

#define METHOD_IS(name, of, when_empty)                                                            \
    METHOD(name)                                                                                   \
    {                                                                                              \
        (void)args;                                                                                \
        (void)jinja_spend(run, in.s.len / 8);                                                      \
        return consists(in.s, of, when_empty);                                                     \
    }

METHOD_IS(str_isalpha, jinja_is_letter, false)
METHOD_IS(str_isdigit, jinja_is_digit, false)
METHOD_IS(str_isalnum, letter_or_digit, false)
METHOD_IS(str_isspace, jinja_is_space, false)
METHOD_IS(str_isascii, is_ascii, true)
METHOD_IS(str_isprintable, jinja_is_printable, true)

METHOD(str_islower)
{
    (void)args;
    (void)run;
    return jinja_bool(jinja_has_case(in.s, false));
}

METHOD(str_isupper)
{
    (void)args;
    (void)run;
    return jinja_bool(jinja_has_case(in.s, true));
}

METHOD(str_format)
{
    return jinja_braces(run, in.s, args);
}

/* --- table ------------------------------------------------------------------------------------ */

const struct jinja_builtin *jinja_find_str_method(struct str name)
{
    static const struct jinja_builtin methods[] = {
        {"capitalize", str_capitalize, ""},
        {"center", str_center, "/width! fill"},
        {"count", str_count, "/sub! start end"},
        {"endswith", str_endswith, "/suffix! start end"},
        {"find", str_find, "/sub! start end"},
        {"format", str_format, NULL},
        {"index", str_index_of, "/sub! start end"},
        {"isalnum", str_isalnum, ""},
        {"isalpha", str_isalpha, ""},
        {"isascii", str_isascii, ""},
        {"isdigit", str_isdigit, ""},
        {"islower", str_islower, ""},
        {"isprintable", str_isprintable, ""},
        {"isspace", str_isspace, ""},
        {"isupper", str_isupper, ""},
        {"join", str_join, "/iterable!"},
        {"ljust", str_ljust, "/width! fill"},
        {"lower", str_lower, ""},
        {"lstrip", str_lstrip, "/chars"},
        {"partition", str_partition, "/sep!"},
        {"removeprefix", str_removeprefix, "/prefix!"},
        {"removesuffix", str_removesuffix, "/suffix!"},
        {"replace", str_replace, "/old! new! count"},
        {"rfind", str_rfind, "/sub! start end"},
        {"rindex", str_rindex, "/sub! start end"},
        {"rjust", str_rjust, "/width! fill"},
        {"rpartition", str_rpartition, "/sep!"},
        {"rsplit", str_rsplit, "sep maxsplit"},
        {"rstrip", str_rstrip, "/chars"},
        {"split", str_split, "sep maxsplit"},
        {"splitlines", str_splitlines, "keepends"},
        {"startswith", str_startswith, "/prefix! start end"},
        {"strip", str_strip, "/chars"},
        {"swapcase", str_swapcase, ""},
        {"title", str_title, ""},
        {"upper", str_upper, ""},
        {"zfill", str_zfill, "/width!"},
    };

    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (str_is(name, methods[i].name))
            return &methods[i];
    return NULL;
}
