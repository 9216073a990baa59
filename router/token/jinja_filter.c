/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters of strings and numbers: x | name(arguments).
 */
#include "router/token/jinja_filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/jinja_text.h"
#include "router/token/utf8.h"

/* --- strings ---------------------------------------------------------------------------------- */

FILTER(filter_trim)
{
    struct str chars = jinja_arg_str(run, args, 0, STR_NULL);

    return jinja_str(jinja_strip(jinja_text(run, in), chars, true, true));
}

FILTER(filter_upper)
{
    (void)args;
    return jinja_change_case(run, jinja_text(run, in), JINJA_UPPER);
}

FILTER(filter_lower)
{
    (void)args;
    return jinja_change_case(run, jinja_text(run, in), JINJA_LOWER);
}

FILTER(filter_capitalize)
{
    (void)args;
    return jinja_change_case(run, jinja_text(run, in), JINJA_CAPITALIZE);
}

FILTER(filter_title)
{
    (void)args;
    return jinja_change_case(run, jinja_text(run, in), JINJA_TITLE_FILTER);
}

FILTER(filter_replace)
{
    struct str from = jinja_text(run, jinja_arg(args, 0)), to = jinja_text(run, jinja_arg(args, 1));
    bool all = jinja_arg(args, 2).kind == JINJA_V_NONE;

    return jinja_replace(run, jinja_text(run, in), from, to,
                         all ? -1 : jinja_arg_int(run, args, 2, -1));
}

FILTER(filter_string)
{
    (void)args;
    return jinja_str(jinja_text(run, in));
}

FILTER(filter_escape)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str s = jinja_text(run, in);

    (void)args;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (c == '&')
            buf_put_cstr(&out, "&amp;");
        else if (c == '<')
            buf_put_cstr(&out, "&lt;");
        else if (c == '>')
            buf_put_cstr(&out, "&gt;");
        else if (c == '\'')
            buf_put_cstr(&out, "&#39;");
        else if (c == '"')
            buf_put_cstr(&out, "&#34;");
        else
            buf_put_char(&out, c);
    }
    return jinja_str_from_buf(run, &out);
}

/* Spaces by number, or what is given as a text. */
static struct str indentation(struct jinja_run *run, struct jinja_value width, int64_t usual,
                              struct buf *room)
{
    int64_t n = usual;

    if (width.kind == JINJA_V_STR)
        return width.s;
    if (width.kind != JINJA_V_UNDEFINED && !jinja_as_int(width, &n))
        (void)jinja_fail(run, "indent: expected a number or a string");
    if (n > 256)
        (void)jinja_fail(run, "indent: more than 256");
    for (int64_t i = 0; i < n && run->r == 0; i++)
        buf_put_char(room, ' ');
    return buf_str(room);
}

FILTER(filter_indent)
{
    AUTO(buf_done) struct buf out = BUF_NULL, room = BUF_NULL;
    bool first = jinja_truth(jinja_arg(args, 1)), blank = jinja_truth(jinja_arg(args, 2));
    struct str with = indentation(run, jinja_arg(args, 0), 4, &room), rest;

    if (in.kind != JINJA_V_STR)
        return jinja_fail(run, "indent: %s is no string", jinja_kind_name(in));
    rest = in.s;
    if (first)
        buf_put_str(&out, with);
    while (jinja_spend(run, 1)) {
        size_t n = 0, end = 0;

        while (n < rest.len && (end = jinja_line_end(str_skip(rest, n))) == 0)
            n += utf8_len(rest.ptr[n]);
        buf_put(&out, rest.ptr, n);
        if (end == 0)
            break;
        rest = str_skip(rest, n + end);
        buf_put_char(&out, '\n');
        n = rest.len ? jinja_line_end(rest) : 1;
        if (blank || (n == 0 && rest.len > 0))
            buf_put_str(&out, with);
    }
    return jinja_str_from_buf(run, &out);
}

/* The reference of 0.9.0: compact, sorted and safe in HTML, indent first. */
static struct jinja_value old_tojson(struct jinja_run *run, struct jinja_value in,
                                     const struct jinja_args *args)
{
    AUTO(buf_done) struct buf out = BUF_NULL, room = BUF_NULL;
    struct jinja_json_style style = {
        .comma = STR(","), .colon = STR(":"), .sorted = true, .html = true};
    const struct jinja_value *by_name = jinja_named_arg(args, "indent");
    struct jinja_value indent = by_name ? *by_name : jinja_arg(args, 0);
    int64_t n;

    if (jinja_as_int(indent, &n) && n >= 0) {
        style.indent = indentation(run, jinja_int(MIN(n, INT64_C(16))), 0, &room);
        style.colon = STR(": ");
        if (!style.indent.ptr)
            style.indent = STR("");
    }
    jinja_print_json(run, in, &style, &out);
    return jinja_str_from_buf(run, &out);
}

/* As `transformers` defines it: json.dumps() without escaping what is not ASCII. */
static struct jinja_value json_dumps(struct jinja_run *run, struct jinja_value in,
                                     const struct jinja_args *args)
{
    AUTO(buf_done) struct buf out = BUF_NULL, room = BUF_NULL;
    struct jinja_value indent = jinja_arg(args, 1), between = jinja_arg(args, 2);
    struct jinja_json_style style = {.comma = STR(", "),
                                     .colon = STR(": "),
                                     .ascii = jinja_truth(jinja_arg(args, 0)),
                                     .sorted = jinja_truth(jinja_arg(args, 3))};

    if (indent.kind != JINJA_V_UNDEFINED && indent.kind != JINJA_V_NONE) {
        style.indent = indentation(run, indent, 0, &room);
        style.comma = STR(",");
        if (!style.indent.ptr)
            style.indent = STR("");
    }
    if (between.kind != JINJA_V_UNDEFINED && between.kind != JINJA_V_NONE) {
        if (between.kind != JINJA_V_LIST || between.list->n != 2 ||
            between.list->items[0].kind != JINJA_V_STR ||
            between.list->items[1].kind != JINJA_V_STR)
            return jinja_fail(run, "tojson: separators must be two strings");
        style.comma = between.list->items[0].s;
        style.colon = between.list->items[1].s;
    }
    jinja_print_json(run, in, &style, &out);
    return jinja_str_from_buf(run, &out);
}

FILTER(filter_tojson)
{
    static const struct jinja_builtin dumps = {"tojson", json_dumps,
                                               "ensure_ascii indent separators sort_keys"};

    return run->old_prints ? old_tojson(run, in, args) : jinja_invoke(run, &dumps, in, args);
}

FILTER(filter_center)
{
    struct jinja_args width = {.values = (struct jinja_value[]){jinja_int(80)}, .n = 1};

    if (jinja_has_arg(args, 0))
        width.values[0] = jinja_arg(args, 0);
    return jinja_invoke(run, jinja_find_str_method(STR("center")), jinja_str(jinja_text(run, in)),
                        &width);
}

FILTER(filter_format)
{
    struct jinja_value values = jinja_list_of(run, JINJA_LIST_TUPLE), map = jinja_map_new(run);

    for (size_t i = 0; i < args->n; i++)
        if (args->names && args->names[i].len)
            jinja_map_set(run, map, jinja_str(args->names[i]), args->values[i]);
        else
            jinja_list_push(run, values, args->values[i]);
    if (map.map->n && values.list->n)
        return jinja_fail(run, "format: arguments by name and by position");
    return jinja_percent(run, jinja_text(run, in), map.map->n ? map : values);
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* Python's float(text) within what JSON could write, and its words for what is not finite. */
static bool parse_float(struct str s, double *ret)
{
    char text[64];
    char *end;
    size_t n = 0;

    s = jinja_strip(s, STR_NULL, true, true);
    for (size_t i = 0; i < s.len && n < sizeof(text) - 1; i++) {
        if (s.ptr[i] == '_' && i > 0 && i + 1 < s.len && jinja_is_digit((uint8_t)s.ptr[i - 1]) &&
            jinja_is_digit((uint8_t)s.ptr[i + 1]))
            continue;
        text[n++] = s.ptr[i];
    }
    text[n] = '\0';
    if (n == 0 || strpbrk(text, "xXpP(_") || n == sizeof(text) - 1)
        return false;
    *ret = strtod(text, &end);
    return *end == '\0' && !jinja_is_space((uint8_t)text[0]);
}

/* Digits in a base, with a sign, as int(text, base) reads them. */
static bool parse_int(struct str s, int64_t base, int64_t *ret)
{
    char text[80];
    struct str digits;
    size_t n = 0;
    bool minus;
    uint64_t v;

    s = jinja_strip(s, STR_NULL, true, true);
    minus = str_starts(s, STR("-"));
    s = str_skip(s, minus || str_starts(s, STR("+")));
    for (size_t i = 0; i < s.len && n < sizeof(text); i++)
        if (s.ptr[i] != '_' || i == 0 || i + 1 == s.len || s.ptr[i + 1] == '_')
            text[n++] = s.ptr[i];
    digits = str_slice(text, n);
    if (base == 16 && (str_starts(digits, STR("0x")) || str_starts(digits, STR("0X"))))
        digits = str_skip(digits, 2);
    if (n == sizeof(text) || base < 2 || base > 16 || !str_parse_base(digits, (unsigned)base, &v) ||
        v > INT64_MAX)
        return false;
    *ret = minus ? -(int64_t)v : (int64_t)v;
    return true;
}

static struct jinja_value float_to_int(struct jinja_run *run, double f, struct jinja_value fallback)
{
    if (isnan(f))
        return fallback;
    if (!(f > -9.2e18 && f < 9.2e18))
        return isinf(f) ? fallback : jinja_fail(run, "number out of range");
    return jinja_int((int64_t)f);
}

FILTER(filter_int)
{
    struct jinja_value fallback = jinja_has_arg(args, 0) ? jinja_arg(args, 0) : jinja_int(0);
    int64_t base = jinja_arg_int(run, args, 1, 10), i;
    double f;

    if (in.kind == JINJA_V_UNDEFINED)
        return jinja_fail(run, "int of undefined");
    if (jinja_as_int(in, &i))
        return jinja_int(i);
    if (in.kind == JINJA_V_FLOAT)
        return float_to_int(run, in.f, fallback);
    if (in.kind != JINJA_V_STR)
        return fallback;
    if (parse_int(in.s, base, &i))
        return jinja_int(i);
    return parse_float(in.s, &f) ? float_to_int(run, f, fallback) : fallback;
}

FILTER(filter_float)
{
    struct jinja_value fallback = jinja_has_arg(args, 0) ? jinja_arg(args, 0) : jinja_float(0);
    double f;

    if (in.kind == JINJA_V_UNDEFINED)
        return jinja_fail(run, "float of undefined");
    if (jinja_is_number(in))
        return jinja_float(jinja_as_float(in));
    return in.kind == JINJA_V_STR && parse_float(in.s, &f) ? jinja_float(f) : fallback;
}

FILTER(filter_abs)
{
    (void)args;
    if (!jinja_is_number(in))
        return jinja_fail(run, "abs: %s is no number", jinja_kind_name(in));
    if (in.kind == JINJA_V_FLOAT)
        return jinja_float(fabs(in.f));
    return jinja_calculate(run, jinja_compare(run, in, jinja_int(0)) < 0 ? JINJA_SUB : JINJA_ADD,
                           jinja_int(0), in);
}

/* Half to even, of the number that the digits stand for: as Python's round(). */
static double round_to(double f, int64_t digits)
{
    char text[400];
    double scale;

    if (digits >= 0) {
        (void)snprintf(text, sizeof(text), "%.*f", (int)digits, f);
        return strtod(text, NULL);
    }
    scale = pow(10, (double)-digits);
    return rint(f / scale) * scale;
}

FILTER(filter_round)
{
    int64_t precision = jinja_arg_int(run, args, 0, 0), i;
    struct str method = jinja_arg_str(run, args, 1, STR("common"));
    double scale = pow(10, (double)precision);

    if (!jinja_is_number(in) || precision < -18 || precision > 64)
        return jinja_fail(run, "round: %s", jinja_kind_name(in));
    if (str_is(method, "ceil"))
        return jinja_float((ceil(jinja_as_float(in) * scale) + 0.0) / scale);
    if (str_is(method, "floor"))
        return jinja_float((floor(jinja_as_float(in) * scale) + 0.0) / scale);
    if (!str_is(method, "common"))
        return jinja_fail(run, "round: no such method");
    if (jinja_as_int(in, &i))
        return jinja_int(precision >= 0 ? i : (int64_t)round_to((double)i, precision));
    return isfinite(in.f) ? jinja_float(round_to(in.f, precision)) : in;
}

/* --- any value -------------------------------------------------------------------------------- */

FILTER(filter_default)
{
    bool falsy_too = jinja_truth(jinja_arg(args, 1));

    (void)run;
    if (in.kind == JINJA_V_UNDEFINED || (falsy_too && !jinja_truth(in)))
        return jinja_has_arg(args, 0) ? jinja_arg(args, 0) : jinja_str(STR(""));
    return in;
}

FILTER(filter_attr)
{
    return jinja_attribute(run, in, jinja_text(run, jinja_arg(args, 0)));
}

enum { MAX_READ = 1 << 22 }; /* of a rendering; values take some times that */

/* Of the engine of 1.x alone. What is no text stays. */
FILTER(filter_fromjson)
{
    struct json *v = NULL;
    struct err why;

    (void)args;
    if (!run->as_1)
        return jinja_fail(run, "no such filter");
    if (in.kind != JINJA_V_STR)
        return in;
    run->read_bytes += in.s.len;
    if (run->read_bytes > MAX_READ || !jinja_spend(run, in.s.len / 16))
        return jinja_fail(run, "fromjson: too much to read");
    if (json_parse_wide(&v, in.s, &why) < 0)
        return jinja_fail(run, "fromjson: this is no JSON");
    if (!run->read)
        run->read = json_new_array();
    (void)json_add(run->read, v);
    return jinja_from_json(run, v);
}

const struct jinja_builtin *jinja_find_filter(struct str name)
{
    static const struct jinja_builtin filters[] = {
        {"abs", filter_abs, ""},
        {"attr", filter_attr, "name!"},
        {"capitalize", filter_capitalize, ""},
        {"center", filter_center, "width"},
        {"d", filter_default, "default_value boolean"},
        {"default", filter_default, "default_value boolean"},
        {"e", filter_escape, ""},
        {"escape", filter_escape, ""},
        {"float", filter_float, "default"},
        {"format", filter_format, NULL},
        {"from_json", filter_fromjson, ""},
        {"fromjson", filter_fromjson, ""},
        {"indent", filter_indent, "width first blank"},
        {"int", filter_int, "default base"},
        {"lower", filter_lower, ""},
        {"replace", filter_replace, "old! new! count"},
        {"round", filter_round, "precision method"},
        {"safe", filter_string, ""},
        {"string", filter_string, ""},
        {"title", filter_title, ""},
        {"tojson", filter_tojson, NULL},
        {"trim", filter_trim, "chars"},
        {"upper", filter_upper, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(filters); i++)
        if (str_is(name, filters[i].name))
            return &filters[i];
    return jinja_find_list_filter(name);
}
