/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two halves of the parser share: jinja_expr.c reads expressions, jinja_parse.c
 * statements.
 *
 * Recursive descent over the tokens. The first error sticks: the parser then stands at the end of
 * the input and every loop ends, so errors are looked at once, at the end.
 */
#pragma once

#include "lib/base/err.h"
#include "router/token/jinja_ast.h"

struct jinja_parser {
    struct arena *a;
    const struct jinja_token *begin, *at, *end; /* end: the JINJA_END token */
    int depth;
    int loops;        /* for-loops around, within the macro */
    int64_t specials; /* enum jinja_special_name: seen in the macro so far */
    int r;
    struct err *e;
};

void jinja_parse_fail(struct jinja_parser *p, int code, const char *why, struct str what);
/* Nesting is bounded here, for parsing and so for evaluation: false when it is too deep. */
bool jinja_enter(struct jinja_parser *p);
void jinja_leave(struct jinja_parser *p);

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind);
struct jinja_node *jinja_parse_node2(struct jinja_parser *p, enum jinja_node_kind kind,
                                     struct jinja_node *a, struct jinja_node *b);
void jinja_add_kid(struct jinja_parser *p, struct jinja_node *n, struct jinja_node *kid,
                   struct str name);

/* What the next token is; taking it if it is that; failing if it is not. */
bool jinja_at_op(const struct jinja_parser *p, const char *op);
bool jinja_at_word(const struct jinja_parser *p, const char *word);
bool jinja_next_is_word(const struct jinja_parser *p, const char *word);
void jinja_advance(struct jinja_parser *p);
bool jinja_take_op(struct jinja_parser *p, const char *op);
bool jinja_take_word(struct jinja_parser *p, const char *word);
void jinja_need_op(struct jinja_parser *p, const char *op);
struct str jinja_need_name(struct jinja_parser *p);

struct jinja_node *jinja_parse_expr(struct jinja_parser *p);
/* An expression without "x if y else z". */
struct jinja_node *jinja_parse_or(struct jinja_parser *p);
/* Expressions up to @end, a bracket that is taken, into a list or tuple. */
struct jinja_node *jinja_parse_items(struct jinja_parser *p, enum jinja_node_kind kind,
                                     const char *end);
/* A filter over @input; "|" was taken. */
struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *input);
