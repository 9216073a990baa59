/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of filters, tests, functions and methods.
 */
#include "router/token/jinja_builtin.h"

enum { PARAMS_MAX = 8 };

struct param {
    struct str name;
    bool needed;
};

/* The parameters that @text lists (struct jinja_builtin); how many. */
static size_t read_params(const char *text, struct param *out, bool *ret_by_name)
{
    struct str rest = str_from(text), name;
    size_t n = 0;

    *ret_by_name = !str_starts(rest, STR("/"));
    rest = str_skip(rest, !*ret_by_name);
    for (bool more = rest.len > 0; more && n < PARAMS_MAX; n++) {
        more = str_cut(&rest, ' ', &name);
        out[n].needed = str_ends(name, STR("!"));
        out[n].name = str_head(name, name.len - out[n].needed);
    }
    return n;
}

static size_t find_param(const struct param *params, size_t n, struct str name)
{
    size_t i = 0;

    while (i < n && !str_eq(params[i].name, name))
        i++;
    return i;
}

struct jinja_value jinja_invoke(struct jinja_run *run, const struct jinja_builtin *what,
                                struct jinja_value in, const struct jinja_args *args)
{
    struct jinja_value values[PARAMS_MAX] = {{0}};
    struct jinja_args in_order = {.values = values, .callee = str_from(what->name)};
    struct param params[PARAMS_MAX];
    bool by_name;

    if (!what->params)
        return what->call(run, in, args);
    in_order.n = read_params(what->params, params, &by_name);
    for (size_t i = 0; i < args->n; i++) {
        bool named = args->names && args->names[i].len > 0;
        size_t at = named ? find_param(params, by_name ? in_order.n : 0, args->names[i]) : i;

        if (at >= in_order.n || (named && !by_name))
            return named ? jinja_fail(run, "%s: no argument is called \"%.*s\"", what->name,
                                      STR_ARG(str_head(args->names[i], 64)))
                         : jinja_fail(run, "%s takes %zu arguments", what->name, in_order.n);
        if (in_order.given & 1U << at)
            return jinja_fail(run, "%s: argument \"%.*s\" is given twice", what->name,
                              STR_ARG(params[at].name));
        values[at] = args->values[i];
        in_order.given |= 1U << at;
    }
    for (size_t i = 0; i < in_order.n; i++)
        if (params[i].needed && !(in_order.given & 1U << i))
            return jinja_fail(run, "%s: argument \"%.*s\" is missing", what->name,
                              STR_ARG(params[i].name));
    return what->call(run, in, &in_order);
}

struct jinja_value jinja_arg(const struct jinja_args *args, size_t i)
{
    return i < args->n ? args->values[i] : jinja_undefined();
}

bool jinja_has_arg(const struct jinja_args *args, size_t i)
{
    return args->given & 1U << i;
}

const struct jinja_value *jinja_named_arg(const struct jinja_args *args, const char *name)
{
    for (size_t i = 0; args->names && i < args->n; i++)
        if (str_is(args->names[i], name))
            return &args->values[i];
    return NULL;
}

struct str jinja_arg_str(struct jinja_run *run, const struct jinja_args *args, size_t i,
                         struct str fallback)
{
    struct jinja_value v = jinja_arg(args, i);

    if (!jinja_has_arg(args, i) || (v.kind == JINJA_V_NONE && !fallback.ptr))
        return fallback;
    if (v.kind != JINJA_V_STR)
        (void)jinja_fail(run, "%.*s: argument %zu is %s and not a string", STR_ARG(args->callee),
                         i + 1, jinja_kind_name(v));
    return v.kind == JINJA_V_STR ? v.s : STR("");
}

int64_t jinja_arg_int(struct jinja_run *run, const struct jinja_args *args, size_t i,
                      int64_t fallback)
{
    struct jinja_value v = jinja_arg(args, i);
    int64_t n = fallback;

    if (jinja_has_arg(args, i) && !jinja_as_int(v, &n))
        (void)jinja_fail(run, "%.*s: argument %zu is %s and not a whole number",
                         STR_ARG(args->callee), i + 1, jinja_kind_name(v));
    return n;
}
