/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log probabilities of an answer's tokens, from what a worker tells to what a client reads: the
 * shape of chat answers, or that of completions (wire.md §8.7; bytes as in 1.x). Pure.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/json_pull.h"
#include "lib/base/mem.h"
#include "router/openai/openai.h"

enum { LOGPROBS_BYTES_MAX = 64 << 20 }; /* gathered; what comes then is left out */

/* Gathers tokens until it is asked for. Embedded by value; logprobs_done() frees. */
struct logprobs {
    enum api api;
    size_t n;
    struct buf content;             /* of chat */
    struct buf tokens, values, top; /* of completions */
    struct buf scratch;
    /* Appends the text of a token that a worker gives by its id alone. */
    void (*decode)(void *arg, uint32_t id, struct buf *out);
    void *arg;
};

void logprobs_done(struct logprobs *l);

/* The two lists of an item, walked over token by token. Borrows the texts. */
struct logprobs_item {
    struct json_pull values, top;
    bool has_values, has_top;
};

void logprobs_item_init(struct logprobs_item *it, struct str log_probs_json,
                        struct str top_logprobs_json);
/* Adds the item's next token, which stands for @text in the answer; empty when it shows no text of
 * its own. Nothing happens when the worker gave no number for it. */
void logprobs_add(struct logprobs *l, struct logprobs_item *it, uint32_t id, struct str text);
/* Appends the JSON of what was gathered, and forgets it; nothing when there is nothing. */
void logprobs_take(struct logprobs *l, struct buf *out);
