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

void json_put_member_u64(struct json_put *j, const char *key, uint64_t v)
{
    json_put_key(j, key);
    json_put_u64(j, v);
}

void json_put_member_str(struct json_put *j, const char *key, struct str s)
{
    json_put_key(j, key);
    json_put_str(j, s);
}

void json_put_member_cstr(struct json_put *j, const char *key, const char *s)
{
    json_put_key(j, key);
    json_put_cstr(j, s);
}

void json_put_member_bool(struct json_put *j, const char *key, bool v)
{
    json_put_key(j, key);
    json_put_bool(j, v);
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

/* "000" to "999", each in four bytes. */
#define TRIPLES_1(h, t)                                                                            \
    {h, t, '0'}, {h, t, '1'}, {h, t, '2'}, {h, t, '3'}, {h, t, '4'}, {h, t, '5'}, {h, t, '6'},     \
        {h, t, '7'}, {h, t, '8'},                                                                  \
    {                                                                                              \
        h, t, '9'                                                                                  \
    }
#define TRIPLES_10(h)                                                                              \
    TRIPLES_1(h, '0'), TRIPLES_1(h, '1'), TRIPLES_1(h, '2'), TRIPLES_1(h, '3'), TRIPLES_1(h, '4'), \
        TRIPLES_1(h, '5'), TRIPLES_1(h, '6'), TRIPLES_1(h, '7'), TRIPLES_1(h, '8'),                \
        TRIPLES_1(h, '9')
static const char triples[1000][4] = {
    TRIPLES_10('0'), TRIPLES_10('1'), TRIPLES_10('2'), TRIPLES_10('3'), TRIPLES_10('4'),
    TRIPLES_10('5'), TRIPLES_10('6'), TRIPLES_10('7'), TRIPLES_10('8'), TRIPLES_10('9'),
};

enum { MILLION = 1000000, SIX = 6 };

/* The bytes of the six digits of @v, below a million: the first one is the lowest. */
static uint64_t six_digits(uint32_t v)
{
    uint32_t high, low;

    memcpy(&high, triples[v / 1000], sizeof(high));
    memcpy(&low, triples[v % 1000], sizeof(low));
    return le32toh(high) | (uint64_t)le32toh(low) << 24;
}

/* Writes eight bytes of which only those before the returned end count. */
static char *put_text(char *at, uint64_t text, size_t n)
{
    text = htole64(text);
    memcpy(at, &text, sizeof(text));
    return at + n;
}

/* Likewise, for @v below a million. No branch looks at the number of digits, which no one foresees. */
static char *put_small(char *at, uint32_t v)
{
    static const uint64_t zeros = UINT64_C(0x303030303030), last = UINT64_C(1) << 40;
    uint64_t text = six_digits(v);
    size_t leading_zeros = (size_t)__builtin_ctzll((text ^ zeros) | last) / 8;

    return put_text(at, text >> leading_zeros * 8, SIX - leading_zeros);
}

/* Likewise. */
static char *put_u32(char *at, uint32_t v)
{
    if (v < MILLION)
        return put_small(at, v);
    return put_text(put_small(at, v / MILLION), six_digits(v % MILLION), SIX);
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

void json_put_member_raw(struct json_put *j, struct str raw_key, struct str json)
{
    begin_value(j);
    buf_put_char(j->out, '"');
    buf_put_str(j->out, raw_key);
    buf_put_cstr(j->out, "\":");
    j->comma = false;
    json_put_raw(j, json);
}
