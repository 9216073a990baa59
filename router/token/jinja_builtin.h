/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters, tests, functions and methods: how they are found, and how they read their arguments.
 */
#pragma once

#include "router/token/jinja_run.h"

struct jinja_builtin {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *run, struct jinja_value in,
                               const struct jinja_args *args);
};

/* NULL when there is no such. */
const struct jinja_builtin *jinja_find_filter(struct str name);
const struct jinja_builtin *jinja_find_test(struct str name);
const struct jinja_builtin *jinja_find_function(struct str name);
/* A method of strings or mappings; NULL when values of the kind have none of that name. */
const struct jinja_builtin *jinja_find_method(enum jinja_kind kind, struct str name);

/* The @i-th positional argument, or the one called @name (may be NULL); undefined when absent. */
struct jinja_value jinja_arg(const struct jinja_args *args, size_t i, const char *name);
bool jinja_has_arg(const struct jinja_args *args, size_t i, const char *name);
/* A string argument; fails the run when it is something else. @fallback when absent. */
struct str jinja_arg_str(struct jinja_run *run, const struct jinja_args *args, size_t i,
                         const char *name, struct str fallback);
int64_t jinja_arg_int(struct jinja_run *run, const struct jinja_args *args, size_t i,
                      const char *name, int64_t fallback);
