/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that look whole words, or single characters, up in their list: SentencePiece's types WORD and
 * CHAR. Words begin at the mark of a blank. What is not listed is the unknown token, one for several in
 * a row, or its bytes. Immutable once filled.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"
#include "router/token/tokenizer.h"
#include "router/token/vocab.h"

/* Embedded by value. */
struct listed {
    const struct vocab *words; /* borrowed */
    bool characters;           /* each on its own, and not words */
    bool byte_fallback;
    uint32_t unk;
    uint32_t byte_ids[256]; /* of "<0x00>"..."<0xFF>" */
};

/* Looks up what stands for bytes; call when the other fields are set. */
void listed_prepare(struct listed *l);
/* Appends the ids of @text, which is UTF-8. */
void listed_encode(const struct listed *l, struct str text, struct token_ids *out);
