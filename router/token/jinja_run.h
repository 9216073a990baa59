/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rendering: values, variables, and what built-in filters, tests and functions see of them.
 *
 * The first error sticks in the run: functions then return undefined, and loops look at `r`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "lib/base/arena.h"
#include "lib/base/buf.h"
#include "router/token/jinja_ast.h"
#include "router/token/jinja_value.h"

struct json;

struct jinja_args {
    struct jinja_value *values;
    struct str *names; /* empty: positional */
    size_t n;
    struct str callee; /* for messages */
    uint32_t given;    /* bits: which parameters there are arguments for (jinja_invoke) */
};

struct jinja_run {
    struct arena *a;
    struct buf *out;
    const struct json *vars, *over;
    const struct tm *now;
    struct jinja_frame *frame, *globals;
    struct jinja_value captured;
    bool old_prints;   /* values print as in TEMPLATE_DYNAMO_0_9 */
    bool as_1;         /* template_act_as_1() */
    struct json *read; /* owned by who renders: texts that were made values, or NULL */
    size_t read_bytes;
    uint32_t line, depth, calls;
    uint64_t steps, max_steps; /* max_steps: 0 = TEMPLATE_MAX_STEPS */
    bool breaks, continues;    /* the loop around ends, or this turn of it */
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

/* A copy in the run's memory; clears @b for the next use. */
struct jinja_value jinja_str_from_buf(struct jinja_run *run, struct buf *b);
struct jinja_value jinja_list_new(struct jinja_run *run);
struct jinja_value jinja_list_of(struct jinja_run *run, enum jinja_list_form form);
void jinja_list_push(struct jinja_run *run, struct jinja_value list, struct jinja_value item);
struct jinja_value jinja_map_new(struct jinja_run *run);
void jinja_map_set(struct jinja_run *run, struct jinja_value map, struct jinja_value key,
                   struct jinja_value value);
struct jinja_value jinja_from_json(struct jinja_run *run, const struct json *v);

/* --- reading values --------------------------------------------------------------------------- */

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
/* Undefined when there is none. */
struct jinja_value jinja_member(struct jinja_run *run, struct jinja_value map,
                                struct jinja_value key);
bool jinja_has_member(struct jinja_run *run, struct jinja_value map, struct jinja_value key);
/* What a for-loop sees: items, characters, keys; fails the run for other kinds. A list. */
struct jinja_value jinja_iterate(struct jinja_run *run, struct jinja_value v);
/* The view of (key, value) tuples. */
struct jinja_value jinja_items(struct jinja_run *run, struct jinja_value map);
/* Whether Python could have it as a key; fails the run when not. */
bool jinja_check_key(struct jinja_run *run, struct jinja_value key);
/* a.name and a[key] */
struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct str name);
struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key);

/* As {{ v }} prints it. */
void jinja_print(struct jinja_run *run, struct jinja_value v, struct buf *out);
/* As Python's repr(). */
void jinja_print_quoted(struct jinja_run *run, struct jinja_value v, struct buf *out);

struct jinja_json_style {
    struct str indent; /* NULL pointer: all on one line */
    struct str comma, colon;
    bool ascii, sorted, html; /* html: < > & ' are escaped */
};
void jinja_print_json(struct jinja_run *run, struct jinja_value v,
                      const struct jinja_json_style *style, struct buf *out);
/* As {{ v }}; borrowed when it is a string already. */
struct str jinja_text(struct jinja_run *run, struct jinja_value v);

/* --- evaluation ------------------------------------------------------------------------------- */

struct jinja_value jinja_eval(struct jinja_run *run, const struct jinja_node *n);
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value fn,
                              const struct jinja_args *args);
/* Binary operators but for comparisons. */
struct jinja_value jinja_calculate(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                   struct jinja_value b);
/* a[start:stop:step]; none where a bound is left out. */
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value of,
                               const struct jinja_value bounds[3]);
/* Runs the whole template. */
void jinja_exec(struct jinja_run *run, const struct jinja_node *n);
