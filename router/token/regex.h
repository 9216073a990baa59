/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regular expressions of tokenizer files, run by PCRE2 with the meaning that the `tokenizers`
 * library gives them (Oniguruma: \s is White_Space, \w is alphabetic, marks, digits, connectors and
 * six signs of Latin-1). What the two engines read differently is refused when the pattern is
 * compiled.
 *
 * A struct regex is immutable; each thread matches with a scratch of its own. Work per search is
 * limited.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct regex;
struct regex_scratch;

enum regex_flavour {
    REGEX_ONIGURUMA, /* patterns written in a file */
    REGEX_LITERAL,   /* plain text to search for */
    REGEX_RUST,      /* the library's own patterns: \w takes joiners and not the six signs */
};

/* -EINVAL malformed, -ENOTSUP read differently by the two engines. */
MUST_CHECK int regex_compile(struct regex **ret, struct str pattern, enum regex_flavour flavour,
                             struct err *e);
struct regex *regex_free(struct regex *re);
DEFINE_CLEANUP(struct regex *, regex_free)

struct regex_scratch *regex_scratch_new(void);
struct regex_scratch *regex_scratch_free(struct regex_scratch *s);
DEFINE_CLEANUP(struct regex_scratch *, regex_scratch_free)

enum { REGEX_FOUND = 1 };

/* First match at or after byte @from of @text, which must be UTF-8 and @from a character border.
 * REGEX_FOUND, 0 when there is none, -E2BIG when the work limit is hit. */
MUST_CHECK int regex_find(const struct regex *re, struct regex_scratch *s, struct str text,
                          size_t from, size_t *ret_start, size_t *ret_end);
