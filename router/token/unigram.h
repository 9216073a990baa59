/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram models (SentencePiece: T5, ALBERT, XLM-R): of all ways to cut a word into pieces, the one
 * whose scores have the largest sum, found by dynamic programming over a trie of the pieces
 * (Viterbi). Characters that no piece covers become the unknown token, neighbours together, or
 * byte tokens where the model has them.
 *
 * A struct unigram is immutable once filled; the work area belongs to one thread. Encoding costs
 * O(n * length of the longest piece).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"
#include "router/token/tokenizer.h"
#include "router/token/vocab.h"

enum {
    UNIGRAM_MAX_PIECE = 1 << 10, /* bytes; bounds the work per character */
    UNIGRAM_MAX_NODES = 1 << 24, /* of the trie: as many bytes as all pieces may have */
};

struct unigram_edge {
    uint32_t from; /* node << 8 | byte */
    uint32_t to;   /* 0 = free slot; nothing leads to the root */
};

/* Embedded by value; zero-initialised, then words, unk and byte_fallback are set by its owner and
 * the pieces added. */
struct unigram {
    const struct vocab *words; /* borrowed: the pieces by id */
    bool byte_fallback;
    bool native; /* as SentencePiece and not as the `tokenizers` library: sums have 32 bits */
    uint32_t unk;
    double *scores; /* by id */
    uint32_t limit; /* ids below have a score */
    double lowest;  /* of all scores */
    struct unigram_edge *edges;
    size_t mask;
    uint32_t *pieces; /* id of the piece that ends at a node; VOCAB_NONE none */
    uint32_t n_nodes, cap_nodes;
    uint32_t byte_ids[256]; /* of "<0x00>"..."<0xFF>" */
};

void unigram_done(struct unigram *u);
/* Adds the piece of the next id: 0, 1, ... False when the trie is full. Of two pieces with one
 * text the later counts. @text has at most UNIGRAM_MAX_PIECE bytes. */
MUST_CHECK bool unigram_add(struct unigram *u, struct str text, double score);
/* Looks up the byte tokens; call when all pieces are there. */
void unigram_prepare(struct unigram *u);

struct unigram_node {
    double score;
    uint32_t start, id; /* of the last piece on the best way here; start VOCAB_NONE: no way yet */
};

/* Embedded by value; zero-initialised is empty. */
struct unigram_work {
    struct unigram_node *best; /* by byte of the word */
    size_t cap;
    struct token_ids reversed;
};

void unigram_work_done(struct unigram_work *w);
/* Appends the ids of @word, which is UTF-8 and shorter than 2 GiB. */
void unigram_encode(const struct unigram *u, struct unigram_work *w, struct str word,
                    struct token_ids *out);
