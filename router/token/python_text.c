/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/python_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"

/* "+16" or "-05" */
static int read_exponent(const char *text)
{
    uint64_t n = 0;

    (void)!str_parse_base(str_from(text + 1), 10, &n);
    return *text == '-' ? -(int)n : (int)n;
}

/* The shortest digits that read back the same, laid out as Python does: exponents from 1e16 on. */
void python_put_float(struct buf *out, double f)
{
    char text[40];
    int digits, exponent;
    const char *d = text;

    if (isnan(f) || isinf(f)) {
        buf_put_cstr(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    for (digits = 1; digits < 17; digits++) {
        (void)snprintf(text, sizeof(text), "%.*e", digits - 1, f);
        if (!(strtod(text, NULL) < f) && !(strtod(text, NULL) > f))
            break;
    }
    (void)snprintf(text, sizeof(text), "%.*e", digits - 1, f);
    exponent = read_exponent(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        buf_put_cstr(out, text);
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

static void put_quoted(struct buf *out, const char *text)
{
    buf_put_char(out, '"');
    json_escape(out, str_from(text));
    buf_put_char(out, '"');
}

static void put_children(struct buf *out, const struct json *v)
{
    JSON_FOREACH (child, v) {
        if (child != json_first(v))
            buf_put_cstr(out, ", ");
        if (json_key(child)) {
            put_quoted(out, json_key(child));
            buf_put_cstr(out, ": ");
        }
        python_put_json(out, child);
    }
}

void python_put_json(struct buf *out, const struct json *v)
{
    double f;

    if (json_is_object(v) || json_is_array(v)) {
        buf_put_char(out, json_is_object(v) ? '{' : '[');
        put_children(out, v);
        buf_put_char(out, json_is_object(v) ? '}' : ']');
    } else if (json_is_float(v) && json_f64(v, &f)) {
        python_put_float(out, f);
    } else {
        json_print(v, out);
    }
}
