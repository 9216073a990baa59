/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prompts of models that ship no chat template. The reference's frontend writes them itself, as the
 * code beside the models' weights does (encoding_dsv32.py and its like), and never looks for a
 * template of theirs; e2e/test_native_prompts.py holds them against it. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/token/chat_messages.h"
#include "router/token/python_text.h"
#include "router/token/text_pieces.h"

struct err;
struct json;

/* Whether tools must be called: the one of that name, any, none; else as the model likes. */
struct chat_choice {
    bool nothing, something; /* of the two and a name one at most */
    struct str named;
};

/* All borrowed during the call. */
struct chat_native_input {
    struct json *messages;              /* chat_known_messages(); changed */
    const struct json *tools;           /* chat_tools(), those shown; NULL or some */
    const struct json *response_format; /* with the members that the reference knows; NULL = none */
    const struct json *args;            /* of the template; may be NULL */
    struct chat_choice choice;
    enum float_form floats;     /* in arguments of DeepSeek's calls */
    bool ends_with_messages;    /* no answer is begun; some models' prompts always begin one */
    struct text_pieces *pieces; /* filled in by models whose marks no client can write */
};

/* Appends the prompt, ready for the answer. -EINVAL: the model cannot be told that. */
typedef int (*chat_native_fn)(const struct chat_native_input *in, struct buf *out, struct err *e);

/* By model_type of config.json, else, where that is empty, by the model's name; 0.9.0 looks at the
 * name alone and knows DeepSeek V3.2. NULL = by its template. */
chat_native_fn chat_native_find(struct str model_type, struct str name, enum chat_release release);

int deepseek_v32_put(const struct chat_native_input *in, struct buf *out, struct err *e);
int deepseek_v4_put(const struct chat_native_input *in, struct buf *out, struct err *e);
int deepseek_v41_put(const struct chat_native_input *in, struct buf *out, struct err *e);
int kimi_k3_put(const struct chat_native_input *in, struct buf *out, struct err *e);
