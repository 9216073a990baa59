/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The patterns that nearly all byte-level tokenizers cut words with, matched by hand where the
 * text is ASCII. Whatever touches another character is left to the regex engine, so that both
 * always agree; how much faster ASCII goes is the point. Pure and thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"

/* The patterns, as files spell them. */
#define SCAN_SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SCAN_ONE_SIGN "[^\\r\\n\\p{L}\\p{N}]?"
#define SCAN_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SCAN_CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SCAN_SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SCAN_PATTERN_GPT2                                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define SCAN_PATTERN_WORDS(numbers)                                                                \
    SCAN_SHORT_FORMS "|" SCAN_ONE_SIGN "\\p{L}+|" numbers                                          \
                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SCAN_SPACES
#define SCAN_PATTERN_CASED(capitals, small, slash)                                                 \
    SCAN_ONE_SIGN capitals "*" small "+" SCAN_SHORT_FORMS "?|" SCAN_ONE_SIGN capitals "+" small    \
                           "*" SCAN_SHORT_FORMS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n" slash \
                           "]*|" SCAN_SPACES
/* Kimi's words have nothing Chinese in them: "[...&&[^\p{Han}]]" in the language of Rust. */
#define SCAN_NO_HAN(class) "(?:(?!\\p{sc:Han})" class ")"
#define SCAN_PATTERN_KIMI                                                                          \
    "\\p{sc:Han}+|" SCAN_PATTERN_CASED(SCAN_NO_HAN(SCAN_CAPITALS), SCAN_NO_HAN(SCAN_SMALL), "")

enum scan_kind {
    SCAN_NONE,
    SCAN_GPT2,  /* a blank belongs to the word behind it */
    SCAN_WORDS, /* cl100k, Llama 3, Qwen: any one sign belongs to the letters behind it */
    SCAN_CASED, /* o200k, gpt-oss: the same, and words begin at capitals */
};

struct scan {
    enum scan_kind kind;
    unsigned max_digits;
    bool slashes; /* may follow signs and line breaks */
};

/* How to match @pattern, SCAN_NONE when it is none of those. */
struct scan scan_of(struct str pattern);

struct split_span {
    uint32_t start, end;
};

/*
 * Matches @text from byte @at on, one behind the other, until something else than ASCII decides
 * where one ends, or @max are found. Returns their number; @spans has room for @max. The engine is to
 * find the one that follows where fewer came out and the text is not at its end.
 */
size_t scan_matches(struct scan scan, struct str text, size_t at, struct split_span *spans,
                    size_t max);
