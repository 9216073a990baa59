/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json_put.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* U+FFFD, what a reader sees where the input was not UTF-8. */
#define REPLACEMENT STR("\xEF\xBF\xBD")

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

enum { EIGHT_DIGITS = 100000000 };

/*
 * The digits of @v, below 10^8, as the bytes of a word, the first digit in the lowest: two numbers of
 * four digits side by side, which become four of two and eight of one. Multiplying and shifting divides
 * by 100 and 10; it is exact for so few digits.
 */
static uint64_t eight_digits(uint32_t v)
{
    uint64_t fours = v / 10000 | (uint64_t)(v % 10000) << 32;
    uint64_t hundreds = fours * 5243 >> 19 & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = hundreds | (fours - hundreds * 100) << 16;
    uint64_t tens = pairs * 103 >> 10 & UINT64_C(0x000f000f000f000f);

    return tens | (pairs - tens * 10) << 8;
}

/* Writes eight bytes of which only those before the returned end count. No branch looks at the length. */
static char *put_digits(char *at, uint64_t digits, unsigned leading_zeros)
{
    uint64_t text = htole64((digits + UINT64_C(0x3030303030303030)) >> leading_zeros * 8);

    memcpy(at, &text, sizeof(text));
    return at + sizeof(text) - leading_zeros;
}

/* Likewise. */
static char *put_u32(char *at, uint32_t v)
{
    uint32_t head = v / EIGHT_DIGITS;
    uint64_t digits = eight_digits(head ? head : v);
    unsigned zeros = digits ? (unsigned)__builtin_ctzll(digits) / 8 : 7;

    at = put_digits(at, digits, zeros);
    return head ? put_digits(at, eight_digits(v % EIGHT_DIGITS), 0) : at;
}

void json_put_u32_array(struct json_put *j, const uint32_t *v, size_t n)
{
    enum { DIGITS = 10, IN_VAIN = 8, AT_ONCE = 256, USUAL = 6 };

    json_put_array(j);
    (void)buf_reserve(j->out, n * USUAL); /* grows once, and not by and by */
    for (size_t i = 0; i < n;) {
        size_t until = MIN(n, i + AT_ONCE);
        char *begin = buf_reserve(j->out, AT_ONCE * (DIGITS + 1) + IN_VAIN), *at = begin;

        for (; i < until; i++) {
            at = put_u32(at, v[i]);
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
