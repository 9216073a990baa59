/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "%5.2f" % x and "{:>5}".format(x), as Python does them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "router/token/jinja_builtin.h"
#include "router/token/utf8.h"

enum { WIDTH_MAX = 4096, DIGITS_MAX = 256 };

struct spec {
    struct str fill;
    char align; /* < > ^ = or 0 */
    char sign;  /* + or space, or 0 */
    bool alternate, zero, comma;
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
};

/* --- laying out ------------------------------------------------------------------------------- */

static void put_fill(struct buf *out, struct str fill, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        buf_put_str(out, fill);
}

/* @head: sign and prefix, which "=" leaves in front of the fill. */
static void put_padded(struct buf *out, const struct spec *s, struct str head, struct str body,
                       char usual)
{
    char align = s->align ? s->align : usual;
    int64_t n =
        MAX(s->width - jinja_length(jinja_str(head)) - jinja_length(jinja_str(body)), INT64_C(0));
    int64_t before = align == '>' ? n : align == '^' ? n / 2 : 0;

    put_fill(out, s->fill, before);
    buf_put_str(out, head);
    if (align == '=')
        put_fill(out, s->fill, n);
    buf_put_str(out, body);
    if (align == '<' || align == '^')
        put_fill(out, s->fill, n - before);
}

static void put_string(struct buf *out, const struct spec *s, struct str text, char usual)
{
    if (s->precision >= 0) {
        size_t at = 0;

        for (int64_t i = 0; i < s->precision && at < text.len; i++)
            at += utf8_len(text.ptr[at]);
        text = str_head(text, at);
    }
    put_padded(out, s, STR(""), text, usual);
}

/* Commas between thousands, in the digits that @text begins with. */
static void put_thousands(struct buf *out, struct str text, bool on)
{
    size_t digits = 0;

    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
        digits++;
    for (size_t i = 0; i < text.len; i++) {
        if (on && i > 0 && i < digits && (digits - i) % 3 == 0)
            buf_put_char(out, ',');
        buf_put_char(out, text.ptr[i]);
    }
}

static void put_number(struct buf *out, const struct spec *s, bool negative, const char *prefix,
                       struct str digits)
{
    AUTO(buf_done) struct buf head = BUF_NULL, body = BUF_NULL;
    struct spec zero = *s;

    if (negative || s->sign)
        buf_put_char(&head, negative ? '-' : s->sign);
    buf_put_cstr(&head, prefix);
    put_thousands(&body, digits, s->comma);
    if (s->zero && !s->align) {
        zero.align = '=';
        zero.fill = STR("0");
    }
    put_padded(out, &zero, buf_str(&head), buf_str(&body), '>');
}

static void put_int(struct buf *out, const struct spec *s, int64_t i)
{
    char digits[80], minimal[DIGITS_MAX + 80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    const char *prefix = "";
    size_t n;

    switch (s->type) {
    case 'x':
    case 'X':
        n = (size_t)snprintf(digits, sizeof(digits), s->type == 'x' ? "%llx" : "%llX",
                             (unsigned long long)u);
        prefix = s->type == 'x' ? "0x" : "0X";
        break;
    case 'o':
        n = (size_t)snprintf(digits, sizeof(digits), "%llo", (unsigned long long)u);
        prefix = "0o";
        break;
    case 'b':
        n = 0;
        for (int bit = 63; bit >= 0; bit--)
            if (u >> bit || bit == 0)
                digits[n++] = (char)('0' + (u >> bit & 1));
        prefix = "0b";
        break;
    default:
        n = (size_t)snprintf(digits, sizeof(digits), "%llu", (unsigned long long)u);
        break;
    }
    if (s->precision > (int64_t)n && s->precision < DIGITS_MAX) { /* of "%.5d" only */
        memset(minimal, '0', (size_t)s->precision - n);
        memcpy(minimal + s->precision - n, digits, n);
        n = (size_t)s->precision;
    } else {
        memcpy(minimal, digits, n);
    }
    put_number(out, s, i < 0, s->alternate ? prefix : "", str_slice(minimal, n));
}

static void put_float(struct buf *out, const struct spec *s, double f)
{
    char text[DIGITS_MAX + 400], format[8] = "%.*f";
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    size_t n;

    if (s->alternate)
        memcpy(format, "%#.*f", 6);
    format[strlen(format) - 1] = s->type == '%' ? 'f' : s->type;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    n = (size_t)snprintf(text, sizeof(text), format, precision, fabs(s->type == '%' ? f * 100 : f));
#pragma GCC diagnostic pop
    if (s->type == '%')
        text[n++] = '%';
    put_number(out, s, signbit(f) && !isnan(f), "", str_slice(text, n));
}

/* --- "%…" ------------------------------------------------------------------------------------- */

struct percent {
    struct jinja_run *run;
    struct str rest;
    struct jinja_value values, named; /* named: what "%(name)s" just asked for */
    size_t used;
    bool by_name;
};

static struct jinja_value next_value(struct percent *p)
{
    bool many = jinja_is_list(p->values, JINJA_LIST_TUPLE);

    if (p->by_name)
        return p->named;
    if (p->used >= (many ? p->values.list->n : 1))
        return jinja_fail(p->run, "format: not enough values");
    p->used++;
    return many ? p->values.list->items[p->used - 1] : p->values;
}

static char take(struct str *s)
{
    char c = s->len ? s->ptr[0] : '\0';

    *s = str_skip(*s, 1);
    return c;
}

static int64_t read_number(struct jinja_run *run, struct str *s, int64_t none)
{
    int64_t n = none;

    while (s->len && s->ptr[0] >= '0' && s->ptr[0] <= '9') {
        n = (n < 0 ? 0 : n) * 10 + take(s) - '0';
        if (n > WIDTH_MAX) {
            (void)jinja_fail(run, "format: too wide");
            return 0;
        }
    }
    return n;
}

static int64_t width_of(struct percent *p, int64_t none)
{
    int64_t n = none;

    if (!p->rest.len || p->rest.ptr[0] != '*')
        return read_number(p->run, &p->rest, none);
    (void)take(&p->rest);
    if (!jinja_as_int(next_value(p), &n) || n > WIDTH_MAX || n < -WIDTH_MAX)
        (void)jinja_fail(p->run, "format: * wants a number");
    return n;
}

static void read_percent(struct percent *p, struct spec *s)
{
    struct str name;

    *s = (struct spec){.fill = STR(" "), .precision = -1};
    p->by_name = false;
    if (p->rest.len && p->rest.ptr[0] == '(') {
        p->rest = str_skip(p->rest, 1);
        if (str_index(p->rest, ')') == p->rest.len || !jinja_is_map(p->values)) {
            (void)jinja_fail(p->run, "format: expected a mapping and \"%%(name)\"");
            return;
        }
        (void)str_cut(&p->rest, ')', &name);
        if (!jinja_has_member(p->run, p->values, jinja_str(name)))
            (void)jinja_fail(p->run, "format: no such key");
        p->named = jinja_member(p->run, p->values, jinja_str(name));
        p->by_name = true;
        p->used = 1;
    }
    while (p->rest.len && strchr("#0- +", p->rest.ptr[0])) {
        char flag = take(&p->rest);

        s->alternate |= flag == '#';
        s->zero |= flag == '0';
        if (flag == '-')
            s->align = '<';
        else if (flag == '+' || (flag == ' ' && !s->sign))
            s->sign = flag;
    }
    s->width = width_of(p, 0);
    if (s->width < 0) {
        s->align = '<';
        s->width = -s->width;
    }
    if (p->rest.len && p->rest.ptr[0] == '.') {
        (void)take(&p->rest);
        s->precision = MAX(width_of(p, 0), INT64_C(0));
    }
    while (p->rest.len && strchr("hlL", p->rest.ptr[0]))
        (void)take(&p->rest);
    s->type = take(&p->rest);
    if (s->precision >= DIGITS_MAX)
        (void)jinja_fail(p->run, "format: too precise");
}

static void percent_number(struct percent *p, struct spec *s, struct jinja_value v, struct buf *out)
{
    bool whole = strchr("diuxXo", s->type) != NULL;
    int64_t i = 0;

    if (!jinja_is_number(v) || (strchr("xXo", s->type) && v.kind == JINJA_V_FLOAT)) {
        (void)jinja_fail(p->run, "format: %%%c wants a number, not %s", s->type,
                         jinja_kind_name(v));
        return;
    }
    s->align = s->align ? s->align : s->zero ? '=' : '>';
    if (s->align == '=')
        s->fill = STR("0");
    if (!whole) {
        put_float(out, s, jinja_as_float(v));
    } else {
        if (v.kind == JINJA_V_FLOAT && !(v.f > -9.2e18 && v.f < 9.2e18))
            (void)jinja_fail(p->run, "number out of range");
        else if (!jinja_as_int(v, &i))
            i = (int64_t)v.f;
        put_int(out, s, i);
    }
}

static void percent_one(struct percent *p, struct buf *out)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct jinja_value v;
    struct spec s;

    read_percent(p, &s);
    if (p->run->r < 0)
        return;
    if (s.type == '%') {
        buf_put_char(out, '%');
        return;
    }
    if (!s.type || !strchr("srdiuxXoeEfFgGc", s.type)) {
        (void)jinja_fail(p->run, "format: no such conversion");
        return;
    }
    v = next_value(p);
    if (p->run->r < 0)
        return;
    if (s.type == 's' || s.type == 'r') {
        if (s.type == 's')
            jinja_print(p->run, v, &text);
        else
            jinja_print_quoted(p->run, v, &text);
        put_string(out, &s, buf_str(&text), '>');
    } else if (s.type == 'c') {
        if (v.kind == JINJA_V_STR && jinja_length(v) == 1)
            put_string(out, &s, v.s, '>');
        else if (v.kind == JINJA_V_INT && v.i > 0 && v.i < 0x110000 &&
                 (v.i < 0xd800 || v.i > 0xdfff)) {
            utf8_append(&text, (uint32_t)v.i);
            put_string(out, &s, buf_str(&text), '>');
        } else
            (void)jinja_fail(p->run, "format: %%c wants a character");
    } else {
        percent_number(p, &s, v, out);
    }
}

struct jinja_value jinja_percent(struct jinja_run *run, struct str format,
                                 struct jinja_value values)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct percent p = {.run = run, .rest = format, .values = values};
    bool many = jinja_is_list(values, JINJA_LIST_TUPLE);

    while (p.rest.len && jinja_spend(run, 1)) {
        struct str plain;
        size_t n = str_index(p.rest, '%');

        plain = str_head(p.rest, n);
        buf_put_str(&out, plain);
        if (n == p.rest.len)
            break;
        p.rest = str_skip(p.rest, n + 1);
        percent_one(&p, &out);
    }
    /* A lone value must be used, but for those that could have been asked by name. */
    if (run->r == 0 && (many ? p.used < values.list->n
                             : p.used == 0 && !jinja_is_map(values) && values.kind != JINJA_V_LIST))
        return jinja_fail(run, "format: not all values are used");
    return jinja_str_from_buf(run, &out);
}

/* --- "{…}" ------------------------------------------------------------------------------------ */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_spec(struct jinja_run *run, struct str text, struct spec *s)
{
    size_t first = text.len ? utf8_len(text.ptr[0]) : 0;

    *s = (struct spec){.fill = STR(" "), .precision = -1};
    if (text.len > first && strchr("<>=^", text.ptr[first])) {
        s->fill = str_head(text, first);
        s->align = text.ptr[first];
        text = str_skip(text, first + 1);
    } else if (text.len && strchr("<>=^", text.ptr[0])) {
        s->align = take(&text);
    }
    if (text.len && strchr("+- ", text.ptr[0])) {
        s->sign = take(&text);
        s->sign = s->sign == '-' ? '\0' : s->sign;
    }
    if (text.len && text.ptr[0] == '#')
        s->alternate = take(&text) == '#';
    if (text.len && text.ptr[0] == '0')
        s->zero = take(&text) == '0';
    s->width = read_number(run, &text, 0);
    if (text.len && text.ptr[0] == ',')
        s->comma = take(&text) == ',';
    if (text.len && text.ptr[0] == '.') {
        (void)take(&text);
        s->precision = read_number(run, &text, -1);
        if (s->precision < 0 || s->precision >= DIGITS_MAX)
            return false;
    }
    s->type = take(&text);
    return text.len == 0 && run->r == 0;
}

static void put_value(struct jinja_run *run, struct jinja_value v, struct str spec_text,
                      struct buf *out)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct spec s;

    if (spec_text.len == 0) {
        jinja_print(run, v, out);
        return;
    }
    if (!read_spec(run, spec_text, &s)) {
        (void)jinja_fail(run, "format: malformed specification");
    } else if (v.kind == JINJA_V_STR && (!s.type || s.type == 's') && !s.sign && !s.alternate &&
               !s.comma && s.align != '=') {
        if (s.zero && !s.align)
            s.fill = STR("0");
        put_string(out, &s, v.s, '<');
    } else if (jinja_is_number(v) && s.type && strchr("eEfFgG%", s.type)) {
        put_float(out, &s, jinja_as_float(v));
    } else if ((v.kind == JINJA_V_INT || v.kind == JINJA_V_BOOL) && s.precision < 0 &&
               (!s.type || strchr("dxXob", s.type)) && !(s.comma && s.type && s.type != 'd')) {
        int64_t i = 0;

        (void)jinja_as_int(v, &i);
        put_int(out, &s, i);
    } else if (v.kind == JINJA_V_FLOAT && !s.type && s.precision < 0 && !s.alternate) {
        jinja_print(run, v, &text);
        put_number(out, &s, signbit(v.f), "", str_skip(buf_str(&text), signbit(v.f) ? 1 : 0));
    } else {
        (void)jinja_fail(run, "format: %s with this specification", jinja_kind_name(v));
    }
}

struct braces {
    struct jinja_run *run;
    const struct jinja_args *args;
    size_t next;
    bool automatic, numbered;
};

static struct jinja_value positional(struct braces *b, size_t i)
{
    if (i < b->args->n && (!b->args->names || b->args->names[i].len == 0))
        return b->args->values[i];
    return jinja_fail(b->run, "format: no argument %zu", i);
}

/* "0", "name", "" and then ".attribute" or "[key]" */
static struct jinja_value find_field(struct braces *b, struct str name)
{
    size_t end = MIN(str_index(name, '.'), str_index(name, '['));
    struct str first = str_head(name, end), part;
    struct jinja_value v;
    uint64_t i;

    if (first.len == 0) {
        b->automatic = true;
        v = positional(b, b->next++);
    } else if (str_parse_u64(first, &i)) {
        b->numbered = true;
        v = positional(b, i);
    } else {
        const struct jinja_value *named = NULL;

        for (size_t k = 0; b->args->names && k < b->args->n; k++)
            if (b->args->names[k].len && str_eq(b->args->names[k], first))
                named = &b->args->values[k];
        if (!named)
            return jinja_fail(b->run, "format: no such argument");
        v = *named;
    }
    if (b->automatic && b->numbered)
        return jinja_fail(b->run, "format: numbered and automatic fields");
    for (name = str_skip(name, end); name.len && b->run->r == 0;) {
        bool item = take(&name) == '[';

        end = item ? str_index(name, ']') : MIN(str_index(name, '.'), str_index(name, '['));
        part = str_head(name, end);
        name = str_skip(name, end + item);
        v = !item ? jinja_attribute(b->run, v, part)
                  : jinja_item(b->run, v,
                               str_parse_u64(part, &i) ? jinja_int((int64_t)i) : jinja_str(part));
    }
    return v;
}

static void put_field(struct braces *b, struct str field, struct buf *out)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    size_t colon = str_index(field, ':'), bang = str_index(field, '!');
    struct str spec = str_skip(field, colon + 1), name = str_head(field, MIN(colon, bang));
    struct jinja_value v = find_field(b, name);

    if (b->run->r < 0)
        return;
    if (bang < colon) {
        char how = bang + 2 == colon || bang + 2 == field.len ? field.ptr[bang + 1] : '\0';

        if (how == 'r')
            jinja_print_quoted(b->run, v, &text);
        else if (how == 's')
            jinja_print(b->run, v, &text);
        else
            (void)jinja_fail(b->run, "format: no such conversion");
        v = jinja_str_from_buf(b->run, &text);
    }
    put_value(b->run, v, spec, out);
}

struct jinja_value jinja_braces(struct jinja_run *run, struct str format,
                                const struct jinja_args *args)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct braces b = {.run = run, .args = args};

    while (format.len && jinja_spend(run, 1)) {
        char c = take(&format);
        size_t end;

        if ((c == '{' || c == '}') && format.len && format.ptr[0] == c) {
            buf_put_char(&out, take(&format));
            continue;
        }
        if (c == '}')
            return jinja_fail(run, "format: single brace");
        if (c != '{') {
            buf_put_char(&out, c);
            continue;
        }
        end = str_index(format, '}');
        if (end == format.len || str_index(str_head(format, end), '{') < end)
            return jinja_fail(run, "format: brace without an end, or fields within a field");
        put_field(&b, str_head(format, end), &out);
        format = str_skip(format, end + 1);
    }
    return jinja_str_from_buf(run, &out);
}
