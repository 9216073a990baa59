/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/scan.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

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

/* --- many at a time --------------------------------------------------------------------------- */

/*
 * A bit for each of the 64 bytes at a place where a word begins. No pattern looks behind, and but for those
 * that are hard the class of a character and of its neighbours tells whether a word begins at it.
 */
struct window {
    uint64_t letters, digits, blanks, quotes;
    uint64_t hard; /* control characters, line breaks among them; what is not ASCII, or not text */
};

enum { WINDOW = 64 };

#ifdef __SSE2__
static inline uint64_t bits_of(__m128i bytes, int at)
{
    return (uint64_t)(uint32_t)_mm_movemask_epi8(bytes) << at;
}

static inline __m128i between(__m128i bytes, char first, char last)
{
    return _mm_and_si128(_mm_cmpgt_epi8(bytes, _mm_set1_epi8((char)(first - 1))),
                         _mm_cmplt_epi8(bytes, _mm_set1_epi8((char)(last + 1))));
}

static inline void look(struct window *w, const char *p)
{
    *w = (struct window){0};
    for (int i = 0; i < WINDOW; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i small = _mm_or_si128(bytes, _mm_set1_epi8(0x20));

        w->letters |= bits_of(between(small, 'a', 'z'), i);
        w->digits |= bits_of(between(bytes, '0', '9'), i);
        w->blanks |= bits_of(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(' ')), i);
        w->quotes |= bits_of(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('\'')), i);
        /* As signed numbers, those above 127 are below zero. */
        w->hard |= bits_of(_mm_cmplt_epi8(bytes, _mm_set1_epi8(' ')), i);
    }
}
#else
static inline void look(struct window *w, const char *p)
{
    *w = (struct window){0};
    for (unsigned i = 0; i < WINDOW; i++) {
        uint8_t byte = (uint8_t)p[i], class = CLASS[byte];

        w->letters |= (uint64_t)((class & LETTER) != 0) << i;
        w->digits |= (uint64_t)(class == DIGIT) << i;
        w->blanks |= (uint64_t)(byte == ' ') << i;
        w->quotes |= (uint64_t)(byte == '\'') << i;
        w->hard |= (uint64_t)(byte < ' ' || byte >= 0x80) << i;
    }
}
#endif

static inline void look_at(struct window *w, struct str text, size_t at)
{
    char rest[WINDOW] = "";

    if (text.len - at >= WINDOW) {
        look(w, text.ptr + at);
        return;
    }
    memcpy(rest, text.ptr + at, text.len - at);
    look(w, rest);
}

/* The bits before that of the first hard byte. */
static inline uint64_t easy_bits(const struct window *w)
{
    return w->hard ? (w->hard & -w->hard) - 1 : UINT64_MAX;
}

/* Digits go by @max from the first on. */
static inline uint64_t number_starts(uint64_t digits, unsigned max)
{
    uint64_t starts = digits & ~(digits << 1), three = digits & digits << 1 & digits << 2;

    if (max == 1)
        return digits;
    for (uint64_t next = starts; max == 3 && next; starts |= next)
        next = next << 3 & three << 1 & digits;
    return starts;
}

/* Short forms begin at @quotes, which begin words. What is not sure to begin one is taken out. */
static inline uint64_t mind_short_forms(struct scan scan, struct str text, size_t at,
                                        uint64_t quotes, const struct window *w, uint64_t starts)
{
    for (; quotes; quotes &= quotes - 1) {
        unsigned i = (unsigned)__builtin_ctzll(quotes);
        uint64_t until = (UINT64_C(2) << i) - 1;
        size_t n;

        if (~easy_bits(w) >> i & 7 || i > WINDOW - 4)
            return starts & until;
        n = short_form(text, at + i, scan.kind == SCAN_GPT2 ? 0 : 0x20);
        if (n > 0)
            starts = (starts & ~(UINT64_C(2) << i)) |
                     (w->letters & easy_bits(w) & UINT64_C(1) << (i + n));
    }
    return starts;
}

/* Where words begin, as far as that is sure. Blanks but the last of several are a word of their own. */
static inline uint64_t word_starts(struct scan scan, struct str text, size_t at,
                                   const struct window *w)
{
    uint64_t easy = easy_bits(w), letters = w->letters & easy, digits = w->digits & easy;
    uint64_t blanks = w->blanks & easy, signs = easy & ~(letters | digits | blanks);
    uint64_t starts = (blanks & ~(blanks << 1)) | (blanks & ~(blanks >> 1) & easy >> 1);
    uint64_t sign_starts = signs & ~((signs | blanks) << 1);

    starts |= sign_starts;
    if (scan.kind == SCAN_GPT2) {
        starts |= letters & ~((letters | blanks) << 1);
        starts |= digits & ~((digits | blanks) << 1);
    } else {
        starts |= letters & ~((letters | blanks | sign_starts) << 1);
        starts |= number_starts(digits, scan.max_digits);
    }
    return mind_short_forms(scan, text, at, w->quotes & sign_starts, w, starts);
}

/* Words that are sure to end within the window at *at, which moves on. */
static inline size_t window_matches(struct scan scan, struct str text, size_t *at,
                                    struct split_span *spans, size_t n, size_t max)
{
    size_t base = *at, from = base;
    struct window w;
    uint64_t starts;

    look_at(&w, text, base);
    starts = word_starts(scan, text, base, &w);
    for (starts &= starts - 1; starts && n < max; starts &= starts - 1) {
        size_t end = base + (size_t)__builtin_ctzll(starts);

        spans[n++] = (struct split_span){(uint32_t)from, (uint32_t)end};
        from = end;
    }
    *at = from;
    return n;
}

static inline size_t matches(struct scan scan, struct str text, size_t at, struct split_span *spans,
                             size_t max)
{
    size_t n = 0;

    while (n < max && at < text.len) {
        size_t before = at, end;

        if (scan.kind != SCAN_CASED)
            n = window_matches(scan, text, &at, spans, n, max);
        if (at > before)
            continue;
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
