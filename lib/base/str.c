/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/str.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <strings.h>

bool str_eq_nocase(struct str a, struct str b)
{
    return a.len == b.len && (a.len == 0 || strncasecmp(a.ptr, b.ptr, a.len) == 0);
}

int str_cmp(struct str a, struct str b)
{
    size_t n = MIN(a.len, b.len);
    int order = n ? memcmp(a.ptr, b.ptr, n) : 0;

    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

bool str_starts(struct str s, struct str prefix)
{
    return s.len >= prefix.len && str_eq(str_head(s, prefix.len), prefix);
}

bool str_ends(struct str s, struct str suffix)
{
    return s.len >= suffix.len && str_eq(str_skip(s, s.len - suffix.len), suffix);
}

bool str_has(struct str s, struct str needle)
{
    if (needle.len == 0)
        return true;
    return s.len >= needle.len && memmem(s.ptr, s.len, needle.ptr, needle.len) != NULL;
}

size_t str_index(struct str s, char c)
{
    const char *at = s.len ? memchr(s.ptr, c, s.len) : NULL;

    return at ? (size_t)(at - s.ptr) : s.len;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct str str_trim(struct str s)
{
    while (s.len && is_space(s.ptr[0]))
        s = str_skip(s, 1);
    while (s.len && is_space(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

struct str str_skip(struct str s, size_t n)
{
    n = MIN(n, s.len);
    return n ? (struct str){s.ptr + n, s.len - n} : s;
}

struct str str_head(struct str s, size_t n)
{
    return (struct str){s.ptr, MIN(n, s.len)};
}

bool str_cut(struct str *rest, char sep, struct str *ret_part)
{
    size_t at = str_index(*rest, sep);
    bool found = at < rest->len;

    *ret_part = str_head(*rest, at);
    *rest = str_skip(*rest, found ? at + 1 : at);
    return found;
}

char *str_dup(struct str s)
{
    char *copy = xmalloc(s.len + 1);

    if (s.len)
        memcpy(copy, s.ptr, s.len);
    copy[s.len] = '\0';
    return copy;
}

/* Bytes of a character by its first one; 0 for those that cannot be first. */
static size_t utf8_length(unsigned char first)
{
    if (first < 0x80)
        return 1;
    if (first < 0xC2 || first > 0xF4)
        return 0;
    return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Unicode 15, table 3-7: the second byte's range rules out overlong forms and surrogates. */
size_t str_utf8_char(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;
    size_t n = s.len ? utf8_length(p[0]) : 0;

    if (n > s.len)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if (n > 1 && ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
                  (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)))
        return 0;
    return n;
}

bool str_is_utf8(struct str s)
{
    while (s.len) {
        size_t n = str_utf8_char(s);
        uint64_t word;

        if (n == 0)
            return false;
        s = str_skip(s, n);
        /* Whole words of ASCII, which most text is. */
        while (s.len >= sizeof(word)) {
            memcpy(&word, s.ptr, sizeof(word));
            if (word & UINT64_C(0x8080808080808080))
                break;
            s = str_skip(s, sizeof(word));
        }
    }
    return true;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return 99;
}

bool str_parse_base(struct str s, unsigned base, uint64_t *ret)
{
    uint64_t value = 0;

    if (s.len == 0)
        return false;
    for (size_t i = 0; i < s.len; i++) {
        unsigned digit = (unsigned)digit_value(s.ptr[i]);

        if (digit >= base || __builtin_mul_overflow(value, (uint64_t)base, &value) ||
            __builtin_add_overflow(value, (uint64_t)digit, &value))
            return false;
    }
    *ret = value;
    return true;
}

bool str_parse_u64(struct str s, uint64_t *ret)
{
    return str_parse_base(s, 10, ret);
}

bool str_parse_hex64(struct str s, uint64_t *ret)
{
    return str_parse_base(s, 16, ret);
}

bool str_parse_i64(struct str s, int64_t *ret)
{
    bool negative = s.len && s.ptr[0] == '-';
    uint64_t magnitude;

    if (!str_parse_base(str_skip(s, negative), 10, &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return false;
    *ret = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

bool str_parse_f64(struct str s, double *ret)
{
    char text[64];
    char *end;
    double value;

    if (s.len == 0 || s.len >= sizeof(text) || is_space(s.ptr[0]))
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (!strchr("0123456789+-.eE", s.ptr[i]) || s.ptr[i] == '\0')
            return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    value = strtod(text, &end);
    if (*end != '\0' || !isfinite(value))
        return false;
    *ret = value;
    return true;
}

bool str_parse_bool(struct str s, bool *ret)
{
    static const struct {
        struct str word;
        bool value;
    } words[] = {{STR("true"), true},   {STR("1"), true},  {STR("yes"), true}, {STR("on"), true},
                 {STR("false"), false}, {STR("0"), false}, {STR("no"), false}, {STR("off"), false}};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (str_eq_nocase(s, words[i].word)) {
            *ret = words[i].value;
            return true;
        }
    }
    return false;
}
