/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table per program: flags, environment variables, defaults, bounds and --help.
 *
 * Precedence, strongest first: command line, environment, default. Flags are accepted as
 * --name value, --name=value and, where `go_style` is set, with one dash (the operator's flags).
 * A bool takes --name, --name=true|false, and --no-name. Unknown flags, missing values, bad
 * numbers and values out of bounds are errors that name the flag or variable and the bound.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum conf_type {
    CONF_STR,  /* char *, owned by the struct, NULL when unset */
    CONF_BOOL, /* bool */
    CONF_U64,  /* uint64_t */
    CONF_F64,  /* double; NAN when unset without default */
    CONF_DURATION, /* uint64_t milliseconds; text "15m", "1.5s", "30s", "250ms"; bare number = seconds */
    CONF_ENUM, /* int; words in `words`, index is the value; '-' and '_' are the same */
    CONF_LIST, /* char *, words between spaces, NULL when unset; each flag adds to what was there */
    CONF_SET,  /* uint64_t: a comma list of such words, bit i stands for words[i] */
};

struct conf_field {
    const char *flag;  /* without dashes; NULL = environment only */
    const char *alias; /* a second flag name, or NULL */
    const char *env;   /* NULL = flag only */
    const char *env_alias;
    enum conf_type type;
    size_t offset;
    const char *initial; /* default as text; NULL = zero/NULL/NAN */
    double min, max;     /* numbers; both 0 = no bounds */
    const char *const *words;
    const char *help; /* NULL hides the option from --help */
};

struct conf_spec {
    const char *program; /* "dynamo-frontend" */
    const char *summary; /* one or two lines for --help */
    const struct conf_field *fields;
    size_t n_fields;
    bool go_style;
};

enum { CONF_HELP = 1, CONF_VERSION = 2 }; /* outcomes: --help or --version was asked for */

/*
 * Fills the struct at @into. @env maps a name to its value or NULL (main passes getenv).
 * 0, CONF_HELP, CONF_VERSION, or -EINVAL with @e filled. Free with conf_done() in every case.
 */
MUST_CHECK int conf_load(const struct conf_spec *spec, void *into, int argc, char *const *argv,
                         const char *(*env)(const char *name), struct err *e);
void conf_done(const struct conf_spec *spec, void *from);
void conf_print_help(const struct conf_spec *spec, FILE *out);
/* Sets one field from text, by flag or env name: how live routing changes are applied. */
MUST_CHECK int conf_set(const struct conf_spec *spec, void *into, struct str name, struct str text,
                        struct err *e);
