/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters: x | name(arguments).
 */
#include "router/token/jinja_builtin.h"

#include <math.h>

#include "router/token/jinja_text.h"
#include "router/token/utf8.h"

#define FILTER(name)                                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)

/* --- strings ---------------------------------------------------------------------------------- */

FILTER(filter_trim)
{
    struct str chars = jinja_arg_str(run, args, 0, "chars", STR_NULL);

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
    return jinja_change_case(run, jinja_text(run, in), JINJA_TITLE);
}

FILTER(filter_replace)
{
    struct str from = jinja_arg_str(run, args, 0, "old", STR(""));
    struct str to = jinja_arg_str(run, args, 1, "new", STR(""));

    return jinja_replace(run, jinja_text(run, in), from, to,
                         jinja_arg_int(run, args, 2, "count", -1));
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

FILTER(filter_indent)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str rest = jinja_text(run, in), line;
    int64_t width = jinja_arg_int(run, args, 0, "width", 4);
    bool first = jinja_truth(jinja_arg(args, 1, "first"));
    bool blank = jinja_truth(jinja_arg(args, 2, "blank")), more = true;

    if (width < 0 || width > 256)
        return jinja_fail(run, "indent: width out of range");
    for (bool start = true; more && jinja_spend(run, 1); start = false) {
        more = str_cut(&rest, '\n', &line);
        for (int64_t i = 0; i < width && (start ? first : blank || line.len > 0); i++)
            buf_put_char(&out, ' ');
        buf_put_str(&out, line);
        if (more)
            buf_put_char(&out, '\n');
    }
    return jinja_str_from_buf(run, &out);
}

FILTER(filter_tojson)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    int64_t indent = jinja_arg_int(run, args, 0, "indent", -1);

    jinja_print_json(run, in, indent < 0 ? -1 : (int)MIN(indent, (int64_t)16), &out);
    return jinja_str_from_buf(run, &out);
}

/* --- numbers ---------------------------------------------------------------------------------- */

FILTER(filter_int)
{
    int64_t i = jinja_arg_int(run, args, 0, "default", 0);
    double f;

    if (jinja_as_int(in, &i))
        return jinja_int(i);
    if (in.kind == JINJA_V_STR) {
        struct str s = str_trim(in.s);

        if (str_starts(s, STR("+")))
            s = str_skip(s, 1);
        if (str_parse_i64(s, &i) || !str_parse_f64(s, &f))
            return jinja_int(i);
    } else if (in.kind == JINJA_V_FLOAT) {
        f = in.f;
    } else {
        return jinja_int(i);
    }
    return jinja_int(f > -9.2e18 && f < 9.2e18 ? (int64_t)f : i);
}

FILTER(filter_float)
{
    struct jinja_value fallback = jinja_arg(args, 0, "default");
    double f = jinja_is_number(fallback) ? jinja_as_float(fallback) : 0;

    (void)run;
    if (jinja_is_number(in))
        return jinja_float(jinja_as_float(in));
    if (in.kind == JINJA_V_STR)
        (void)!str_parse_f64(str_trim(in.s), &f);
    return jinja_float(f);
}

FILTER(filter_abs)
{
    (void)args;
    if (!jinja_is_number(in))
        return jinja_fail(run, "abs: %s is no number", jinja_kind_name(in));
    if (in.kind == JINJA_V_FLOAT)
        return jinja_float(fabs(in.f));
    if (jinja_compare(run, in, jinja_int(0)) < 0)
        return jinja_calculate(run, JINJA_SUB, jinja_int(0), in);
    return in;
}

FILTER(filter_round)
{
    int64_t precision = jinja_arg_int(run, args, 0, "precision", 0);
    struct str method = jinja_arg_str(run, args, 1, "method", STR("common"));
    double scale = pow(10, (double)precision), f;

    if (!jinja_is_number(in) || precision < -300 || precision > 300)
        return jinja_fail(run, "round: %s", jinja_kind_name(in));
    f = jinja_as_float(in) * scale;
    f = str_is(method, "ceil") ? ceil(f) : str_is(method, "floor") ? floor(f) : rint(f);
    return jinja_float(f / scale);
}

/* --- lists and mappings ----------------------------------------------------------------------- */

FILTER(filter_length)
{
    int64_t n = jinja_length(in);

    (void)args;
    if (in.kind == JINJA_V_UNDEFINED || in.kind == JINJA_V_NONE)
        return jinja_int(0); /* the reference is that lenient */
    return n < 0 ? jinja_fail(run, "%s has no length", jinja_kind_name(in)) : jinja_int(n);
}

FILTER(filter_default)
{
    bool falsy_too = jinja_truth(jinja_arg(args, 1, "boolean"));

    (void)run;
    if (in.kind == JINJA_V_UNDEFINED || (falsy_too && !jinja_truth(in)))
        return jinja_has_arg(args, 0, "default_value") ? jinja_arg(args, 0, "default_value")
                                                       : jinja_str(STR(""));
    return in;
}

FILTER(filter_first)
{
    struct jinja_value list = jinja_iterate(run, in);

    (void)args;
    return list.list->n ? list.list->items[0] : jinja_undefined();
}

FILTER(filter_last)
{
    struct jinja_value list = jinja_iterate(run, in);

    (void)args;
    return list.list->n ? list.list->items[list.list->n - 1] : jinja_undefined();
}

FILTER(filter_list)
{
    (void)args;
    return jinja_iterate(run, in);
}

FILTER(filter_items)
{
    (void)args;
    return in.kind == JINJA_V_UNDEFINED ? jinja_list_new(run) : jinja_items(run, in);
}

FILTER(filter_reverse)
{
    struct jinja_value bounds[3] = {jinja_none(), jinja_none(), jinja_int(-1)};

    (void)args;
    return jinja_slice(run, in.kind == JINJA_V_STR ? in : jinja_iterate(run, in), bounds);
}

/* "a.b.0" from @v; @path may also be a number. */
static struct jinja_value follow(struct jinja_run *run, struct jinja_value v,
                                 struct jinja_value path)
{
    struct str rest, part;
    bool more = true;
    int64_t i;

    if (path.kind != JINJA_V_STR)
        return jinja_item(run, v, path);
    rest = path.s;
    while (more && run->r == 0) {
        more = str_cut(&rest, '.', &part);
        v = str_parse_i64(part, &i) ? jinja_item(run, v, jinja_int(i))
                                    : jinja_attribute(run, v, part);
    }
    return v;
}

FILTER(filter_join)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct jinja_value list = jinja_iterate(run, in);
    struct str between = jinja_arg_str(run, args, 0, "d", STR(""));
    struct jinja_value path = jinja_arg(args, 1, "attribute");

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1 + between.len / 16); i++) {
        struct jinja_value v = list.list->items[i];

        if (i > 0)
            buf_put_str(&out, between);
        jinja_print(run, path.kind == JINJA_V_UNDEFINED ? v : follow(run, v, path), &out);
    }
    return jinja_str_from_buf(run, &out);
}

/* Arguments behind the first @n, for the filter or test that the first one names. */
static struct jinja_args skip_args(const struct jinja_args *args, size_t n)
{
    struct jinja_args rest = *args;

    n = MIN(n, args->n);
    rest.values += n;
    rest.n -= n;
    if (rest.names)
        rest.names += n;
    return rest;
}

FILTER(filter_map)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);
    struct jinja_value path = jinja_arg(args, SIZE_MAX, "attribute");
    struct jinja_value fallback = jinja_arg(args, SIZE_MAX, "default");
    struct jinja_args rest = skip_args(args, 1);
    const struct jinja_builtin *filter = NULL;

    if (path.kind == JINJA_V_UNDEFINED) {
        struct str name = jinja_arg_str(run, args, 0, NULL, STR(""));

        filter = jinja_find_filter(name);
        if (!filter)
            return jinja_fail(run, "map: unsupported filter \"%.*s\"", STR_ARG(str_head(name, 64)));
    }
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value v = list.list->items[i];

        v = filter ? filter->call(run, v, &rest) : follow(run, v, path);
        jinja_list_push(run, out, v.kind == JINJA_V_UNDEFINED && !filter ? fallback : v);
    }
    return out;
}

/* select, reject, selectattr, rejectattr: @attribute when the first argument is a path. */
static struct jinja_value pick(struct jinja_run *run, struct jinja_value in,
                               const struct jinja_args *args, bool attribute, bool wanted)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);
    struct jinja_value path = jinja_arg(args, 0, NULL);
    size_t at = attribute ? 1 : 0;
    struct str name = jinja_arg_str(run, args, at, NULL, STR_NULL);
    const struct jinja_builtin *test = name.ptr ? jinja_find_test(name) : NULL;
    struct jinja_args rest = skip_args(args, at + 1);

    if (name.ptr && !test)
        return jinja_fail(run, "unsupported test \"%.*s\"", STR_ARG(str_head(name, 64)));
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value item = list.list->items[i];
        struct jinja_value v = attribute ? follow(run, item, path) : item;

        if (jinja_truth(test ? test->call(run, v, &rest) : v) == wanted)
            jinja_list_push(run, out, item);
    }
    return out;
}

FILTER(filter_select)
{
    return pick(run, in, args, false, true);
}

FILTER(filter_reject)
{
    return pick(run, in, args, false, false);
}

FILTER(filter_selectattr)
{
    return pick(run, in, args, true, true);
}

FILTER(filter_rejectattr)
{
    return pick(run, in, args, true, false);
}

/* --- order ------------------------------------------------------------------------------------ */

struct order {
    struct jinja_value path; /* undefined: the item itself */
    bool fold_case, reverse;
};

static struct jinja_value order_key(struct jinja_run *run, struct jinja_value v,
                                    const struct order *o)
{
    if (o->path.kind != JINJA_V_UNDEFINED)
        v = follow(run, v, o->path);
    return o->fold_case && v.kind == JINJA_V_STR ? jinja_change_case(run, v.s, JINJA_LOWER) : v;
}

/* Merges two sorted halves; equal items keep their order. */
static void merge(struct jinja_run *run, struct jinja_pair *a, size_t half, size_t n,
                  struct jinja_pair *spare, bool reverse)
{
    size_t i = 0, j = half, k = 0;

    while (i < half && j < n && jinja_spend(run, 1)) {
        int order = jinja_compare(run, a[i].key, a[j].key);

        spare[k++] = (reverse ? order >= 0 : order <= 0) ? a[i++] : a[j++];
    }
    while (i < half)
        spare[k++] = a[i++];
    while (j < n)
        spare[k++] = a[j++];
    memcpy(a, spare, n * sizeof(*a));
}

static void merge_sort(struct jinja_run *run, struct jinja_pair *a, size_t n,
                       struct jinja_pair *spare, bool reverse)
{
    if (n < 2 || run->r < 0)
        return;
    merge_sort(run, a, n / 2, spare, reverse);
    merge_sort(run, a + n / 2, n - n / 2, spare, reverse);
    merge(run, a, n / 2, n, spare, reverse);
}

static struct jinja_value sorted(struct jinja_run *run, struct jinja_value list,
                                 const struct order *o)
{
    size_t n = list.list->n;
    struct jinja_pair *pairs = jinja_alloc(run, n * 2 * sizeof(*pairs));
    struct jinja_value out = jinja_list_new(run);

    for (size_t i = 0; i < n; i++)
        pairs[i] = (struct jinja_pair){order_key(run, list.list->items[i], o), list.list->items[i]};
    merge_sort(run, pairs, n, pairs + n, o->reverse);
    for (size_t i = 0; i < n; i++)
        jinja_list_push(run, out, pairs[i].value);
    return out;
}

FILTER(filter_sort)
{
    struct order o = {
        .reverse = jinja_truth(jinja_arg(args, 0, "reverse")),
        .fold_case = !jinja_truth(jinja_arg(args, 1, "case_sensitive")),
        .path = jinja_arg(args, 2, "attribute"),
    };

    return sorted(run, jinja_iterate(run, in), &o);
}

FILTER(filter_dictsort)
{
    struct order o = {
        .fold_case = !jinja_truth(jinja_arg(args, 0, "case_sensitive")),
        .path = jinja_int(str_is(jinja_arg_str(run, args, 1, "by", STR("key")), "value")),
        .reverse = jinja_truth(jinja_arg(args, 2, "reverse")),
    };

    return sorted(run, jinja_items(run, in), &o);
}

FILTER(filter_unique)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);
    struct jinja_value seen = jinja_list_new(run);
    struct order o = {.fold_case = !jinja_truth(jinja_arg(args, 0, "case_sensitive")),
                      .path = jinja_arg(args, 1, "attribute")};

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value key = order_key(run, list.list->items[i], &o);

        if (jinja_contains(run, seen, key))
            continue;
        jinja_list_push(run, seen, key);
        jinja_list_push(run, out, list.list->items[i]);
    }
    return out;
}

static struct jinja_value extreme(struct jinja_run *run, struct jinja_value in, int sign)
{
    struct jinja_value list = jinja_iterate(run, in), best = jinja_undefined();

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++)
        if (i == 0 || jinja_compare(run, list.list->items[i], best) * sign > 0)
            best = list.list->items[i];
    return best;
}

FILTER(filter_min)
{
    (void)args;
    return extreme(run, in, -1);
}

FILTER(filter_max)
{
    (void)args;
    return extreme(run, in, 1);
}

FILTER(filter_sum)
{
    struct jinja_value list = jinja_iterate(run, in), total = jinja_int(0);
    struct jinja_value path = jinja_arg(args, 0, "attribute");

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value v = list.list->items[i];

        v = path.kind == JINJA_V_UNDEFINED ? v : follow(run, v, path);
        total = jinja_calculate(run, JINJA_ADD, total, v);
    }
    return total;
}

/* --- table ------------------------------------------------------------------------------------ */

const struct jinja_builtin *jinja_find_filter(struct str name)
{
    static const struct jinja_builtin filters[] = {
        {"abs", filter_abs},
        {"capitalize", filter_capitalize},
        {"count", filter_length},
        {"d", filter_default},
        {"default", filter_default},
        {"dictsort", filter_dictsort},
        {"e", filter_escape},
        {"escape", filter_escape},
        {"first", filter_first},
        {"float", filter_float},
        {"indent", filter_indent},
        {"int", filter_int},
        {"items", filter_items},
        {"join", filter_join},
        {"last", filter_last},
        {"length", filter_length},
        {"list", filter_list},
        {"lower", filter_lower},
        {"map", filter_map},
        {"max", filter_max},
        {"min", filter_min},
        {"reject", filter_reject},
        {"rejectattr", filter_rejectattr},
        {"replace", filter_replace},
        {"reverse", filter_reverse},
        {"round", filter_round},
        {"safe", filter_string},
        {"select", filter_select},
        {"selectattr", filter_selectattr},
        {"sort", filter_sort},
        {"string", filter_string},
        {"sum", filter_sum},
        {"title", filter_title},
        {"tojson", filter_tojson},
        {"trim", filter_trim},
        {"unique", filter_unique},
        {"upper", filter_upper},
    };

    for (size_t i = 0; i < ARRAY_LEN(filters); i++)
        if (str_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}
