/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over text that is known to be valid UTF-8. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

/* Bytes of the character whose first byte is @lead. */
static inline size_t utf8_len(char lead)
{
    uint8_t b = (uint8_t)lead;

    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* Where the next character that is not ASCII may be, at or after @at: at most 7 bytes behind this. */
static inline size_t utf8_skip_ascii(struct str text, size_t at)
{
    uint64_t eight, four[4];

    for (; at + sizeof(four) <= text.len; at += sizeof(four)) {
        memcpy(four, text.ptr + at, sizeof(four));
        if ((four[0] | four[1] | four[2] | four[3]) & UINT64_C(0x8080808080808080))
            break;
    }
    for (; at + 8 <= text.len; at += 8) {
        memcpy(&eight, text.ptr + at, 8);
        if (eight & UINT64_C(0x8080808080808080))
            break;
    }
    return at;
}

/* Code point at @p, which holds a whole character. */
static inline uint32_t utf8_get(const char *p)
{
    const uint8_t *b = (const uint8_t *)p;

    switch (utf8_len(*p)) {
    case 1:
        return b[0];
    case 2:
        return (uint32_t)(b[0] & 0x1f) << 6 | (b[1] & 0x3f);
    case 3:
        return (uint32_t)(b[0] & 0x0f) << 12 | (uint32_t)(b[1] & 0x3f) << 6 | (b[2] & 0x3f);
    default:
        return (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3f) << 12 |
               (uint32_t)(b[2] & 0x3f) << 6 | (b[3] & 0x3f);
    }
}

static inline bool utf8_is_continuation(char c)
{
    return ((uint8_t)c & 0xc0) == 0x80;
}

/* Start of the character that ends before @end; @end > @begin. */
static inline const char *utf8_prev(const char *begin, const char *end)
{
    do
        end--;
    while (end > begin && utf8_is_continuation(*end));
    return end;
}

/* Writes the character to @out (4 bytes) and returns its length. */
static inline size_t utf8_put(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

static inline void utf8_append(struct buf *out, uint32_t cp)
{
    char c[4];

    buf_put(out, c, utf8_put(cp, c));
}

/* Unicode White_Space. */
static inline bool utf8_is_space(uint32_t cp)
{
    return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
enum { UTF8_REPLACEMENT_LEN = 3 };
