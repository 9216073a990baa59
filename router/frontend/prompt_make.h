/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's prompt as text, and text as a model's tokens. Any thread; the model and the scratch are not
 * used by another one meanwhile than in ways that do not change them.
 */
#pragma once

#include <time.h>

#include "lib/base/err.h"
#include "router/frontend/model.h"
#include "router/frontend/prompt_media.h"
#include "router/openai/chat_extras.h"
#include "router/token/tokenizer.h"

/* All borrowed during the call. */
struct prompt_making {
    const struct tm *now; /* local time, for templates */
    uint64_t steps;       /* of struct template_context */
    struct tokenizer_scratch *scratch;
    struct buf *text;           /* empty; what the prompt reads */
    struct prompt_reuse *reuse; /* as below */
};

/* The prompt of a chat by the model's template, as chat_render() says, and its tokens. */
MUST_CHECK int prompt_make(const struct model *m, const struct openai_request *in,
                           const struct prompt_making *how, struct token_ids *ret, struct err *e);
/* The tokens of a text. *@reuse tells how many an earlier prompt gave, where the model keeps prompts. */
MUST_CHECK int prompt_encode(const struct model *m, struct tokenizer_scratch *scratch,
                             struct str text, struct token_ids *ret, struct prompt_reuse *reuse,
                             struct err *e);
/* What goes to workers beside them; @a holds it. @text: that of a chat, as it was rendered. */
void prompt_extras(const struct model *m, const struct openai_request *in, struct str text,
                   const struct prompt_media *media, struct arena *a, struct chat_extras *ret);
