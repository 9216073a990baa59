/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loaded tokenizer consists of; shared by tokenizer*.c only.
 *
 * Text → added tokens as they are → normalizer → added tokens in normalised text → pre-tokenizer →
 * words → model → ids.
 */
#pragma once

#include "router/token/added.h"
#include "router/token/bpe.h"
#include "router/token/cuts.h"
#include "router/token/decode.h"
#include "router/token/listed.h"
#include "router/token/normalize.h"
#include "router/token/post_processor.h"
#include "router/token/split.h"
#include "router/token/tokenizer.h"
#include "router/token/unigram.h"
#include "router/token/vocab.h"
#include "router/token/wordpiece.h"

enum { TOKENIZER_MAX_TOKEN = 64 << 10 }; /* bytes of one token */

enum tokenizer_kind {
    TOKENIZER_BPE,
    TOKENIZER_UNIGRAM,
    TOKENIZER_WORDPIECE,
    TOKENIZER_WORDLEVEL,
    TOKENIZER_LISTED, /* SentencePiece's WORD and CHAR */
};

/* What is done to the ids of a whole text: "truncation" and "padding". */
struct tokenizer_shape {
    bool truncates, cuts_left, pads, pads_left;
    size_t max, pad_to, multiple; /* pad_to 0: not to a length of its own; multiple 0: to none */
    uint32_t pad_id;
};

struct tokenizer {
    struct vocab model; /* as the file spells them */
    struct vocab
        bytes; /* byte-level models: the same tokens as raw bytes; SentencePiece: those that
                           text can become */
    struct vocab added; /* added tokens as the file spells them: what they are found by */
    struct vocab shown; /* the same after the normalizer, if they ask for it: what they print as */
    enum tokenizer_kind kind;
    struct bpe bpe; /* of this, unigram and wordpiece, that of the kind is filled */
    struct normalize normalize;
    struct split split;
    struct added added_raw, added_normalized;
    struct regex *word; /* owned: one word character, for single_word tokens; may be NULL */
    struct decode decode;
    bool *special; /* by id below limit */
    uint32_t limit;
    size_t n_ids;
    struct cuts cuts;
    /* SentencePiece: from this id on, characters that are no piece but part of one; 0 there are none. */
    uint32_t inner;
    struct tokenizer_shape shape;
    struct post_processor around; /* tokens of embedded texts */
    /* Words that the model does not know are an error, by its author's choice. */
    bool fails_on_unknown;
    uint32_t unknown_word; /* WordLevel */
    struct listed listed;
    struct unigram unigram;
    struct wordpiece wordpiece;
};

/* A token that is found as it is spelt and prints as that, of which nothing else is known. */
MUST_CHECK int tokenizer_add_special(struct tokenizer *t, uint32_t id, struct str text,
                                     struct err *e);
void tokenizer_mark_special(struct tokenizer *t, uint32_t id);
/* Tokens of "added_tokens_decoder", each under its id: found as they are spelt, and printed so. */
MUST_CHECK int tokenizer_add_listed(struct tokenizer *t, const struct json *listed, struct err *e);
/* Reads the file's "model"; the pre-tokenizer must be loaded, the added tokens come later. */
MUST_CHECK int tokenizer_load_model(struct tokenizer *t, struct str json, struct err *e);
