/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/jinja_parser.h"

#include <errno.h>

static struct jinja_node *parse_body(struct jinja_parser *p);

static void need(struct jinja_parser *p, enum jinja_token_kind kind, const char *what)
{
    if (p->at->kind != kind)
        jinja_parse_fail(p, -EINVAL, "expected", str_from(what));
    else
        jinja_advance(p);
}

/* --- statements ------------------------------------------------------------------------------- */

static void end_tag(struct jinja_parser *p)
{
    need(p, JINJA_BLOCK_END, "the end of the tag");
}

/* Whether the tag that stands next is one of @words, a list ended by NULL. */
static bool at_tag(const struct jinja_parser *p, const char *const *words)
{
    if (p->at->kind != JINJA_BLOCK_BEGIN)
        return false;
    for (; *words; words++)
        if (jinja_next_is_word(p, *words))
            return true;
    return false;
}

/* Takes {% @word %}, which must come next. */
static void need_tag(struct jinja_parser *p, const char *word)
{
    need(p, JINJA_BLOCK_BEGIN, word);
    if (!jinja_take_word(p, word))
        jinja_parse_fail(p, -EINVAL, "expected", str_from(word));
    end_tag(p);
}

static struct jinja_node *parse_if(struct jinja_parser *p)
{
    struct jinja_node *first = jinja_parse_node(p, JINJA_IF), *n = first;

    for (;;) {
        n->a = jinja_parse_expr(p);
        end_tag(p);
        n->b = parse_body(p);
        if (!at_tag(p, (const char *const[]){"elif", NULL}))
            break;
        jinja_advance(p);
        jinja_advance(p);
        n->c = jinja_parse_node(p, JINJA_IF); /* walked in a loop, so a long chain is not deep */
        n = n->c;
    }
    if (at_tag(p, (const char *const[]){"else", NULL})) {
        need_tag(p, "else");
        n->c = parse_body(p);
    }
    need_tag(p, "endif");
    return first;
}

static struct jinja_node *parse_target(struct jinja_parser *p);

/* Names with commas, up to what cannot go on. */
static void parse_targets(struct jinja_parser *p, struct jinja_node *n)
{
    do
        jinja_add_kid(p, n, parse_target(p), STR_NULL);
    while (p->r == 0 && jinja_take_op(p, ",") &&
           (jinja_at_op(p, "(") || (p->at->kind == JINJA_NAME && !jinja_at_word(p, "in"))));
    n->op = n->n_kids == 1 && p->at > p->begin && p->at[-1].kind == JINJA_OP &&
                    str_is(p->at[-1].text, ",")
                ? JINJA_MUL /* "a," takes a list of one apart */
                : JINJA_ADD;
}

/* One name, an attribute of a namespace, or several in parentheses. */
static struct jinja_node *parse_target(struct jinja_parser *p)
{
    struct jinja_node *target = jinja_parse_node(p, JINJA_VAR);

    if (!jinja_enter(p)) {
        jinja_leave(p);
        return target;
    }
    if (jinja_take_op(p, "(")) {
        target->kind = JINJA_TUPLE;
        parse_targets(p, target);
        jinja_need_op(p, ")");
        if (target->n_kids == 1 && target->op != JINJA_MUL)
            target = target->kids[0];
    } else {
        target->name = jinja_need_name(p);
        if (jinja_take_op(p, ".")) {
            target->kind = JINJA_ATTR;
            target->a = jinja_parse_node(p, JINJA_VAR);
            target->a->name = target->name;
            target->name = jinja_need_name(p);
        }
    }
    jinja_leave(p);
    return target;
}

/* An expression, or several with commas as a tuple. @choice: "if" belongs to it. */
static struct jinja_node *parse_tuple(struct jinja_parser *p, bool choice)
{
    struct jinja_node *first = choice ? jinja_parse_expr(p) : jinja_parse_or(p), *n;

    if (!jinja_at_op(p, ","))
        return first;
    n = jinja_parse_node(p, JINJA_TUPLE);
    jinja_add_kid(p, n, first, STR_NULL);
    while (jinja_take_op(p, ",") && p->at->kind != JINJA_BLOCK_END && p->at->kind != JINJA_VAR_END)
        jinja_add_kid(p, n, choice ? jinja_parse_expr(p) : jinja_parse_or(p), STR_NULL);
    return n;
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_FOR);

    parse_targets(p, n);
    if (!jinja_take_word(p, "in"))
        jinja_parse_fail(p, -EINVAL, "expected in", STR_NULL);
    n->a = parse_tuple(p, false);
    if (jinja_take_word(p, "if"))
        n->b = jinja_parse_expr(p);
    n->i = jinja_take_word(p, "recursive");
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

/* A body that jumps do not leave. */
static void parse_scope(struct jinja_parser *p, struct jinja_node *n, const char *end)
{
    int loops = p->loops;

    end_tag(p);
    p->loops = 0;
    n->a = parse_body(p);
    p->loops = loops;
    need(p, JINJA_BLOCK_BEGIN, end);
    if (!jinja_take_word(p, end))
        jinja_parse_fail(p, -EINVAL, "expected", str_from(end));
    if (p->at->kind == JINJA_NAME)
        jinja_advance(p);
    end_tag(p);
}

/* The text of a block, through filters: {% set x | trim %}, {% filter trim %}. */
static struct jinja_node *parse_captured_filters(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_CAPTURED);

    while (jinja_take_op(p, "|"))
        n = jinja_parse_filter(p, n);
    return n;
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_SET);

    parse_targets(p, n);
    if (jinja_take_op(p, "=")) {
        n->a = parse_tuple(p, true);
        end_tag(p);
        return n;
    }
    n->kind = JINJA_SET_BLOCK;
    if (n->n_kids != 1 || (p->r == 0 && n->kids[0]->kind == JINJA_TUPLE))
        jinja_parse_fail(p, -EINVAL, "a block is set to one name", STR_NULL);
    n->b = parse_captured_filters(p);
    end_tag(p);
    n->a = parse_body(p);
    need_tag(p, "endset");
    return n;
}

/* "(" was taken. */
static void parse_parameters(struct jinja_parser *p, struct jinja_node *n)
{
    bool defaults = false;

    while (p->r == 0 && !jinja_at_op(p, ")")) {
        struct str name = jinja_need_name(p);
        struct jinja_node *usual = jinja_take_op(p, "=") ? jinja_parse_expr(p) : NULL;

        if (defaults && !usual)
            jinja_parse_fail(p, -EINVAL, "a parameter without a default behind one with", name);
        defaults |= usual != NULL;
        jinja_add_kid(p, n, usual, name);
        if (!jinja_take_op(p, ","))
            break;
    }
    jinja_need_op(p, ")");
}

/* What runs as a macro does: jumps do not leave it, special names are its own. */
static void parse_macro_body(struct jinja_parser *p, struct jinja_node *n, const char *end)
{
    int64_t specials = p->specials;
    int loops = p->loops;

    end_tag(p);
    p->loops = 0;
    p->specials = 0;
    n->a = parse_body(p);
    n->i = p->specials;
    p->specials |= specials;
    p->loops = loops;
    need(p, JINJA_BLOCK_BEGIN, end);
    if (!jinja_take_word(p, end))
        jinja_parse_fail(p, -EINVAL, "expected", str_from(end));
    if (p->at->kind == JINJA_NAME) /* the name may be repeated */
        jinja_advance(p);
    end_tag(p);
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_MACRO);

    n->name = jinja_need_name(p);
    jinja_need_op(p, "(");
    parse_parameters(p, n);
    parse_macro_body(p, n, "endmacro");
    return n;
}

/* {% call(parameters) macro(arguments) %}body{% endcall %}: the body is one argument more. */
static struct jinja_node *parse_call_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_PRINT);
    struct jinja_node *body = jinja_parse_node(p, JINJA_MACRO);
    struct jinja_node *caller = jinja_parse_node2(p, JINJA_CALLER, body, NULL);

    if (jinja_take_op(p, "("))
        parse_parameters(p, body);
    n->a = jinja_parse_expr(p);
    if (p->r == 0 && n->a->kind != JINJA_CALL)
        jinja_parse_fail(p, -EINVAL, "call needs a macro with arguments", STR_NULL);
    parse_macro_body(p, body, "endcall");
    if (p->r == 0)
        jinja_add_kid(p, n->a, caller, STR("caller"));
    return n;
}

/* Templates are not extended here, so a block stands for its content. */
static struct jinja_node *parse_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_SCOPE);

    (void)jinja_need_name(p);
    n->i = !jinja_take_word(p, "scoped");
    (void)jinja_take_word(p, "required");
    parse_scope(p, n, "endblock");
    return n;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_FILTER_BLOCK);

    n->a = jinja_parse_filter(p, jinja_parse_node(p, JINJA_CAPTURED));
    while (jinja_take_op(p, "|"))
        n->a = jinja_parse_filter(p, n->a);
    end_tag(p);
    n->b = parse_body(p);
    need_tag(p, "endfilter");
    return n;
}

static struct jinja_node *parse_with(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_WITH);

    while (p->r == 0 && p->at->kind == JINJA_NAME) {
        struct jinja_node *set = jinja_parse_node(p, JINJA_SET),
                          *target = jinja_parse_node(p, JINJA_VAR);

        target->name = jinja_need_name(p);
        jinja_add_kid(p, set, target, STR_NULL);
        jinja_need_op(p, "=");
        set->a = jinja_parse_expr(p);
        jinja_add_kid(p, n, set, STR_NULL);
        (void)jinja_take_op(p, ",");
    }
    end_tag(p);
    n->a = parse_body(p);
    need_tag(p, "endwith");
    return n;
}

/* Marks what the model said, for training only: its content stays. */
static struct jinja_node *parse_generation(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, JINJA_SCOPE);

    parse_scope(p, n, "endgeneration");
    return n;
}

/* {% print a, b %} is {{ a }}{{ b }}. */
static struct jinja_node *parse_print(struct jinja_parser *p)
{
    struct jinja_node *all = jinja_parse_node(p, JINJA_BODY);

    do {
        struct jinja_node *n = jinja_parse_node(p, JINJA_PRINT);

        n->a = jinja_parse_expr(p);
        jinja_add_kid(p, all, n, STR_NULL);
    } while (p->r == 0 && jinja_take_op(p, ","));
    end_tag(p);
    return all;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = jinja_parse_node(p, kind);

    if (p->loops == 0)
        jinja_parse_fail(p, -EINVAL, "break or continue outside of a loop", STR_NULL);
    end_tag(p);
    return n;
}

/* "{%" was taken. */
static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    if (jinja_take_word(p, "if"))
        return parse_if(p);
    if (jinja_take_word(p, "for"))
        return parse_for(p);
    if (jinja_take_word(p, "set"))
        return parse_set(p);
    if (jinja_take_word(p, "macro"))
        return parse_macro(p);
    if (jinja_take_word(p, "call"))
        return parse_call_block(p);
    if (jinja_take_word(p, "block"))
        return parse_block(p);
    if (jinja_take_word(p, "print"))
        return parse_print(p);
    if (jinja_take_word(p, "filter"))
        return parse_filter_block(p);
    if (jinja_take_word(p, "with"))
        return parse_with(p);
    if (jinja_take_word(p, "generation"))
        return parse_generation(p);
    if (jinja_take_word(p, "break"))
        return parse_jump(p, JINJA_BREAK);
    if (jinja_take_word(p, "continue"))
        return parse_jump(p, JINJA_CONTINUE);
    jinja_parse_fail(p, -ENOTSUP, "unsupported tag", p->at->text);
    return jinja_parse_node(p, JINJA_BODY);
}

static struct jinja_node *parse_part(struct jinja_parser *p)
{
    struct jinja_node *n;

    if (p->at->kind == JINJA_TEXT) {
        n = jinja_parse_node(p, JINJA_PRINT_TEXT);
        n->name = p->at->text;
        jinja_advance(p);
        return n;
    }
    if (p->at->kind == JINJA_VAR_BEGIN) {
        jinja_advance(p);
        n = jinja_parse_node(p, JINJA_PRINT);
        n->a = parse_tuple(p, true);
        need(p, JINJA_VAR_END, "the end of the tag");
        return n;
    }
    need(p, JINJA_BLOCK_BEGIN, "a tag");
    return parse_statement(p);
}

/* Up to the tag that ends or divides the block around, or to the end of the input. */
static struct jinja_node *parse_body(struct jinja_parser *p)
{
    static const char *const ends[] = {"elif",      "else",     "endif",    "endfor",
                                       "endset",    "endmacro", "endwith",  "endgeneration",
                                       "endfilter", "endcall",  "endblock", NULL};
    struct jinja_node *n = jinja_parse_node(p, JINJA_BODY);

    if (jinja_enter(p))
        while (p->at->kind != JINJA_END && !at_tag(p, ends))
            jinja_add_kid(p, n, parse_part(p), STR_NULL);
    jinja_leave(p);
    return n;
}

int jinja_parse(const struct jinja_token *tokens, struct arena *a, struct jinja_node **ret,
                struct err *e)
{
    struct jinja_parser p = {.a = a, .begin = tokens, .at = tokens, .end = tokens, .e = e};
    struct jinja_node *n;

    while (p.end->kind != JINJA_END)
        p.end++;
    n = parse_body(&p);
    if (p.at->kind != JINJA_END)
        jinja_parse_fail(&p, -EINVAL, "nothing to end with", p.at[1].text);
    if (p.r == 0)
        *ret = n;
    return p.r;
}
