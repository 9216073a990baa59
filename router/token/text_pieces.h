/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a prompt falls into pieces that are tokenized each by itself. A mark is one special token; in
 * any other piece no added token is looked for, so that what a client writes is never a mark. Most
 * prompts have no pieces: they are one text, and marks are found in it. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"

struct text_piece {
    size_t end; /* behind its last byte, of the whole text; it begins where the one before ended */
    bool is_mark;
};

/* Growable. Embedded by value; zero-initialised is empty. */
struct text_pieces {
    struct text_piece *ptr;
    size_t len, cap;
};

void text_pieces_done(struct text_pieces *p); /* frees; empty and usable again */
DEFINE_CLEANUP_EMBEDDED(struct text_pieces, text_pieces_done)
/* Up to @end; an empty piece is none. */
void text_pieces_add(struct text_pieces *p, size_t end, bool is_mark);
