/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks the tree. Names are looked up from the innermost frame outwards, then in the variables of
 * the caller, then among the built-in functions. A loop's body and a macro have frames of their
 * own; a macro sees the template's own variables besides, but not those of loops around its call.
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

static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    struct jinja_value space;

    if (target->kind == JINJA_VAR) {
        bind(run, target->name, value);
        return;
    }
    space = lookup(run, target->a->name);
    if (space.kind != JINJA_V_MAP || !space.map->is_namespace)
        (void)jinja_fail(run, "only attributes of a namespace can be set");
    else
        jinja_map_set(run, space, jinja_str(target->name), value);
}

static void assign_all(struct jinja_run *run, const struct jinja_node *n, struct jinja_value value)
{
    if (n->n_kids == 1) {
        assign(run, n->kids[0], value);
        return;
    }
    if (value.kind != JINJA_V_LIST || value.list->n != n->n_kids) {
        (void)jinja_fail(run, "cannot unpack %s into %u names", jinja_kind_name(value), n->n_kids);
        return;
    }
    for (uint32_t i = 0; i < n->n_kids; i++)
        assign(run, n->kids[i], value.list->items[i]);
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
    struct jinja_value list = jinja_list_new(run);

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

static struct jinja_args eval_args(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_args args = {.n = n->n_kids, .names = n->names, .callee = n->name};

    args.values = jinja_alloc(run, args.n * sizeof(*args.values));
    for (uint32_t i = 0; i < n->n_kids; i++)
        args.values[i] = jinja_eval(run, n->kids[i]);
    return args;
}

/* x.name(...): what x holds under that name if it can be called, else a method of its kind. */
static struct jinja_value call_method(struct jinja_run *run, const struct jinja_node *n)
{
    const struct jinja_node *attr = n->a;
    struct jinja_value of = jinja_eval(run, attr->a), fn = jinja_undefined();
    struct jinja_args args = eval_args(run, n);
    const struct jinja_builtin *method;

    if (run->r < 0)
        return jinja_undefined();
    args.callee = attr->name;
    if (jinja_is_map(of))
        fn = jinja_member(run, of, jinja_str(attr->name));
    if (fn.kind == JINJA_V_MACRO || fn.kind == JINJA_V_FUNCTION)
        return jinja_call(run, fn, &args);
    method = jinja_find_method(of.kind, attr->name);
    if (!method)
        return jinja_fail(run, "%s has no method \"%.*s\"", jinja_kind_name(of),
                          STR_ARG(str_head(attr->name, 64)));
    return method->call(run, of, &args);
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
    return run->r < 0 ? jinja_undefined() : n->builtin->call(run, in, &args);
}

static struct jinja_value eval_slice(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value of = jinja_eval(run, n->a), bounds[3];

    for (int i = 0; i < 3; i++)
        bounds[i] = n->kids[i] ? jinja_eval(run, n->kids[i]) : jinja_undefined();
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

static struct jinja_value negate(struct jinja_run *run, struct jinja_value v)
{
    if (run->r == 0 && !jinja_is_number(v))
        return jinja_fail(run, "cannot negate %s", jinja_kind_name(v));
    if (v.kind == JINJA_V_FLOAT)
        return jinja_float(-v.f);
    return jinja_calculate(run, JINJA_SUB, jinja_int(0), v);
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
    case JINJA_NEGATE:
        return negate(run, jinja_eval(run, n->a));
    case JINJA_CHOICE:
        return eval_choice(run, n);
    case JINJA_LIST:
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

static void bind_arguments(struct jinja_run *run, const struct jinja_node *m,
                           const struct jinja_args *args)
{
    for (uint32_t i = 0; i < m->n_kids; i++) {
        char name[128];

        /* jinja_arg() takes a terminated name; a parameter longer than this has no keyword form. */
        memcpy(name, m->names[i].ptr, MIN(m->names[i].len, sizeof(name) - 1));
        name[MIN(m->names[i].len, sizeof(name) - 1)] = '\0';
        if (jinja_has_arg(args, i, name))
            bind(run, m->names[i], jinja_arg(args, i, name));
        else
            bind(run, m->names[i], m->kids[i] ? jinja_eval(run, m->kids[i]) : jinja_undefined());
    }
}

static struct jinja_value call_macro(struct jinja_run *run, const struct jinja_node *m,
                                     const struct jinja_args *args)
{
    struct jinja_frame *outer;
    struct jinja_value text = jinja_undefined();
    uint32_t loops = run->loops;

    if (args->n > m->n_kids)
        return jinja_fail(run, "macro \"%.*s\" takes %u arguments", STR_ARG(m->name), m->n_kids);
    outer = push_frame(run, run->globals);
    run->loops = 0;
    if (++run->calls > TEMPLATE_MAX_DEPTH) {
        (void)jinja_fail(run, "macros call each other too deeply");
    } else {
        bind_arguments(run, m, args);
        text = capture(run, m->a);
    }
    run->calls--;
    run->loops = loops;
    run->frame = outer;
    return text;
}

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value fn,
                              const struct jinja_args *args)
{
    if (fn.kind == JINJA_V_MACRO)
        return call_macro(run, fn.macro, args);
    if (fn.kind == JINJA_V_FUNCTION)
        return fn.function->call(run, jinja_undefined(), args);
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

/* The items that pass the loop's own condition. */
static struct jinja_value loop_items(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value all = jinja_iterate(run, jinja_eval(run, n->a)), list;

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

static void exec_for(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value items = loop_items(run, n);
    struct jinja_loop *loop = jinja_alloc(run, sizeof(*loop)); /* a variable may outlive the loop */
    struct jinja_frame *outer = run->frame;

    if (run->r < 0)
        return;
    *loop = (struct jinja_loop){.items = items.list, .depth = run->loops + 1};
    if (loop->items->n == 0 && n->d)
        jinja_exec(run, n->d);
    run->loops++;
    for (; loop->i < loop->items->n && run->r == 0 && !run->breaks; loop->i++) {
        (void)push_frame(run, outer);
        assign_all(run, n, loop->items->items[loop->i]);
        bind(run, STR("loop"), (struct jinja_value){.kind = JINJA_V_LOOP, .loop = loop});
        jinja_exec(run, n->c);
        run->continues = false;
        run->frame = outer;
    }
    run->breaks = false;
    run->loops--;
}

static void exec_set_block(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value outer = run->captured;

    run->captured = capture(run, n->a);
    assign(run, n->kids[0], jinja_eval(run, n->b));
    run->captured = outer;
}

static void exec_filter_block(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_value outer = run->captured;

    run->captured = capture(run, n->b);
    jinja_print(run, jinja_eval(run, n->a), run->out);
    run->captured = outer;
}

static void exec_with(struct jinja_run *run, const struct jinja_node *n)
{
    struct jinja_frame *outer = push_frame(run, run->frame);

    for (uint32_t i = 0; i < n->n_kids; i++)
        jinja_exec(run, n->kids[i]);
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
        bind(run, n->name, (struct jinja_value){.kind = JINJA_V_MACRO, .macro = n});
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
