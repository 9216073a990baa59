/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters of lists and mappings. What Python would leave as an iterator is computed at once and
 * marked as one, so that it has no length and can be walked over once.
 */
#include "router/token/jinja_filter.h"

#include "router/token/jinja_text.h"

static struct jinja_value as_iterator(struct jinja_value list)
{
    list.list->form = JINJA_LIST_ITERATOR;
    return list;
}

FILTER(filter_count)
{
    int64_t n = jinja_length(in);

    (void)args;
    return n < 0 ? jinja_fail(run, "%s has no length", jinja_kind_name(in)) : jinja_int(n);
}

/* Templates ask it of tools that are none; the reference's engines say 0 of whatever has none. */
FILTER(filter_length)
{
    bool lenient = run->as_1 || run->old_prints;

    return lenient && jinja_length(in) < 0 ? jinja_int(0) : filter_count(run, in, args);
}

FILTER(filter_first)
{
    struct jinja_value list = jinja_iterate(run, in), rest;

    (void)args;
    if (jinja_is_list(in, JINJA_LIST_ITERATOR) && list.list->n > 1) { /* the others stay */
        rest = jinja_list_new(run);
        for (size_t i = 1; i < list.list->n; i++)
            jinja_list_push(run, rest, list.list->items[i]);
        *in.list = *rest.list;
        in.list->form = JINJA_LIST_ITERATOR;
    }
    return list.list->n ? list.list->items[0] : jinja_undefined();
}

FILTER(filter_last)
{
    struct jinja_value list;

    (void)args;
    if (jinja_is_list(in, JINJA_LIST_ITERATOR))
        return jinja_fail(run, "last: an iterator has no end to begin with");
    list = jinja_iterate(run, in);
    return list.list->n ? list.list->items[list.list->n - 1] : jinja_undefined();
}

static struct jinja_value copy_of(struct jinja_run *run, struct jinja_value in)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++)
        jinja_list_push(run, out, list.list->items[i]);
    return out;
}

FILTER(filter_list)
{
    (void)args;
    return copy_of(run, in);
}

FILTER(filter_items)
{
    (void)args;
    if (in.kind == JINJA_V_UNDEFINED)
        return as_iterator(jinja_list_new(run));
    if (!jinja_is_map(in))
        return jinja_fail(run, "items: %s is no mapping", jinja_kind_name(in));
    return as_iterator(jinja_items(run, in));
}

FILTER(filter_reverse)
{
    struct jinja_value bounds[3] = {jinja_none(), jinja_none(), jinja_int(-1)};

    (void)args;
    if (in.kind == JINJA_V_STR)
        return jinja_slice(run, in, bounds);
    return as_iterator(jinja_slice(run, copy_of(run, in), bounds));
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
        v = jinja_item(run, v, str_parse_i64(part, &i) && i >= 0 ? jinja_int(i) : jinja_str(part));
    }
    return v;
}

/* Whether an attribute is asked for; none is as good as nothing. */
static bool has_path(struct jinja_value path)
{
    return path.kind != JINJA_V_UNDEFINED && path.kind != JINJA_V_NONE;
}

FILTER(filter_join)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct jinja_value list = jinja_iterate(run, in), path = jinja_arg(args, 1);
    struct str between = jinja_has_arg(args, 0) ? jinja_text(run, jinja_arg(args, 0)) : STR("");

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1 + between.len / 16); i++) {
        struct jinja_value v = list.list->items[i];

        if (i > 0)
            buf_put_str(&out, between);
        jinja_print(run, has_path(path) ? follow(run, v, path) : v, &out);
    }
    return jinja_str_from_buf(run, &out);
}

/* Arguments behind the first @n, for the filter or test that the first one names. */
static struct jinja_args skip_args(const struct jinja_args *args, size_t n)
{
    struct jinja_args rest = *args;

    n = MIN(n, args->n);
    if (n > 0) { /* without arguments there are no lists of them */
        rest.values += n;
        rest.names += n;
        rest.n -= n;
    }
    return rest;
}

static bool is_positional(const struct jinja_args *args, size_t i)
{
    return i < args->n && (!args->names || args->names[i].len == 0);
}

/* What map and its like walk over: what is false holds nothing, whatever it is. */
static struct jinja_value walk(struct jinja_run *run, struct jinja_value in)
{
    return jinja_truth(in) ? jinja_iterate(run, in) : jinja_list_new(run);
}

FILTER(filter_map)
{
    struct jinja_value list = walk(run, in), out = jinja_list_new(run);
    const struct jinja_value *path = jinja_named_arg(args, "attribute"),
                             *fallback = jinja_named_arg(args, "default");
    struct jinja_args rest = skip_args(args, 1);
    const struct jinja_builtin *filter = NULL;

    if (is_positional(args, 0)) {
        struct str name = jinja_text(run, args->values[0]);

        filter = jinja_find_filter(name);
        if (!filter)
            return jinja_fail(run, "map: unsupported filter \"%.*s\"", STR_ARG(str_head(name, 64)));
    } else if (!path || args->n != (fallback ? 2U : 1U)) {
        return jinja_fail(run, "map needs a filter or an attribute");
    }
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value v = list.list->items[i];

        v = filter ? jinja_invoke(run, filter, v, &rest) : follow(run, v, *path);
        if (v.kind == JINJA_V_UNDEFINED && !filter && fallback && has_path(*fallback))
            v = *fallback;
        jinja_list_push(run, out, v);
    }
    return as_iterator(out);
}

/* select, reject, selectattr, rejectattr: @attribute when the first argument is a path. */
static struct jinja_value pick(struct jinja_run *run, struct jinja_value in,
                               const struct jinja_args *args, bool attribute, bool wanted)
{
    struct jinja_value list = walk(run, in), out = jinja_list_new(run);
    size_t at = attribute ? 1 : 0;
    struct str name = is_positional(args, at) ? jinja_text(run, args->values[at]) : STR_NULL;
    const struct jinja_builtin *test = name.ptr ? jinja_find_test(name) : NULL;
    struct jinja_args rest = skip_args(args, at + 1);

    if (attribute && !is_positional(args, 0))
        return jinja_fail(run, "%.*s needs an attribute", STR_ARG(args->callee));
    if (name.ptr && !test)
        return jinja_fail(run, "unsupported test \"%.*s\"", STR_ARG(str_head(name, 64)));
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value item = list.list->items[i];
        struct jinja_value v = attribute ? follow(run, item, args->values[0]) : item;

        if (jinja_truth(test ? jinja_invoke(run, test, v, &rest) : v) == wanted)
            jinja_list_push(run, out, item);
    }
    return as_iterator(out);
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
    bool many;               /* several paths, with commas: keys are lists */
    bool fold_case, reverse;
};

static struct jinja_value order_key(struct jinja_run *run, struct jinja_value v,
                                    const struct order *o)
{
    if (o->many) {
        struct order one = {.path = o->path, .fold_case = o->fold_case};
        struct jinja_value keys = jinja_list_new(run);
        struct str rest = o->path.kind == JINJA_V_STR ? o->path.s : STR(""), part;

        for (bool more = true; more;) {
            more = str_cut(&rest, ',', &part);
            if (o->path.kind == JINJA_V_STR)
                one.path = jinja_str(part);
            jinja_list_push(run, keys, order_key(run, v, &one));
        }
        return keys;
    }
    if (has_path(o->path))
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
        .reverse = jinja_truth(jinja_arg(args, 0)),
        .fold_case = !jinja_truth(jinja_arg(args, 1)),
        .path = jinja_arg(args, 2),
        .many = true,
    };

    return sorted(run, jinja_iterate(run, in), &o);
}

FILTER(filter_dictsort)
{
    struct str by = jinja_arg_str(run, args, 1, STR("key"));
    struct order o = {
        .fold_case = !jinja_truth(jinja_arg(args, 0)),
        .path = jinja_int(str_is(by, "value")),
        .reverse = jinja_truth(jinja_arg(args, 2)),
    };

    if (!str_is(by, "key") && !str_is(by, "value"))
        return jinja_fail(run, "dictsort: by what?");
    if (!jinja_is_map(in))
        return jinja_fail(run, "dictsort: %s is no mapping", jinja_kind_name(in));
    return sorted(run, jinja_items(run, in), &o);
}

FILTER(filter_unique)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);
    struct jinja_value seen = jinja_list_new(run);
    struct order o = {.fold_case = !jinja_truth(jinja_arg(args, 0)), .path = jinja_arg(args, 1)};

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value key = order_key(run, list.list->items[i], &o);

        if (!jinja_check_key(run, key) || jinja_contains(run, seen, key))
            continue;
        jinja_list_push(run, seen, key);
        jinja_list_push(run, out, list.list->items[i]);
    }
    return as_iterator(out);
}

static struct jinja_value extreme(struct jinja_run *run, struct jinja_value in,
                                  const struct jinja_args *args, int sign)
{
    struct jinja_value list = jinja_iterate(run, in), best = jinja_undefined(), best_key = best;
    struct order o = {.fold_case = !jinja_truth(jinja_arg(args, 0)), .path = jinja_arg(args, 1)};

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value key = order_key(run, list.list->items[i], &o);

        if (i > 0 && jinja_compare(run, key, best_key) * sign <= 0)
            continue;
        best = list.list->items[i];
        best_key = key;
    }
    return best;
}

FILTER(filter_min)
{
    return extreme(run, in, args, -1);
}

FILTER(filter_max)
{
    return extreme(run, in, args, 1);
}

FILTER(filter_sum)
{
    struct jinja_value list = jinja_iterate(run, in), path = jinja_arg(args, 0);
    struct jinja_value total = jinja_has_arg(args, 1) ? jinja_arg(args, 1) : jinja_int(0);

    if (total.kind == JINJA_V_STR)
        return jinja_fail(run, "sum: strings are joined, not summed");
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value v = list.list->items[i];

        v = has_path(path) ? follow(run, v, path) : v;
        total = jinja_calculate(run, JINJA_ADD, total, v);
    }
    return total;
}

/* --- groups ----------------------------------------------------------------------------------- */

FILTER(filter_batch)
{
    struct jinja_value list = jinja_iterate(run, in), out = jinja_list_new(run);
    struct jinja_value row = jinja_list_new(run), fill = jinja_arg(args, 1);
    int64_t count = jinja_arg_int(run, args, 0, 0);

    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        if ((int64_t)row.list->n == count) {
            jinja_list_push(run, out, row);
            row = jinja_list_new(run);
        }
        jinja_list_push(run, row, list.list->items[i]);
    }
    if (row.list->n == 0)
        return as_iterator(out);
    while (has_path(fill) && (int64_t)row.list->n < count && jinja_spend(run, 1))
        jinja_list_push(run, row, fill);
    jinja_list_push(run, out, row);
    return as_iterator(out);
}

FILTER(filter_slice)
{
    struct jinja_value list = copy_of(run, in), out = jinja_list_new(run);
    struct jinja_value fill = jinja_arg(args, 1);
    int64_t slices = jinja_arg_int(run, args, 0, 0), n = (int64_t)list.list->n, at = 0;

    if (slices == 0)
        return jinja_fail(run, "slice: into no slices");
    for (int64_t i = 0; i < slices && jinja_spend(run, 1); i++) {
        struct jinja_value row = jinja_list_new(run);

        for (int64_t end = at + n / slices + (i < n % slices); at < end; at++)
            jinja_list_push(run, row, list.list->items[at]);
        if (has_path(fill) && i >= n % slices)
            jinja_list_push(run, row, fill);
        jinja_list_push(run, out, row);
    }
    return as_iterator(out);
}

FILTER(filter_groupby)
{
    struct order o = {.path = jinja_arg(args, 0), .fold_case = !jinja_truth(jinja_arg(args, 2))};
    struct jinja_value list = sorted(run, jinja_iterate(run, in), &o), out = jinja_list_new(run);
    struct jinja_value group = jinja_undefined(), last = group;

    if (jinja_has_arg(args, 1) && jinja_arg(args, 1).kind != JINJA_V_NONE)
        return jinja_fail(run, "groupby: a default is not supported");
    for (size_t i = 0; i < list.list->n && jinja_spend(run, 1); i++) {
        struct jinja_value item = list.list->items[i], key = order_key(run, item, &o);

        if (i == 0 || !jinja_equal(run, key, last)) {
            struct jinja_value pair = jinja_list_of(run, JINJA_LIST_TUPLE);

            group = jinja_list_new(run);
            jinja_list_push(run, pair, follow(run, item, o.path));
            jinja_list_push(run, pair, group);
            jinja_list_push(run, out, pair);
        }
        jinja_list_push(run, group, item);
        last = key;
    }
    return out;
}

const struct jinja_builtin *jinja_find_list_filter(struct str name)
{
    static const struct jinja_builtin filters[] = {
        {"batch", filter_batch, "linecount! fill_with"},
        {"count", filter_count, ""},
        {"dictsort", filter_dictsort, "case_sensitive by reverse"},
        {"first", filter_first, ""},
        {"groupby", filter_groupby, "attribute! default case_sensitive"},
        {"items", filter_items, ""},
        {"join", filter_join, "d attribute"},
        {"last", filter_last, ""},
        {"length", filter_length, ""},
        {"list", filter_list, ""},
        {"map", filter_map, NULL},
        {"max", filter_max, "case_sensitive attribute"},
        {"min", filter_min, "case_sensitive attribute"},
        {"reject", filter_reject, NULL},
        {"rejectattr", filter_rejectattr, NULL},
        {"reverse", filter_reverse, ""},
        {"select", filter_select, NULL},
        {"selectattr", filter_selectattr, NULL},
        {"slice", filter_slice, "slices! fill_with"},
        {"sort", filter_sort, "reverse case_sensitive attribute"},
        {"sum", filter_sum, "attribute start"},
        {"unique", filter_unique, "case_sensitive attribute"},
    };

    for (size_t i = 0; i < ARRAY_LEN(filters); i++)
        if (str_is(name, filters[i].name))
            return &filters[i];
    return NULL;
}
