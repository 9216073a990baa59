/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens found in running text: the leftmost match, and of those the longest.
 *
 * A token may ask to stand alone (single_word) or to swallow the blanks beside it (lstrip, rstrip).
 * Filled once, then immutable; each thread searches with its own regex scratch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/str.h"

struct regex;
struct regex_scratch;

struct added_token {
    uint32_t id;
    bool single_word, lstrip, rstrip;
    bool cuts; /* what follows it in a text cannot change that it was found, nor where it ends */
};

struct added_node {
    uint32_t child, sibling; /* indices; 0 = none */
    uint32_t token;          /* index + 1; 0 = none ends here */
    uint8_t byte;
};

/* Embedded by value; zero-initialised is empty. */
struct added {
    struct added_token *tokens;
    size_t n_tokens, cap_tokens;
    struct added_node *nodes; /* node 0 is the root */
    size_t n_nodes, cap_nodes;
    uint32_t first[256];      /* child of the root by byte; 0 = none */
    int only_first;           /* the byte that all begin with; -1 when they differ */
    size_t n_cuts;            /* tokens that cut; see added_begin_cuts() */
    const struct regex *word; /* one word character; needed when a token is single_word */
};

void added_done(struct added *a);
/* The caller bounds number and length. An empty text is ignored, a repeated one keeps its first id.
 */
void added_add(struct added *a, struct str text, struct added_token token);

enum { ADDED_CUTS_TEXT = 1024 }; /* bytes up to which a token's text is looked into */
/*
 * Finds out which tokens cut. Begin, then tell the text of each token that was added; a token cuts
 * unless it asks for what stands behind it, ends or begins in a blank, or lies within another one, which a
 * longer text might turn out to be.
 */
void added_begin_cuts(struct added *a);
void added_note_text(struct added *a, struct str text);

/* Bytes of the longest token that @text begins with, whatever it asks for; 0 none. */
size_t added_prefix(const struct added *a, struct str text);

/* A stretch of text: a token's, or plain. */
struct added_piece {
    uint32_t id; /* VOCAB_NONE: plain text */
    bool cuts;
    size_t start, end;
};

/* Where a search stands. Start with {.text = text}. */
struct added_search {
    struct str text;
    size_t done; /* everything before is handed out */
    size_t at;   /* the next match starts here or later */
    struct added_piece token;
    bool has_token; /* found, but the plain text before it comes first */
};

/* Next piece, in order; false at the end. Pieces are never empty plain text. */
bool added_next(const struct added *a, struct added_search *s, struct regex_scratch *scratch,
                struct added_piece *ret);
