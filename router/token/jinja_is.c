/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests: x is name(arguments).
 */
#include "router/token/jinja_builtin.h"

#include "router/token/jinja_text.h"

#define IS(name)                                                                                   \
    static struct jinja_value name(struct jinja_run *run, struct jinja_value in,                   \
                                   const struct jinja_args *args)
/* A test of the kind alone. */
#define IS_KIND(name, condition)                                                                   \
    IS(name)                                                                                       \
    {                                                                                              \
        (void)run;                                                                                 \
        (void)args;                                                                                \
        return jinja_bool(condition);                                                              \
    }
/* A test that compares with its argument. */
#define IS_COMPARED(name, condition)                                                               \
    IS(name)                                                                                       \
    {                                                                                              \
        return jinja_bool(condition(run, in, jinja_arg(args, 0, "other")));                        \
    }

IS_KIND(is_defined, in.kind != JINJA_V_UNDEFINED)
IS_KIND(is_undefined, in.kind == JINJA_V_UNDEFINED)
IS_KIND(is_none, in.kind == JINJA_V_NONE)
IS_KIND(is_boolean, in.kind == JINJA_V_BOOL)
IS_KIND(is_true, in.kind == JINJA_V_BOOL && in.b)
IS_KIND(is_false, in.kind == JINJA_V_BOOL && !in.b)
IS_KIND(is_integer, in.kind == JINJA_V_INT)
IS_KIND(is_float, in.kind == JINJA_V_FLOAT)
IS_KIND(is_number, jinja_is_number(in))
IS_KIND(is_string, in.kind == JINJA_V_STR)
IS_KIND(is_mapping, jinja_is_map(in))
IS_KIND(is_sequence, in.kind == JINJA_V_LIST || in.kind == JINJA_V_STR || jinja_is_map(in))
IS_KIND(is_iterable, in.kind == JINJA_V_LIST || in.kind == JINJA_V_STR || jinja_is_map(in) ||
                         in.kind == JINJA_V_UNDEFINED)
IS_KIND(is_callable, in.kind == JINJA_V_MACRO || in.kind == JINJA_V_FUNCTION)

static bool less(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return jinja_compare(run, a, b) < 0;
}

static bool greater(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return jinja_compare(run, a, b) > 0;
}

static bool not_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return !jinja_equal(run, a, b);
}

static bool at_most(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return jinja_compare(run, a, b) <= 0;
}

static bool at_least(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return jinja_compare(run, a, b) >= 0;
}

static bool within(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return jinja_contains(run, b, a);
}

/* Identity: equal and of one kind, so that 1 is not true. */
static bool same(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return a.kind == b.kind && jinja_equal(run, a, b);
}

static bool divides(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value rest;

    if (!jinja_is_number(a) || !jinja_is_number(b))
        return jinja_fail(run, "cannot divide %s by %s", jinja_kind_name(a), jinja_kind_name(b)).b;
    rest = jinja_calculate(run, JINJA_MOD, a, b);
    return !jinja_truth(rest);
}

IS_COMPARED(is_equal, jinja_equal)
IS_COMPARED(is_not_equal, not_equal)
IS_COMPARED(is_less, less)
IS_COMPARED(is_at_most, at_most)
IS_COMPARED(is_greater, greater)
IS_COMPARED(is_at_least, at_least)
IS_COMPARED(is_in, within)
IS_COMPARED(is_same, same)
IS_COMPARED(is_divisible, divides)

IS(is_even)
{
    (void)args;
    return jinja_bool(divides(run, in, jinja_int(2)));
}

IS(is_odd)
{
    (void)args;
    return jinja_bool(!divides(run, in, jinja_int(2)));
}

/* "1" is neither: it takes a letter that has case. */
static struct jinja_value has_case(struct jinja_run *run, struct jinja_value in, enum jinja_case to)
{
    struct str s = jinja_text(run, in);
    struct str other = jinja_change_case(run, s, to == JINJA_UPPER ? JINJA_LOWER : JINJA_UPPER).s;

    return jinja_bool(str_eq(jinja_change_case(run, s, to).s, s) && !str_eq(other, s));
}

IS(is_lower)
{
    (void)args;
    return has_case(run, in, JINJA_LOWER);
}

IS(is_upper)
{
    (void)args;
    return has_case(run, in, JINJA_UPPER);
}

const struct jinja_builtin *jinja_find_test(struct str name)
{
    static const struct jinja_builtin tests[] = {
        {"boolean", is_boolean},
        {"callable", is_callable},
        {"defined", is_defined},
        {"divisibleby", is_divisible},
        {"eq", is_equal},
        {"equalto", is_equal},
        {"==", is_equal},
        {"even", is_even},
        {"false", is_false},
        {"False", is_false},
        {"float", is_float},
        {"ge", is_at_least},
        {">=", is_at_least},
        {"greaterthan", is_greater},
        {"gt", is_greater},
        {">", is_greater},
        {"in", is_in},
        {"integer", is_integer},
        {"iterable", is_iterable},
        {"le", is_at_most},
        {"<=", is_at_most},
        {"lessthan", is_less},
        {"lower", is_lower},
        {"lt", is_less},
        {"<", is_less},
        {"mapping", is_mapping},
        {"ne", is_not_equal},
        {"!=", is_not_equal},
        {"none", is_none},
        {"None", is_none},
        {"number", is_number},
        {"odd", is_odd},
        {"sameas", is_same},
        {"sequence", is_sequence},
        {"string", is_string},
        {"true", is_true},
        {"True", is_true},
        {"undefined", is_undefined},
        {"upper", is_upper},
    };

    for (size_t i = 0; i < ARRAY_LEN(tests); i++)
        if (str_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}
