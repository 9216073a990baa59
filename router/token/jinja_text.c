/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/jinja_text.h"

#include "router/token/template.h"
#include "router/token/utf8.h"

/* --- characters ------------------------------------------------------------------------------- */

struct jinja_range {
    uint32_t first, last;
};

/* Every @step-th character from first to last moves by @delta. */
struct jinja_run_of {
    uint32_t first, last, step;
    int32_t delta;
};

struct jinja_special {
    uint32_t cp;
    const char *text;
};

#include "router/token/jinja_table.inc"

static bool find_range(const struct jinja_range *table, size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = (low + high) / 2;

        if (cp > table[mid].last)
            low = mid + 1;
        else if (cp < table[mid].first)
            high = mid;
        else
            return true;
    }
    return false;
}

#define IN(table, cp) find_range(table, ARRAY_LEN(table), cp)

bool jinja_is_printable(uint32_t cp)
{
    return cp < 0x7f ? cp >= 0x20 : !IN(UNPRINTABLE, cp);
}

bool jinja_is_letter(uint32_t cp)
{
    return IN(LETTERS, cp);
}

bool jinja_is_digit(uint32_t cp)
{
    return IN(DIGITS, cp);
}

/* White_Space, and the four separators of ASCII. */
bool jinja_is_space(uint32_t cp)
{
    return (cp >= 0x1c && cp <= 0x1f) || utf8_is_space(cp);
}

size_t jinja_line_end(struct str s)
{
    uint32_t cp = s.len ? utf8_get(s.ptr) : 0;

    if (str_starts(s, STR("\r\n")))
        return 2;
    if ((cp >= '\n' && cp <= '\r') || (cp >= 0x1c && cp <= 0x1e))
        return 1;
    return cp == 0x85 ? 2 : cp == 0x2028 || cp == 0x2029 ? 3 : 0;
}

/* --- case ------------------------------------------------------------------------------------- */

static uint32_t move(const struct jinja_run_of *table, size_t n, uint32_t cp)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct jinja_run_of *r = &table[mid];

        if (cp > r->last)
            low = mid + 1;
        else if (cp < r->first)
            high = mid;
        else
            return (cp - r->first) % r->step == 0 ? (uint32_t)((int64_t)cp + r->delta) : cp;
    }
    return cp;
}

static const char *find_special(const struct jinja_special *table, size_t n, uint32_t cp)
{
    for (size_t i = 0; i < n && table[i].cp <= cp; i++)
        if (table[i].cp == cp)
            return table[i].text;
    return NULL;
}

#define PUT_AS(out, what, cp)                                                                      \
    put_as(out, find_special(SPECIAL_##what, ARRAY_LEN(SPECIAL_##what), cp),                       \
           move(TO_##what, ARRAY_LEN(TO_##what), cp))

static void put_as(struct buf *out, const char *special, uint32_t cp)
{
    if (special)
        buf_put_cstr(out, special);
    else
        utf8_append(out, cp);
}

/* A capital sigma at the end of a word: something with case before it, and nothing after. */
static bool ends_word(struct str whole, const char *sigma)
{
    const char *p = sigma, *end = whole.ptr + whole.len;
    bool before = false;

    while (p > whole.ptr) {
        p = utf8_prev(whole.ptr, p);
        if (!IN(CASE_IGNORED, utf8_get(p))) {
            before = IN(CASED, utf8_get(p));
            break;
        }
    }
    for (p = sigma + utf8_len(*sigma); before && p < end; p += utf8_len(*p))
        if (!IN(CASE_IGNORED, utf8_get(p)))
            return !IN(CASED, utf8_get(p));
    return before;
}

static void put_lower(struct buf *out, struct str whole, const char *at)
{
    uint32_t cp = utf8_get(at);

    if (cp == 0x3a3)
        utf8_append(out, ends_word(whole, at) ? 0x3c2 : 0x3c3);
    else
        PUT_AS(out, LOWER, cp);
}

static bool begins_word(struct str whole, const char *at)
{
    const char *before = at > whole.ptr ? utf8_prev(whole.ptr, at) : NULL;

    return !before || jinja_is_space(utf8_get(before)) || strchr("-({[<", *before);
}

struct jinja_value jinja_change_case(struct jinja_run *run, struct str s, enum jinja_case to)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    bool inside = false;  /* of a word, or behind the first character */
    struct str whole = s; /* what decides on a final sigma */

    (void)jinja_spend(run, s.len / 8);
    for (struct str rest = s; rest.len > 0; rest = str_skip(rest, utf8_len(rest.ptr[0]))) {
        uint32_t cp = utf8_get(rest.ptr);

        if (to == JINJA_TITLE_FILTER && begins_word(s, rest.ptr))
            whole = str_skip(rest, utf8_len(rest.ptr[0])); /* it puts each word in case alone */
        if (to == JINJA_UPPER || (to == JINJA_TITLE_FILTER && begins_word(s, rest.ptr)) ||
            (to == JINJA_SWAPCASE && IN(LOWER_CASE, cp)))
            PUT_AS(&out, UPPER, cp);
        else if (to == JINJA_SWAPCASE && !IN(UPPER_CASE, cp))
            utf8_append(&out, cp);
        else if ((to == JINJA_CAPITALIZE || to == JINJA_TITLE) && !inside)
            PUT_AS(&out, TITLE, cp);
        else
            put_lower(&out, whole, rest.ptr);
        inside = to != JINJA_TITLE || IN(CASED, cp);
    }
    return jinja_str_from_buf(run, &out);
}

bool jinja_has_case(struct str s, bool upper)
{
    bool some = false;

    for (; s.len > 0; s = str_skip(s, utf8_len(s.ptr[0]))) {
        uint32_t cp = utf8_get(s.ptr);

        if (upper ? IN(LOWER_CASE, cp) : IN(UPPER_CASE, cp))
            return false;
        if (IN(CASED, cp) && !IN(LOWER_CASE, cp) && !IN(UPPER_CASE, cp))
            return false; /* a title case letter is neither */
        some |= upper ? IN(UPPER_CASE, cp) : IN(LOWER_CASE, cp);
    }
    return some;
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool is_stripped(const char *c, struct str chars)
{
    return chars.ptr ? str_has(chars, str_slice(c, utf8_len(*c))) : jinja_is_space(utf8_get(c));
}

struct str jinja_strip(struct str s, struct str chars, bool left, bool right)
{
    while (left && s.len > 0 && is_stripped(s.ptr, chars))
        s = str_skip(s, utf8_len(s.ptr[0]));
    while (right && s.len > 0) {
        const char *last = utf8_prev(s.ptr, s.ptr + s.len);

        if (!is_stripped(last, chars))
            break;
        s.len = (size_t)(last - s.ptr);
    }
    return s;
}

/* --- replace ---------------------------------------------------------------------------------- */

static void replace_nothing(struct str s, struct str to, int64_t count, struct buf *out)
{
    for (size_t n; count != 0; s = str_skip(s, n), count--) {
        buf_put_str(out, to);
        n = s.len ? utf8_len(s.ptr[0]) : 0;
        if (n == 0)
            return;
        buf_put(out, s.ptr, n);
    }
    buf_put_str(out, s);
}

struct jinja_value jinja_replace(struct jinja_run *run, struct str s, struct str from,
                                 struct str to, int64_t count)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)jinja_spend(run, s.len / 16);
    if (to.len > from.len && to.len * (s.len / (from.len ? from.len : 1) + 1) > TEMPLATE_MAX_OUTPUT)
        return jinja_fail(run, "replace makes too long a string");
    if (from.len == 0) {
        replace_nothing(s, to, count, &out);
        return jinja_str_from_buf(run, &out);
    }
    for (; s.len > 0 && count != 0; count--) {
        const char *hit = memmem(s.ptr, s.len, from.ptr, from.len);

        if (!hit)
            break;
        buf_put(&out, s.ptr, (size_t)(hit - s.ptr));
        buf_put_str(&out, to);
        s = str_skip(s, (size_t)(hit - s.ptr) + from.len);
    }
    buf_put_str(&out, s);
    return jinja_str_from_buf(run, &out);
}
