/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic, concatenation and slices, as Python does them; integers that overflow are an error.
 */
#include "router/token/jinja_builtin.h"

#include <math.h>

#include "router/token/utf8.h"

static const char *op_text(enum jinja_op op)
{
    static const char *const texts[] = {
        [JINJA_ADD] = "+",        [JINJA_SUB] = "-", [JINJA_MUL] = "*",  [JINJA_DIV] = "/",
        [JINJA_FLOOR_DIV] = "//", [JINJA_MOD] = "%", [JINJA_POW] = "**", [JINJA_CONCAT] = "~",
        [JINJA_EQ] = "==",        [JINJA_NE] = "!=", [JINJA_LT] = "<",   [JINJA_LE] = "<=",
        [JINJA_GT] = ">",         [JINJA_GE] = ">=", [JINJA_IN] = "in",  [JINJA_NOT_IN] = "not in",
    };

    return texts[op];
}

static struct jinja_value concat(struct jinja_run *run, struct str a, struct str b)
{
    char *both = jinja_alloc(run, a.len + b.len);

    if (a.len)
        memcpy(both, a.ptr, a.len);
    if (b.len)
        memcpy(both + a.len, b.ptr, b.len);
    return jinja_str(str_slice(both, a.len + b.len));
}

static struct jinja_value concat_lists(struct jinja_run *run, const struct jinja_list *a,
                                       const struct jinja_list *b)
{
    struct jinja_value list = jinja_list_of(run, a->form);

    for (size_t i = 0; i < a->n && jinja_spend(run, 1); i++)
        jinja_list_push(run, list, a->items[i]);
    for (size_t i = 0; i < b->n && jinja_spend(run, 1); i++)
        jinja_list_push(run, list, b->items[i]);
    return list;
}

static struct jinja_value repeat(struct jinja_run *run, struct jinja_value what, int64_t times)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct jinja_value list =
        jinja_list_of(run, what.kind == JINJA_V_LIST ? what.list->form : JINJA_LIST_PLAIN);

    for (int64_t i = 0; i < times && jinja_spend(run, 1); i++) {
        if (what.kind == JINJA_V_LIST) {
            for (size_t k = 0; k < what.list->n && jinja_spend(run, 1); k++)
                jinja_list_push(run, list, what.list->items[k]);
        } else {
            (void)jinja_spend(run, what.s.len / 16);
            buf_put_str(&text, what.s);
        }
    }
    return what.kind == JINJA_V_LIST ? list : jinja_str_from_buf(run, &text);
}

/* 2 ** -1 is a float, 2 ** 3 is not. */
static struct jinja_value power(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    int64_t base = 0, times = 0, all = 1;

    if (!jinja_as_int(a, &base) || !jinja_as_int(b, &times) || times < 0) {
        double f = jinja_as_float(a), to = jinja_as_float(b), all_f = pow(f, to);

        if (fpclassify(f) == FP_ZERO && to < 0)
            return jinja_fail(run, "zero to a negative power");
        if (f < 0 && floor(to) < to)
            return jinja_fail(run, "a root of a negative number");
        return isinf(all_f) && !isinf(f) && !isinf(to) ? jinja_fail(run, "number out of range")
                                                       : jinja_float(all_f);
    }
    for (; times > 0 && jinja_spend(run, 1); times--)
        if (__builtin_mul_overflow(all, base, &all))
            return jinja_fail(run, "number out of range");
    return jinja_int(all);
}

static struct jinja_value divide(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                 struct jinja_value b)
{
    int64_t i = 0, j = 0, rest;
    double f, g = jinja_as_float(b), rest_f, quotient;

    if (fpclassify(g) == FP_ZERO)
        return jinja_fail(run, "division by zero");
    if (op != JINJA_DIV && jinja_as_int(a, &i) && jinja_as_int(b, &j)) {
        if (j == -1) /* the one quotient that may not fit, and a trap */
            return op == JINJA_MOD  ? jinja_int(0)
                   : i == INT64_MIN ? jinja_fail(run, "number out of range")
                                    : jinja_int(-i);
        rest = i % j;
        if (rest != 0 && (rest < 0) != (j < 0))
            rest += j; /* the remainder takes the sign of the divisor */
        return jinja_int(op == JINJA_MOD ? rest : (i - rest) / j);
    }
    f = jinja_as_float(a);
    if (op == JINJA_DIV)
        return jinja_float(f / g);
    rest_f = fmod(f, g);
    quotient = (f - rest_f) / g;
    if (fpclassify(rest_f) == FP_ZERO) {
        rest_f = copysign(0, g);
    } else if ((g < 0) != (rest_f < 0)) {
        rest_f += g;
        quotient -= 1;
    }
    if (op == JINJA_MOD)
        return jinja_float(rest_f);
    if (fpclassify(quotient) == FP_ZERO)
        return jinja_float(copysign(0, f / g));
    return jinja_float(quotient - floor(quotient) > 0.5 ? floor(quotient) + 1 : floor(quotient));
}

static struct jinja_value calculate_int(struct jinja_run *run, enum jinja_op op, int64_t a,
                                        int64_t b)
{
    int64_t out = 0;
    bool overflow = op == JINJA_ADD   ? __builtin_add_overflow(a, b, &out)
                    : op == JINJA_SUB ? __builtin_sub_overflow(a, b, &out)
                                      : __builtin_mul_overflow(a, b, &out);

    return overflow ? jinja_fail(run, "number out of range") : jinja_int(out);
}

static struct jinja_value calculate_number(struct jinja_run *run, enum jinja_op op,
                                           struct jinja_value a, struct jinja_value b)
{
    int64_t i = 0, j = 0;
    double f, g;

    if (op == JINJA_POW)
        return power(run, a, b);
    if (op == JINJA_DIV || op == JINJA_FLOOR_DIV || op == JINJA_MOD)
        return divide(run, op, a, b);
    if (jinja_as_int(a, &i) && jinja_as_int(b, &j))
        return calculate_int(run, op, i, j);
    f = jinja_as_float(a);
    g = jinja_as_float(b);
    return jinja_float(op == JINJA_ADD ? f + g : op == JINJA_SUB ? f - g : f * g);
}

/* A list or a tuple. */
static bool is_sequence(struct jinja_value v)
{
    return v.kind == JINJA_V_LIST && v.list->form <= JINJA_LIST_TUPLE;
}

struct jinja_value jinja_calculate(struct jinja_run *run, enum jinja_op op, struct jinja_value a,
                                   struct jinja_value b)
{
    int64_t times = 0;

    if (op == JINJA_CONCAT)
        return concat(run, jinja_text(run, a), jinja_text(run, b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return calculate_number(run, op, a, b);
    if (op == JINJA_ADD && a.kind == JINJA_V_STR && b.kind == JINJA_V_STR)
        return concat(run, a.s, b.s);
    if (op == JINJA_ADD && is_sequence(a) && is_sequence(b) && a.list->form == b.list->form)
        return concat_lists(run, a.list, b.list);
    if (op == JINJA_MUL && (a.kind == JINJA_V_STR || is_sequence(a)) && jinja_as_int(b, &times))
        return repeat(run, a, times);
    if (op == JINJA_MUL && (b.kind == JINJA_V_STR || is_sequence(b)) && jinja_as_int(a, &times))
        return repeat(run, b, times);
    if (op == JINJA_MOD && a.kind == JINJA_V_STR)
        return jinja_percent(run, a.s, b);
    return jinja_fail(run, "unsupported operands for %s: %s and %s", op_text(op),
                      jinja_kind_name(a), jinja_kind_name(b));
}

/* --- slices ----------------------------------------------------------------------------------- */

/* Python's rule: negative counts from the end, out of range is cut to it. */
static int64_t bound(int64_t at, int64_t n, int64_t lowest, int64_t highest)
{
    if (at < 0)
        at += n;
    return at < lowest ? lowest : at > highest ? highest : at;
}

static bool read_bound(struct jinja_run *run, struct jinja_value v, int64_t *at)
{
    if (v.kind == JINJA_V_NONE)
        return false;
    if (!jinja_as_int(v, at))
        (void)jinja_fail(run, "a slice is bounded by numbers, not by %s", jinja_kind_name(v));
    return run->r == 0;
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value of,
                               const struct jinja_value bounds[3])
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct jinja_value items, list;
    int64_t n, start, stop, step = 1;

    if (of.kind != JINJA_V_STR && (of.kind != JINJA_V_LIST || of.list->form > JINJA_LIST_RANGE))
        return jinja_fail(run, "cannot slice %s", jinja_kind_name(of));
    items = jinja_iterate(run, of);
    list = jinja_list_of(run, of.kind == JINJA_V_LIST ? of.list->form : JINJA_LIST_PLAIN);
    n = (int64_t)items.list->n;
    (void)read_bound(run, bounds[2], &step);
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
        return jinja_fail(run, "a slice needs a step");
    start = step > 0 ? 0 : n - 1;
    stop = step > 0 ? n : -1;
    if (read_bound(run, bounds[0], &start))
        start = step > 0 ? bound(start, n, 0, n) : bound(start, n, -1, n - 1);
    if (read_bound(run, bounds[1], &stop))
        stop = step > 0 ? bound(stop, n, 0, n) : bound(stop, n, -1, n - 1);
    if (jinja_is_list(of, JINJA_LIST_RANGE)) {
        list.list->start = of.list->start + start * of.list->step;
        list.list->stop = of.list->start + stop * of.list->step;
        list.list->step = of.list->step * step;
    }
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && jinja_spend(run, 1);) {
        if (of.kind == JINJA_V_STR)
            buf_put_str(&text, items.list->items[i].s);
        else
            jinja_list_push(run, list, items.list->items[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return of.kind == JINJA_V_STR ? jinja_str_from_buf(run, &text) : list;
}
