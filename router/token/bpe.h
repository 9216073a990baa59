/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding: a word's symbols are joined in the order of the merge list, leftmost first.
 *
 * Symbols start as characters, or as bytes when the model is byte-level. Short words are merged by
 * scanning for the lowest rank, long ones with a heap, so no input costs more than O(n log n).
 * A struct bpe is immutable once filled; the work area belongs to one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"
#include "router/token/tokenizer.h"
#include "router/token/vocab.h"

struct bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank, id;
};

enum { BPE_MAX_AFFIX = 16 };

/* Embedded by value; zero-initialised, then filled by its owner and bpe_add_merge(). */
struct bpe {
    const struct vocab *words; /* borrowed: what symbols and whole words are looked up in */
    bool byte_level;
    bool byte_fallback, fuse_unk, ignore_merges;
    uint32_t unk;             /* VOCAB_NONE: unknown characters vanish */
    uint32_t byte_ids[256];   /* byte-level: of one-byte words; else of "<0x00>"..."<0xFF>" */
    uint32_t ascii_ids[128];  /* not byte-level: of one-letter words, a shortcut */
    struct bpe_merge *merges; /* open addressing by pair */
    size_t mask, n_merges;
    /* Put before each symbol but a word's first, and behind its last, when they are looked up as they
     * are spelt; owned, at most BPE_MAX_AFFIX bytes each, NULL when there is none. */
    char *prefix, *suffix;
    const struct vocab *spelt; /* borrowed; for those only */
    bool *whole; /* by id: the merges make this token of its own text, as they do of most words */
};

void bpe_done(struct bpe *b);
/* Looks up the symbol tables; call when words and byte_level are set. */
void bpe_prepare(struct bpe *b);
/* The later of two merges of one pair counts. The caller bounds their number. */
void bpe_add_merge(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);

/* Finds out which tokens are whole; call when all merges are there. Some 0.4 us for each token. */
void bpe_mark_whole(struct bpe *b);

struct bpe_symbol {
    uint32_t id;
    int32_t prev, next; /* -1 at the ends */
};

struct bpe_candidate {
    uint32_t rank, id;
    int32_t at;
};

/* Embedded by value; zero-initialised is empty. */
struct bpe_work {
    struct bpe_symbol *symbols;
    size_t n_symbols, cap_symbols;
    struct bpe_candidate *heap;
    size_t n_heap, cap_heap;
    struct buf spelt; /* a symbol with what is put around it */
};

void bpe_work_done(struct bpe_work *w);
/* Appends the ids of @word, which is UTF-8 and shorter than 2 GiB. */
void bpe_encode(const struct bpe *b, struct bpe_work *w, struct str word, struct token_ids *out);
