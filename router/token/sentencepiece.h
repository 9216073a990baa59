/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SentencePiece's tokenizer.model: a protobuf message of the pieces with their scores and types, and of
 * what was asked of the trainer and the normalizer (sentencepiece_model.proto of its distribution).
 *
 * Ids and texts are those of the library (0.2.3) for models of any type: a piece's place is its
 * id, BPE merges by score, WORD and CHAR look up (listed.h), what is no piece becomes bytes or the unknown token. Unlike the library we
 * find special tokens in the text: those of "added_tokens_decoder" of tokenizer_config.json, else all
 * pieces that are CONTROL; they print unless special tokens are left out. "add_prefix_space": false
 * there takes the blank before the text away, "legacy": false puts it only where the prompt begins.
 * "add_bos_token" changes nothing, as nothing is put around a text. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;
struct token_ids;
struct tokenizer;

enum {
    SENTENCEPIECE_MAX_WORK = 1 << 29, /* bytes looked at to find what merges into what */
};

/* Whether the file may be one: its first byte says so, and it is no JSON behind a line feed. */
bool sentencepiece_is(struct str file);
/* Puts bytes or the unknown token for the inner characters among @ids, from @from on. */
void sentencepiece_spell(const struct tokenizer *t, struct token_ids *ids, size_t from);
/* Fills an empty tokenizer. @tokenizer_config may be NULL. -EINVAL malformed, -ENOTSUP asks for what
 * is not done here, -E2BIG over a limit. */
MUST_CHECK int sentencepiece_fill(struct tokenizer *t, struct str file,
                                  const struct json *tokenizer_config, struct err *e);
