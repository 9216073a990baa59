/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/jinja_text.h"

#include "router/token/template.h"
#include "router/token/utf8.h"

/* --- case ------------------------------------------------------------------------------------- */

static bool within(uint32_t cp, uint32_t first, uint32_t last)
{
    return cp >= first && cp <= last;
}

/* Blocks where capitals and small letters take turns; *ret_even: capitals are even. */
static bool is_paired(uint32_t cp, bool *ret_even)
{
    *ret_even = !within(cp, 0x139, 0x148) && !within(cp, 0x179, 0x17e) && !within(cp, 0x4c1, 0x4ce);
    return (within(cp, 0x100, 0x177) && !within(cp, 0x130, 0x131) && cp != 0x138 && cp != 0x149) ||
           within(cp, 0x179, 0x17e) || within(cp, 0x460, 0x481) || within(cp, 0x48a, 0x4bf) ||
           within(cp, 0x4c1, 0x4ce) || within(cp, 0x4d0, 0x52f) || within(cp, 0x1e00, 0x1e95) ||
           within(cp, 0x1ea0, 0x1eff);
}

static uint32_t to_upper(uint32_t cp)
{
    bool even;

    if (within(cp, 'a', 'z') || (within(cp, 0xe0, 0xfe) && cp != 0xf7))
        return cp - 32;
    if (cp == 0xff)
        return 0x178;
    if (is_paired(cp, &even))
        return (cp & 1) == even ? cp - 1 : cp;
    if (within(cp, 0x3b1, 0x3c9) && cp != 0x3c2)
        return cp - 32;
    if (cp == 0x3c2)
        return 0x3a3;
    if (within(cp, 0x430, 0x44f))
        return cp - 32;
    if (within(cp, 0x450, 0x45f))
        return cp - 80;
    return within(cp, 0x561, 0x586) ? cp - 48 : cp;
}

static uint32_t to_lower(uint32_t cp)
{
    bool even;

    if (within(cp, 'A', 'Z') || (within(cp, 0xc0, 0xde) && cp != 0xd7))
        return cp + 32;
    if (cp == 0x178)
        return 0xff;
    if (is_paired(cp, &even))
        return (cp & 1) != even ? cp + 1 : cp;
    if (within(cp, 0x391, 0x3a9) && cp != 0x3a2)
        return cp + 32;
    if (within(cp, 0x410, 0x42f))
        return cp + 32;
    if (within(cp, 0x400, 0x40f))
        return cp + 80;
    return within(cp, 0x531, 0x556) ? cp + 48 : cp;
}

/* A letter, as far as title case is concerned: what has case, and what no blank or sign is. */
static bool continues_word(uint32_t cp)
{
    return within(cp, 'a', 'z') || within(cp, 'A', 'Z') || within(cp, '0', '9') || cp == '\'' ||
           (cp > 0xbf && cp != 0xd7 && cp != 0xf7 && !utf8_is_space(cp));
}

struct jinja_value jinja_change_case(struct jinja_run *run, struct str s, enum jinja_case to)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    bool inside = false; /* of a word, or behind the first character */

    (void)jinja_spend(run, s.len / 16);
    for (size_t n; s.len > 0; s = str_skip(s, n)) {
        uint32_t cp = utf8_get(s.ptr);
        bool up = to == JINJA_UPPER || (to != JINJA_LOWER && !inside);

        n = utf8_len(s.ptr[0]);
        if (up && cp == 0xdf)
            buf_put_cstr(&out, to == JINJA_UPPER ? "SS" : "Ss");
        else
            utf8_append(&out, up ? to_upper(cp) : to_lower(cp));
        inside = to != JINJA_TITLE || continues_word(cp);
    }
    return jinja_str_from_buf(run, &out);
}

/* --- ends ------------------------------------------------------------------------------------- */

static bool is_stripped(const char *c, struct str chars)
{
    return chars.ptr ? str_has(chars, str_slice(c, utf8_len(*c))) : utf8_is_space(utf8_get(c));
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
