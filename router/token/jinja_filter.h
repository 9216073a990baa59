/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Filters are many: those of strings and numbers are in jinja_filter.c, those of lists and mappings
 * in jinja_filter_list.c.
 */
#pragma once

#include "router/token/jinja_builtin.h"

#define FILTER(name)                                                                               \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)

const struct jinja_builtin *jinja_find_list_filter(struct str name);
