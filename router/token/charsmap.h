/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The normalizer that SentencePiece compiles into a model ("Precompiled"): a map from short texts
 * to others, held as a double-array trie over a block of NUL-ended texts. The bytes come from the
 * file and are not trusted: a walk that leaves the trie finds nothing.
 *
 * Immutable once filled. charsmap_apply() goes by character, and by whole grapheme clusters of up to
 * 5 bytes first, as the `tokenizers` library does; charsmap_longest() is how SentencePiece itself looks up.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct regex;
struct regex_scratch;

/* Embedded by value; zero-initialised, then charsmap_load(). */
struct charsmap {
    uint32_t *units; /* owned */
    size_t n_units;
    struct buf texts;
    struct regex *cluster; /* owned: one grapheme cluster */
};

/* @bytes: size of the trie (32 bits, little-endian), trie, texts. An empty map changes nothing. */
MUST_CHECK int charsmap_load(struct charsmap *m, struct str bytes, struct err *e);
void charsmap_done(struct charsmap *m);
/* Appends what becomes of @text (UTF-8). -E2BIG when the text grows beyond @limit bytes. */
MUST_CHECK int charsmap_apply(const struct charsmap *m, struct regex_scratch *scratch,
                              struct str text, size_t limit, struct buf *out);
/* Bytes of the longest entry that @text begins with, and what it is mapped to, borrowed; 0 none. */
size_t charsmap_longest(const struct charsmap *m, struct str text, struct str *ret);
