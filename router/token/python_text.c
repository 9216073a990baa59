/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/python_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"

/* "+16" or "-05" */
static int read_exponent(const char *text)
{
    uint64_t n = 0;

    (void)!str_parse_base(str_from(text + 1), 10, &n);
    return *text == '-' ? -(int)n : (int)n;
}

/* The shortest digits that read back the same, "d.dde+16" or "-dde-07". */
static int put_shortest(char text[static 40], double f)
{
    int digits;

    for (digits = 1; digits < 17; digits++) {
        (void)snprintf(text, 40, "%.*e", digits - 1, f);
        if (!(strtod(text, NULL) < f) && !(strtod(text, NULL) > f))
            break;
    }
    (void)snprintf(text, 40, "%.*e", digits - 1, f);
    return digits;
}

/* Where each of them begins and ends to write exponents. */
static bool takes_exponent(int exponent, enum float_form form)
{
    int least = form == FLOAT_PYTHON || form == FLOAT_DEBUG ? -4 : -5;

    return form != FLOAT_IN_FULL && (exponent >= 16 || exponent < least);
}

static void put_with_exponent(struct buf *out, const char *text, int exponent, enum float_form form)
{
    if (form == FLOAT_PYTHON)
        buf_put_cstr(out, text);
    else
        buf_printf(out, form == FLOAT_SERDE ? "%.*se%+d" : "%.*se%d",
                   (int)(strchr(text, 'e') - text), text, exponent);
}

void text_put_float(struct buf *out, double f, enum float_form form)
{
    char text[40];
    int digits, exponent;
    const char *d = text;

    if (isnan(f) || isinf(f)) {
        buf_put_cstr(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    digits = put_shortest(text, f);
    exponent = read_exponent(strchr(text, 'e') + 1);
    if (takes_exponent(exponent, form)) {
        put_with_exponent(out, text, exponent, form);
        return;
    }
    if (*d == '-')
        buf_put_char(out, *d++);
    if (exponent < 0) {
        buf_put_cstr(out, "0.");
        for (int i = -1; i > exponent; i--)
            buf_put_char(out, '0');
    }
    for (int i = 0; i < digits || i <= exponent; i++) {
        buf_put_char(out, i >= digits ? '0' : d[i == 0 ? 0 : i + 1]);
        if (i == exponent)
            buf_put_char(out, '.');
    }
    if (digits <= exponent + 1)
        buf_put_char(out, '0');
}

void python_put_float(struct buf *out, double f)
{
    text_put_float(out, f, FLOAT_PYTHON);
}

static void put_quoted(struct buf *out, const char *text)
{
    buf_put_char(out, '"');
    json_escape(out, str_from(text));
    buf_put_char(out, '"');
}

/* What stands between values, and how floats look. */
struct json_form {
    const char *comma, *colon;
    enum float_form floats;
    bool sorted;
};

static void put_value(struct buf *out, const struct json *v, const struct json_form *form);

static void put_child(struct buf *out, const struct json *child, bool is_first,
                      const struct json_form *form)
{
    if (!is_first)
        buf_put_cstr(out, form->comma);
    if (json_key(child)) {
        put_quoted(out, json_key(child));
        buf_put_cstr(out, form->colon);
    }
    put_value(out, child, form);
}

static int compare_keys(const void *a, const void *b)
{
    const struct json *const *left = a, *const *right = b;

    return strcmp(json_key(*left), json_key(*right));
}

static void put_sorted(struct buf *out, const struct json *v, const struct json_form *form)
{
    const struct json **members = xcalloc(json_len(v) + 1, sizeof(*members));
    size_t n = 0;

    JSON_FOREACH (child, v)
        members[n++] = child;
    qsort(members, n, sizeof(*members), compare_keys);
    for (size_t i = 0; i < n; i++)
        put_child(out, members[i], i == 0, form);
    free(members);
}

static void put_children(struct buf *out, const struct json *v, const struct json_form *form)
{
    if (form->sorted && json_is_object(v)) {
        put_sorted(out, v, form);
        return;
    }
    JSON_FOREACH (child, v)
        put_child(out, child, child == json_first(v), form);
}

static void put_value(struct buf *out, const struct json *v, const struct json_form *form)
{
    double f;

    if (json_is_object(v) || json_is_array(v)) {
        buf_put_char(out, json_is_object(v) ? '{' : '[');
        put_children(out, v, form);
        buf_put_char(out, json_is_object(v) ? '}' : ']');
    } else if (json_is_float(v) && json_f64(v, &f)) {
        text_put_float(out, f, form->floats);
    } else {
        json_print(v, out);
    }
}

void text_put_json(struct buf *out, const struct json *v, enum float_form floats)
{
    const struct json_form form = {", ", ": ", floats, false};

    put_value(out, v, &form);
}

void python_put_json(struct buf *out, const struct json *v)
{
    text_put_json(out, v, FLOAT_PYTHON);
}

void serde_put_sorted(struct buf *out, const struct json *v)
{
    static const struct json_form form = {",", ":", FLOAT_SERDE, true};

    put_value(out, v, &form);
}
