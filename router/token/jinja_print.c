/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values as text: {{ x }} as Python's str() gives it, or as the reference of 0.9.0 does; tojson as
 * Python's json.dumps().
 */
#include "router/token/jinja_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/base/json_tree.h"
#include "router/token/jinja_text.h"
#include "router/token/python_text.h"
#include "router/token/utf8.h"

enum { PRINT_DEPTH = 128 };

static void put_int(struct buf *out, int64_t i)
{
    buf_printf(out, "%lld", (long long)i);
}

/* --- {{ x }} ---------------------------------------------------------------------------------- */

static void put_old_quoted(struct buf *out, struct str s)
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

static void put_quoted(struct buf *out, struct str s)
{
    char quote = str_index(s, '\'') < s.len && str_index(s, '"') >= s.len ? '"' : '\'';

    buf_put_char(out, quote);
    for (size_t n; s.len > 0; s = str_skip(s, n)) {
        uint32_t cp = utf8_get(s.ptr);

        n = utf8_len(s.ptr[0]);
        if (cp == (uint32_t)quote || cp == '\\')
            buf_printf(out, "\\%c", (char)cp);
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            buf_printf(out, "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (jinja_is_printable(cp))
            buf_put(out, s.ptr, n);
        else if (cp < 0x100)
            buf_printf(out, "\\x%02x", cp);
        else if (cp < 0x10000)
            buf_printf(out, "\\u%04x", cp);
        else
            buf_printf(out, "\\U%08x", cp);
    }
    buf_put_char(out, quote);
}

static void print(struct jinja_run *run, struct jinja_value v, bool inner, int depth,
                  struct buf *out);

static void print_items(struct jinja_run *run, const struct jinja_list *l, int depth,
                        struct buf *out)
{
    for (size_t i = 0; i < l->n && jinja_spend(run, 1); i++) {
        if (i > 0)
            buf_put_cstr(out, ", ");
        print(run, l->items[i], true, depth + 1, out);
    }
}

static void print_list(struct jinja_run *run, const struct jinja_list *l, int depth,
                       struct buf *out)
{
    static const char *const heads[] = {[JINJA_LIST_PLAIN] = "[",
                                        [JINJA_LIST_TUPLE] = "(",
                                        [JINJA_LIST_KEYS] = "dict_keys([",
                                        [JINJA_LIST_VALUES] = "dict_values([",
                                        [JINJA_LIST_ITEMS] = "dict_items(["};
    bool is_tuple = l->form == JINJA_LIST_TUPLE;

    if (run->old_prints) {
        buf_put_char(out, '[');
        print_items(run, l, depth, out);
        buf_put_char(out, ']');
    } else if (l->form == JINJA_LIST_RANGE) {
        buf_printf(out, "range(%lld, %lld", (long long)l->start, (long long)l->stop);
        if (l->step != 1)
            buf_printf(out, ", %lld", (long long)l->step);
        buf_put_char(out, ')');
    } else if (l->form == JINJA_LIST_ITERATOR) {
        (void)jinja_fail(run, "an iterator cannot be printed, use the filter list");
    } else {
        buf_put_cstr(out, heads[l->form]);
        print_items(run, l, depth, out);
        buf_put_cstr(out, is_tuple ? (l->n == 1 ? ",)" : ")")
                                   : (l->form == JINJA_LIST_PLAIN ? "]" : "])"));
    }
}

static void print_map(struct jinja_run *run, struct jinja_value v, int depth, struct buf *out)
{
    struct jinja_value items = jinja_items(run, v);
    bool space = v.kind == JINJA_V_SPACE;

    if (space && v.map->printing) {
        buf_put_cstr(out, run->old_prints ? "{...}" : "<Namespace {...}>");
        return;
    }
    if (space)
        v.map->printing = true;
    buf_put_cstr(out, space && !run->old_prints ? "<Namespace {" : "{");
    for (size_t i = 0; i < items.list->n && jinja_spend(run, 1); i++) {
        const struct jinja_value *pair = items.list->items[i].list->items;

        if (i > 0)
            buf_put_cstr(out, ", ");
        print(run, pair[0], true, depth + 1, out);
        buf_put_cstr(out, ": ");
        print(run, pair[1], true, depth + 1, out);
    }
    buf_put_cstr(out, space && !run->old_prints ? "}>" : "}");
    if (space)
        v.map->printing = false;
}

static void print_str(struct jinja_run *run, struct str s, bool inner, struct buf *out)
{
    (void)jinja_spend(run, s.len / 16);
    if (!inner)
        buf_put_str(out, s);
    else if (run->old_prints)
        put_old_quoted(out, s);
    else
        put_quoted(out, s);
}

static void print(struct jinja_run *run, struct jinja_value v, bool inner, int depth,
                  struct buf *out)
{
    bool old = run->old_prints;

    if (depth > PRINT_DEPTH) {
        (void)jinja_fail(run, "value is nested too deeply to print");
        return;
    }
    switch (v.kind) {
    case JINJA_V_UNDEFINED:
        buf_put_cstr(out, !inner ? "" : old ? "undefined" : "Undefined");
        break;
    case JINJA_V_NONE:
        buf_put_cstr(out, old ? "none" : "None");
        break;
    case JINJA_V_BOOL:
        buf_put_cstr(out, v.b ? (old ? "true" : "True") : old ? "false" : "False");
        break;
    case JINJA_V_INT:
        put_int(out, v.i);
        break;
    case JINJA_V_FLOAT:
        v.whole ? buf_printf(out, "%" PRIu64, v.whole)
                : text_put_float(out, v.f,
                                 !old    ? FLOAT_PYTHON
                                 : inner ? FLOAT_DEBUG
                                         : FLOAT_IN_FULL);
        break;
    case JINJA_V_STR:
        print_str(run, v.s, inner, out);
        break;
    case JINJA_V_LIST:
        print_list(run, v.list, depth, out);
        break;
    case JINJA_V_MAP:
    case JINJA_V_OBJECT:
    case JINJA_V_SPACE:
        print_map(run, v, depth, out);
        break;
    case JINJA_V_LOOP:
        buf_printf(out, "<LoopContext %zu/%zu>", v.loop->i + 1, v.loop->items->n);
        break;
    case JINJA_V_MACRO:
        if (v.macro->node->name.len)
            buf_printf(out, "<Macro '%.*s'>", STR_ARG(str_head(v.macro->node->name, 256)));
        else
            buf_put_cstr(out, "<Macro anonymous>");
        break;
    case JINJA_V_FUNCTION:
    case JINJA_V_METHOD:
        (void)jinja_fail(run, "cannot print %s", jinja_kind_name(v));
        break;
    }
}

void jinja_print(struct jinja_run *run, struct jinja_value v, struct buf *out)
{
    print(run, v, false, 0, out);
}

void jinja_print_quoted(struct jinja_run *run, struct jinja_value v, struct buf *out)
{
    print(run, v, true, 0, out);
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
    const struct jinja_json_style *style;
};

static void json_value(struct printer *p, struct jinja_value v, int depth);

static void json_char(struct printer *p, uint32_t cp)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *known = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;

    if (known)
        buf_printf(p->out, "\\%c", letters[known - plain]);
    else if (cp >= 0x10000 && p->style->ascii)
        buf_printf(p->out, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                   0xdc00 + ((cp - 0x10000) & 0x3ff));
    else if (cp < 0x20 || (cp > 0x7e && p->style->ascii) ||
             (p->style->html && cp < 0x80 && strchr("<>&'", (int)cp)))
        buf_printf(p->out, "\\u%04x", cp);
    else
        utf8_append(p->out, cp);
}

static void json_string(struct printer *p, struct str s)
{
    (void)jinja_spend(p->run, s.len / 16);
    buf_put_char(p->out, '"');
    for (; s.len > 0; s = str_skip(s, utf8_len(s.ptr[0])))
        json_char(p, utf8_get(s.ptr));
    buf_put_char(p->out, '"');
}

static void new_line(struct printer *p, int depth)
{
    if (!p->style->indent.ptr)
        return;
    buf_put_char(p->out, '\n');
    for (int i = 0; i < depth; i++)
        buf_put_str(p->out, p->style->indent);
}

static void json_list(struct printer *p, const struct jinja_list *l, int depth)
{
    if (l->form != JINJA_LIST_PLAIN && l->form != JINJA_LIST_TUPLE && !p->run->old_prints) {
        (void)jinja_fail(p->run, "tojson: an iterator or a view is no JSON, use the filter list");
        return;
    }
    buf_put_char(p->out, '[');
    for (size_t i = 0; i < l->n && jinja_spend(p->run, 1); i++) {
        if (i > 0)
            buf_put_str(p->out, p->style->comma);
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

/* Keys are strings in JSON: numbers and constants become what JSON calls them. */
static struct jinja_value key_text(struct jinja_run *run, struct jinja_value key)
{
    AUTO(buf_done) struct buf b = BUF_NULL;

    if (key.kind == JINJA_V_STR)
        return key;
    if (key.kind == JINJA_V_NONE)
        return jinja_str(STR("null"));
    if (key.kind == JINJA_V_BOOL)
        return jinja_str(key.b ? STR("true") : STR("false"));
    if (key.kind != JINJA_V_INT && key.kind != JINJA_V_FLOAT)
        return jinja_fail(run, "tojson: %s as a key", jinja_kind_name(key));
    print(run, key, false, 0, &b);
    return jinja_str_from_buf(run, &b);
}

static void json_map(struct printer *p, struct jinja_value v, int depth)
{
    struct jinja_value items = jinja_items(p->run, v);
    struct jinja_list *l = items.list;

    for (size_t i = 0; i < l->n && p->run->r == 0; i++)
        l->items[i].list->items[0] = key_text(p->run, l->items[i].list->items[0]);
    if (p->run->r < 0)
        return;
    if (p->style->sorted && l->n > 1)
        qsort(l->items, l->n, sizeof(struct jinja_value), compare_pairs);
    buf_put_char(p->out, '{');
    for (size_t i = 0; i < l->n && jinja_spend(p->run, 1); i++) {
        if (i > 0)
            buf_put_str(p->out, p->style->comma);
        new_line(p, depth + 1);
        json_string(p, l->items[i].list->items[0].s);
        buf_put_str(p->out, p->style->colon);
        json_value(p, l->items[i].list->items[1], depth + 1);
    }
    if (l->n > 0)
        new_line(p, depth);
    buf_put_char(p->out, '}');
}

static void json_float(struct printer *p, double f)
{
    if (isnan(f) || isinf(f))
        buf_put_cstr(p->out, isnan(f) ? "NaN" : f > 0 ? "Infinity" : "-Infinity");
    else
        text_put_float(p->out, f, p->run->old_prints ? FLOAT_OLD_SERDE : FLOAT_PYTHON);
}

static void json_value(struct printer *p, struct jinja_value v, int depth)
{
    if (depth > PRINT_DEPTH) {
        (void)jinja_fail(p->run, "value is nested too deeply for tojson");
        return;
    }
    switch (v.kind) {
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
        v.whole ? buf_printf(p->out, "%" PRIu64, v.whole) : json_float(p, v.f);
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
    case JINJA_V_UNDEFINED:
        if (p->run->old_prints || p->run->as_1) {
            buf_put_cstr(p->out, "null");
            break;
        }
        __attribute__((fallthrough));
    case JINJA_V_SPACE:
    case JINJA_V_LOOP:
    case JINJA_V_MACRO:
    case JINJA_V_FUNCTION:
    case JINJA_V_METHOD:
        (void)jinja_fail(p->run, "tojson: %s is no JSON", jinja_kind_name(v));
        break;
    }
}

void jinja_print_json(struct jinja_run *run, struct jinja_value v,
                      const struct jinja_json_style *style, struct buf *out)
{
    struct printer p = {run, out, style};

    json_value(&p, v, 0);
}
