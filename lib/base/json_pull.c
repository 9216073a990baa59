/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammar: RFC 8259. The scanner is a cursor plus one bit per open bracket; every public call
 * leaves the cursor behind the token that it read. Strings go sixteen bytes at a time, as nearly
 * all bytes of a chat request are inside one.
 */
#include "lib/base/json_pull.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <math.h>

#include "lib/base/err.h"

enum { NUMBER_MAX = 1024 }; /* digits of a number that json_pull_f64() reads */

static const char EXPECTED_VALUE[] = "expected a value";

void json_pull_init(struct json_pull *p, struct str text)
{
    const char *begin = text.ptr ? text.ptr : "";

    *p = (struct json_pull){.begin = begin, .at = begin, .end = begin + text.len};
}

void json_pull_fail(struct json_pull *p, const char *what)
{
    if (!p->error)
        p->error = what;
}

static bool fail(struct json_pull *p, const char *what)
{
    json_pull_fail(p, what);
    return false;
}

static size_t left(const struct json_pull *p)
{
    return (size_t)(p->end - p->at);
}

static inline void skip_space(struct json_pull *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

/* Moves to the first byte of the next value: true when there may be one here. */
static inline bool begin_value(struct json_pull *p)
{
    if (p->error)
        return false;
    skip_space(p);
    if (p->after_value)
        return fail(p, "expected ',' or the end");
    if (p->at == p->end)
        return fail(p, "the text ends early");
    return true;
}

static bool end_value(struct json_pull *p)
{
    p->after_value = true;
    return true;
}

enum json_kind json_pull_peek(struct json_pull *p)
{
    if (p->error)
        return JSON_KIND_NONE;
    skip_space(p);
    /* The end of the whole text is no error. */
    if (p->after_value || (p->at == p->end && p->depth == 0))
        return JSON_KIND_NONE;
    if (!begin_value(p))
        return JSON_KIND_NONE;

    switch (*p->at) {
    case '{':
        return JSON_KIND_OBJECT;
    case '[':
        return JSON_KIND_ARRAY;
    case '"':
        return JSON_KIND_STRING;
    case 't':
    case 'f':
        return JSON_KIND_BOOL;
    case 'n':
        return JSON_KIND_NULL;
    default:
        if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9'))
            return JSON_KIND_NUMBER;
        (void)fail(p, EXPECTED_VALUE);
        return JSON_KIND_NONE;
    }
}

/* --- words ----------------------------------------------------------------------------------- */

static bool take_word(struct json_pull *p, struct str word)
{
    if (left(p) < word.len || memcmp(p->at, word.ptr, word.len) != 0)
        return false;
    p->at += word.len;
    return end_value(p);
}

bool json_pull_null(struct json_pull *p)
{
    if (p->error || p->after_value)
        return false;
    skip_space(p);
    return take_word(p, STR("null"));
}

bool json_pull_bool(struct json_pull *p, bool *ret)
{
    if (!begin_value(p))
        return false;
    if (take_word(p, STR("true"))) {
        *ret = true;
        return true;
    }
    if (take_word(p, STR("false"))) {
        *ret = false;
        return true;
    }
    return fail(p, "expected true or false");
}

/* --- brackets -------------------------------------------------------------------------------- */

static bool in_object(const struct json_pull *p)
{
    unsigned level = p->depth - 1u;

    return p->depth > 0 && (p->stack[level / 8] >> level % 8 & 1);
}

/* Behind an opening bracket. */
static bool enter(struct json_pull *p, bool object)
{
    unsigned level = p->depth, bit = 1u << level % 8;

    if (level == JSON_PULL_DEPTH)
        return fail(p, "nested too deeply");
    p->stack[level / 8] =
        (uint8_t)(object ? p->stack[level / 8] | bit : p->stack[level / 8] & ~bit);
    p->depth++;
    p->at++;
    p->after_value = false;
    return true;
}

bool json_pull_object(struct json_pull *p)
{
    if (json_pull_null(p) || !begin_value(p))
        return false;
    return *p->at == '{' ? enter(p, true) : fail(p, "expected an object");
}

bool json_pull_array(struct json_pull *p)
{
    if (json_pull_null(p) || !begin_value(p))
        return false;
    return *p->at == '[' ? enter(p, false) : fail(p, "expected an array");
}

/* Past the comma to the next member; false when @bracket closes the level (then left) or on error.
 */
static inline bool next_member(struct json_pull *p, char bracket)
{
    skip_space(p);
    if (p->at == p->end)
        return fail(p, "the text ends early");
    if (*p->at == bracket) {
        p->at++;
        p->depth--;
        p->after_value = true;
        return false;
    }
    if (!p->after_value)
        return true; /* the first one */
    if (*p->at != ',')
        return fail(p, bracket == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    p->at++;
    skip_space(p);
    p->after_value = false;
    return true;
}

bool json_pull_element(struct json_pull *p)
{
    bool first = !p->after_value;

    if (p->error)
        return false;
    if (p->depth == 0 || in_object(p))
        return fail(p, "not inside an array");
    if (!next_member(p, ']'))
        return false;
    if (!first && p->at < p->end && *p->at == ']')
        return fail(p, EXPECTED_VALUE);
    return true;
}

/* --- strings --------------------------------------------------------------------------------- */

typedef uint8_t bytes16 __attribute__((vector_size(16)));

/* Index of the first byte that is not 0, which one of them is. */
static inline size_t first_set(bytes16 v)
{
    uint64_t half[2];

    memcpy(half, &v, sizeof(half));
    return half[0] ? (size_t)__builtin_ctzll(le64toh(half[0])) / 8
                   : 8 + (size_t)__builtin_ctzll(le64toh(half[1])) / 8;
}

static inline bool any_set(bytes16 v)
{
    uint64_t half[2];

    memcpy(half, &v, sizeof(half));
    return half[0] | half[1];
}

/*
 * Bytes before the first quote, backslash or control character. *ret_high: whether there may be
 * others than ASCII; bytes just behind the end count too, which only costs a needless check.
 */
static inline size_t plain_run(const char *at, size_t n, bool *ret_high)
{
    bytes16 seen = {0};
    size_t i = 0;

    for (bytes16 v, stop; i + sizeof(v) <= n; i += sizeof(v)) {
        memcpy(&v, at + i, sizeof(v));
        seen |= v;
        stop = (bytes16)((v == '"') | (v == '\\') | (v < 0x20));
        if (any_set(stop)) {
            *ret_high |= any_set(seen & 0x80);
            return i + first_set(stop);
        }
    }
    *ret_high |= any_set(seen & 0x80);
    for (; i < n && at[i] != '"' && at[i] != '\\' && (unsigned char)at[i] >= 0x20; i++)
        *ret_high |= (unsigned char)at[i] >= 0x80;
    return i;
}

/* What the letter behind a backslash stands for; 0 for 'u' and for what is no escape. */
static const char meanings[256] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                   ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};

/* @s begins behind a backslash: length of the escape's rest, 0 when it is none. */
static inline size_t escape_length(struct str s)
{
    uint64_t code;

    if (s.len == 0)
        return 0;
    if (meanings[(unsigned char)s.ptr[0]])
        return 1;
    return s.len >= 5 && s.ptr[0] == 'u' && str_parse_hex64(str_slice(s.ptr + 1, 4), &code) ? 5 : 0;
}

/* From a quote to behind its partner. */
static inline bool take_string(struct json_pull *p, struct str *ret_raw, bool *ret_escaped)
{
    const char *begin = p->at + 1, *at = begin;
    bool escaped = false, high = false;

    for (;;) {
        at += plain_run(at, (size_t)(p->end - at), &high);
        if (at == p->end || *at != '\\')
            break;
        size_t n = escape_length(str_slice(at + 1, (size_t)(p->end - at) - 1));

        p->at = at;
        if (n == 0)
            return fail(p, "malformed escape");
        at += 1 + n;
        escaped = true;
    }
    p->at = at;
    if (at == p->end)
        return fail(p, "a string has no end");
    if (*at != '"')
        return fail(p, "control character in a string");
    *ret_raw = str_slice(begin, (size_t)(at - begin));
    *ret_escaped = escaped;
    if (high && !str_is_utf8(*ret_raw))
        return fail(p, "a string is not UTF-8");
    p->at++;
    return true;
}

bool json_pull_key(struct json_pull *p, struct str *ret_key)
{
    bool escaped;
    struct str key;

    if (p->error)
        return false;
    if (!in_object(p))
        return fail(p, "not inside an object");
    if (!next_member(p, '}'))
        return false;
    if (p->at == p->end || *p->at != '"')
        return fail(p, "expected a key");
    if (!take_string(p, &key, &escaped))
        return false;
    skip_space(p);
    if (p->at == p->end || *p->at != ':')
        return fail(p, "expected ':'");
    p->at++;
    *ret_key = key;
    return true;
}

static inline bool pull_string(struct json_pull *p, struct str *ret_raw, bool *ret_escaped)
{
    if (!begin_value(p))
        return false;
    if (*p->at != '"')
        return fail(p, "expected a string");
    return take_string(p, ret_raw, ret_escaped) && end_value(p);
}

bool json_pull_raw_string(struct json_pull *p, struct str *ret_raw)
{
    bool escaped;

    return pull_string(p, ret_raw, &escaped);
}

bool json_pull_string(struct json_pull *p, struct buf *scratch, struct str *ret)
{
    struct str raw;
    size_t before = scratch->len;
    bool escaped;

    if (!pull_string(p, &raw, &escaped))
        return false;
    if (escaped) {
        if (!json_unescape(raw, scratch))
            return fail(p, "half of a surrogate pair");
        raw = str_skip(buf_str(scratch), before);
    }
    *ret = raw;
    return true;
}

/* --- escapes --------------------------------------------------------------------------------- */

/* Returns the end of what was written. */
static char *put_utf8(char *to, uint32_t c)
{
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n; i-- > 1; c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(lead[n] | c);
    return to + n;
}

/* uXXXX at the front of @s; a code unit above 0xFFFF stands for "none". */
static uint32_t code_unit(struct str s)
{
    uint64_t unit;

    if (s.len < 5 || s.ptr[0] != 'u' || !str_parse_hex64(str_slice(s.ptr + 1, 4), &unit))
        return UINT32_MAX;
    return (uint32_t)unit;
}

/* @s begins behind a backslash with 'u'. Returns the bytes used, 0 when malformed. */
static size_t decode_unicode(struct str s, uint32_t *ret)
{
    uint32_t high = code_unit(s), low;

    if (high > 0xFFFF || (high >= 0xDC00 && high <= 0xDFFF))
        return 0;
    if (high < 0xD800 || high > 0xDFFF) {
        *ret = high;
        return 5;
    }
    if (s.len < 11 || s.ptr[5] != '\\')
        return 0;
    low = code_unit(str_skip(s, 6));
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *ret = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    return 11;
}

/* Nothing grows by decoding, so one reservation is enough, and a failure commits nothing. */
bool json_unescape(struct str raw, struct buf *out)
{
    char *begin = buf_reserve(out, raw.len), *to = begin;
    struct str plain;
    uint32_t c;

    while (str_cut(&raw, '\\', &plain)) {
        size_t n = 1;

        memcpy(to, plain.ptr, plain.len);
        to += plain.len;
        if (raw.len && meanings[(unsigned char)raw.ptr[0]]) {
            *to++ = meanings[(unsigned char)raw.ptr[0]];
        } else {
            n = decode_unicode(raw, &c);
            if (n == 0)
                return false;
            to = put_utf8(to, c);
        }
        raw = str_skip(raw, n);
    }
    if (plain.len)
        memcpy(to, plain.ptr, plain.len);
    buf_commit(out, (size_t)(to - begin) + plain.len);
    return true;
}

/* --- numbers --------------------------------------------------------------------------------- */

static inline bool is_digit(const struct json_pull *p)
{
    return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static inline bool is_at(const struct json_pull *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take_digits(struct json_pull *p)
{
    if (!is_digit(p))
        return fail(p, "expected a digit");
    while (is_digit(p))
        p->at++;
    return true;
}

/* Sign and digits up to fraction or exponent. */
static bool take_integer_part(struct json_pull *p)
{
    if (is_at(p, '-'))
        p->at++;
    if (is_at(p, '0')) {
        p->at++;
        return is_digit(p) ? fail(p, "a number begins with 0") : true;
    }
    return take_digits(p);
}

static bool take_number(struct json_pull *p, struct str *ret_text)
{
    const char *begin = p->at;

    if (!take_integer_part(p))
        return false;
    if (is_at(p, '.')) {
        p->at++;
        if (!take_digits(p))
            return false;
    }
    if (is_at(p, 'e') || is_at(p, 'E')) {
        p->at++;
        if (is_at(p, '+') || is_at(p, '-'))
            p->at++;
        if (!take_digits(p))
            return false;
    }
    *ret_text = str_slice(begin, (size_t)(p->at - begin));
    return true;
}

static bool begin_number(struct json_pull *p, const char *otherwise)
{
    if (!begin_value(p))
        return false;
    return is_digit(p) || *p->at == '-' ? true : fail(p, otherwise);
}

/*
 * Magnitude of an integer, in one pass, as token ids and hashes are most of an event's bytes. Only
 * numbers of 20 digits can overflow unseen, and those that do come out below 10^19.
 */
static inline bool take_magnitude(struct json_pull *p, uint64_t *ret)
{
    const char *begin = p->at;
    uint64_t value = 0;
    size_t digits;

    for (; is_digit(p); p->at++)
        value = value * 10 + (uint64_t)(*p->at - '0');
    digits = (size_t)(p->at - begin);
    if (digits == 0)
        return fail(p, "expected a digit");
    if (*begin == '0' && digits > 1)
        return fail(p, "a number begins with 0");
    if (is_at(p, 'e') || is_at(p, 'E') || is_at(p, '.'))
        return fail(p, "expected an integer");
    if (digits > 20 || (digits == 20 && (*begin != '1' || value < UINT64_C(10000000000000000000))))
        return fail(p, "integer out of range");
    *ret = value;
    return true;
}

bool json_pull_u64(struct json_pull *p, uint64_t *ret)
{
    uint64_t value;

    if (!begin_number(p, "expected an integer"))
        return false;
    if (*p->at == '-')
        return fail(p, "integer out of range");
    if (!take_magnitude(p, &value))
        return false;
    *ret = value;
    return end_value(p);
}

bool json_pull_i64(struct json_pull *p, int64_t *ret)
{
    uint64_t magnitude;
    bool negative;

    if (!begin_number(p, "expected an integer"))
        return false;
    negative = *p->at == '-';
    p->at += negative;
    if (!take_magnitude(p, &magnitude))
        return false;
    if (magnitude > (uint64_t)INT64_MAX + negative)
        return fail(p, "integer out of range");
    *ret = (int64_t)(negative ? 0 - magnitude : magnitude);
    return end_value(p);
}

/*
 * Whether a short decimal is exact in one step: both the digits (below 2^53) and the power of ten
 * (up to 10^22) are doubles, so one division rounds once, which is to say correctly (Clinger,
 * "How to read floating point numbers accurately", 1990).
 */
static bool short_decimal(struct str s, double *ret)
{
    static const double tens[] = {1e0, 1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool negative = s.len && s.ptr[0] == '-', point = false;
    size_t digits = 0, decimals = 0;
    uint64_t value = 0;

    for (size_t i = negative; i < s.len; i++) {
        if (s.ptr[i] == '.') {
            point = true;
            continue;
        }
        if (s.ptr[i] < '0' || s.ptr[i] > '9' || ++digits > 15)
            return false;
        value = value * 10 + (uint64_t)(s.ptr[i] - '0');
        decimals += point;
    }
    *ret = (double)value / tens[decimals];
    if (negative)
        *ret = -*ret;
    return true;
}

bool json_pull_f64(struct json_pull *p, double *ret)
{
    char text[NUMBER_MAX + 1];
    struct str s;
    double value;

    if (!begin_number(p, "expected a number") || !take_number(p, &s))
        return false;
    if (!short_decimal(s, &value)) {
        if (s.len > NUMBER_MAX)
            return fail(p, "a number is too long");
        memcpy(text, s.ptr, s.len);
        text[s.len] = '\0';
        value = strtod(text, NULL);
        if (!isfinite(value))
            return fail(p, "number out of range");
    }
    *ret = value;
    return end_value(p);
}

/* --- whole values ---------------------------------------------------------------------------- */

/* Takes a scalar, or enters an object or an array. */
static bool take_one(struct json_pull *p)
{
    struct str text;
    bool flag;

    if (!begin_value(p))
        return false;
    switch (*p->at) {
    case '{':
        return enter(p, true);
    case '[':
        return enter(p, false);
    case '"':
        return take_string(p, &text, &flag) && end_value(p);
    case 't':
    case 'f':
        return json_pull_bool(p, &flag);
    case 'n':
        return json_pull_null(p) || fail(p, EXPECTED_VALUE);
    default:
        return begin_number(p, EXPECTED_VALUE) && take_number(p, &text) && end_value(p);
    }
}

static bool next_in_level(struct json_pull *p)
{
    struct str key;

    return in_object(p) ? json_pull_key(p, &key) : json_pull_element(p);
}

bool json_pull_skip(struct json_pull *p, struct str *ret_text)
{
    unsigned floor = p->depth;
    const char *begin;

    if (!begin_value(p))
        return false;
    begin = p->at;
    do {
        if (!take_one(p))
            return false;
        while (p->depth > floor && !next_in_level(p))
            if (p->error)
                return false;
    } while (p->depth > floor);

    if (ret_text)
        *ret_text = str_slice(begin, (size_t)(p->at - begin));
    return true;
}

int json_pull_end(struct json_pull *p, struct err *e)
{
    if (!p->error) {
        skip_space(p);
        if (p->depth > 0 || !p->after_value)
            json_pull_fail(p, "the value was not read to its end");
        else if (p->at < p->end)
            json_pull_fail(p, "something follows the value");
    }
    if (!p->error)
        return 0;
    return err_set(e, -EINVAL, "byte %zu: %s", (size_t)(p->at - p->begin), p->error);
}

struct str json_pull_member(struct str object, const char *key)
{
    struct str name, value = STR_NULL;
    struct json_pull p;

    json_pull_init(&p, object);
    if (json_pull_peek(&p) != JSON_KIND_OBJECT || !json_pull_object(&p))
        return STR_NULL;
    while (json_pull_key(&p, &name))
        if (!json_pull_skip(&p, &value))
            return STR_NULL;
        else if (str_is(name, key))
            return value;
    return STR_NULL;
}
