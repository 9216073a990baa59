/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/jinja_builtin.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/template.h"
#include "router/token/utf8.h"

/* --- errors and limits ------------------------------------------------------------------------ */

struct jinja_value jinja_fail(struct jinja_run *run, const char *format, ...)
{
    char why[ERR_TEXT_MAX];
    va_list ap;

    if (run->r < 0)
        return jinja_undefined();
    va_start(ap, format);
    (void)vsnprintf(why, sizeof(why), format, ap);
    va_end(ap);
    run->r = err_set(run->e, -EINVAL, "line %u: %s", run->line, why);
    return jinja_undefined();
}

static void fail_limit(struct jinja_run *run, const char *what)
{
    if (run->r == 0)
        run->r = err_set(run->e, -E2BIG, "line %u: %s", run->line, what);
}

bool jinja_spend(struct jinja_run *run, uint64_t n)
{
    run->steps += n;
    if (run->max_steps && run->steps > run->max_steps && run->r == 0)
        run->r = err_set(run->e, -EAGAIN, "line %u: more than %llu steps", run->line,
                         (unsigned long long)run->max_steps);
    else if (run->steps > TEMPLATE_MAX_STEPS)
        fail_limit(run, "the template takes too many steps");
    else if (run->out->len > TEMPLATE_MAX_OUTPUT)
        fail_limit(run, "the template writes too much");
    return run->r == 0;
}

void *jinja_alloc(struct jinja_run *run, size_t size)
{
    if (arena_used(run->a) + size > TEMPLATE_MAX_MEMORY)
        fail_limit(run, "the template needs too much memory");
    (void)jinja_spend(run, size / 256);
    return arena_alloc(run->a, size ? size : 1);
}

/* --- making values ---------------------------------------------------------------------------- */

struct jinja_value jinja_str_from_buf(struct jinja_run *run, struct buf *b)
{
    size_t n = b->len;
    char *copy = jinja_alloc(run, n);

    if (n)
        memcpy(copy, buf_data(b), n);
    buf_clear(b);
    return jinja_str(str_slice(copy, n));
}

struct jinja_value jinja_list_of(struct jinja_run *run, enum jinja_list_form form)
{
    struct jinja_list *l = jinja_alloc(run, sizeof(*l));

    l->form = form;
    return (struct jinja_value){.kind = JINJA_V_LIST, .list = l};
}

struct jinja_value jinja_list_new(struct jinja_run *run)
{
    return jinja_list_of(run, JINJA_LIST_PLAIN);
}

void jinja_list_push(struct jinja_run *run, struct jinja_value list, struct jinja_value item)
{
    struct jinja_list *l = list.list;

    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 8;
        struct jinja_value *items = jinja_alloc(run, cap * sizeof(*items));

        if (l->n)
            memcpy(items, l->items, l->n * sizeof(*items));
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = item;
}

struct jinja_value jinja_map_new(struct jinja_run *run)
{
    struct jinja_map *m = jinja_alloc(run, sizeof(*m));

    return (struct jinja_value){.kind = JINJA_V_MAP, .map = m};
}

static struct jinja_pair *find_pair(struct jinja_run *run, const struct jinja_map *m,
                                    struct jinja_value key)
{
    (void)jinja_spend(run, m->n / 8);
    for (size_t i = 0; i < m->n; i++)
        if (jinja_equal(run, m->pairs[i].key, key))
            return &m->pairs[i];
    return NULL;
}

void jinja_map_set(struct jinja_run *run, struct jinja_value map, struct jinja_value key,
                   struct jinja_value value)
{
    struct jinja_map *m = map.map;
    struct jinja_pair *p = jinja_check_key(run, key) ? find_pair(run, m, key) : NULL;

    if (p) {
        p->value = value;
        return;
    }
    if (m->n == m->cap) {
        size_t cap = m->cap ? m->cap * 2 : 8;
        struct jinja_pair *pairs = jinja_alloc(run, cap * sizeof(*pairs));

        if (m->n)
            memcpy(pairs, m->pairs, m->n * sizeof(*pairs));
        m->pairs = pairs;
        m->cap = cap;
    }
    m->pairs[m->n++] = (struct jinja_pair){key, value};
}

static struct jinja_value list_from_json(struct jinja_run *run, const struct json *array)
{
    struct jinja_value list = jinja_list_new(run);

    JSON_FOREACH (item, array) {
        if (!jinja_spend(run, 1))
            break;
        /* Inner arrays are wrapped when the template gets to them. */
        jinja_list_push(run, list, jinja_from_json(run, item));
    }
    return list;
}

struct jinja_value jinja_from_json(struct jinja_run *run, const struct json *v)
{
    struct jinja_value number;
    int64_t i = 0;
    double f = 0;
    bool b = false;

    switch (json_kind_of(v)) {
    case JSON_KIND_OBJECT:
        return (struct jinja_value){.kind = JINJA_V_OBJECT, .object = v};
    case JSON_KIND_ARRAY:
        return list_from_json(run, v);
    case JSON_KIND_STRING:
        return jinja_str(str_from(json_cstr(v)));
    case JSON_KIND_NUMBER:
        if (!json_is_float(v) && json_i64(v, &i))
            return jinja_int(i);
        (void)json_f64(v, &f);
        number = jinja_float(f);
        (void)json_u64(v, &number.whole);
        return number;
    case JSON_KIND_BOOL:
        (void)json_bool(v, &b);
        return jinja_bool(b);
    case JSON_KIND_NULL:
        return jinja_none();
    case JSON_KIND_NONE:
        break;
    }
    return jinja_undefined();
}

/* --- looking at values ------------------------------------------------------------------------ */

int64_t jinja_length(struct jinja_value v)
{
    int64_t n = 0;

    switch ((int)v.kind) {
    case JINJA_V_STR:
        for (size_t i = 0; i < v.s.len; i++)
            n += !utf8_is_continuation(v.s.ptr[i]);
        return n;
    case JINJA_V_UNDEFINED:
        return 0;
    case JINJA_V_LIST:
        return v.list->form == JINJA_LIST_ITERATOR ? -1 : (int64_t)v.list->n;
    case JINJA_V_LOOP:
        return (int64_t)v.loop->items->n;
    case JINJA_V_MAP:
        return (int64_t)v.map->n;
    case JINJA_V_OBJECT:
        return (int64_t)json_len(v.object);
    default:
        return -1;
    }
}

bool jinja_truth(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_V_UNDEFINED:
    case JINJA_V_NONE:
        return false;
    case JINJA_V_BOOL:
        return v.b;
    case JINJA_V_INT:
        return v.i != 0;
    case JINJA_V_FLOAT:
        return fpclassify(v.f) != FP_ZERO;
    case JINJA_V_STR:
        return v.s.len > 0;
    case JINJA_V_LIST:
        return v.list->form == JINJA_LIST_ITERATOR || v.list->n > 0;
    case JINJA_V_MAP:
        return v.map->n > 0;
    case JINJA_V_OBJECT:
        return json_first(v.object) != NULL;
    case JINJA_V_SPACE:
    case JINJA_V_LOOP:
    case JINJA_V_MACRO:
    case JINJA_V_FUNCTION:
    case JINJA_V_METHOD:
        return true;
    }
    return false;
}

const char *jinja_kind_name(struct jinja_value v)
{
    static const char *const names[] = {
        [JINJA_V_UNDEFINED] = "undefined", [JINJA_V_NONE] = "none",
        [JINJA_V_BOOL] = "a boolean",      [JINJA_V_INT] = "a number",
        [JINJA_V_FLOAT] = "a number",      [JINJA_V_STR] = "a string",
        [JINJA_V_LIST] = "a list",         [JINJA_V_MAP] = "a mapping",
        [JINJA_V_OBJECT] = "a mapping",    [JINJA_V_SPACE] = "a namespace",
        [JINJA_V_LOOP] = "a loop",         [JINJA_V_MACRO] = "a macro",
        [JINJA_V_FUNCTION] = "a function", [JINJA_V_METHOD] = "a method",
    };

    return names[v.kind];
}

bool jinja_as_int(struct jinja_value v, int64_t *ret)
{
    if (v.kind == JINJA_V_INT)
        *ret = v.i;
    else if (v.kind == JINJA_V_BOOL)
        *ret = v.b;
    else
        return false;
    return true;
}

double jinja_as_float(struct jinja_value v)
{
    int64_t i = 0;

    return jinja_as_int(v, &i) ? (double)i : v.f;
}

static int compare_numbers(struct jinja_value a, struct jinja_value b)
{
    int64_t i = 0, j = 0;
    double f, g;

    if (jinja_as_int(a, &i) && jinja_as_int(b, &j))
        return (i > j) - (i < j);
    f = jinja_as_float(a);
    g = jinja_as_float(b);
    return (f > g) - (f < g);
}

static bool equal_lists(struct jinja_run *run, const struct jinja_list *a,
                        const struct jinja_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jinja_spend(run, 1) || !jinja_equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_maps(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value items;

    if (jinja_length(a) != jinja_length(b))
        return false;
    items = jinja_items(run, a);
    for (size_t i = 0; i < items.list->n; i++) {
        const struct jinja_value *pair = items.list->items[i].list->items;
        struct jinja_value other = jinja_member(run, b, pair[0]);

        if (!jinja_spend(run, 1) || other.kind == JINJA_V_UNDEFINED ||
            !jinja_equal(run, pair[1], other))
            return false;
    }
    return true;
}

/* Whether lists of that form are equal when their items are; others are equal to themselves. */
static bool compares(enum jinja_list_form form)
{
    return form != JINJA_LIST_VALUES && form != JINJA_LIST_ITERATOR;
}

bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return compare_numbers(a, b) == 0;
    if (jinja_is_map(a) && jinja_is_map(b))
        return equal_maps(run, a, b);
    if (a.kind != b.kind)
        return false;
    switch ((int)a.kind) {
    case JINJA_V_STR:
        return str_eq(a.s, b.s);
    case JINJA_V_LIST:
        return a.list == b.list || (a.list->form == b.list->form && compares(a.list->form) &&
                                    equal_lists(run, a.list, b.list));
    case JINJA_V_SPACE:
        return a.map == b.map;
    case JINJA_V_MACRO:
        return a.macro == b.macro;
    case JINJA_V_FUNCTION:
        return a.function == b.function;
    case JINJA_V_LOOP:
        return a.loop == b.loop;
    default:
        return true;
    }
}

int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (jinja_is_number(a) && jinja_is_number(b))
        return compare_numbers(a, b);
    if (a.kind == JINJA_V_STR && b.kind == JINJA_V_STR)
        return str_cmp(a.s, b.s); /* UTF-8 sorts as its code points do */
    if (a.kind == JINJA_V_LIST && b.kind == JINJA_V_LIST && a.list->form == b.list->form &&
        a.list->form <= JINJA_LIST_TUPLE) {
        for (size_t i = 0; i < a.list->n && i < b.list->n && jinja_spend(run, 1); i++)
            if (!jinja_equal(run, a.list->items[i], b.list->items[i]))
                return jinja_compare(run, a.list->items[i], b.list->items[i]);
        return (a.list->n > b.list->n) - (a.list->n < b.list->n);
    }
    (void)jinja_fail(run, "cannot compare %s with %s", jinja_kind_name(a), jinja_kind_name(b));
    return 0;
}

bool jinja_contains(struct jinja_run *run, struct jinja_value all, struct jinja_value item)
{
    if (all.kind == JINJA_V_STR) {
        if (item.kind != JINJA_V_STR)
            return jinja_fail(run, "a string cannot contain %s", jinja_kind_name(item)).b;
        (void)jinja_spend(run, all.s.len / 16);
        return str_has(all.s, item.s);
    }
    if (jinja_is_map(all))
        return jinja_check_key(run, item) && jinja_has_member(run, all, item);
    if (all.kind == JINJA_V_UNDEFINED)
        return false;
    if (all.kind != JINJA_V_LIST)
        return jinja_fail(run, "%s contains nothing", jinja_kind_name(all)).b;
    if (all.list->form == JINJA_LIST_KEYS && !jinja_check_key(run, item))
        return false;
    for (size_t i = 0; i < all.list->n && jinja_spend(run, 1); i++)
        if (jinja_equal(run, all.list->items[i], item))
            return true;
    return false;
}

/* --- members ---------------------------------------------------------------------------------- */

static bool can_be_key(struct jinja_value v)
{
    if (jinja_is_map(v))
        return false;
    if (v.kind != JINJA_V_LIST)
        return true;
    if (v.list->form != JINJA_LIST_TUPLE)
        return v.list->form == JINJA_LIST_RANGE || v.list->form >= JINJA_LIST_VALUES;
    for (size_t i = 0; i < v.list->n; i++)
        if (!can_be_key(v.list->items[i]))
            return false;
    return true;
}

bool jinja_check_key(struct jinja_run *run, struct jinja_value key)
{
    if (!can_be_key(key))
        (void)jinja_fail(run, "%s cannot be a key", jinja_kind_name(key));
    return run->r == 0;
}

bool jinja_has_member(struct jinja_run *run, struct jinja_value map, struct jinja_value key)
{
    if (map.kind != JINJA_V_OBJECT)
        return find_pair(run, map.map, key) != NULL;
    return jinja_member(run, map, key).kind != JINJA_V_UNDEFINED;
}

struct jinja_value jinja_member(struct jinja_run *run, struct jinja_value map,
                                struct jinja_value key)
{
    const struct jinja_pair *p;

    if (map.kind == JINJA_V_OBJECT) {
        if (key.kind != JINJA_V_STR)
            return jinja_undefined();
        (void)jinja_spend(run, json_len(map.object) / 8);
        /* Names come as slices; json_get() wants a terminated copy. */
        JSON_FOREACH (m, map.object)
            if (str_is(key.s, json_key(m)))
                return jinja_from_json(run, m);
        return jinja_undefined();
    }
    p = find_pair(run, map.map, key);
    return p ? p->value : jinja_undefined();
}

static int compare_keys(const void *a, const void *b)
{
    const struct json *const *x = a, *const *y = b;

    return strcmp(json_key(*x), json_key(*y));
}

/* Members of an object as they came, or in the order of their keys. */
static const struct json **members_of(struct jinja_run *run, const struct json *object,
                                      size_t *ret_n)
{
    size_t n = 0, len = json_len(object);
    const struct json **all = jinja_alloc(run, len * sizeof(struct json *));

    (void)jinja_spend(run, len);
    JSON_FOREACH (m, object)
        all[n++] = m;
    if (n > 1 && run->old_prints)
        qsort(all, n, sizeof(struct json *), compare_keys);
    *ret_n = n;
    return all;
}

static void push_pair(struct jinja_run *run, struct jinja_value list, struct jinja_value key,
                      struct jinja_value value)
{
    struct jinja_value pair = jinja_list_of(run, JINJA_LIST_TUPLE);

    jinja_list_push(run, pair, key);
    jinja_list_push(run, pair, value);
    jinja_list_push(run, list, pair);
}

struct jinja_value jinja_items(struct jinja_run *run, struct jinja_value map)
{
    struct jinja_value list = jinja_list_of(run, JINJA_LIST_ITEMS);

    if (map.kind == JINJA_V_OBJECT) {
        size_t n;
        const struct json **members = members_of(run, map.object, &n);

        for (size_t i = 0; i < n && run->r == 0; i++)
            push_pair(run, list, jinja_str(str_from(json_key(members[i]))),
                      jinja_from_json(run, members[i]));
    } else if (map.kind == JINJA_V_MAP || map.kind == JINJA_V_SPACE) {
        for (size_t i = 0; i < map.map->n && jinja_spend(run, 1); i++)
            push_pair(run, list, map.map->pairs[i].key, map.map->pairs[i].value);
    } else {
        (void)jinja_fail(run, "%s has no items", jinja_kind_name(map));
    }
    return list;
}

static struct jinja_value characters(struct jinja_run *run, struct str s)
{
    struct jinja_value list = jinja_list_new(run);

    for (size_t n; s.len > 0 && jinja_spend(run, 1); s = str_skip(s, n)) {
        n = utf8_len(s.ptr[0]);
        jinja_list_push(run, list, jinja_str(str_head(s, n)));
    }
    return list;
}

struct jinja_value jinja_iterate(struct jinja_run *run, struct jinja_value v)
{
    struct jinja_value list, items;

    if (jinja_is_list(v, JINJA_LIST_ITERATOR)) {
        list = jinja_list_new(run); /* what is left of it, and then nothing */
        *list.list = (struct jinja_list){.items = v.list->items, .n = v.list->n, .cap = v.list->n};
        v.list->items = NULL;
        v.list->n = v.list->cap = 0;
        return list;
    }
    if (v.kind == JINJA_V_LIST)
        return v;
    if (v.kind == JINJA_V_STR)
        return characters(run, v.s);
    list = jinja_list_new(run);
    if (v.kind == JINJA_V_UNDEFINED)
        return list;
    if (!jinja_is_map(v)) {
        (void)jinja_fail(run, "cannot iterate over %s", jinja_kind_name(v));
        return list;
    }
    items = jinja_items(run, v);
    for (size_t i = 0; i < items.list->n; i++)
        jinja_list_push(run, list, items.list->items[i].list->items[0]);
    return list;
}

/* --- loop.* ----------------------------------------------------------------------------------- */

static struct jinja_value loop_neighbour(const struct jinja_loop *l, bool next)
{
    if (next ? l->i + 1 >= l->items->n : l->i == 0)
        return jinja_undefined();
    return l->items->items[next ? l->i + 1 : l->i - 1];
}

static struct jinja_value loop_attribute(const struct jinja_loop *l, struct str name)
{
    int64_t i = (int64_t)l->i, n = (int64_t)l->items->n;

    if (str_is(name, "index"))
        return jinja_int(i + 1);
    if (str_is(name, "index0"))
        return jinja_int(i);
    if (str_is(name, "first"))
        return jinja_bool(i == 0);
    if (str_is(name, "last"))
        return jinja_bool(i + 1 == n);
    if (str_is(name, "length"))
        return jinja_int(n);
    if (str_is(name, "revindex"))
        return jinja_int(n - i);
    if (str_is(name, "revindex0"))
        return jinja_int(n - i - 1);
    if (str_is(name, "depth"))
        return jinja_int(l->depth);
    if (str_is(name, "depth0"))
        return jinja_int((int64_t)l->depth - 1);
    if (str_is(name, "previtem"))
        return loop_neighbour(l, false);
    return str_is(name, "nextitem") ? loop_neighbour(l, true) : jinja_undefined();
}

static struct jinja_value bound_method(struct jinja_run *run, struct jinja_value of,
                                       struct str name)
{
    const struct jinja_builtin *found = jinja_find_method(of, name);
    struct jinja_method *m;

    if (!found)
        return jinja_undefined();
    m = jinja_alloc(run, sizeof(*m));
    *m = (struct jinja_method){of, found};
    return (struct jinja_value){.kind = JINJA_V_METHOD, .method = m};
}

/* What a value itself has under that name, before what it holds. */
static struct jinja_value own_attribute(struct jinja_run *run, struct jinja_value of,
                                        struct str name)
{
    if (of.kind == JINJA_V_LOOP) {
        struct jinja_value v = loop_attribute(of.loop, name);

        return v.kind != JINJA_V_UNDEFINED ? v : bound_method(run, of, name);
    }
    if (of.kind == JINJA_V_MACRO && str_is(name, "name"))
        return jinja_str(of.macro->node->name);
    return bound_method(run, of, name);
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct str name)
{
    struct jinja_value v;

    if (of.kind == JINJA_V_UNDEFINED)
        return jinja_fail(run, "cannot read \"%.*s\" of undefined", STR_ARG(str_head(name, 64)));
    if (of.kind == JINJA_V_SPACE)
        return jinja_member(run, of, jinja_str(name));
    if (run->old_prints && jinja_is_map(of))
        return jinja_member(run, of, jinja_str(name));
    v = own_attribute(run, of, name);
    return v.kind == JINJA_V_UNDEFINED && jinja_is_map(of) ? jinja_member(run, of, jinja_str(name))
                                                           : v;
}

static struct jinja_value character_at(struct jinja_run *run, struct str s, int64_t i)
{
    int64_t n = jinja_length(jinja_str(s));

    (void)jinja_spend(run, s.len / 16);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return jinja_undefined();
    while (i-- > 0)
        s = str_skip(s, utf8_len(s.ptr[0]));
    return jinja_str(str_head(s, utf8_len(s.ptr[0])));
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key)
{
    int64_t i = 0;

    if (of.kind == JINJA_V_UNDEFINED)
        return jinja_fail(run, "cannot index undefined");
    if (jinja_is_map(of) && can_be_key(key) && jinja_has_member(run, of, key))
        return jinja_member(run, of, key);
    if (key.kind == JINJA_V_STR)
        return jinja_attribute(run, of, key.s);
    if (!jinja_as_int(key, &i))
        return jinja_undefined();
    if (of.kind == JINJA_V_STR)
        return character_at(run, of.s, i);
    if (of.kind != JINJA_V_LIST || of.list->form >= JINJA_LIST_KEYS)
        return jinja_undefined();
    if (i < 0)
        i += (int64_t)of.list->n;
    return i >= 0 && i < (int64_t)of.list->n ? of.list->items[i] : jinja_undefined();
}
