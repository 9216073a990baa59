/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: {{ x }} as the reference's engine prints it, and tojson.
 */
#include "router/token/jinja_run.h"

#include <math.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "router/token/utf8.h"

enum { PRINT_DEPTH = 128, PRINT_MAX_INDENT = 16 };

/* A whole float keeps its ".0", as in Python, JSON and Rust. */
static void put_float(struct buf *out, double f)
{
    size_t before = out->len;
    struct json_put j = json_put_on(out);
    struct str text;

    if (isnan(f) || isinf(f)) {
        buf_put_cstr(out, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    json_put_f64(&j, f);
    text = str_skip(buf_str(out), before);
    if (!memchr(text.ptr, '.', text.len) && !memchr(text.ptr, 'e', text.len))
        buf_put_cstr(out, ".0");
}

static void put_int(struct buf *out, int64_t i)
{
    struct json_put j = json_put_on(out);

    json_put_i64(&j, i);
}

/* --- {{ x }} ---------------------------------------------------------------------------------- */

static void put_quoted(struct buf *out, struct str s)
{
    buf_put_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (c == '"' || c == '\\')
            buf_printf(out, "\\%c", c);
        else if (c == '\n' || c == '\r' || c == '\t')
            buf_printf(out, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if ((uint8_t)c < 0x20 || c == 0x7f)
            buf_printf(out, "\\u{%x}", (unsigned)c);
        else
            buf_put_char(out, c);
    }
    buf_put_char(out, '"');
}

static void print(struct jinja_run *run, struct jinja_value v, bool inner, int depth,
                  struct buf *out);

static void print_list(struct jinja_run *run, const struct jinja_list *l, int depth,
                       struct buf *out)
{
    buf_put_char(out, '[');
    for (size_t i = 0; i < l->n && jinja_spend(run, 1); i++) {
        if (i > 0)
            buf_put_cstr(out, ", ");
        print(run, l->items[i], true, depth + 1, out);
    }
    buf_put_char(out, ']');
}

static void print_map(struct jinja_run *run, struct jinja_value v, int depth, struct buf *out)
{
    struct jinja_value items = jinja_items(run, v);

    buf_put_char(out, '{');
    for (size_t i = 0; i < items.list->n && jinja_spend(run, 1); i++) {
        const struct jinja_value *pair = items.list->items[i].list->items;

        if (i > 0)
            buf_put_cstr(out, ", ");
        print(run, pair[0], true, depth + 1, out);
        buf_put_cstr(out, ": ");
        print(run, pair[1], true, depth + 1, out);
    }
    buf_put_char(out, '}');
}

static void print(struct jinja_run *run, struct jinja_value v, bool inner, int depth,
                  struct buf *out)
{
    if (depth > PRINT_DEPTH) {
        (void)jinja_fail(run, "value is nested too deeply to print");
        return;
    }
    switch (v.kind) {
    case JINJA_V_UNDEFINED:
        buf_put_cstr(out, inner ? "undefined" : "");
        break;
    case JINJA_V_NONE:
        buf_put_cstr(out, "none");
        break;
    case JINJA_V_BOOL:
        buf_put_cstr(out, v.b ? "true" : "false");
        break;
    case JINJA_V_INT:
        put_int(out, v.i);
        break;
    case JINJA_V_FLOAT:
        put_float(out, v.f);
        break;
    case JINJA_V_STR:
        (void)jinja_spend(run, v.s.len / 16);
        if (inner)
            put_quoted(out, v.s);
        else
            buf_put_str(out, v.s);
        break;
    case JINJA_V_LIST:
        print_list(run, v.list, depth, out);
        break;
    case JINJA_V_MAP:
    case JINJA_V_OBJECT:
        print_map(run, v, depth, out);
        break;
    case JINJA_V_LOOP:
    case JINJA_V_MACRO:
    case JINJA_V_FUNCTION:
        (void)jinja_fail(run, "cannot print %s", jinja_kind_name(v));
        break;
    }
}

void jinja_print(struct jinja_run *run, struct jinja_value v, struct buf *out)
{
    print(run, v, false, 0, out);
}

struct str jinja_text(struct jinja_run *run, struct jinja_value v)
{
    AUTO(buf_done) struct buf b = BUF_NULL;

    if (v.kind == JINJA_V_STR)
        return v.s;
    jinja_print(run, v, &b);
    return jinja_str_from_buf(run, &b).s;
}

/* --- tojson ----------------------------------------------------------------------------------- */

struct printer {
    struct jinja_run *run;
    struct buf *out;
    int indent; /* < 0: compact */
};

static void json_value(struct printer *p, struct jinja_value v, int depth);

/* A JSON string that is also safe inside of HTML. */
static void json_string(struct printer *p, struct str s)
{
    AUTO(buf_done) struct buf plain = BUF_NULL;
    struct json_put j = json_put_on(&plain);

    (void)jinja_spend(p->run, s.len / 16);
    json_put_str(&j, s);
    for (size_t i = 0; i < plain.len; i++) {
        char c = buf_data(&plain)[i];

        if (c == '<' || c == '>' || c == '&' || c == '\'')
            buf_printf(p->out, "\\u%04x", (unsigned)c);
        else
            buf_put_char(p->out, c);
    }
}

static void new_line(struct printer *p, int depth)
{
    if (p->indent < 0)
        return;
    buf_put_char(p->out, '\n');
    for (int i = 0; i < depth * p->indent; i++)
        buf_put_char(p->out, ' ');
}

static void json_list(struct printer *p, const struct jinja_list *l, int depth)
{
    buf_put_char(p->out, '[');
    for (size_t i = 0; i < l->n && jinja_spend(p->run, 1); i++) {
        if (i > 0)
            buf_put_char(p->out, ',');
        new_line(p, depth + 1);
        json_value(p, l->items[i], depth + 1);
    }
    if (l->n > 0)
        new_line(p, depth);
    buf_put_char(p->out, ']');
}

static int compare_pairs(const void *a, const void *b)
{
    const struct jinja_value *x = a, *y = b;

    return str_cmp(x->list->items[0].s, y->list->items[0].s);
}

/* Keys become strings first: 1, true and none may be keys of a literal. */
static struct jinja_value sorted_items(struct jinja_run *run, struct jinja_value map)
{
    struct jinja_value items = jinja_items(run, map);

    for (size_t i = 0; i < items.list->n; i++) {
        struct jinja_value *key = &items.list->items[i].list->items[0];

        *key = jinja_str(jinja_text(run, *key));
    }
    if (map.kind == JINJA_V_MAP && items.list->n > 1)
        qsort(items.list->items, items.list->n, sizeof(struct jinja_value), compare_pairs);
    return items;
}

static void json_map(struct printer *p, struct jinja_value v, int depth)
{
    struct jinja_value items = sorted_items(p->run, v);

    buf_put_char(p->out, '{');
    for (size_t i = 0; i < items.list->n && jinja_spend(p->run, 1); i++) {
        const struct jinja_value *pair = items.list->items[i].list->items;

        if (i > 0)
            buf_put_char(p->out, ',');
        new_line(p, depth + 1);
        json_string(p, pair[0].s);
        buf_put_cstr(p->out, p->indent < 0 ? ":" : ": ");
        json_value(p, pair[1], depth + 1);
    }
    if (items.list->n > 0)
        new_line(p, depth);
    buf_put_char(p->out, '}');
}

static void json_value(struct printer *p, struct jinja_value v, int depth)
{
    if (depth > PRINT_DEPTH) {
        (void)jinja_fail(p->run, "value is nested too deeply for tojson");
        return;
    }
    switch (v.kind) {
    case JINJA_V_UNDEFINED:
    case JINJA_V_NONE:
        buf_put_cstr(p->out, "null");
        break;
    case JINJA_V_BOOL:
        buf_put_cstr(p->out, v.b ? "true" : "false");
        break;
    case JINJA_V_INT:
        put_int(p->out, v.i);
        break;
    case JINJA_V_FLOAT:
        put_float(p->out, v.f);
        break;
    case JINJA_V_STR:
        json_string(p, v.s);
        break;
    case JINJA_V_LIST:
        json_list(p, v.list, depth);
        break;
    case JINJA_V_MAP:
    case JINJA_V_OBJECT:
        json_map(p, v, depth);
        break;
    case JINJA_V_LOOP:
    case JINJA_V_MACRO:
    case JINJA_V_FUNCTION:
        (void)jinja_fail(p->run, "%s is no JSON", jinja_kind_name(v));
        break;
    }
}

void jinja_print_json(struct jinja_run *run, struct jinja_value v, int indent, struct buf *out)
{
    struct printer p = {run, out, indent > PRINT_MAX_INDENT ? PRINT_MAX_INDENT : indent};

    json_value(&p, v, 0);
}
