/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of a rendering: small, and passed by copy. What they point to lies in the run's arena or in
 * the caller's JSON, which is wrapped and not copied. They are immutable but for namespaces,
 * iterators and loops.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

struct jinja_builtin;
struct jinja_frame;
struct jinja_node;
struct json;
struct jinja_list;
struct jinja_map;
struct jinja_loop;

enum jinja_kind {
    JINJA_V_UNDEFINED,
    JINJA_V_NONE,
    JINJA_V_BOOL,
    JINJA_V_INT,
    JINJA_V_FLOAT,
    JINJA_V_STR,
    JINJA_V_LIST,
    JINJA_V_MAP,    /* made by the template */
    JINJA_V_OBJECT, /* a JSON object */
    JINJA_V_SPACE,  /* a namespace: a map whose attributes may be set */
    JINJA_V_LOOP,
    JINJA_V_MACRO,
    JINJA_V_FUNCTION,
    JINJA_V_METHOD, /* of a value, not called yet */
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool b;
        int64_t i;
        struct {
            double f;
            uint64_t whole; /* of a whole number from 2^63 on that came as JSON; else 0 */
        };
        struct str s;
        struct jinja_list *list;
        struct jinja_map *map;
        const struct json *object;
        struct jinja_loop *loop;
        const struct jinja_macro *macro;
        const struct jinja_builtin *function;
        const struct jinja_method *method;
    };
};

/* What Python would have; they print, compare and index differently. */
enum jinja_list_form {
    JINJA_LIST_PLAIN,
    JINJA_LIST_TUPLE,
    JINJA_LIST_RANGE,
    JINJA_LIST_KEYS, /* views of a mapping, by what they are called */
    JINJA_LIST_VALUES,
    JINJA_LIST_ITEMS,
    JINJA_LIST_ITERATOR, /* from a filter: no length, no index, gone when walked over */
};

struct jinja_list {
    struct jinja_value *items;
    size_t n, cap;
    enum jinja_list_form form;
    int64_t start, stop, step; /* of a range */
};

/* A macro, or the body of a call block, with the frame where it was written. */
struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_frame *frame;
};

struct jinja_method {
    struct jinja_value self;
    const struct jinja_builtin *builtin;
};

struct jinja_pair {
    struct jinja_value key, value;
};

struct jinja_map {
    struct jinja_pair *pairs;
    size_t n, cap;
    bool printing; /* a namespace that holds itself does not print itself again */
};

struct jinja_loop {
    const struct jinja_list *items;
    size_t i;
    uint32_t depth;
    const struct jinja_node *node; /* of the for-loop, when it may be called */
    struct jinja_frame *frame;     /* around it */
    struct jinja_value changed;    /* what changed() was last asked about */
};

/* --- making and telling ----------------------------------------------------------------------- */

static inline struct jinja_value jinja_undefined(void)
{
    return (struct jinja_value){.kind = JINJA_V_UNDEFINED};
}
static inline struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_V_NONE};
}
static inline struct jinja_value jinja_bool(bool b)
{
    return (struct jinja_value){.kind = JINJA_V_BOOL, .b = b};
}
static inline struct jinja_value jinja_int(int64_t i)
{
    return (struct jinja_value){.kind = JINJA_V_INT, .i = i};
}
static inline struct jinja_value jinja_float(double f)
{
    return (struct jinja_value){.kind = JINJA_V_FLOAT, .f = f};
}
static inline struct jinja_value jinja_str(struct str s)
{
    return (struct jinja_value){.kind = JINJA_V_STR, .s = s};
}

static inline bool jinja_is_map(struct jinja_value v)
{
    return v.kind == JINJA_V_MAP || v.kind == JINJA_V_OBJECT;
}
static inline bool jinja_is_list(struct jinja_value v, enum jinja_list_form form)
{
    return v.kind == JINJA_V_LIST && v.list->form == form;
}
static inline bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_V_INT || v.kind == JINJA_V_FLOAT || v.kind == JINJA_V_BOOL;
}
