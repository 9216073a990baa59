/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Methods of mappings, lists and loops, as Python has them, and global functions. Nothing here
 * changes a value in place: append, update and their like are refused, as in the original's sandbox.
 */
#include "router/token/jinja_builtin.h"

#include "router/token/jinja_text.h"
#include "router/token/utf8.h"

enum { RANGE_MAX = 100000 }; /* of the original's sandbox */

#define METHOD(name)                                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)

/* --- mappings --------------------------------------------------------------------------------- */

METHOD(map_items)
{
    (void)args;
    return jinja_items(run, in);
}

/* The keys or the values, as a view. */
static struct jinja_value half(struct jinja_run *run, struct jinja_value map, size_t which,
                               enum jinja_list_form form)
{
    struct jinja_value items = jinja_items(run, map), list = jinja_list_of(run, form);

    for (size_t i = 0; i < items.list->n; i++)
        jinja_list_push(run, list, items.list->items[i].list->items[which]);
    return list;
}

METHOD(map_keys)
{
    (void)args;
    return half(run, in, 0, JINJA_LIST_KEYS);
}

METHOD(map_values)
{
    (void)args;
    return half(run, in, 1, JINJA_LIST_VALUES);
}

METHOD(map_get)
{
    struct jinja_value key = jinja_arg(args, 0);

    if (jinja_check_key(run, key) && jinja_has_member(run, in, key))
        return jinja_member(run, in, key);
    return jinja_has_arg(args, 1) ? jinja_arg(args, 1) : jinja_none();
}

/* Values do not change, so a copy is as good as the original. */
METHOD(copy)
{
    (void)run;
    (void)args;
    return in;
}

METHOD(list_count)
{
    struct jinja_value what = jinja_arg(args, 0);
    int64_t n = 0;

    for (size_t i = 0; i < in.list->n && jinja_spend(run, 1); i++)
        n += jinja_equal(run, in.list->items[i], what);
    return jinja_int(n);
}

METHOD(list_index)
{
    struct jinja_value what = jinja_arg(args, 0);

    for (size_t i = 0; i < in.list->n && jinja_spend(run, 1); i++)
        if (jinja_equal(run, in.list->items[i], what))
            return jinja_int((int64_t)i);
    return jinja_fail(run, "index: not in the list");
}

METHOD(loop_cycle)
{
    if (args->n == 0)
        return jinja_fail(run, "cycle: nothing to choose from");
    return args->values[in.loop->i % args->n];
}

METHOD(loop_changed)
{
    struct jinja_value now = jinja_list_of(run, JINJA_LIST_TUPLE);
    bool same;

    for (size_t i = 0; i < args->n; i++)
        jinja_list_push(run, now, args->values[i]);
    same = in.loop->changed.kind == JINJA_V_LIST && jinja_equal(run, in.loop->changed, now);
    in.loop->changed = now;
    return jinja_bool(!same);
}

/* --- functions -------------------------------------------------------------------------------- */

METHOD(fn_raise)
{
    struct str why = jinja_text(run, jinja_arg(args, 0));

    (void)in;
    return jinja_fail(run, "%.*s", STR_ARG(str_head(why, 400)));
}

METHOD(fn_strftime)
{
    AUTO(buf_done) struct buf format = BUF_NULL;
    struct str given = jinja_arg_str(run, args, 0, STR(""));
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
    struct jinja_value list = jinja_list_of(run, JINJA_LIST_RANGE);
    int64_t first = jinja_arg_int(run, args, 0, 0), start = jinja_has_arg(args, 1) ? first : 0;
    int64_t stop = jinja_has_arg(args, 1) ? jinja_arg_int(run, args, 1, 0) : first;
    int64_t step = jinja_arg_int(run, args, 2, 1);

    (void)in;
    if (step == 0)
        return jinja_fail(run, "range: the step is 0");
    list.list->start = start;
    list.list->stop = stop;
    list.list->step = step;
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && jinja_spend(run, 1);) {
        if (list.list->n == RANGE_MAX)
            return jinja_fail(run, "range: more than %d numbers", RANGE_MAX);
        jinja_list_push(run, list, jinja_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return list;
}

/* dict(x) of a mapping, or of pairs. */
static void add_all(struct jinja_run *run, struct jinja_value map, struct jinja_value from)
{
    struct jinja_value items =
        jinja_is_map(from) ? jinja_items(run, from) : jinja_iterate(run, from);

    if (from.kind == JINJA_V_UNDEFINED)
        (void)jinja_fail(run, "dict of undefined");
    for (size_t i = 0; i < items.list->n && run->r == 0; i++) {
        struct jinja_value pair = jinja_iterate(run, items.list->items[i]);

        if (run->r == 0 && pair.list->n != 2)
            (void)jinja_fail(run, "dict: item %zu is no pair", i);
        else if (run->r == 0)
            jinja_map_set(run, map, pair.list->items[0], pair.list->items[1]);
    }
}

static struct jinja_value map_from_args(struct jinja_run *run, const struct jinja_args *args)
{
    struct jinja_value map = jinja_map_new(run);
    size_t positional = 0;

    for (size_t i = 0; i < args->n; i++)
        if (args->names && args->names[i].len > 0)
            jinja_map_set(run, map, jinja_str(args->names[i]), args->values[i]);
        else if (positional++ == 0)
            add_all(run, map, args->values[i]);
        else
            return jinja_fail(run, "%.*s takes one mapping", STR_ARG(args->callee));
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
    map.kind = JINJA_V_SPACE;
    return map;
}

/* --- tables ----------------------------------------------------------------------------------- */

static const struct jinja_builtin MAP_METHODS[] = {
    {"copy", copy, ""},     {"get", map_get, "/key! default"}, {"items", map_items, ""},
    {"keys", map_keys, ""}, {"values", map_values, ""},
};

static const struct jinja_builtin LIST_METHODS[] = {
    {"copy", copy, ""},
    {"count", list_count, "/value!"},
    {"index", list_index, "/value!"},
};

static const struct jinja_builtin LOOP_METHODS[] = {
    {"changed", loop_changed, NULL},
    {"cycle", loop_cycle, NULL},
};

static const struct jinja_builtin FUNCTIONS[] = {
    {"dict", fn_dict, NULL},
    {"namespace", fn_namespace, NULL},
    {"raise_exception", fn_raise, "message!"},
    {"range", fn_range, "/start! stop step"},
    {"strftime_now", fn_strftime, "format!"},
};

static const struct jinja_builtin *find(const struct jinja_builtin *table, size_t n,
                                        struct str name)
{
    for (size_t i = 0; i < n; i++)
        if (str_is(name, table[i].name))
            return &table[i];
    return NULL;
}

static const struct jinja_builtin *find_list_method(enum jinja_list_form form, struct str name)
{
    if (form >= JINJA_LIST_KEYS)
        return NULL;
    if (form != JINJA_LIST_PLAIN && str_is(name, "copy"))
        return NULL;
    return find(LIST_METHODS, ARRAY_LEN(LIST_METHODS), name);
}

const struct jinja_builtin *jinja_find_method(struct jinja_value of, struct str name)
{
    switch ((int)of.kind) {
    case JINJA_V_STR:
        return jinja_find_str_method(name);
    case JINJA_V_MAP:
    case JINJA_V_OBJECT:
        return find(MAP_METHODS, ARRAY_LEN(MAP_METHODS), name);
    case JINJA_V_LIST:
        return find_list_method(of.list->form, name);
    case JINJA_V_LOOP:
        return find(LOOP_METHODS, ARRAY_LEN(LOOP_METHODS), name);
    default:
        return NULL;
    }
}

const struct jinja_builtin *jinja_find_function(struct str name)
{
    return find(FUNCTIONS, ARRAY_LEN(FUNCTIONS), name);
}
