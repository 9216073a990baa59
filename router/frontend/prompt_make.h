/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's prompt as text, and text as a model's tokens. Any thread; the model and the scratch are not
 * used by another one meanwhile than in ways that do not change them.
 */
#pragma once

#include <time.h>

#include "lib/base/err.h"
#include "router/frontend/model.h"
#include "router/openai/chat_extras.h"
#include "router/token/tokenizer.h"

/* The text of a chat by the model's template, as chat_render() says. @now: local time, for templates;
 * @steps: of struct template_context. */
MUST_CHECK int prompt_render(const struct model *m, const struct openai_request *in,
                             const struct tm *now, uint64_t steps, struct buf *ret, struct err *e);
/* Its tokens. *@reuse tells how many an earlier prompt gave, where the model keeps prompts. */
MUST_CHECK int prompt_encode(const struct model *m, struct tokenizer_scratch *scratch,
                             struct str text, struct token_ids *ret, struct prompt_reuse *reuse,
                             struct err *e);
/* What goes to workers beside them; @a holds it. @text: that of a chat, as it was rendered. */
void prompt_extras(const struct model *m, const struct openai_request *in, struct str text,
                   struct arena *a, struct chat_extras *ret);
