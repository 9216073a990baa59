/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the prompts of DeepSeek V3.2, V4 and V4.1 have in common: marks, tools, calls of tools, the
 * switch of thoughts. The marks and the words to the model are those of encoding_dsv32.py and
 * encoding_dsv4.py, which DeepSeek publishes beside the weights: other words are another prompt. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/token/python_text.h"

struct json;

#define DEEPSEEK_BEGIN "<｜begin▁of▁sentence｜>"
#define DEEPSEEK_END "<｜end▁of▁sentence｜>"
#define DEEPSEEK_USER "<｜User｜>"
#define DEEPSEEK_ASSISTANT "<｜Assistant｜>"
#define DEEPSEEK_MARK "｜DSML｜"
#define DEEPSEEK_THINK "<think>"
#define DEEPSEEK_THOUGHT "</think>"

/* How calls are written: <｜DSML｜call …>. */
struct deepseek_words {
    const char *calls, *invoke, *parameter; /* with the blank that some have before them */
};

/* Makes the content of each message the texts of its parts. */
void deepseek_flatten(struct json *messages);
/* Whether the arguments ask for thoughts; they are asked for by default. */
bool deepseek_thinks(const struct json *args);
/* "" unless the message has a text for content. */
const char *deepseek_content(const struct json *message);
bool deepseek_is(const struct json *message, const char *role);
/* The message that tools and the form of answers are told in, made where there is none: the first of the
 * system's. NULL when there is nothing to tell. */
const struct json *deepseek_system(struct json *messages, bool tells);
/* The schemas of @tools, one a line. */
void deepseek_put_schemas(const struct json *tools, struct buf *out);
void deepseek_put_format(const struct json *response_format, struct buf *out);
/* All calls of a message with their block; nothing where it has none. */
void deepseek_put_calls(const struct json *calls, const struct deepseek_words *w,
                        enum float_form floats, struct buf *out);
