/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiktoken files (tiktoken.model, x.tiktoken, Llama 3's tokenizer.model): a line for each token, its
 * bytes in base64 and its rank, which is its id.
 *
 * The file says neither how text is cut into words nor which special tokens there are. The first
 * goes by "model_type" of config.json: Kimi's pattern as the reference frontend takes it, and those of
 * Qwen 1 and Llama 3 as their makers published them. Special tokens are "added_tokens_decoder"
 * of tokenizer_config.json, else the family's own; Kimi's 256 ids behind the last rank that have no
 * name are "<|reserved_token_ID|>". Encoding and decoding are the tiktoken library's with all special
 * tokens allowed. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct json;
struct tokenizer;

enum {
    TIKTOKEN_MAX_TOKEN = 1024,   /* bytes of one token */
    TIKTOKEN_MAX_WORK = 1 << 29, /* bytes looked at to find what merges into what */
};

/* Whether the file is one, by its first line. */
bool tiktoken_is(struct str file);
/* Fills an empty tokenizer. @config and @tokenizer_config may be NULL. -EINVAL malformed, -ENOTSUP a
 * family that is not known, -E2BIG over a limit. */
MUST_CHECK int tiktoken_fill(struct tokenizer *t, struct str file, const struct json *config,
                             const struct json *tokenizer_config, struct err *e);
