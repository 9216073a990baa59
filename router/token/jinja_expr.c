/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/jinja_parser.h"

#include <errno.h>

#include "router/token/jinja_builtin.h"
#include "router/token/template.h"

enum { MAX_KIDS = 4096 };

static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filter);

/* --- tools ------------------------------------------------------------------------------------ */

void jinja_parse_fail(struct jinja_parser *p, int code, const char *why, struct str what)
{
    if (p->r < 0)
        return;
    what = str_head(what, 64);
    p->r = err_set(p->e, code, "line %u: %s%s%.*s", p->at->line, why, what.len ? " " : "",
                   STR_ARG(what));
    p->at = p->end;
}

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = arena_alloc(p->a, sizeof(*n));

    n->kind = kind;
    n->line = p->at->line;
    return n;
}

struct jinja_node *jinja_parse_node2(struct jinja_parser *p, enum jinja_node_kind kind,
                                     struct jinja_node *a, struct jinja_node *b)
{
    struct jinja_node *n = jinja_parse_node(p, kind);

    n->a = a;
    n->b = b;
    return n;
}

bool jinja_at_op(const struct jinja_parser *p, const char *op)
{
    return p->at->kind == JINJA_OP && str_is(p->at->text, op);
}

bool jinja_at_word(const struct jinja_parser *p, const char *word)
{
    return p->at->kind == JINJA_NAME && str_is(p->at->text, word);
}

bool jinja_next_is_word(const struct jinja_parser *p, const char *word)
{
    return p->at < p->end && p->at[1].kind == JINJA_NAME && str_is(p->at[1].text, word);
}

void jinja_advance(struct jinja_parser *p)
{
    if (p->at < p->end)
        p->at++;
}

bool jinja_take_op(struct jinja_parser *p, const char *op)
{
    bool is = jinja_at_op(p, op);

    if (is)
        jinja_advance(p);
    return is;
}

bool jinja_take_word(struct jinja_parser *p, const char *word)
{
    bool is = jinja_at_word(p, word);

    if (is)
        jinja_advance(p);
    return is;
}

void jinja_need_op(struct jinja_parser *p, const char *op)
{
    if (!jinja_take_op(p, op))
        jinja_parse_fail(p, -EINVAL, "expected", str_from(op));
}

struct str jinja_need_name(struct jinja_parser *p)
{
    struct str name = p->at->text;

    if (p->at->kind != JINJA_NAME) {
        jinja_parse_fail(p, -EINVAL, "expected a name", STR_NULL);
        return STR("");
    }
    jinja_advance(p);
    return name;
}

bool jinja_enter(struct jinja_parser *p)
{
    if (++p->depth > TEMPLATE_MAX_DEPTH)
        jinja_parse_fail(p, -E2BIG, "nested too deeply", STR_NULL);
    return p->r == 0;
}

void jinja_leave(struct jinja_parser *p)
{
    p->depth--;
}

/* Children are few; the arrays double within the arena. */
void jinja_add_kid(struct jinja_parser *p, struct jinja_node *n, struct jinja_node *kid,
                   struct str name)
{
    uint32_t cap = n->n_kids;

    if (n->n_kids >= MAX_KIDS) {
        jinja_parse_fail(p, -E2BIG, "too many items", STR_NULL);
        return;
    }
    if ((cap & (cap - 1)) == 0) { /* full: 0, 1, 2, 4 ... */
        struct jinja_node **kids =
            arena_alloc(p->a, (cap ? cap * 2 : 1) * sizeof(struct jinja_node *));
        struct str *names = arena_alloc(p->a, (cap ? cap * 2 : 1) * sizeof(*names));

        if (cap) {
            memcpy(kids, n->kids, cap * sizeof(struct jinja_node *));
            memcpy(names, n->names, cap * sizeof(*names));
        }
        n->kids = kids;
        n->names = names;
    }
    n->kids[n->n_kids] = kid;
    n->names[n->n_kids++] = name;
}

/* --- expressions ------------------------------------------------------------------------------ */

static struct jinja_node *constant(struct jinja_parser *p, enum jinja_constant kind)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_CONST);

    n->constant = kind;
    n->i = p->at->i;
    n->f = p->at->f;
    jinja_advance(p);
    return n;
}

static struct jinja_node *parse_string(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_CONST);

    n->constant = JINJA_C_STR;
    n->name = p->at->text;
    jinja_advance(p);
    while (p->at->kind == JINJA_STR) { /* neighbours are one string */
        char *both = arena_alloc(p->a, n->name.len + p->at->text.len + 1);

        memcpy(both, n->name.ptr, n->name.len);
        memcpy(both + n->name.len, p->at->text.ptr, p->at->text.len);
        n->name = str_slice(both, n->name.len + p->at->text.len);
        jinja_advance(p);
    }
    return n;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    static const struct {
        const char *name;
        enum jinja_constant constant;
    } constants[] = {
        {"true", JINJA_C_TRUE},   {"True", JINJA_C_TRUE}, {"false", JINJA_C_FALSE},
        {"False", JINJA_C_FALSE}, {"none", JINJA_C_NONE}, {"None", JINJA_C_NONE},
    };
    static const struct {
        const char *name;
        int64_t bit;
    } specials[] = {{"caller", JINJA_CALLER_NAME},
                    {"varargs", JINJA_VARARGS_NAME},
                    {"kwargs", JINJA_KWARGS_NAME}};
    struct jinja_node *n;

    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (jinja_at_word(p, constants[i].name))
            return constant(p, constants[i].constant);
    for (size_t i = 0; i < ARRAY_LEN(specials); i++)
        if (jinja_at_word(p, specials[i].name))
            p->specials |= specials[i].bit;
    n = jinja_parse_node(p, JINJA_VAR);
    n->name = p->at->text;
    jinja_advance(p);
    return n;
}

struct jinja_node *jinja_parse_items(struct jinja_parser *p, enum jinja_node_kind kind,
                                     const char *end)
{
    struct jinja_node *n = jinja_parse_node(p, kind);

    while (p->r == 0 && !jinja_at_op(p, end)) {
        jinja_add_kid(p, n, jinja_parse_expr(p), STR_NULL);
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_need_op(p, end);
    return n;
}

static struct jinja_node *parse_dict(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_DICT);

    while (p->r == 0 && !jinja_at_op(p, "}")) {
        jinja_add_kid(p, n, jinja_parse_expr(p), STR_NULL);
        jinja_need_op(p, ":");
        jinja_add_kid(p, n, jinja_parse_expr(p), STR_NULL);
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_need_op(p, "}");
    return n;
}

/* "(" was taken: one expression, or with a comma a tuple. */
static struct jinja_node *parse_parens(struct jinja_parser *p)
{
    struct jinja_node *first, *n;

    if (jinja_at_op(p, ")"))
        return jinja_parse_items(p, JINJA_TUPLE, ")");
    first = jinja_parse_expr(p);
    if (!jinja_at_op(p, ",")) {
        jinja_need_op(p, ")");
        return first;
    }
    n = jinja_parse_node(p, JINJA_TUPLE);
    jinja_add_kid(p, n, first, STR_NULL);
    while (jinja_take_op(p, ",") && !jinja_at_op(p, ")"))
        jinja_add_kid(p, n, jinja_parse_expr(p), STR_NULL);
    jinja_need_op(p, ")");
    return n;
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    switch ((int)p->at->kind) {
    case JINJA_STR:
        return parse_string(p);
    case JINJA_INT:
        return constant(p, JINJA_C_INT);
    case JINJA_FLOAT:
        return constant(p, JINJA_C_FLOAT);
    case JINJA_NAME:
        return parse_name(p);
    default:
        break;
    }
    if (jinja_take_op(p, "["))
        return jinja_parse_items(p, JINJA_LIST, "]");
    if (jinja_take_op(p, "{"))
        return parse_dict(p);
    if (jinja_take_op(p, "("))
        return parse_parens(p);
    jinja_parse_fail(p, -EINVAL, "unexpected",
                     p->at->text.len ? p->at->text : STR("end of the tag"));
    return jinja_parse_node(p, JINJA_LIST);
}

/* "*" or "**" was taken. */
static struct jinja_node *parse_spread(struct jinja_parser *p, enum jinja_op op)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_SPREAD);

    n->op = op;
    n->a = jinja_parse_expr(p);
    return n;
}

static struct jinja_node *parse_argument(struct jinja_parser *p, struct str *ret_name)
{
    if (jinja_take_op(p, "**"))
        return parse_spread(p, JINJA_POW);
    if (jinja_take_op(p, "*"))
        return parse_spread(p, JINJA_MUL);
    if (p->at->kind == JINJA_NAME && p->at < p->end && p->at[1].kind == JINJA_OP &&
        str_is(p->at[1].text, "=")) {
        *ret_name = jinja_need_name(p);
        jinja_advance(p);
    }
    return jinja_parse_expr(p);
}

/* "(" was taken. Positional ones come before the others. */
static void parse_args(struct jinja_parser *p, struct jinja_node *n)
{
    bool named = false;

    while (p->r == 0 && !jinja_at_op(p, ")")) {
        struct str name = STR_NULL;
        struct jinja_node *arg = parse_argument(p, &name);

        if (named && name.len == 0 && arg->kind != JINJA_SPREAD)
            jinja_parse_fail(p, -EINVAL, "a positional argument behind a named one", STR_NULL);
        named |= name.len > 0;
        jinja_add_kid(p, n, arg, name);
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_need_op(p, ")");
}

/* "[" was taken. */
static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n, *parts[3] = {NULL, NULL, NULL};
    int i = 0;

    for (;;) {
        if (!jinja_at_op(p, ":") && !jinja_at_op(p, "]"))
            parts[i] = jinja_parse_expr(p);
        if (i == 2 || !jinja_take_op(p, ":"))
            break;
        i++;
    }
    jinja_need_op(p, "]");
    if (i == 0) {
        if (!parts[0])
            jinja_parse_fail(p, -EINVAL, "empty subscript", STR_NULL);
        return jinja_parse_node2(p, JINJA_ITEM, of, parts[0]);
    }
    n = jinja_parse_node2(p, JINJA_SLICE, of, NULL);
    for (i = 0; i < 3; i++)
        jinja_add_kid(p, n, parts[i], STR_NULL);
    return n;
}

static struct jinja_node *parse_attribute(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n;

    if (p->at->kind == JINJA_INT)
        return jinja_parse_node2(p, JINJA_ITEM, of, constant(p, JINJA_C_INT));
    n = jinja_parse_node2(p, JINJA_ATTR, of, NULL);
    n->name = jinja_need_name(p);
    return n;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = jinja_parse_node2(p, JINJA_CALL, of, NULL);

    parse_args(p, n);
    return n;
}

/* A chain is as deep a tree as it is long, so it counts as nesting in evaluation. */
static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *n)
{
    while (p->r == 0) {
        if (jinja_take_op(p, "."))
            n = parse_attribute(p, n);
        else if (jinja_take_op(p, "["))
            n = parse_subscript(p, n);
        else if (jinja_take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *input)
{
    struct jinja_node *n = jinja_parse_node2(p, JINJA_FILTER, input, NULL);

    n->name = jinja_need_name(p);
    n->builtin = jinja_find_filter(n->name);
    if (!n->builtin && p->r == 0)
        jinja_parse_fail(p, -ENOTSUP, "unsupported filter", n->name);
    if (jinja_take_op(p, "("))
        parse_args(p, n);
    return n;
}

/* Whether the next token can be the single bare argument of a test. */
static bool starts_argument(const struct jinja_parser *p)
{
    static const char *const others[] = {"and", "or", "else"}; /* as the original: not "if" */

    if (p->at->kind == JINJA_STR || p->at->kind == JINJA_INT || p->at->kind == JINJA_FLOAT)
        return true;
    if (jinja_at_op(p, "[") || jinja_at_op(p, "{"))
        return true;
    if (p->at->kind != JINJA_NAME)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (jinja_at_word(p, others[i]))
            return false;
    return true;
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *input)
{
    bool negated = jinja_take_word(p, "not");
    struct jinja_node *n = jinja_parse_node2(p, JINJA_TEST, input, NULL);

    n->name = jinja_need_name(p);
    n->builtin = jinja_find_test(n->name);
    if (!n->builtin && p->r == 0)
        jinja_parse_fail(p, -ENOTSUP, "unsupported test", n->name);
    if (jinja_take_op(p, "("))
        parse_args(p, n);
    else if (jinja_at_word(p, "is"))
        jinja_parse_fail(p, -EINVAL, "tests cannot be chained with is", STR_NULL);
    else if (starts_argument(p))
        jinja_add_kid(p, n, parse_postfix(p, parse_primary(p)), STR_NULL);
    return negated ? jinja_parse_node2(p, JINJA_NOT, n, NULL) : n;
}

static struct jinja_node *parse_filters(struct jinja_parser *p, struct jinja_node *n)
{
    while (p->r == 0) {
        if (jinja_take_op(p, "|"))
            n = jinja_parse_filter(p, n);
        else if (jinja_take_word(p, "is"))
            n = parse_test(p, n);
        else if (jinja_take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filter)
{
    struct jinja_node *n;

    if (!jinja_enter(p)) {
        jinja_leave(p);
        return jinja_parse_node(p, JINJA_LIST);
    }
    if (jinja_at_op(p, "-") || jinja_at_op(p, "+")) {
        n = jinja_parse_node(p, JINJA_SIGN);
        n->op = jinja_at_op(p, "-") ? JINJA_SUB : JINJA_ADD;
        jinja_advance(p);
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filters(p, n);
    jinja_leave(p);
    return n;
}

struct binary_op {
    const char *text;
    enum jinja_op op;
};

static const struct binary_op *find_op(const struct jinja_parser *p, const struct binary_op *ops,
                                       size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (jinja_at_op(p, ops[i].text))
            return &ops[i];
    return NULL;
}

static struct jinja_node *binary(struct jinja_parser *p, enum jinja_op op, struct jinja_node *a,
                                 struct jinja_node *b)
{
    struct jinja_node *n =
        jinja_parse_node2(p, op >= JINJA_EQ ? JINJA_COMPARE : JINJA_BINARY, a, b);

    n->op = op;
    return n;
}

static struct jinja_node *parse_power(struct jinja_parser *p)
{
    struct jinja_node *n = parse_unary(p, true);

    while (jinja_take_op(p, "**"))
        n = binary(p, JINJA_POW, n, parse_unary(p, true));
    return n;
}

static struct jinja_node *parse_product(struct jinja_parser *p)
{
    static const struct binary_op ops[] = {
        {"*", JINJA_MUL}, {"/", JINJA_DIV}, {"//", JINJA_FLOOR_DIV}, {"%", JINJA_MOD}};
    struct jinja_node *n = parse_power(p);
    const struct binary_op *op;

    while ((op = find_op(p, ops, ARRAY_LEN(ops)))) {
        jinja_advance(p);
        n = binary(p, op->op, n, parse_power(p));
    }
    return n;
}

static struct jinja_node *parse_concat(struct jinja_parser *p)
{
    struct jinja_node *n = parse_product(p);

    while (jinja_take_op(p, "~"))
        n = binary(p, JINJA_CONCAT, n, parse_product(p));
    return n;
}

static struct jinja_node *parse_sum(struct jinja_parser *p)
{
    static const struct binary_op ops[] = {{"+", JINJA_ADD}, {"-", JINJA_SUB}};
    struct jinja_node *n = parse_concat(p);
    const struct binary_op *op;

    while ((op = find_op(p, ops, ARRAY_LEN(ops)))) {
        jinja_advance(p);
        n = binary(p, op->op, n, parse_concat(p));
    }
    return n;
}

static bool take_compare(struct jinja_parser *p, enum jinja_op *ret)
{
    static const struct binary_op ops[] = {{"==", JINJA_EQ}, {"!=", JINJA_NE}, {"<", JINJA_LT},
                                           {"<=", JINJA_LE}, {">", JINJA_GT},  {">=", JINJA_GE}};
    const struct binary_op *op = find_op(p, ops, ARRAY_LEN(ops));

    if (op)
        *ret = op->op;
    else if (jinja_at_word(p, "in"))
        *ret = JINJA_IN;
    else if (jinja_at_word(p, "not") && jinja_next_is_word(p, "in"))
        *ret = JINJA_NOT_IN;
    else
        return false;
    jinja_advance(p);
    if (*ret == JINJA_NOT_IN)
        jinja_advance(p);
    return true;
}

/* a < b < c means a < b and b < c. */
static struct jinja_node *parse_compare(struct jinja_parser *p)
{
    struct jinja_node *left = parse_sum(p), *all = NULL;
    enum jinja_op op;

    while (take_compare(p, &op)) {
        struct jinja_node *right = parse_sum(p), *n = binary(p, op, left, right);

        all = all ? jinja_parse_node2(p, JINJA_AND, all, n) : n;
        left = right;
    }
    return all ? all : left;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    struct jinja_node *n;

    if (!jinja_at_word(p, "not"))
        return parse_compare(p);
    if (jinja_enter(p)) {
        jinja_advance(p);
        n = jinja_parse_node2(p, JINJA_NOT, parse_not(p), NULL);
    } else {
        n = jinja_parse_node(p, JINJA_LIST);
    }
    jinja_leave(p);
    return n;
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    struct jinja_node *n = parse_not(p);

    while (jinja_take_word(p, "and"))
        n = jinja_parse_node2(p, JINJA_AND, n, parse_not(p));
    return n;
}

struct jinja_node *jinja_parse_or(struct jinja_parser *p)
{
    struct jinja_node *n = parse_and(p);

    while (jinja_take_word(p, "or"))
        n = jinja_parse_node2(p, JINJA_OR, n, parse_and(p));
    return n;
}

struct jinja_node *jinja_parse_expr(struct jinja_parser *p)
{
    struct jinja_node *n, *choice;

    if (!jinja_enter(p)) {
        jinja_leave(p);
        return jinja_parse_node(p, JINJA_LIST);
    }
    n = jinja_parse_or(p);
    while (jinja_take_word(p, "if")) {
        choice = jinja_parse_node2(p, JINJA_CHOICE, n, jinja_parse_or(p));
        if (jinja_take_word(p, "else"))
            choice->c = jinja_parse_expr(p);
        n = choice;
    }
    jinja_leave(p);
    return n;
}
