/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine has of its model to serve the OpenAI API: tokenizer, chat template, ends of
 * sequence. Immutable once loaded.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/discovery/card.h"
#include "router/token/chat.h"
#include "router/token/tokenizer.h"

struct openai_model {
    struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch; /* of the one thread that tokenizes */
    struct chat *chat;                 /* NULL: completions only */
    bool has_eos;
    uint32_t eos;
};

/* Reads files: for start-up. Free with openai_model_done() in every case. */
MUST_CHECK int openai_model_load(struct openai_model *ret, const struct model_card *card,
                                 struct err *e);
void openai_model_done(struct openai_model *m);
