/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WordPiece models (BERT): from the left, always the longest piece that fits; pieces within a word
 * are spelt with a prefix ("##"). A word that does not come out even, or is too long, is the
 * unknown token as a whole.
 *
 * Immutable once filled, no work area. Encoding a word costs O(n * longest piece^2) at worst.
 */
#pragma once

#include "lib/base/str.h"
#include "router/token/tokenizer.h"
#include "router/token/vocab.h"

enum { WORDPIECE_MAX_CHARS = 1 << 12 }; /* what max_input_chars_per_word may be */

/* Embedded by value; zero-initialised, then filled by its owner. */
struct wordpiece {
    const struct vocab *words; /* borrowed: pieces as the file spells them */
    struct vocab inner;        /* owned: those that continue a word, without their prefix */
    size_t longest;            /* bytes of the longest piece */
    size_t max_chars;
    uint32_t unk;
};

void wordpiece_done(struct wordpiece *w);
/* Sorts out the pieces; call when words is filled. */
void wordpiece_prepare(struct wordpiece *w, struct str prefix);
/* Appends the ids of @word, which is UTF-8. */
void wordpiece_encode(const struct wordpiece *w, struct str word, struct token_ids *out);
