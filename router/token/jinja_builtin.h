/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters, tests, functions and methods: how they are found, and how they get their arguments.
 */
#pragma once

#include "router/token/jinja_run.h"

struct jinja_builtin {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_value in,
                               const struct jinja_args *args);
    /* Names of the parameters in order, with spaces between; "!" ends a required one; a "/" in
     * front: not to be given by name. NULL: it reads its arguments itself. */
    const char *params;
};

/* NULL when there is no such. */
const struct jinja_builtin *jinja_find_filter(struct str name);
const struct jinja_builtin *jinja_find_test(struct str name);
const struct jinja_builtin *jinja_find_function(struct str name);
/* A method of @of; NULL when it has none of that name. */
const struct jinja_builtin *jinja_find_method(struct jinja_value of, struct str name);
const struct jinja_builtin *jinja_find_str_method(struct str name);

/* Brings the arguments into the order of the parameters and calls. */
struct jinja_value jinja_invoke(struct jinja_run *run, const struct jinja_builtin *what,
                                struct jinja_value in, const struct jinja_args *args);

/* The argument for the @i-th parameter; undefined when absent. */
struct jinja_value jinja_arg(const struct jinja_args *args, size_t i);
bool jinja_has_arg(const struct jinja_args *args, size_t i);
/* For those without a list of parameters: the argument of that name, NULL when absent. */
const struct jinja_value *jinja_named_arg(const struct jinja_args *args, const char *name);
/* A string argument; fails the run when it is something else. @fallback when absent; where that is
 * a NULL pointer, none stands for it too. */
struct str jinja_arg_str(struct jinja_run *run, const struct jinja_args *args, size_t i,
                         struct str fallback);
int64_t jinja_arg_int(struct jinja_run *run, const struct jinja_args *args, size_t i,
                      int64_t fallback);

/* "…%s…" % values, with a tuple, a mapping or one value (jinja_format.c). */
struct jinja_value jinja_percent(struct jinja_run *run, struct str format,
                                 struct jinja_value values);
/* "…{}…".format(arguments) */
struct jinja_value jinja_braces(struct jinja_run *run, struct str format,
                                const struct jinja_args *args);
