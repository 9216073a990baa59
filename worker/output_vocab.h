/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens that a modelled engine may answer with.
 *
 * Chosen so that an answer decodes to words and, when a client sends it back in the next turn, is
 * cut into the same tokens again: only then are the blocks of the answer found in the cache, as
 * they would be with a real model. Whole words with the space before them have both properties.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct output_vocab {
    uint32_t *ids;
    size_t n;
};

void output_vocab_done(struct output_vocab *v);
DEFINE_CLEANUP_EMBEDDED(struct output_vocab, output_vocab_done)

/* From the text of a tokenizer.json. -EINVAL, -ENOTSUP or -E2BIG when it cannot be used; -ENOENT
 * when it has too few words. */
MUST_CHECK int output_vocab_of(struct output_vocab *ret, struct str tokenizer_json, struct err *e);
/* Ids 1000 to 1999, as the reference mocker has them: when there is nothing better. */
void output_vocab_fallback(struct output_vocab *ret);
