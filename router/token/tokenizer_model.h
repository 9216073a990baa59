/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loaded tokenizer consists of; shared by tokenizer.c and tokenizer_load.c only.
 *
 * Text → added tokens as they are → normalizer → added tokens in normalised text → pre-tokenizer →
 * words → BPE → ids.
 */
#pragma once

#include "router/token/added.h"
#include "router/token/bpe.h"
#include "router/token/decode.h"
#include "router/token/normalize.h"
#include "router/token/split.h"
#include "router/token/tokenizer.h"
#include "router/token/vocab.h"

struct tokenizer {
    struct vocab model; /* as the file spells them */
    struct vocab bytes; /* byte-level models: the same tokens as raw bytes */
    struct vocab added; /* added tokens as the file spells them: what they are found by */
    struct vocab shown; /* the same after the normalizer, if they ask for it: what they print as */
    struct bpe bpe;
    struct normalize normalize;
    struct split split;
    struct added added_raw, added_normalized;
    struct regex *word; /* owned: one word character, for single_word tokens; may be NULL */
    struct decode decode;
    bool *special; /* by id below limit */
    uint32_t limit;
    size_t n_ids;
    /* No merge joins anything to a "▁" behind it, so words may be cut there and cached. */
    bool cuts_at_mark;
};

/* U+2581, what SentencePiece writes for a space. */
#define TOKENIZER_MARK "\xe2\x96\x81"
enum { TOKENIZER_MARK_LEN = 3 };
