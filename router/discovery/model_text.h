/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a model's files makes tokens of text and text of tokens: tokenizer, chat template, ends
 * of sequence. Whoever serves the OpenAI API for a model needs just these.
 *
 * Immutable once loaded, for any thread. Loading blocks, perhaps for long: model_download.h.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/discovery/card.h"
#include "router/token/chat.h"
#include "router/token/image_tokens.h"
#include "router/token/tokenizer.h"

enum { MODEL_TEXT_EOS_MAX = 64 };

enum { IMAGE_MARKS_MAX = 8 };

/* Images in prompts: what stands there for one, and how many tokens it becomes. */
struct image_marks {
    struct image_tokens tokens;
    uint32_t marks[IMAGE_MARKS_MAX]; /* what may stand for one, the likeliest first */
    size_t n_marks;
    bool begins; /* prompts of engines begin with `first`, whatever the template puts there */
    uint32_t first;
};

struct model_text {
    struct tokenizer *tokenizer;
    struct chat *chat; /* NULL: completions only */
    struct err lacks;  /* why a template that is there cannot be used; "" = nothing is lacking */
    uint32_t eos_ids[MODEL_TEXT_EOS_MAX];
    size_t n_eos_ids;
    uint32_t
        vocabulary; /* one more than the largest id: the tokenizer's, or the config's vocab_size */
    struct image_marks images;
    unsigned n_fetched, n_differ; /* as in model_files, and so are these */
    struct hub_hold *hold;
    bool has_room;
    unsigned n_evicted;
    uint64_t hub_bytes;
};

/*
 * Finds the files as model_files_resolve() does and reads them. A template that is absent or that
 * cannot be used leaves completions to be served: an error in it, or what our subset lacks, does
 * not go away when loading is tried again. -ENOTSUP when the card names no tokenizer.
 */
MUST_CHECK int model_text_load(struct model_text *ret, const struct model_card *card,
                               const struct model_places *places, const struct model_bytes *given,
                               size_t n_given, enum template_style style, enum chat_release release,
                               struct err *e);
void model_text_done(struct model_text *t);
DEFINE_CLEANUP_EMBEDDED(struct model_text, model_text_done)
