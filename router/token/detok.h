/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of a growing token sequence, token by token.
 *
 * The text of a token depends on its neighbours: a character may be spread over tokens, and some
 * decoders drop the first space. So two windows over prompt and output are decoded, up to the text
 * given so far and up to now, and what the longer one has more is the new text, unless it ends in
 * the middle of a character (wire.md 8.5). A character is never given in parts; what the end leaves
 * of one is to be asked for. Work per token is O(1) amortised, however long a broken run lasts. One
 * thread at a time.
 *
 * One thing is better than there: a first window that begins or ends within a character does not
 * cost the characters that follow.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "router/token/tokenizer.h"

enum { DETOK_CONTEXT = 5 }; /* prompt tokens that the first window starts with */

/* Embedded by value. */
struct detok {
    struct tokenizer_join join; /* the longer window, as text */
    struct token_ids pending;   /* ids since the last text that was given */
    size_t settled;             /* bytes of the shorter window's text that stay as they are */
    struct buf unsettled;       /* what it showed behind them */
    bool skip_special;
    struct buf out;
};

/* @t is borrowed until detok_done(); of the prompt the last DETOK_CONTEXT ids are used now. */
void detok_init(struct detok *d, const struct tokenizer *t, const uint32_t *prompt, size_t n,
                bool skip_special);
void detok_done(struct detok *d);
DEFINE_CLEANUP_EMBEDDED(struct detok, detok_done)
/* The text that @id completes, valid UTF-8, empty when there is none yet; borrowed until the next
 * call. */
struct str detok_push(struct detok *d, uint32_t id);
/* At the end of the text: the U+FFFD of a character that no token completes any more. As above. */
struct str detok_flush(struct detok *d);
