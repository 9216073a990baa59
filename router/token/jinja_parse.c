/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive descent over the tokens. The first error sticks: the parser then stands at the end of
 * the input and every loop ends, so errors are looked at once, at the end.
 */
#include "router/token/jinja_ast.h"

#include <errno.h>

#include "lib/base/err.h"
#include "router/token/jinja_run.h"
#include "router/token/template.h"

enum { MAX_KIDS = 4096 };

struct parser {
    struct arena *a;
    const struct jinja_token *at, *end; /* end: the JINJA_END token */
    int depth;
    int loops;  /* for-loops around, within the macro */
    int blocks; /* filter blocks around */
    int r;
    struct err *e;
};

static struct jinja_node *parse_expr(struct parser *p);
static struct jinja_node *parse_unary(struct parser *p, bool with_filter);
static struct jinja_node *parse_body(struct parser *p);

/* --- tools ------------------------------------------------------------------------------------ */

static void fail(struct parser *p, int code, const char *why, struct str what)
{
    if (p->r < 0)
        return;
    what = str_head(what, 64);
    p->r = err_set(p->e, code, "line %u: %s%s%.*s", p->at->line, why, what.len ? " " : "",
                   STR_ARG(what));
    p->at = p->end;
}

static struct jinja_node *node(struct parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = arena_alloc(p->a, sizeof(*n));

    n->kind = kind;
    n->line = p->at->line;
    return n;
}

static struct jinja_node *node2(struct parser *p, enum jinja_node_kind kind, struct jinja_node *a,
                                struct jinja_node *b)
{
    struct jinja_node *n = node(p, kind);

    n->a = a;
    n->b = b;
    return n;
}

static bool is_op(const struct parser *p, const char *op)
{
    return p->at->kind == JINJA_OP && str_is(p->at->text, op);
}

static bool is_word(const struct parser *p, const char *word)
{
    return p->at->kind == JINJA_NAME && str_is(p->at->text, word);
}

static bool next_is_word(const struct parser *p, const char *word)
{
    return p->at < p->end && p->at[1].kind == JINJA_NAME && str_is(p->at[1].text, word);
}

static void advance(struct parser *p)
{
    if (p->at < p->end)
        p->at++;
}

static bool take_op(struct parser *p, const char *op)
{
    bool is = is_op(p, op);

    if (is)
        advance(p);
    return is;
}

static bool take_word(struct parser *p, const char *word)
{
    bool is = is_word(p, word);

    if (is)
        advance(p);
    return is;
}

static void need_op(struct parser *p, const char *op)
{
    if (!take_op(p, op))
        fail(p, -EINVAL, "expected", str_from(op));
}

static struct str need_name(struct parser *p)
{
    struct str name = p->at->text;

    if (p->at->kind != JINJA_NAME) {
        fail(p, -EINVAL, "expected a name", STR_NULL);
        return STR("");
    }
    advance(p);
    return name;
}

static void need(struct parser *p, enum jinja_token_kind kind, const char *what)
{
    if (p->at->kind != kind)
        fail(p, -EINVAL, "expected", str_from(what));
    else
        advance(p);
}

/* Nesting is bounded here, for parsing and so for evaluation. */
static bool enter(struct parser *p)
{
    if (++p->depth > TEMPLATE_MAX_DEPTH)
        fail(p, -E2BIG, "nested too deeply", STR_NULL);
    return p->r == 0;
}

static void leave(struct parser *p)
{
    p->depth--;
}

/* Children are few; the arrays double within the arena. */
static void add_kid(struct parser *p, struct jinja_node *n, struct jinja_node *kid, struct str name)
{
    uint32_t cap = n->n_kids;

    if (n->n_kids >= MAX_KIDS) {
        fail(p, -E2BIG, "too many items", STR_NULL);
        return;
    }
    if ((cap & (cap - 1)) == 0) { /* full: 0, 1, 2, 4 ... */
        struct jinja_node **kids = arena_alloc(p->a, (cap ? cap * 2 : 1) * sizeof(struct jinja_node *));
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

static struct jinja_node *constant(struct parser *p, enum jinja_constant kind)
{
    struct jinja_node *n = node(p, JINJA_CONST);

    n->constant = kind;
    n->i = p->at->i;
    n->f = p->at->f;
    advance(p);
    return n;
}

static struct jinja_node *parse_string(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_CONST);

    n->constant = JINJA_C_STR;
    n->name = p->at->text;
    advance(p);
    while (p->at->kind == JINJA_STR) { /* neighbours are one string */
        char *both = arena_alloc(p->a, n->name.len + p->at->text.len + 1);

        memcpy(both, n->name.ptr, n->name.len);
        memcpy(both + n->name.len, p->at->text.ptr, p->at->text.len);
        n->name = str_slice(both, n->name.len + p->at->text.len);
        advance(p);
    }
    return n;
}

static struct jinja_node *parse_name(struct parser *p)
{
    static const struct {
        const char *name;
        enum jinja_constant constant;
    } constants[] = {
        {"true", JINJA_C_TRUE},   {"True", JINJA_C_TRUE}, {"false", JINJA_C_FALSE},
        {"False", JINJA_C_FALSE}, {"none", JINJA_C_NONE}, {"None", JINJA_C_NONE},
    };
    struct jinja_node *n;

    for (size_t i = 0; i < ARRAY_LEN(constants); i++)
        if (is_word(p, constants[i].name))
            return constant(p, constants[i].constant);
    n = node(p, JINJA_VAR);
    n->name = p->at->text;
    advance(p);
    return n;
}

static struct jinja_node *parse_list(struct parser *p, const char *end)
{
    struct jinja_node *n = node(p, JINJA_LIST);

    while (p->r == 0 && !is_op(p, end)) {
        add_kid(p, n, parse_expr(p), STR_NULL);
        if (!take_op(p, ","))
            break;
    }
    need_op(p, end);
    return n;
}

static struct jinja_node *parse_dict(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_DICT);

    while (p->r == 0 && !is_op(p, "}")) {
        add_kid(p, n, parse_expr(p), STR_NULL);
        need_op(p, ":");
        add_kid(p, n, parse_expr(p), STR_NULL);
        if (!take_op(p, ","))
            break;
    }
    need_op(p, "}");
    return n;
}

/* "(" was taken: one expression, or with a comma a tuple, which is a list to us. */
static struct jinja_node *parse_parens(struct parser *p)
{
    struct jinja_node *first, *n;

    if (is_op(p, ")"))
        return parse_list(p, ")");
    first = parse_expr(p);
    if (!is_op(p, ",")) {
        need_op(p, ")");
        return first;
    }
    n = node(p, JINJA_LIST);
    add_kid(p, n, first, STR_NULL);
    while (take_op(p, ",") && !is_op(p, ")"))
        add_kid(p, n, parse_expr(p), STR_NULL);
    need_op(p, ")");
    return n;
}

static struct jinja_node *parse_primary(struct parser *p)
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
    if (take_op(p, "["))
        return parse_list(p, "]");
    if (take_op(p, "{"))
        return parse_dict(p);
    if (take_op(p, "("))
        return parse_parens(p);
    fail(p, -EINVAL, "unexpected", p->at->text.len ? p->at->text : STR("end of the tag"));
    return node(p, JINJA_LIST);
}

/* "(" was taken. */
static void parse_args(struct parser *p, struct jinja_node *n)
{
    while (p->r == 0 && !is_op(p, ")")) {
        struct str name = STR_NULL;

        if (is_op(p, "*") || is_op(p, "**"))
            fail(p, -ENOTSUP, "unpacked arguments are not supported", STR_NULL);
        if (p->at->kind == JINJA_NAME && p->at < p->end && p->at[1].kind == JINJA_OP &&
            str_is(p->at[1].text, "=")) {
            name = need_name(p);
            advance(p);
        }
        add_kid(p, n, parse_expr(p), name);
        if (!take_op(p, ","))
            break;
    }
    need_op(p, ")");
}

/* "[" was taken. */
static struct jinja_node *parse_subscript(struct parser *p, struct jinja_node *of)
{
    struct jinja_node *n, *parts[3] = {NULL, NULL, NULL};
    int i = 0;

    for (;;) {
        if (!is_op(p, ":") && !is_op(p, "]"))
            parts[i] = parse_expr(p);
        if (i == 2 || !take_op(p, ":"))
            break;
        i++;
    }
    need_op(p, "]");
    if (i == 0) {
        if (!parts[0])
            fail(p, -EINVAL, "empty subscript", STR_NULL);
        return node2(p, JINJA_ITEM, of, parts[0]);
    }
    n = node2(p, JINJA_SLICE, of, NULL);
    for (i = 0; i < 3; i++)
        add_kid(p, n, parts[i], STR_NULL);
    return n;
}

static struct jinja_node *parse_attribute(struct parser *p, struct jinja_node *of)
{
    struct jinja_node *n;

    if (p->at->kind == JINJA_INT)
        return node2(p, JINJA_ITEM, of, constant(p, JINJA_C_INT));
    n = node2(p, JINJA_ATTR, of, NULL);
    n->name = need_name(p);
    return n;
}

static struct jinja_node *parse_call(struct parser *p, struct jinja_node *of)
{
    struct jinja_node *n = node2(p, JINJA_CALL, of, NULL);

    parse_args(p, n);
    return n;
}

/* A chain is as deep a tree as it is long, so it counts as nesting in evaluation. */
static struct jinja_node *parse_postfix(struct parser *p, struct jinja_node *n)
{
    while (p->r == 0) {
        if (take_op(p, "."))
            n = parse_attribute(p, n);
        else if (take_op(p, "["))
            n = parse_subscript(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jinja_node *parse_filter(struct parser *p, struct jinja_node *input)
{
    struct jinja_node *n = node2(p, JINJA_FILTER, input, NULL);

    n->name = need_name(p);
    n->builtin = jinja_find_filter(n->name);
    if (!n->builtin && p->r == 0)
        fail(p, -ENOTSUP, "unsupported filter", n->name);
    if (take_op(p, "("))
        parse_args(p, n);
    return n;
}

/* Whether the next token can be the single bare argument of a test. */
static bool starts_argument(const struct parser *p)
{
    static const char *const others[] = {"and", "or", "is", "if", "else", "not", "in"};

    if (p->at->kind == JINJA_STR || p->at->kind == JINJA_INT || p->at->kind == JINJA_FLOAT)
        return true;
    if (is_op(p, "[") || is_op(p, "{"))
        return true;
    if (p->at->kind != JINJA_NAME)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (is_word(p, others[i]))
            return false;
    return true;
}

static struct jinja_node *parse_test(struct parser *p, struct jinja_node *input)
{
    bool negated = take_word(p, "not");
    struct jinja_node *n = node2(p, JINJA_TEST, input, NULL);

    n->name = need_name(p);
    n->builtin = jinja_find_test(n->name);
    if (!n->builtin && p->r == 0)
        fail(p, -ENOTSUP, "unsupported test", n->name);
    if (take_op(p, "("))
        parse_args(p, n);
    else if (starts_argument(p))
        add_kid(p, n, parse_postfix(p, parse_primary(p)), STR_NULL);
    return negated ? node2(p, JINJA_NOT, n, NULL) : n;
}

static struct jinja_node *parse_filters(struct parser *p, struct jinja_node *n)
{
    while (p->r == 0) {
        if (take_op(p, "|"))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jinja_node *parse_unary(struct parser *p, bool with_filter)
{
    struct jinja_node *n;

    if (!enter(p)) {
        leave(p);
        return node(p, JINJA_LIST);
    }
    if (take_op(p, "-"))
        n = node2(p, JINJA_NEGATE, parse_unary(p, false), NULL);
    else if (take_op(p, "+"))
        n = parse_unary(p, false);
    else
        n = parse_primary(p);
    n = parse_postfix(p, n);
    if (with_filter)
        n = parse_filters(p, n);
    leave(p);
    return n;
}

struct binary_op {
    const char *text;
    enum jinja_op op;
};

static const struct binary_op *find_op(const struct parser *p, const struct binary_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_op(p, ops[i].text))
            return &ops[i];
    return NULL;
}

static struct jinja_node *binary(struct parser *p, enum jinja_op op, struct jinja_node *a,
                                 struct jinja_node *b)
{
    struct jinja_node *n = node2(p, op >= JINJA_EQ ? JINJA_COMPARE : JINJA_BINARY, a, b);

    n->op = op;
    return n;
}

static struct jinja_node *parse_power(struct parser *p)
{
    struct jinja_node *n = parse_unary(p, true);

    while (take_op(p, "**"))
        n = binary(p, JINJA_POW, n, parse_unary(p, true));
    return n;
}

static struct jinja_node *parse_product(struct parser *p)
{
    static const struct binary_op ops[] = {
        {"*", JINJA_MUL}, {"/", JINJA_DIV}, {"//", JINJA_FLOOR_DIV}, {"%", JINJA_MOD}};
    struct jinja_node *n = parse_power(p);
    const struct binary_op *op;

    while ((op = find_op(p, ops, ARRAY_LEN(ops)))) {
        advance(p);
        n = binary(p, op->op, n, parse_power(p));
    }
    return n;
}

static struct jinja_node *parse_concat(struct parser *p)
{
    struct jinja_node *n = parse_product(p);

    while (take_op(p, "~"))
        n = binary(p, JINJA_CONCAT, n, parse_product(p));
    return n;
}

static struct jinja_node *parse_sum(struct parser *p)
{
    static const struct binary_op ops[] = {{"+", JINJA_ADD}, {"-", JINJA_SUB}};
    struct jinja_node *n = parse_concat(p);
    const struct binary_op *op;

    while ((op = find_op(p, ops, ARRAY_LEN(ops)))) {
        advance(p);
        n = binary(p, op->op, n, parse_concat(p));
    }
    return n;
}

static bool take_compare(struct parser *p, enum jinja_op *ret)
{
    static const struct binary_op ops[] = {{"==", JINJA_EQ}, {"!=", JINJA_NE}, {"<", JINJA_LT},
                                           {"<=", JINJA_LE}, {">", JINJA_GT},  {">=", JINJA_GE}};
    const struct binary_op *op = find_op(p, ops, ARRAY_LEN(ops));

    if (op)
        *ret = op->op;
    else if (is_word(p, "in"))
        *ret = JINJA_IN;
    else if (is_word(p, "not") && next_is_word(p, "in"))
        *ret = JINJA_NOT_IN;
    else
        return false;
    advance(p);
    if (*ret == JINJA_NOT_IN)
        advance(p);
    return true;
}

/* a < b < c means a < b and b < c. */
static struct jinja_node *parse_compare(struct parser *p)
{
    struct jinja_node *left = parse_sum(p), *all = NULL;
    enum jinja_op op;

    while (take_compare(p, &op)) {
        struct jinja_node *right = parse_sum(p), *n = binary(p, op, left, right);

        all = all ? node2(p, JINJA_AND, all, n) : n;
        left = right;
    }
    return all ? all : left;
}

static struct jinja_node *parse_not(struct parser *p)
{
    struct jinja_node *n;

    if (!is_word(p, "not"))
        return parse_compare(p);
    if (enter(p)) {
        advance(p);
        n = node2(p, JINJA_NOT, parse_not(p), NULL);
    } else {
        n = node(p, JINJA_LIST);
    }
    leave(p);
    return n;
}

static struct jinja_node *parse_and(struct parser *p)
{
    struct jinja_node *n = parse_not(p);

    while (take_word(p, "and"))
        n = node2(p, JINJA_AND, n, parse_not(p));
    return n;
}

static struct jinja_node *parse_or(struct parser *p)
{
    struct jinja_node *n = parse_and(p);

    while (take_word(p, "or"))
        n = node2(p, JINJA_OR, n, parse_and(p));
    return n;
}

static struct jinja_node *parse_expr(struct parser *p)
{
    struct jinja_node *n, *choice;

    if (!enter(p)) {
        leave(p);
        return node(p, JINJA_LIST);
    }
    n = parse_or(p);
    while (take_word(p, "if")) {
        choice = node2(p, JINJA_CHOICE, n, parse_or(p));
        if (take_word(p, "else"))
            choice->c = parse_expr(p);
        n = choice;
    }
    leave(p);
    return n;
}

/* --- statements ------------------------------------------------------------------------------- */

static void end_tag(struct parser *p)
{
    need(p, JINJA_BLOCK_END, "the end of the tag");
}

/* Whether the tag that stands next is one of @words, a list ended by NULL. */
static bool at_tag(const struct parser *p, const char *const *words)
{
    if (p->at->kind != JINJA_BLOCK_BEGIN)
        return false;
    for (; *words; words++)
        if (next_is_word(p, *words))
            return true;
    return false;
}

/* Takes {% @word %}, which must come next. */
static void need_tag(struct parser *p, const char *word)
{
    need(p, JINJA_BLOCK_BEGIN, word);
    if (!take_word(p, word))
        fail(p, -EINVAL, "expected", str_from(word));
    end_tag(p);
}

static struct jinja_node *parse_if(struct parser *p)
{
    struct jinja_node *first = node(p, JINJA_IF), *n = first;

    for (;;) {
        n->a = parse_expr(p);
        end_tag(p);
        n->b = parse_body(p);
        if (!at_tag(p, (const char *const[]){"elif", NULL}))
            break;
        advance(p);
        advance(p);
        n->c = node(p, JINJA_IF); /* walked in a loop, so a long chain is not deep */
        n = n->c;
    }
    if (at_tag(p, (const char *const[]){"else", NULL})) {
        need_tag(p, "else");
        n->c = parse_body(p);
    }
    need_tag(p, "endif");
    return first;
}

/* One name, or several with commas, perhaps in parentheses. */
static void parse_targets(struct parser *p, struct jinja_node *n)
{
    bool parens = take_op(p, "(");

    do {
        struct jinja_node *target = node(p, JINJA_VAR);

        target->name = need_name(p);
        if (take_op(p, ".")) { /* an attribute of a namespace */
            target->kind = JINJA_ATTR;
            target->a = node(p, JINJA_VAR);
            target->a->name = target->name;
            target->name = need_name(p);
        }
        add_kid(p, n, target, STR_NULL);
    } while (p->r == 0 && take_op(p, ",") && p->at->kind == JINJA_NAME);
    if (parens)
        need_op(p, ")");
}

/* An expression, or several with commas as a list. @choice: "if" belongs to it. */
static struct jinja_node *parse_tuple(struct parser *p, bool choice)
{
    struct jinja_node *first = choice ? parse_expr(p) : parse_or(p), *n;

    if (!is_op(p, ","))
        return first;
    n = node(p, JINJA_LIST);
    add_kid(p, n, first, STR_NULL);
    while (take_op(p, ",") && p->at->kind != JINJA_BLOCK_END)
        add_kid(p, n, choice ? parse_expr(p) : parse_or(p), STR_NULL);
    return n;
}

static struct jinja_node *parse_for(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_FOR);

    parse_targets(p, n);
    if (!take_word(p, "in"))
        fail(p, -EINVAL, "expected in", STR_NULL);
    n->a = parse_tuple(p, false);
    if (take_word(p, "if"))
        n->b = parse_expr(p);
    if (is_word(p, "recursive"))
        fail(p, -ENOTSUP, "recursive loops are not supported", STR_NULL);
    end_tag(p);
    p->loops++;
    n->c = parse_body(p);
    p->loops--;
    if (at_tag(p, (const char *const[]){"else", NULL})) {
        need_tag(p, "else");
        n->d = parse_body(p);
    }
    need_tag(p, "endfor");
    return n;
}

/* The text of a block, through filters: {% set x | trim %}, {% filter trim %}. */
static struct jinja_node *parse_captured_filters(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_CAPTURED);

    while (take_op(p, "|"))
        n = parse_filter(p, n);
    return n;
}

static struct jinja_node *parse_set(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_SET);

    parse_targets(p, n);
    if (take_op(p, "=")) {
        n->a = parse_tuple(p, true);
        end_tag(p);
        return n;
    }
    n->kind = JINJA_SET_BLOCK;
    if (n->n_kids != 1)
        fail(p, -EINVAL, "a block is set to one name", STR_NULL);
    n->b = parse_captured_filters(p);
    end_tag(p);
    n->a = parse_body(p);
    need_tag(p, "endset");
    return n;
}

static struct jinja_node *parse_macro(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_MACRO);
    int loops = p->loops;

    n->name = need_name(p);
    need_op(p, "(");
    while (p->r == 0 && !is_op(p, ")")) {
        struct str name = need_name(p);

        add_kid(p, n, take_op(p, "=") ? parse_expr(p) : NULL, name);
        if (!take_op(p, ","))
            break;
    }
    need_op(p, ")");
    end_tag(p);
    p->loops = 0;
    n->a = parse_body(p);
    p->loops = loops;
    need(p, JINJA_BLOCK_BEGIN, "endmacro");
    if (!take_word(p, "endmacro"))
        fail(p, -EINVAL, "expected endmacro", STR_NULL);
    (void)take_word(p, "endmacro"); /* the name may be repeated */
    if (p->at->kind == JINJA_NAME)
        advance(p);
    end_tag(p);
    return n;
}

static struct jinja_node *parse_filter_block(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_FILTER_BLOCK);

    n->a = parse_filter(p, node(p, JINJA_CAPTURED));
    while (take_op(p, "|"))
        n->a = parse_filter(p, n->a);
    end_tag(p);
    n->b = parse_body(p);
    need_tag(p, "endfilter");
    return n;
}

static struct jinja_node *parse_with(struct parser *p)
{
    struct jinja_node *n = node(p, JINJA_WITH);

    while (p->r == 0 && p->at->kind == JINJA_NAME) {
        struct jinja_node *set = node(p, JINJA_SET), *target = node(p, JINJA_VAR);

        target->name = need_name(p);
        add_kid(p, set, target, STR_NULL);
        need_op(p, "=");
        set->a = parse_expr(p);
        add_kid(p, n, set, STR_NULL);
        (void)take_op(p, ",");
    }
    end_tag(p);
    n->a = parse_body(p);
    need_tag(p, "endwith");
    return n;
}

/* Marks what the model said, for training only: its content stays. */
static struct jinja_node *parse_generation(struct parser *p)
{
    struct jinja_node *n;

    end_tag(p);
    n = parse_body(p);
    need_tag(p, "endgeneration");
    return n;
}

static struct jinja_node *parse_jump(struct parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = node(p, kind);

    if (p->loops == 0)
        fail(p, -EINVAL, "break or continue outside of a loop", STR_NULL);
    end_tag(p);
    return n;
}

/* "{%" was taken. */
static struct jinja_node *parse_statement(struct parser *p)
{
    if (take_word(p, "if"))
        return parse_if(p);
    if (take_word(p, "for"))
        return parse_for(p);
    if (take_word(p, "set"))
        return parse_set(p);
    if (take_word(p, "macro"))
        return parse_macro(p);
    if (take_word(p, "filter"))
        return parse_filter_block(p);
    if (take_word(p, "with"))
        return parse_with(p);
    if (take_word(p, "generation"))
        return parse_generation(p);
    if (take_word(p, "break"))
        return parse_jump(p, JINJA_BREAK);
    if (take_word(p, "continue"))
        return parse_jump(p, JINJA_CONTINUE);
    fail(p, -ENOTSUP, "unsupported tag", p->at->text);
    return node(p, JINJA_BODY);
}

static struct jinja_node *parse_part(struct parser *p)
{
    struct jinja_node *n;

    if (p->at->kind == JINJA_TEXT) {
        n = node(p, JINJA_PRINT_TEXT);
        n->name = p->at->text;
        advance(p);
        return n;
    }
    if (p->at->kind == JINJA_VAR_BEGIN) {
        advance(p);
        n = node(p, JINJA_PRINT);
        n->a = parse_tuple(p, true);
        need(p, JINJA_VAR_END, "the end of the tag");
        return n;
    }
    need(p, JINJA_BLOCK_BEGIN, "a tag");
    return parse_statement(p);
}

/* Up to the tag that ends or divides the block around, or to the end of the input. */
static struct jinja_node *parse_body(struct parser *p)
{
    static const char *const ends[] = {"elif",      "else",    "endif",         "endfor", "endset",
                                       "endmacro",  "endwith", "endgeneration", "endfilter", NULL};
    struct jinja_node *n = node(p, JINJA_BODY);

    if (enter(p))
        while (p->at->kind != JINJA_END && !at_tag(p, ends))
            add_kid(p, n, parse_part(p), STR_NULL);
    leave(p);
    return n;
}

int jinja_parse(const struct jinja_token *tokens, struct arena *a, struct jinja_node **ret,
                struct err *e)
{
    struct parser p = {.a = a, .at = tokens, .end = tokens, .e = e};
    struct jinja_node *n;

    while (p.end->kind != JINJA_END)
        p.end++;
    n = parse_body(&p);
    if (p.at->kind != JINJA_END)
        fail(&p, -EINVAL, "nothing to end with", p.at[1].text);
    if (p.r == 0)
        *ret = n;
    return p.r;
}
