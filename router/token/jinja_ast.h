/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the template engine: source → tokens (jinja_lex.c) → tree (jinja_parse.c), which
 * jinja_eval.c walks. Everything of a parsed template lies in its arena.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/str.h"

struct err;

/* --- tokens ----------------------------------------------------------------------------------- */

enum jinja_token_kind {
    JINJA_END,
    JINJA_TEXT, /* outside of tags */
    JINJA_VAR_BEGIN,
    JINJA_VAR_END,
    JINJA_BLOCK_BEGIN,
    JINJA_BLOCK_END,
    JINJA_NAME,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STR, /* text is decoded */
    JINJA_OP,  /* text is the operator */
};

struct jinja_token {
    enum jinja_token_kind kind;
    uint32_t line;
    struct str text;
    int64_t i;
    double f;
};

/* Tokens of @source into @a, a JINJA_END last. -EINVAL with the line. */
MUST_CHECK int jinja_lex(struct str source, struct arena *a, struct jinja_token **ret,
                         struct err *e);

/* --- tree ------------------------------------------------------------------------------------- */

enum jinja_node_kind {
    /* expressions */
    JINJA_CONST,   /* value by `constant` */
    JINJA_VAR,     /* name */
    JINJA_ATTR,    /* a.name */
    JINJA_ITEM,    /* a[b] */
    JINJA_SLICE,   /* a[kids[0]:kids[1]:kids[2]], each may be NULL */
    JINJA_CALL,    /* a(kids), names of keyword arguments in `names` */
    JINJA_FILTER,  /* a | name(kids) */
    JINJA_TEST,    /* a is name(kids) */
    JINJA_BINARY,  /* a op b */
    JINJA_COMPARE, /* a op b */
    JINJA_AND,
    JINJA_OR,
    JINJA_NOT,
    JINJA_SIGN,   /* op a: ADD or SUB */
    JINJA_CHOICE, /* a if b else c; c may be NULL */
    JINJA_LIST,   /* [kids] */
    JINJA_TUPLE,  /* (kids) */
    JINJA_SPREAD, /* *a or, with op POW, **a among arguments */
    JINJA_CALLER, /* macro a, as an argument of the macro that is called */
    JINJA_DICT,   /* kids: key, value, key, value ... */
    /* statements */
    JINJA_BODY,         /* kids in order */
    JINJA_PRINT_TEXT,   /* name */
    JINJA_PRINT,        /* a */
    JINJA_IF,           /* if a then b else c; c may be NULL */
    JINJA_FOR,          /* for kids in a if b: c, else d; i: recursive */
    JINJA_SET,          /* kids = a */
    JINJA_SET_BLOCK,    /* kids[0] = text of a */
    JINJA_MACRO,        /* name(names = kids...): a; kids are defaults, NULL when there is none;
                           i: which special names it uses, enum jinja_special_name */
    JINJA_SCOPE,        /* a in a frame of its own; i: which does not see loops around */
    JINJA_FILTER_BLOCK, /* a: a filter over the text of b, which it finds as its input */
    JINJA_WITH,         /* kids: set statements; a: body */
    JINJA_CAPTURED,     /* the text of the filter block around */
    JINJA_BREAK,
    JINJA_CONTINUE,
};

enum jinja_op {
    JINJA_ADD,
    JINJA_SUB,
    JINJA_MUL,
    JINJA_DIV,
    JINJA_FLOOR_DIV,
    JINJA_MOD,
    JINJA_POW,
    JINJA_CONCAT,
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN,
};

enum jinja_constant {
    JINJA_C_NONE,
    JINJA_C_TRUE,
    JINJA_C_FALSE,
    JINJA_C_INT,
    JINJA_C_FLOAT,
    JINJA_C_STR
};

/* Names that a macro is given when it uses them. */
enum jinja_special_name { JINJA_CALLER_NAME = 1, JINJA_VARARGS_NAME = 2, JINJA_KWARGS_NAME = 4 };

struct jinja_builtin; /* a filter or test, found at parse time */

struct jinja_node {
    enum jinja_node_kind kind;
    uint32_t line;
    enum jinja_op op;
    enum jinja_constant constant;
    struct str name; /* also the text of constants */
    int64_t i;
    double f;
    const struct jinja_builtin *builtin;
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node **kids;
    struct str *names; /* of kids; empty for positional ones; NULL when all are */
    uint32_t n_kids;
};

/* The tree of @tokens into @a. -EINVAL malformed, -ENOTSUP outside of the subset, with the line. */
MUST_CHECK int jinja_parse(const struct jinja_token *tokens, struct arena *a,
                           struct jinja_node **ret, struct err *e);
