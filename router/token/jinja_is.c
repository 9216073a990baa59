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
        return jinja_bool(condition(run, in, jinja_arg(args, 0)));                                 \
    }

IS_KIND(is_defined, in.kind != JINJA_V_UNDEFINED)
IS_KIND(is_undefined, in.kind == JINJA_V_UNDEFINED)
IS_KIND(is_none, in.kind == JINJA_V_NONE)
IS_KIND(is_boolean, in.kind == JINJA_V_BOOL)
IS_KIND(is_true, in.kind == JINJA_V_BOOL && in.b)
IS_KIND(is_false, in.kind == JINJA_V_BOOL && !in.b)
IS_KIND(is_integer, in.kind == JINJA_V_INT || (in.kind == JINJA_V_FLOAT && in.whole))
IS_KIND(is_float, in.kind == JINJA_V_FLOAT && !in.whole)
IS_KIND(is_number, jinja_is_number(in))
IS_KIND(is_string, in.kind == JINJA_V_STR)
IS_KIND(is_mapping, jinja_is_map(in))

/* Python's idea: what has a length and can be indexed, by whatever. */
static bool has_items(struct jinja_value v)
{
    return v.kind == JINJA_V_STR || v.kind == JINJA_V_UNDEFINED || jinja_is_map(v) ||
           (v.kind == JINJA_V_LIST && v.list->form < JINJA_LIST_KEYS);
}

IS_KIND(is_sequence, has_items(in))
IS_KIND(is_iterable, has_items(in) || in.kind == JINJA_V_LIST || in.kind == JINJA_V_LOOP)
IS_KIND(is_callable, in.kind == JINJA_V_MACRO || in.kind == JINJA_V_FUNCTION ||
                         in.kind == JINJA_V_METHOD || in.kind == JINJA_V_LOOP ||
                         in.kind == JINJA_V_UNDEFINED)

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

/* Identity, as far as values that do not change have one: 1 is not true. */
static bool same(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    return a.kind == b.kind && jinja_equal(run, a, b);
}

static bool divides(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_value rest = jinja_calculate(run, JINJA_MOD, a, b);

    return run->r == 0 && jinja_equal(run, rest, jinja_int(0));
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
    struct jinja_value rest = jinja_calculate(run, JINJA_MOD, in, jinja_int(2));

    (void)args;
    return jinja_bool(run->r == 0 && jinja_equal(run, rest, jinja_int(1)));
}

IS(is_lower)
{
    (void)args;
    return jinja_bool(jinja_has_case(jinja_text(run, in), false));
}

IS(is_upper)
{
    (void)args;
    return jinja_bool(jinja_has_case(jinja_text(run, in), true));
}

IS(is_filter)
{
    (void)args;
    (void)run;
    return jinja_bool(in.kind == JINJA_V_STR && jinja_find_filter(in.s));
}

IS(is_test)
{
    (void)args;
    (void)run;
    return jinja_bool(in.kind == JINJA_V_STR && jinja_find_test(in.s));
}

const struct jinja_builtin *jinja_find_test(struct str name)
{
    static const struct jinja_builtin tests[] = {
        {"boolean", is_boolean, ""},
        {"callable", is_callable, ""},
        {"defined", is_defined, ""},
        {"divisibleby", is_divisible, "other!"},
        {"eq", is_equal, "other!"},
        {"equalto", is_equal, "other!"},
        {"==", is_equal, "other!"},
        {"even", is_even, ""},
        {"false", is_false, ""},
        {"filter", is_filter, ""},
        {"float", is_float, ""},
        {"ge", is_at_least, "other!"},
        {">=", is_at_least, "other!"},
        {"greaterthan", is_greater, "other!"},
        {"gt", is_greater, "other!"},
        {">", is_greater, "other!"},
        {"in", is_in, "other!"},
        {"integer", is_integer, ""},
        {"iterable", is_iterable, ""},
        {"le", is_at_most, "other!"},
        {"<=", is_at_most, "other!"},
        {"lessthan", is_less, "other!"},
        {"lower", is_lower, ""},
        {"lt", is_less, "other!"},
        {"<", is_less, "other!"},
        {"mapping", is_mapping, ""},
        {"ne", is_not_equal, "other!"},
        {"!=", is_not_equal, "other!"},
        {"none", is_none, ""},
        {"number", is_number, ""},
        {"odd", is_odd, ""},
        {"sameas", is_same, "other!"},
        {"sequence", is_sequence, ""},
        {"string", is_string, ""},
        {"test", is_test, ""},
        {"true", is_true, ""},
        {"undefined", is_undefined, ""},
        {"upper", is_upper, ""},
    };

    for (size_t i = 0; i < ARRAY_LEN(tests); i++)
        if (str_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}
