/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rendering: values, variables, and what built-in filters, tests and functions see of them.
 *
 * Values are small and passed by copy; what they point to lies in the run's arena or in the
 * caller's JSON, which is wrapped and not copied. They are immutable but for namespaces. The first
 * error sticks in the run: functions then return undefined, and loops look at `r`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "router/token/jinja_ast.h"

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
    JINJA_V_LOOP,
    JINJA_V_MACRO,
    JINJA_V_FUNCTION,
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        struct str s;
        struct jinja_list *list;
        struct jinja_map *map;
        const struct json *object;
        const struct jinja_loop *loop;
        const struct jinja_node *macro;
        const struct jinja_builtin *function;
    };
};

struct jinja_list {
    struct jinja_value *items;
    size_t n, cap;
};

struct jinja_pair {
    struct jinja_value key, value;
};

struct jinja_map {
    struct jinja_pair *pairs;
    size_t n, cap;
    bool is_namespace; /* its attributes may be set */
};

struct jinja_loop {
    const struct jinja_list *items;
    size_t i;
    uint32_t depth;
};

struct jinja_args {
    struct jinja_value *values;
    struct str *names; /* empty: positional */
    size_t n;
    struct str callee; /* for messages */
};

struct jinja_run {
    struct arena *a;
    struct buf *out;
    const struct json *vars, *over;
    const struct tm *now;
    struct jinja_frame *frame, *globals;
    struct jinja_value captured;
    uint32_t line, depth, calls, loops;
    uint64_t steps;
    bool breaks, continues; /* the loop around ends, or this turn of it */
    int r;
    struct err *e;
};

/* --- errors and limits ------------------------------------------------------------------------ */

struct jinja_value jinja_fail(struct jinja_run *run, const char *format, ...) PRINTF_LIKE(2, 3);
/* Counts @n units of work; false when the run is over, for this or another reason. */
bool jinja_spend(struct jinja_run *run, uint64_t n);
/* Memory of the run, zeroed. An over-large request fails the run; it still gets what it asked. */
void *jinja_alloc(struct jinja_run *run, size_t size) __attribute__((returns_nonnull));

/* --- making values ---------------------------------------------------------------------------- */

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
/* A copy in the run's memory; clears @b for the next use. */
struct jinja_value jinja_str_from_buf(struct jinja_run *run, struct buf *b);
struct jinja_value jinja_list_new(struct jinja_run *run);
void jinja_list_push(struct jinja_run *run, struct jinja_value list, struct jinja_value item);
struct jinja_value jinja_map_new(struct jinja_run *run);
void jinja_map_set(struct jinja_run *run, struct jinja_value map, struct jinja_value key,
                   struct jinja_value value);
struct jinja_value jinja_from_json(struct jinja_run *run, const struct json *v);

/* --- reading values --------------------------------------------------------------------------- */

static inline bool jinja_is_map(struct jinja_value v)
{
    return v.kind == JINJA_V_MAP || v.kind == JINJA_V_OBJECT;
}
static inline bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_V_INT || v.kind == JINJA_V_FLOAT || v.kind == JINJA_V_BOOL;
}
bool jinja_truth(struct jinja_value v);
const char *jinja_kind_name(struct jinja_value v);
/* Whole numbers and booleans as an integer; false for the rest. */
bool jinja_as_int(struct jinja_value v, int64_t *ret);
double jinja_as_float(struct jinja_value v); /* of a number */
bool jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* -1, 0, 1; fails the run when the two have no order. */
int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
bool jinja_contains(struct jinja_run *run, struct jinja_value all, struct jinja_value item);
/* Characters, items or members; -1 when the value has no length. */
int64_t jinja_length(struct jinja_value v);
/* Undefined when there is none. Objects give their members sorted by key. */
struct jinja_value jinja_member(struct jinja_run *run, struct jinja_value map,
                                struct jinja_value key);
/* What a for-loop sees: items, characters, keys; fails the run for other kinds. A list. */
struct jinja_value jinja_iterate(struct jinja_run *run, struct jinja_value v);
/* List of [key, value] lists. */
struct jinja_value jinja_items(struct jinja_run *run, struct jinja_value map);
/* a.name and a[key] */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct str name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key);

/* As {{ v }} prints it. */
void jinja_print(struct jinja_run *run, struct jinja_value v, struct buf *out);
/* @indent < 0: compact. Keys sorted, < > & ' escaped. */
void jinja_print_json(struct jinja_run *run, struct jinja_value v, int indent, struct buf *out);
/* As {{ v }}; borrowed when it is a string already. */
struct str jinja_text(struct jinja_run *run, struct jinja_value v);

/* --- evaluation ------------------------------------------------------------------------------- */

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *n);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value fn,
                              const struct jinja_args *args);
/* Binary operators but for comparisons. */
struct jinja_value jinja_calculate(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                   struct jinja_value b);
/* a[start:stop:step]; undefined or none where a bound is left out. */
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value of,
                               const struct jinja_value bounds[3]);
/* Runs the whole template. */
void jinja_exec(struct jinja_run *run, const struct jinja_node *n);
