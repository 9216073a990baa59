/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json_put.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* U+FFFD, what a reader sees where the input was not UTF-8. */
#define REPLACEMENT STR("\xEF\xBF\xBD")

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324"
                                  "25262728293031323334353637383940414243444546474849"
                                  "50515253545556575859606162636465666768697071727374"
                                  "75767778798081828384858687888990919293949596979899";

/* The letter behind a backslash, 'u' for \u00XX, 0 where the byte stands for itself. */
static const char escapes[256] = {
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', 'b',         't',           'n', 'u',
    'f', 'r', 'u', 'u', 'u', 'u', 'u', 'u', 'u',         'u',           'u', 'u',
    'u', 'u', 'u', 'u', 'u', 'u', 'u', 'u', ['"'] = '"', ['\\'] = '\\',
};

/* Bytes at the front of @s that need no thought: plain ASCII. */
static size_t plain_run(struct str s)
{
    size_t n = 0;

    while (n < s.len && (unsigned char)s.ptr[n] < 0x80 && !escapes[(unsigned char)s.ptr[n]])
        n++;
    return n;
}

static void put_escape(struct buf *out, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    char text[6] = {'\\', escapes[c], '0', '0', hex[c >> 4], hex[c & 15]};

    buf_put(out, text, escapes[c] == 'u' ? 6 : 2);
}

void json_escape(struct buf *out, struct str s)
{
    while (s.len) {
        size_t n = plain_run(s);

        buf_put(out, s.ptr, n);
        s = str_skip(s, n);
        if (s.len == 0)
            break;
        if ((unsigned char)s.ptr[0] < 0x80) {
            put_escape(out, (unsigned char)s.ptr[0]);
            s = str_skip(s, 1);
            continue;
        }
        n = str_utf8_char(s);
        buf_put_str(out, n ? str_head(s, n) : REPLACEMENT);
        s = str_skip(s, n ? n : 1);
    }
}

/* Comes before every value and key. */
static void begin_value(struct json_put *j)
{
    if (j->comma)
        buf_put_char(j->out, ',');
    j->comma = true;
}

static void open_bracket(struct json_put *j, char bracket)
{
    begin_value(j);
    buf_put_char(j->out, bracket);
    j->comma = false;
}

static void close_bracket(struct json_put *j, char bracket)
{
    buf_put_char(j->out, bracket);
    j->comma = true;
}

void json_put_object(struct json_put *j)
{
    open_bracket(j, '{');
}

void json_put_object_end(struct json_put *j)
{
    close_bracket(j, '}');
}

void json_put_array(struct json_put *j)
{
    open_bracket(j, '[');
}

void json_put_array_end(struct json_put *j)
{
    close_bracket(j, ']');
}

void json_put_key(struct json_put *j, const char *key)
{
    json_put_key_str(j, str_from(key));
}

void json_put_key_str(struct json_put *j, struct str key)
{
    json_put_str(j, key);
    buf_put_char(j->out, ':');
    j->comma = false;
}

void json_put_str(struct json_put *j, struct str s)
{
    begin_value(j);
    buf_put_char(j->out, '"');
    json_escape(j->out, s);
    buf_put_char(j->out, '"');
}

void json_put_cstr(struct json_put *j, const char *s)
{
    if (s)
        json_put_str(j, str_from(s));
    else
        json_put_null(j);
}

void json_put_u64(struct json_put *j, uint64_t v)
{
    begin_value(j);
    buf_put_u64dec(j->out, v);
}

/* Writes @v before @end; returns where it begins. */
static char *put_digits(char *end, uint32_t v)
{
    while (v >= 100) {
        end -= 2;
        memcpy(end, digit_pairs + (size_t)(v % 100) * 2, 2);
        v /= 100;
    }
    if (v >= 10)
        return memcpy(end - 2, digit_pairs + (size_t)v * 2, 2);
    *--end = (char)('0' + v);
    return end;
}

void json_put_u32_array(struct json_put *j, const uint32_t *v, size_t n)
{
    enum { DIGITS = 10, AT_ONCE = 256, USUAL = 6 };

    json_put_array(j);
    (void)buf_reserve(j->out, n * USUAL); /* grows once, and not by and by */
    for (size_t i = 0; i < n;) {
        size_t until = MIN(n, i + AT_ONCE);
        char *begin = buf_reserve(j->out, AT_ONCE * (DIGITS + 1) + DIGITS), *at = begin;

        for (; i < until; i++) {
            char text[2 * DIGITS], *digits = put_digits(text + DIGITS, v[i]);

            /* All at once, whatever their number: the next one overwrites what is too much. */
            memcpy(at, digits, DIGITS);
            at += text + DIGITS - digits;
            *at++ = ',';
        }
        buf_commit(j->out, (size_t)(at - begin) - (i == n));
    }
    json_put_array_end(j);
}

void json_put_i64(struct json_put *j, int64_t v)
{
    begin_value(j);
    if (v < 0)
        buf_put_char(j->out, '-');
    buf_put_u64dec(j->out, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/*
 * %g drops trailing zeros, so 15 digits (always exact for a double that came from that few) give
 * the shortest text whenever 15 suffice. Subnormal numbers carry fewer digits than that.
 */
void json_put_f64(struct json_put *j, double v)
{
    char text[32];
    int n = 0;

    if (!isfinite(v)) {
        json_put_null(j);
        return;
    }
    for (int digits = isnormal(v) ? 15 : 1; digits <= 17; digits++) {
        n = snprintf(text, sizeof(text), "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    begin_value(j);
    buf_put(j->out, text, (size_t)n);
    /* Beyond 2^53 digits alone would look like an integer, which readers take or refuse exactly. */
    if (fabs(v) > 0x1p53 && !memchr(text, 'e', (size_t)n))
        buf_put_cstr(j->out, ".0");
}

void json_put_bool(struct json_put *j, bool v)
{
    json_put_raw(j, v ? STR("true") : STR("false"));
}

void json_put_null(struct json_put *j)
{
    json_put_raw(j, STR("null"));
}

void json_put_raw(struct json_put *j, struct str json)
{
    begin_value(j);
    buf_put_str(j->out, json);
}
