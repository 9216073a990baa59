/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the tree. Names are looked up from the innermost frame outwards, then in the variables of
 * the caller, then among the built-in functions. Bodies of loops, macros and blocks have frames of
 * their own; a macro sees what was around where it was written, not what is around its call.
 */
#include "router/token/jinja_builtin.h"

#include "lib/base/json_tree.h"
#include "router/token/template.h"

enum { EVAL_DEPTH = 1200 }; /* of the tree and of macro calls together: bounds the C stack */

struct binding {
    struct str name;
    struct jinja_value value;
    struct binding *next;
};

struct jinja_frame {
    struct binding *first;
    struct jinja_frame *parent;
};

/* --- variables -------------------------------------------------------------------------------- */

static void bind(struct jinja_run *run, struct str name, struct jinja_value value)
{
    struct binding *b;
    uint64_t seen = 0;

    for (b = run->frame->first; b; b = b->next, seen++)
        if (str_eq(b->name, name)) {
            b->value = value;
            break;
        }
    (void)jinja_spend(run, seen / 8);
    if (b)
        return;
    b = jinja_alloc(run, sizeof(*b));
    *b = (struct binding){name, value, run->frame->first};
    run->frame->first = b;
}

static struct jinja_value find_global(struct jinja_run *run, struct str name)
{
    const struct json *sources[] = {run->over, run->vars};
    const struct jinja_builtin *fn;

    for (size_t i = 0; i < ARRAY_LEN(sources); i++)
        JSON_FOREACH (v, sources[i])
            if (str_is(name, json_key(v))) {
                struct jinja_value found = jinja_from_json(run, v);
                struct jinja_frame *inner = run->frame;

                /* Wrapped once: an array of many messages is asked for again and again. */
                run->frame = run->globals;
                bind(run, name, found);
                run->frame = inner;
                return found;
            }
    fn = jinja_find_function(name);
    return fn ? (struct jinja_value){.kind = JINJA_V_FUNCTION, .function = fn} : jinja_undefined();
}

static struct jinja_value lookup(struct jinja_run *run, struct str name)
{
    uint64_t seen = 0;

    for (const struct jinja_frame *f = run->frame; f; f = f->parent)
        for (const struct binding *b = f->first; b; b = b->next, seen++)
            if (str_eq(b->name, name)) {
                (void)jinja_spend(run, seen / 8);
                return b->value;
            }
    (void)jinja_spend(run, seen / 8);
    return find_global(run, name);
}

static struct jinja_frame *push_frame(struct jinja_run *run, struct jinja_frame *parent)
{
    struct jinja_frame *outer = run->frame;

    run->frame = jinja_alloc(run, sizeof(*run->frame));
    run->frame->parent = parent;
    return outer;
}

static void assign(struct jinja_run *run, const struct jinja_node *target,
                   struct jinja_value value);

/* One value to each of @n's targets. */
static void unpack(struct jinja_run *run, const struct jinja_node *n, struct jinja_value value)
{
    struct jinja_value items;

    if (value.kind == JINJA_V_UNDEFINED)
        (void)jinja_fail(run, "cannot unpack undefined");
    items = jinja_iterate(run, value);
    if (run->r == 0 && items.list->n != n->n_kids)
        (void)jinja_fail(run, "cannot unpack %zu values into %u names", items.list->n, n->n_kids);
    for (uint32_t i = 0; i < n->n_kids && run->r == 0; i++)
        assign(run, n->kids[i], items.list->items[i]);
}

static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    struct jinja_value space;

    if (target->kind == JINJA_TUPLE) {
        unpack(run, target, value);
        return;
    }
    if (target->kind == JINJA_VAR) {
        bind(run, target->name, value);
        return;
    }
    space = lookup(run, target->a->name);
    if (space.kind != JINJA_V_SPACE)
        (void)jinja_fail(run, "only attributes of a namespace can be set");
    else
        jinja_map_set(run, space, jinja_str(target->name), value);
}

static void assign_all(struct jinja_run *run, const struct jinja_node *n, struct jinja_value value)
{
    if (n->n_kids == 1 && n->op != JINJA_MUL)
        assign(run, n->kids[0], value);
    else
        unpack(run, n, value);
}

/* --- expressions ------------------------------------------------------------------------------ */

static struct jinja_value eval_constant(const struct jinja_node *n)
{
    switch (n->constant) {
    case JINJA_C_NONE:
        return jinja_none();
    case JINJA_C_TRUE:
    case JINJA_C_FALSE:
        return jinja_bool(n->constant == JINJA_C_TRUE);
    case JINJA_C_INT:
        return jinja_int(n->i);
    case JINJA_C_FLOAT:
        return jinja_float(n->f);
    case JINJA_C_STR:
        return jinja_str(n->name);
    }
    return jinja_none();
}

static struct jinja_value eval_list(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value list =
        jinja_list_of(run, n->kind == JINJA_TUPLE ? JINJA_LIST_TUPLE : JINJA_LIST_PLAIN);

    for (uint32_t i = 0; i < n->n_kids; i++)
        jinja_list_push(run, list, jinja_eval(run, n->kids[i]));
    return list;
}

static struct jinja_value eval_dict(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value map = jinja_map_new(run);

    for (uint32_t i = 0; i + 1 < n->n_kids; i += 2) {
        struct jinja_value key = jinja_eval(run, n->kids[i]);

        jinja_map_set(run, map, key, jinja_eval(run, n->kids[i + 1]));
    }
    return map;
}

static void add_arg(struct jinja_run *run, struct jinja_args *args, size_t *cap, struct str name,
                    struct jinja_value v)
{
    if (args->n == *cap) {
        struct jinja_value *values = jinja_alloc(run, (*cap * 2 + 4) * sizeof(*values));
        struct str *names = jinja_alloc(run, (*cap * 2 + 4) * sizeof(*names));

        if (args->n) {
            memcpy(values, args->values, args->n * sizeof(*values));
            memcpy(names, args->names, args->n * sizeof(*names));
        }
        args->values = values;
        args->names = names;
        *cap = *cap * 2 + 4;
    }
    args->values[args->n] = v;
    args->names[args->n++] = name;
}

/* *list or **mapping */
static void spread(struct jinja_run *run, const struct jinja_node *n, struct jinja_args *args,
                   size_t *cap)
{
    struct jinja_value v = jinja_eval(run, n->a), items;

    if (run->r == 0 && n->op == JINJA_POW && !jinja_is_map(v)) {
        (void)jinja_fail(run, "** needs a mapping, not %s", jinja_kind_name(v));
        return;
    }
    items = n->op == JINJA_POW ? jinja_items(run, v) : jinja_iterate(run, v);
    for (size_t i = 0; i < items.list->n && jinja_spend(run, 1); i++) {
        const struct jinja_value *pair = &items.list->items[i];

        if (n->op != JINJA_POW)
            add_arg(run, args, cap, STR_NULL, *pair);
        else if (pair->list->items[0].kind != JINJA_V_STR)
            (void)jinja_fail(run, "** needs names as keys");
        else
            add_arg(run, args, cap, pair->list->items[0].s, pair->list->items[1]);
    }
}

static struct jinja_args eval_args(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_args args = {.callee = n->name};
    size_t cap = 0;

    for (uint32_t i = 0; i < n->n_kids; i++)
        if (n->kids[i]->kind == JINJA_SPREAD)
            spread(run, n->kids[i], &args, &cap);
        else
            add_arg(run, &args, &cap, n->names[i], jinja_eval(run, n->kids[i]));
    return args;
}

/* x.name(...) */
static struct jinja_value call_method(struct jinja_run *run, const struct jinja_node *n)
{
    const struct jinja_node *attr = n->a;
    struct jinja_value of = jinja_eval(run, attr->a), fn;
    struct jinja_args args = eval_args(run, n);
    const struct jinja_builtin *method;

    if (run->r < 0)
        return jinja_undefined();
    args.callee = attr->name;
    method = jinja_find_method(of, attr->name);
    if (method) /* without making a value of it first */
        return jinja_invoke(run, method, of, &args);
    fn = jinja_attribute(run, of, attr->name);
    if (fn.kind == JINJA_V_UNDEFINED)
        return jinja_fail(run, "%s has no method \"%.*s\"", jinja_kind_name(of),
                          STR_ARG(str_head(attr->name, 64)));
    return jinja_call(run, fn, &args);
}

static struct jinja_value eval_call(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value fn;
    struct jinja_args args;

    if (n->a->kind == JINJA_ATTR)
        return call_method(run, n);
    fn = jinja_eval(run, n->a);
    args = eval_args(run, n);
    args.callee = n->a->name;
    run->line = n->line;
    return run->r < 0 ? jinja_undefined() : jinja_call(run, fn, &args);
}

static struct jinja_value eval_builtin(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value in = jinja_eval(run, n->a);
    struct jinja_args args = eval_args(run, n);

    run->line = n->line;
    return run->r < 0 ? jinja_undefined() : jinja_invoke(run, n->builtin, in, &args);
}

static struct jinja_value eval_slice(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value of = jinja_eval(run, n->a), bounds[3];

    for (int i = 0; i < 3; i++)
        bounds[i] = n->kids[i] ? jinja_eval(run, n->kids[i]) : jinja_none();
    return run->r < 0 ? jinja_undefined() : jinja_slice(run, of, bounds);
}

static bool compare(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                    struct jinja_value b)
{
    switch ((int)op) {
    case JINJA_EQ:
        return jinja_equal(run, a, b);
    case JINJA_NE:
        return !jinja_equal(run, a, b);
    case JINJA_IN:
        return jinja_contains(run, b, a);
    case JINJA_NOT_IN:
        return !jinja_contains(run, b, a);
    case JINJA_LT:
        return jinja_compare(run, a, b) < 0;
    case JINJA_LE:
        return jinja_compare(run, a, b) <= 0;
    case JINJA_GT:
        return jinja_compare(run, a, b) > 0;
    default:
        return jinja_compare(run, a, b) >= 0;
    }
}

static struct jinja_value eval_two(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value a = jinja_eval(run, n->a), b = jinja_eval(run, n->b);

    run->line = n->line;
    if (run->r < 0)
        return jinja_undefined();
    if (n->kind == JINJA_COMPARE)
        return jinja_bool(compare(run, n->op, a, b));
    return n->kind == JINJA_ITEM ? jinja_item(run, a, b) : jinja_calculate(run, n->op, a, b);
}

static struct jinja_value eval_choice(struct jinja_run *run, const struct jinja_node *n)
{
    if (jinja_truth(jinja_eval(run, n->b)))
        return jinja_eval(run, n->a);
    return n->c ? jinja_eval(run, n->c) : jinja_undefined();
}

static struct jinja_value eval_attribute(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value of = jinja_eval(run, n->a);

    run->line = n->line;
    return run->r < 0 ? jinja_undefined() : jinja_attribute(run, of, n->name);
}

static struct jinja_value sign(struct jinja_run *run, enum jinja_op op, struct jinja_value v)
{
    if (run->r == 0 && !jinja_is_number(v))
        return jinja_fail(run, "%s has no sign", jinja_kind_name(v));
    if (v.kind == JINJA_V_FLOAT)
        return jinja_float(op == JINJA_SUB ? -v.f : v.f);
    return jinja_calculate(run, op, jinja_int(0), v);
}

static struct jinja_value new_macro(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_macro *m = jinja_alloc(run, sizeof(*m));

    *m = (struct jinja_macro){n, run->frame};
    return (struct jinja_value){.kind = JINJA_V_MACRO, .macro = m};
}

static struct jinja_value eval_node(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value v;

    switch ((int)n->kind) {
    case JINJA_CONST:
        return eval_constant(n);
    case JINJA_VAR:
        return lookup(run, n->name);
    case JINJA_ATTR:
        return eval_attribute(run, n);
    case JINJA_SLICE:
        return eval_slice(run, n);
    case JINJA_CALL:
        return eval_call(run, n);
    case JINJA_FILTER:
    case JINJA_TEST:
        return eval_builtin(run, n);
    case JINJA_ITEM:
    case JINJA_BINARY:
    case JINJA_COMPARE:
        return eval_two(run, n);
    case JINJA_AND:
        v = jinja_eval(run, n->a);
        return jinja_truth(v) ? jinja_eval(run, n->b) : v;
    case JINJA_OR:
        v = jinja_eval(run, n->a);
        return jinja_truth(v) ? v : jinja_eval(run, n->b);
    case JINJA_NOT:
        return jinja_bool(!jinja_truth(jinja_eval(run, n->a)));
    case JINJA_SIGN:
        return sign(run, n->op, jinja_eval(run, n->a));
    case JINJA_CALLER:
        return new_macro(run, n->a);
    case JINJA_CHOICE:
        return eval_choice(run, n);
    case JINJA_LIST:
    case JINJA_TUPLE:
        return eval_list(run, n);
    case JINJA_DICT:
        return eval_dict(run, n);
    case JINJA_CAPTURED:
        return run->captured;
    default:
        return jinja_fail(run, "not an expression");
    }
}

static bool enter(struct jinja_run *run, const struct jinja_node *n)
{
    run->line = n->line;
    if (++run->depth > EVAL_DEPTH)
        (void)jinja_fail(run, "nested too deeply");
    return jinja_spend(run, 1);
}

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value v = jinja_undefined();

    if (enter(run, n))
        v = eval_node(run, n);
    run->depth--;
    return run->r < 0 ? jinja_undefined() : v;
}

/* --- macros ----------------------------------------------------------------------------------- */

/* What @body writes, as a string. */
static struct jinja_value capture(struct jinja_run *run, const struct jinja_node *body)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct buf *out = run->out;

    run->out = &text;
    jinja_exec(run, body);
    run->out = out;
    return jinja_str_from_buf(run, &text);
}

/* The index of the parameter that argument @i is for; m->n_kids when there is none. */
static uint32_t parameter_of(const struct jinja_node *m, const struct jinja_args *args, size_t i)
{
    uint32_t at = 0;

    if (args->names[i].len == 0)
        return (uint32_t)MIN(i, (size_t)m->n_kids);
    while (at < m->n_kids && !str_eq(m->names[at], args->names[i]))
        at++;
    return at;
}

/* Arguments for which there is no parameter: for the special names, when the macro uses them. */
static void bind_specials(struct jinja_run *run, const struct jinja_node *m,
                          const struct jinja_args *args)
{
    struct jinja_value rest = jinja_list_of(run, JINJA_LIST_TUPLE), named = jinja_map_new(run);
    struct jinja_value caller = jinja_undefined();

    for (size_t i = 0; i < args->n && run->r == 0; i++) {
        struct str name = args->names[i];

        if (parameter_of(m, args, i) < m->n_kids)
            continue;
        if (name.len == 0 && m->i & JINJA_VARARGS_NAME)
            jinja_list_push(run, rest, args->values[i]);
        else if (str_is(name, "caller") && m->i & JINJA_CALLER_NAME)
            caller = args->values[i];
        else if (name.len && m->i & JINJA_KWARGS_NAME)
            jinja_map_set(run, named, jinja_str(name), args->values[i]);
        else if (name.len)
            (void)jinja_fail(run, "macro \"%.*s\" has no parameter \"%.*s\"", STR_ARG(m->name),
                             STR_ARG(str_head(name, 64)));
        else
            (void)jinja_fail(run, "macro \"%.*s\" takes %u arguments", STR_ARG(m->name), m->n_kids);
    }
    if (m->i & JINJA_VARARGS_NAME)
        bind(run, STR("varargs"), rest);
    if (m->i & JINJA_KWARGS_NAME)
        bind(run, STR("kwargs"), named);
    if (m->i & JINJA_CALLER_NAME)
        bind(run, STR("caller"), caller);
}

static void bind_arguments(struct jinja_run *run, const struct jinja_node *m,
                           const struct jinja_args *args)
{
    for (uint32_t at = 0; at < m->n_kids && run->r == 0; at++) {
        const struct jinja_value *given = NULL;

        for (size_t i = 0; i < args->n; i++) {
            if (parameter_of(m, args, i) != at)
                continue;
            if (given)
                (void)jinja_fail(run, "macro \"%.*s\": two values for \"%.*s\"", STR_ARG(m->name),
                                 STR_ARG(m->names[at]));
            given = &args->values[i];
        }
        bind(run, m->names[at],
             given         ? *given
             : m->kids[at] ? jinja_eval(run, m->kids[at])
                           : jinja_undefined());
    }
    bind_specials(run, m, args);
}

/* A call that nests: false when it must not. Undone by leave_call(). */
static bool enter_call(struct jinja_run *run)
{
    if (++run->calls > TEMPLATE_MAX_DEPTH)
        (void)jinja_fail(run, "macros call each other too deeply");
    return run->r == 0;
}

static struct jinja_value call_macro(struct jinja_run *run, const struct jinja_macro *m,
                                     const struct jinja_args *args)
{
    struct jinja_value text = jinja_undefined(), captured = run->captured;
    struct jinja_frame *outer = push_frame(run, m->frame);

    if (enter_call(run)) {
        bind_arguments(run, m->node, args);
        text = capture(run, m->node->a);
    }
    run->calls--;
    run->captured = captured;
    run->frame = outer;
    return text;
}

static struct jinja_value call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                    const struct jinja_args *args);

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value fn,
                              const struct jinja_args *args)
{
    if (fn.kind == JINJA_V_MACRO)
        return call_macro(run, fn.macro, args);
    if (fn.kind == JINJA_V_FUNCTION)
        return jinja_invoke(run, fn.function, jinja_undefined(), args);
    if (fn.kind == JINJA_V_METHOD)
        return jinja_invoke(run, fn.method->builtin, fn.method->self, args);
    if (fn.kind == JINJA_V_LOOP && fn.loop->node)
        return call_loop(run, fn.loop, args);
    return jinja_fail(run, "\"%.*s\" is %s and cannot be called",
                      STR_ARG(str_head(args->callee, 64)), jinja_kind_name(fn));
}

/* --- statements ------------------------------------------------------------------------------- */

static bool is_leaving(const struct jinja_run *run)
{
    return run->r < 0 || run->breaks || run->continues;
}

static void exec_if(struct jinja_run *run, const struct jinja_node *n)
{
    while (n && n->kind == JINJA_IF) {
        if (jinja_truth(jinja_eval(run, n->a))) {
            n = n->b;
            break;
        }
        n = n->c;
    }
    if (n && run->r == 0)
        jinja_exec(run, n);
}

/* The items of @all that pass the loop's own condition. */
static struct jinja_value loop_items(struct jinja_run *run, const struct jinja_node *n,
                                     struct jinja_value from)
{
    struct jinja_value all = jinja_iterate(run, from), list;

    if (!n->b || run->r < 0)
        return all;
    list = jinja_list_new(run);
    for (size_t i = 0; i < all.list->n && run->r == 0; i++) {
        struct jinja_frame *outer = push_frame(run, run->frame);

        assign_all(run, n, all.list->items[i]);
        if (jinja_truth(jinja_eval(run, n->b)))
            jinja_list_push(run, list, all.list->items[i]);
        run->frame = outer;
    }
    return list;
}

static void run_loop(struct jinja_run *run, const struct jinja_node *n, struct jinja_value from,
                     uint32_t depth)
{
    struct jinja_value items = loop_items(run, n, from);
    struct jinja_loop *loop = jinja_alloc(run, sizeof(*loop)); /* a variable may outlive the loop */
    struct jinja_frame *outer = run->frame;
    bool to_end = false; /* a turn got to the end of the body */

    if (run->r < 0)
        return;
    *loop = (struct jinja_loop){
        .items = items.list, .depth = depth, .node = n->i ? n : NULL, .frame = outer};
    for (; loop->i < loop->items->n && run->r == 0 && !run->breaks; loop->i++) {
        (void)push_frame(run, outer);
        bind(run, STR("loop"), (struct jinja_value){.kind = JINJA_V_LOOP, .loop = loop});
        assign_all(run, n, loop->items->items[loop->i]);
        jinja_exec(run, n->c);
        to_end |= !run->breaks && !run->continues;
        run->continues = false;
        run->frame = outer;
    }
    run->breaks = false;
    /* A jump hides from the original that a turn was taken; 0.9.0 counts the items. */
    if (run->r == 0 && n->d && (run->old_prints ? loop->items->n == 0 : !to_end)) {
        (void)push_frame(run, outer);
        jinja_exec(run, n->d);
        run->frame = outer;
    }
}

static void exec_for(struct jinja_run *run, const struct jinja_node *n)
{
    run_loop(run, n, jinja_eval(run, n->a), 1);
}

/* loop(items): the loop once more, a level deeper, as a text. */
static struct jinja_value call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                    const struct jinja_args *args)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct jinja_frame *outer = run->frame;
    struct buf *out = run->out;

    if (args->n != 1)
        return jinja_fail(run, "loop takes what it is to walk over");
    run->out = &text;
    run->frame = loop->frame;
    if (enter_call(run))
        run_loop(run, loop->node, args->values[0], loop->depth + 1);
    run->calls--;
    run->frame = outer;
    run->out = out;
    return jinja_str_from_buf(run, &text);
}

/* As capture(), in a frame of its own. */
static struct jinja_value capture_inner(struct jinja_run *run, const struct jinja_node *body)
{
    struct jinja_frame *outer = push_frame(run, run->frame);
    struct jinja_value text = capture(run, body);

    run->frame = outer;
    return text;
}

static void exec_scope(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_frame *outer = push_frame(run, n->i ? run->globals : run->frame);

    jinja_exec(run, n->a);
    run->frame = outer;
}

static void exec_set_block(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value outer = run->captured;

    run->captured = capture_inner(run, n->a);
    assign(run, n->kids[0], jinja_eval(run, n->b));
    run->captured = outer;
}

static void exec_filter_block(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value outer = run->captured;

    run->captured = capture_inner(run, n->b);
    jinja_print(run, jinja_eval(run, n->a), run->out);
    run->captured = outer;
}

/* The values do not see each other. */
static void exec_with(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value *values = jinja_alloc(run, n->n_kids * sizeof(*values));
    struct jinja_frame *outer;

    for (uint32_t i = 0; i < n->n_kids; i++)
        values[i] = jinja_eval(run, n->kids[i]->a);
    outer = push_frame(run, run->frame);
    for (uint32_t i = 0; i < n->n_kids && run->r == 0; i++)
        assign_all(run, n->kids[i], values[i]);
    if (run->r == 0)
        jinja_exec(run, n->a);
    run->frame = outer;
}

static void exec_node(struct jinja_run *run, const struct jinja_node *n)
{
    switch ((int)n->kind) {
    case JINJA_BODY:
        for (uint32_t i = 0; i < n->n_kids && !is_leaving(run); i++)
            jinja_exec(run, n->kids[i]);
        break;
    case JINJA_PRINT_TEXT:
        buf_put_str(run->out, n->name);
        break;
    case JINJA_PRINT:
        jinja_print(run, jinja_eval(run, n->a), run->out);
        break;
    case JINJA_IF:
        exec_if(run, n);
        break;
    case JINJA_FOR:
        exec_for(run, n);
        break;
    case JINJA_SET:
        assign_all(run, n, jinja_eval(run, n->a));
        break;
    case JINJA_SET_BLOCK:
        exec_set_block(run, n);
        break;
    case JINJA_MACRO:
        bind(run, n->name, new_macro(run, n));
        break;
    case JINJA_SCOPE:
        exec_scope(run, n);
        break;
    case JINJA_FILTER_BLOCK:
        exec_filter_block(run, n);
        break;
    case JINJA_WITH:
        exec_with(run, n);
        break;
    case JINJA_BREAK:
        run->breaks = true;
        break;
    case JINJA_CONTINUE:
        run->continues = true;
        break;
    default:
        (void)jinja_fail(run, "not a statement");
        break;
    }
}

void jinja_exec(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_frame globals = {0};

    if (!run->globals)
        run->globals = run->frame = &globals;
    if (enter(run, n))
        exec_node(run, n);
    run->depth--;
    if (run->globals == &globals)
        run->globals = run->frame = NULL;
}
