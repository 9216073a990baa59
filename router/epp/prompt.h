/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prompt of a chat as a model's tokens. Any thread; the model and the scratch are not used by
 * another one meanwhile than in ways that do not change them.
 */
#pragma once

#include "lib/base/err.h"
#include "router/frontend/model.h"
#include "router/openai/openai.h"
#include "router/token/tokenizer.h"

/* -EINVAL and the like: its template or tokenizer cannot make it. */
MUST_CHECK int epp_prompt_make(const struct model *m, const struct openai_request *in,
                               struct tokenizer_scratch *scratch, struct token_ids *ret,
                               struct err *e);
