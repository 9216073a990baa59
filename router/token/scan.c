/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/scan.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

enum { UPPER = 1, LOWER = 2, DIGIT = 4, BLANK = 8, BREAK = 16, SIGN = 32, FOREIGN = 64 };
enum { LETTER = UPPER | LOWER, SPACE = BLANK | BREAK };

/* clang-format off */
static const uint8_t CLASS[256] = {
    [0 ... 8] = SIGN, ['\t'] = BLANK, ['\n'] = BREAK, ['\v'] = BLANK, ['\f'] = BLANK, ['\r'] = BREAK,
    [14 ... 31] = SIGN, [' '] = BLANK, ['!' ... '/'] = SIGN, ['0' ... '9'] = DIGIT,
    [':' ... '@'] = SIGN, ['A' ... 'Z'] = UPPER, ['[' ... '`'] = SIGN, ['a' ... 'z'] = LOWER,
    ['{' ... 127] = SIGN, [128 ... 255] = FOREIGN,
};
/* clang-format on */

/* --- which pattern ---------------------------------------------------------------------------- */

struct scan scan_of(struct str pattern)
{
    static const struct {
        const char *pattern;
        struct scan scan;
    } known[] = {
        {SCAN_PATTERN_GPT2, {SCAN_GPT2, UINT_MAX, false}},
        {SCAN_PATTERN_WORDS("\\p{N}{1,3}"), {SCAN_WORDS, 3, false}},
        {SCAN_PATTERN_WORDS("\\p{N}"), {SCAN_WORDS, 1, false}},
        {SCAN_PATTERN_CASED(SCAN_CAPITALS, SCAN_SMALL, "/"), {SCAN_CASED, 3, true}},
        {SCAN_PATTERN_KIMI, {SCAN_CASED, 3, false}},
    };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_is(pattern, known[i].pattern))
            return known[i].scan;
    return (struct scan){SCAN_NONE, 0, false};
}

/* --- matching --------------------------------------------------------------------------------- */

static inline uint8_t class_at(struct str text, size_t at)
{
    return at < text.len ? CLASS[(uint8_t)text.ptr[at]] : 0;
}

static inline size_t run_of(struct str text, size_t at, uint8_t classes)
{
    while (class_at(text, at) & classes)
        at++;
    return at;
}

/* How many of the eight bytes at @p are letters before the first that is none. */
static inline size_t letters_of_eight(const char *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones * 0x80;
    uint64_t eight, small, letters;

    memcpy(&eight, p, 8);
    small = (eight | ones * 0x20) & ~high;
    letters = (small + ones * (0x80 - 'a')) & ~(small + ones * (0x7f - 'z')) & ~eight & high;
    return letters == high ? 8 : (size_t)__builtin_ctzll(~letters & high) / 8;
}

static inline size_t letters_end(struct str text, size_t at)
{
    for (; at + 8 <= text.len; at += 8) {
        size_t n = letters_of_eight(text.ptr + at);

        if (n < 8)
            return at + n;
    }
    return run_of(text, at, LETTER);
}

/* @end, unless the character there may belong to the match as well. */
static inline size_t known_end(struct str text, size_t end)
{
    return class_at(text, end) == FOREIGN ? 0 : end;
}

/* Length of 's, 't, 're, 've, 'm, 'll, 'd at @at, where a "'" stands; 0 when it is none of them. */
static inline size_t short_form(struct str text, size_t at, uint8_t fold)
{
    char a = at + 1 < text.len ? (char)(text.ptr[at + 1] | fold) : 0;
    char b = at + 2 < text.len ? (char)(text.ptr[at + 2] | fold) : 0;

    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if ((b == 'e' && (a == 'r' || a == 'v')) || (b == 'l' && a == 'l'))
        return 3;
    return 0;
}

/* "\u017f" is an s to a pattern that does not look at case, so what is not ASCII behind a "'" is not known. */
static inline bool unclear_form(struct str text, size_t at)
{
    return class_at(text, at + 1) == FOREIGN || class_at(text, at + 2) == FOREIGN;
}

static inline size_t match_spaces(struct str text, size_t at, bool to_break)
{
    size_t end = run_of(text, at, SPACE);

    if (class_at(text, end) == FOREIGN)
        return 0;
    for (size_t i = end; to_break && i > at; i--)
        if (class_at(text, i - 1) == BREAK)
            return i;
    /* The last one stays for the word behind it. */
    return end < text.len && end - at > 1 ? end - 1 : end;
}

static inline size_t match_digits(struct str text, size_t at, unsigned max)
{
    size_t end = at;

    while (end - at < max && class_at(text, end) == DIGIT)
        end++;
    return end - at == max ? end : known_end(text, end);
}

static inline size_t match_gpt2(struct str text, size_t at)
{
    size_t word = at + (text.ptr[at] == ' ');
    uint8_t class = class_at(text, word);
    size_t n;

    if (text.ptr[at] == '\'') {
        if (unclear_form(text, at))
            return 0;
        n = short_form(text, at, 0);
        if (n > 0)
            return at + n;
    }
    if (class == FOREIGN)
        return 0;
    if (class & LETTER)
        return known_end(text, letters_end(text, word));
    if (class == DIGIT || class == SIGN)
        return known_end(text, run_of(text, word, class));
    return match_spaces(text, at, false);
}

static inline size_t match_letters(struct scan scan, struct str text, size_t at)
{
    size_t end;

    if (scan.kind == SCAN_WORDS)
        return known_end(text, letters_end(text, at));
    end = run_of(text, at, UPPER);
    if (class_at(text, end) != FOREIGN)
        end = run_of(text, end, LOWER);
    if (end >= text.len || text.ptr[end] != '\'')
        return known_end(text, end);
    return unclear_form(text, end) ? 0 : end + short_form(text, end, 0x20);
}

static inline size_t match_signs(struct scan scan, struct str text, size_t at)
{
    size_t end = run_of(text, at, SIGN);

    if (class_at(text, end) == FOREIGN)
        return 0;
    while (end < text.len &&
           (CLASS[(uint8_t)text.ptr[end]] == BREAK || (scan.slashes && text.ptr[end] == '/')))
        end++;
    return end;
}

static inline size_t match_words(struct scan scan, struct str text, size_t at)
{
    uint8_t class = class_at(text, at), next = class_at(text, at + 1);
    size_t n;

    if (class & LETTER)
        return match_letters(scan, text, at);
    if (class == DIGIT)
        return match_digits(text, at, scan.max_digits);
    if (class == FOREIGN)
        return 0;
    if (text.ptr[at] == '\'' && scan.kind == SCAN_WORDS) {
        if (unclear_form(text, at))
            return 0;
        n = short_form(text, at, 0x20);
        if (n > 0)
            return at + n;
    }
    if (class != BREAK && next & LETTER)
        return match_letters(scan, text, at + 1);
    if (class != BREAK && next == FOREIGN)
        return 0;
    if (class == SIGN)
        return match_signs(scan, text, at);
    if (text.ptr[at] == ' ' && next == SIGN)
        return match_signs(scan, text, at + 1);
    return match_spaces(text, at, true);
}

static inline size_t match(struct scan scan, struct str text, size_t at)
{
    return scan.kind == SCAN_GPT2 ? match_gpt2(text, at) : match_words(scan, text, at);
}

/* What is most of a text, seen at one glance: a short word, with one blank before it or none. Else 0. */
static inline size_t word_end(struct scan scan, struct str text, size_t at)
{
    size_t start = at + (text.ptr[at] == ' '), n;

    if (scan.kind == SCAN_CASED || start + 9 > text.len)
        return 0;
    n = letters_of_eight(text.ptr + start);
    if (n == 0)
        return 0;
    n = n < 8 ? start + n : letters_end(text, start + n);
    return n < text.len && CLASS[(uint8_t)text.ptr[n]] == FOREIGN ? 0 : n;
}

static inline size_t matches(struct scan scan, struct str text, size_t at, struct split_span *spans,
                             size_t max)
{
    size_t n = 0;

    while (n < max && at < text.len) {
        size_t end = word_end(scan, text, at);

        if (end == 0)
            end = match(scan, text, at);
        if (end == 0)
            break;
        spans[n++] = (struct split_span){(uint32_t)at, (uint32_t)end};
        at = end;
    }
    return n;
}

size_t scan_matches(struct scan scan, struct str text, size_t at, struct split_span *spans,
                    size_t max)
{
    /* Said so that the compiler makes a loop of its own for each. */
    if (scan.kind == SCAN_GPT2)
        return matches((struct scan){SCAN_GPT2, UINT_MAX, false}, text, at, spans, max);
    if (scan.kind == SCAN_CASED)
        return matches((struct scan){SCAN_CASED, 3, scan.slashes}, text, at, spans, max);
    return matches((struct scan){SCAN_WORDS, scan.max_digits, false}, text, at, spans, max);
}
