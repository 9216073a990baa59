/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a long word may be cut without changing its ids: between two characters that no merge of
 * the model joins. Models without a pre-tokenizer have the whole prompt for a word; cut so, its
 * pieces are short, repeat themselves and can be cached. Filled at load, then immutable.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

struct bpe;

/* U+2581, what SentencePiece writes for a space. */
#define CUTS_MARK "\xe2\x96\x81"
enum { CUTS_MARK_LEN = 3 };

/* ASCII characters that are tokens, the mark, and all the others. */
enum { CUTS_AT_MARK = 128, CUTS_OTHER, CUTS_CLASSES };

/* Embedded by value; zero-initialised cuts nowhere. */
struct cuts {
    bool on;
    uint8_t class[128];                      /* of ASCII */
    bool joined[CUTS_CLASSES][CUTS_CLASSES]; /* left, right */
};

/* Begins with a model whose symbol tables are set; cuts_merge() follows for each merge. */
void cuts_init(struct cuts *c, const struct bpe *b);
void cuts_merge(struct cuts *c, struct str left, struct str right);
/* End of the piece of @word that starts at @from, which is before its end. */
size_t cuts_next(const struct cuts *c, struct str word, size_t from);
