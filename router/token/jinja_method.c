/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of strings and mappings, as Python has them, and global functions. Nothing here changes
 * a value in place: append, update and their like are refused, as in the sandbox of the original.
 */
#include "router/token/jinja_builtin.h"

#include "router/token/jinja_text.h"
#include "router/token/utf8.h"

#define METHOD(name)                                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)

/* --- strings ---------------------------------------------------------------------------------- */

/* One string, or a list of them of which any will do. */
static struct jinja_value any_end(struct jinja_run *run, struct str s,
                                  const struct jinja_args *args, bool start)
{
    struct jinja_value what = jinja_arg(args, 0, NULL);

    if (what.kind == JINJA_V_LIST) {
        for (size_t i = 0; i < what.list->n; i++) {
            struct str part = jinja_text(run, what.list->items[i]);

            if (start ? str_starts(s, part) : str_ends(s, part))
                return jinja_bool(true);
        }
        return jinja_bool(false);
    }
    if (what.kind != JINJA_V_STR)
        return jinja_fail(run, "%.*s: expected a string", STR_ARG(args->callee));
    return jinja_bool(start ? str_starts(s, what.s) : str_ends(s, what.s));
}

METHOD(str_startswith)
{
    return any_end(run, in.s, args, true);
}

METHOD(str_endswith)
{
    return any_end(run, in.s, args, false);
}

METHOD(str_strip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, NULL, STR_NULL), true, true));
}

METHOD(str_lstrip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, NULL, STR_NULL), true, false));
}

METHOD(str_rstrip)
{
    return jinja_str(jinja_strip(in.s, jinja_arg_str(run, args, 0, NULL, STR_NULL), false, true));
}

METHOD(str_upper)
{
    (void)args;
    return jinja_change_case(run, in.s, JINJA_UPPER);
}

METHOD(str_lower)
{
    (void)args;
    return jinja_change_case(run, in.s, JINJA_LOWER);
}

METHOD(str_capitalize)
{
    (void)args;
    return jinja_change_case(run, in.s, JINJA_CAPITALIZE);
}

METHOD(str_title)
{
    (void)args;
    return jinja_change_case(run, in.s, JINJA_TITLE);
}

METHOD(str_replace)
{
    struct str from = jinja_arg_str(run, args, 0, NULL, STR("")),
               to = jinja_arg_str(run, args, 1, NULL, STR(""));

    return jinja_replace(run, in.s, from, to, jinja_arg_int(run, args, 2, "count", -1));
}

/* Words between white space. */
static struct jinja_value split_blanks(struct jinja_run *run, struct str s, int64_t most)
{
    struct jinja_value list = jinja_list_new(run);

    for (s = jinja_strip(s, STR_NULL, true, false); s.len > 0 && jinja_spend(run, 1);) {
        size_t n = 0;

        while (n < s.len && !utf8_is_space(utf8_get(s.ptr + n)))
            n += utf8_len(s.ptr[n]);
        if (most-- == 0)
            n = jinja_strip(s, STR_NULL, false, true).len;
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

/* From the end: @most cuts at the last places. */
static struct jinja_value split_last(struct jinja_run *run, struct str s, struct str by,
                                     int64_t most)
{
    struct jinja_value back = jinja_list_new(run), bounds[3];

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
    bounds[0] = bounds[1] = jinja_none();
    bounds[2] = jinja_int(-1);
    return jinja_slice(run, back, bounds);
}

METHOD(str_split)
{
    struct str by = jinja_arg_str(run, args, 0, "sep", STR_NULL);
    int64_t most = jinja_arg_int(run, args, 1, "maxsplit", -1);

    if (!by.ptr)
        return split_blanks(run, in.s, most);
    if (by.len == 0)
        return jinja_fail(run, "split: empty separator");
    return split_at(run, in.s, by, most);
}

METHOD(str_rsplit)
{
    struct str by = jinja_arg_str(run, args, 0, "sep", STR_NULL);
    int64_t most = jinja_arg_int(run, args, 1, "maxsplit", -1);

    if (by.len == 0)
        return jinja_fail(run, "rsplit needs a separator");
    return split_last(run, in.s, by, most);
}

METHOD(str_splitlines)
{
    struct jinja_value list = jinja_list_new(run);
    struct str rest = in.s, line;
    bool keep = jinja_truth(jinja_arg(args, 0, "keepends"));

    while (rest.len > 0 && jinja_spend(run, 1)) {
        const char *start = rest.ptr;
        bool more = str_cut(&rest, '\n', &line);
        size_t n = line.len + more;

        if (more && str_ends(line, STR("\r")))
            line.len--;
        jinja_list_push(run, list, jinja_str(keep ? str_slice(start, n) : line));
    }
    return list;
}

static struct jinja_value position(struct jinja_run *run, struct str s,
                                   const struct jinja_args *args, bool last)
{
    struct str what = jinja_arg_str(run, args, 0, NULL, STR(""));
    int64_t at = -1;

    (void)jinja_spend(run, s.len / 16);
    for (size_t i = 0; what.len <= s.len && i <= s.len - what.len; i++)
        if (str_starts(str_skip(s, i), what)) {
            at = (int64_t)i;
            if (!last)
                break;
        }
    /* Positions count characters. */
    return jinja_int(at < 0 ? -1 : jinja_length(jinja_str(str_head(s, (size_t)at))));
}

METHOD(str_find)
{
    return position(run, in.s, args, false);
}

METHOD(str_rfind)
{
    return position(run, in.s, args, true);
}

METHOD(str_count)
{
    struct str what = jinja_arg_str(run, args, 0, NULL, STR(""));

    if (what.len == 0)
        return jinja_int(jinja_length(in) + 1);
    return jinja_int((int64_t)split_at(run, in.s, what, -1).list->n - 1);
}

METHOD(str_join)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct jinja_value list = jinja_iterate(run, jinja_arg(args, 0, NULL));

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1 + in.s.len / 16); i++) {
        if (i > 0)
            buf_put_str(&out, in.s);
        jinja_print(run, list.list->items[i], &out);
    }
    return jinja_str_from_buf(run, &out);
}

METHOD(str_removeprefix)
{
    struct str what = jinja_arg_str(run, args, 0, NULL, STR(""));

    return jinja_str(str_starts(in.s, what) ? str_skip(in.s, what.len) : in.s);
}

METHOD(str_removesuffix)
{
    struct str what = jinja_arg_str(run, args, 0, NULL, STR(""));

    return jinja_str(str_ends(in.s, what) ? str_head(in.s, in.s.len - what.len) : in.s);
}

METHOD(str_isdigit)
{
    (void)run;
    (void)args;
    for (size_t i = 0; i < in.s.len; i++)
        if (in.s.ptr[i] < '0' || in.s.ptr[i] > '9')
            return jinja_bool(false);
    return jinja_bool(in.s.len > 0);
}

/* --- mappings --------------------------------------------------------------------------------- */

METHOD(map_items)
{
    (void)args;
    return jinja_items(run, in);
}

METHOD(map_keys)
{
    (void)args;
    return jinja_iterate(run, in);
}

METHOD(map_values)
{
    struct jinja_value items = jinja_items(run, in), list = jinja_list_new(run);

    (void)args;
    for (size_t i = 0; i < items.list->n; i++)
        jinja_list_push(run, list, items.list->items[i].list->items[1]);
    return list;
}

METHOD(map_get)
{
    struct jinja_value found = jinja_member(run, in, jinja_arg(args, 0, NULL));

    if (found.kind != JINJA_V_UNDEFINED)
        return found;
    return jinja_has_arg(args, 1, "default") ? jinja_arg(args, 1, "default") : jinja_none();
}

METHOD(list_count)
{
    struct jinja_value what = jinja_arg(args, 0, NULL);
    int64_t n = 0;

    for (size_t i = 0; i < in.list->n && jinja_spend(run, 1); i++)
        n += jinja_equal(run, in.list->items[i], what);
    return jinja_int(n);
}

METHOD(list_index)
{
    struct jinja_value what = jinja_arg(args, 0, NULL);

    for (size_t i = 0; i < in.list->n && jinja_spend(run, 1); i++)
        if (jinja_equal(run, in.list->items[i], what))
            return jinja_int((int64_t)i);
    return jinja_fail(run, "index: not in the list");
}

METHOD(loop_cycle)
{
    (void)run;
    return args->n ? args->values[in.loop->i % args->n] : jinja_undefined();
}

/* --- functions -------------------------------------------------------------------------------- */

METHOD(fn_raise)
{
    struct str why = jinja_text(run, jinja_arg(args, 0, NULL));

    (void)in;
    return jinja_fail(run, "%.*s", STR_ARG(str_head(why, 400)));
}

METHOD(fn_strftime)
{
    AUTO(buf_done) struct buf format = BUF_NULL;
    struct str given = jinja_arg_str(run, args, 0, NULL, STR(""));
    char text[512];
    size_t n;

    (void)in;
    if (!run->now)
        return jinja_fail(run, "strftime_now: the time is not known here");
    if (given.len > 128)
        return jinja_fail(run, "strftime_now: format too long");
    buf_put_str(&format, given);
    buf_put_char(&format, ' '); /* so that an empty result differs from no room */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = strftime(text, sizeof(text), buf_cstr(&format), run->now);
#pragma GCC diagnostic pop
    if (n == 0)
        return jinja_fail(run, "strftime_now: format too long");
    buf_clear(&format);
    buf_put(&format, text, n - 1);
    return jinja_str_from_buf(run, &format);
}

METHOD(fn_range)
{
    struct jinja_value list = jinja_list_new(run);
    int64_t first = jinja_arg_int(run, args, 0, NULL, 0), start = args->n > 1 ? first : 0;
    int64_t stop = args->n > 1 ? jinja_arg_int(run, args, 1, NULL, 0) : first;
    int64_t step = jinja_arg_int(run, args, 2, NULL, 1);

    (void)in;
    if (step == 0)
        return jinja_fail(run, "range: the step is 0");
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && jinja_spend(run, 1);) {
        jinja_list_push(run, list, jinja_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

static struct jinja_value map_from_args(struct jinja_run *run, const struct jinja_args *args)
{
    struct jinja_value map = jinja_map_new(run);

    for (size_t k = 0; k < args->n; k++) {
        struct jinja_value v = args->values[k], items;

        if (args->names && args->names[k].len > 0) {
            jinja_map_set(run, map, jinja_str(args->names[k]), v);
            continue;
        }
        items = jinja_items(run, v);
        for (size_t i = 0; i < items.list->n && run->r == 0; i++)
            jinja_map_set(run, map, items.list->items[i].list->items[0],
                          items.list->items[i].list->items[1]);
    }
    return map;
}

METHOD(fn_dict)
{
    (void)in;
    return map_from_args(run, args);
}

METHOD(fn_namespace)
{
    struct jinja_value map = map_from_args(run, args);

    (void)in;
    map.map->is_namespace = true;
    return map;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const struct jinja_builtin STR_METHODS[] = {
    {"capitalize", str_capitalize},
    {"count", str_count},
    {"endswith", str_endswith},
    {"find", str_find},
    {"isdigit", str_isdigit},
    {"join", str_join},
    {"lower", str_lower},
    {"lstrip", str_lstrip},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", str_replace},
    {"rfind", str_rfind},
    {"rsplit", str_rsplit},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"strip", str_strip},
    {"title", str_title},
    {"upper", str_upper},
};

static const struct jinja_builtin MAP_METHODS[] = {
    {"get", map_get},
    {"items", map_items},
    {"keys", map_keys},
    {"values", map_values},
};

static const struct jinja_builtin LIST_METHODS[] = {
    {"count", list_count},
    {"index", list_index},
};

static const struct jinja_builtin LOOP_METHODS[] = {
    {"cycle", loop_cycle},
};

static const struct jinja_builtin FUNCTIONS[] = {
    {"dict", fn_dict},   {"namespace", fn_namespace},   {"raise_exception", fn_raise},
    {"range", fn_range}, {"strftime_now", fn_strftime},
};

static const struct jinja_builtin *find(const struct jinja_builtin *table, size_t n,
                                        struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

const struct jinja_builtin *jinja_find_method(enum jinja_kind kind, struct str name)
{
    if (kind == JINJA_V_STR)
        return find(STR_METHODS, ARRAY_LEN(STR_METHODS), name);
    if (kind == JINJA_V_MAP || kind == JINJA_V_OBJECT)
        return find(MAP_METHODS, ARRAY_LEN(MAP_METHODS), name);
    if (kind == JINJA_V_LIST)
        return find(LIST_METHODS, ARRAY_LEN(LIST_METHODS), name);
    return kind == JINJA_V_LOOP ? find(LOOP_METHODS, ARRAY_LEN(LOOP_METHODS), name) : NULL;
}

const struct jinja_builtin *jinja_find_function(struct str name)
{
    return find(FUNCTIONS, ARRAY_LEN(FUNCTIONS), name);
}
