/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a model said, told apart as it comes: thoughts, content, and calls of tools, each in the way
 * of writing that the model's card names (runtime_config.reasoning_parser and tool_call_parser,
 * wire.md §8.9).
 *
 * A mark that is split over pieces is recognised: what may become one is held back. A call is told
 * when it is whole. What looks like a call and is none stays content, unchanged. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct json;
struct reply;
struct reply_thoughts; /* a way of writing thoughts */
struct reply_calls;    /* a way of writing calls */

enum { REPLY_CALL_BYTES_MAX = 4 << 20 }; /* held back for a call; more is content after all */

enum reply_kind { REPLY_CONTENT, REPLY_THOUGHT, REPLY_CALL };

struct reply_part {
    enum reply_kind kind;
    struct str text; /* of a call: its arguments, JSON */
    struct str name; /* of a call */
    struct str id;   /* of a call, where the model gives one; empty = none */
    bool more;       /* of a call: another one of the same block follows at once */
};

typedef void (*reply_fn)(void *arg, const struct reply_part *part);

/* Any name that is not known is the one of <think> and </think>, as to the reference; NULL in, NULL
 * out. */
const struct reply_thoughts *reply_find_thoughts(const char *name);
bool reply_knows_thoughts(const char *name);
/* Whether a prompt, but for the blanks at its end, ends with the mark that begins them: NULL = no. */
bool reply_prompt_opens(const struct reply_thoughts *thoughts, struct str prompt);
/* NULL when it is not known here. */
const struct reply_calls *reply_find_calls(const char *name);
/* Whether either of a card's parsers, NULL = none, reads marks that are special tokens: then these
 * must have text. */
bool reply_reads_special(const char *thoughts, const char *calls);
/* All of the content is one call of @named, its arguments; or, with none named, a JSON array of
 * calls: what tool_choice makes of an answer. */
extern const struct reply_calls REPLY_ANSWER_IS_CALLS, REPLY_ANSWER_IS_ARGUMENTS;

/* Either may be NULL. @named, of REPLY_ANSWER_IS_ARGUMENTS, is borrowed for as long as it lives. */
struct reply *reply_new(const struct reply_thoughts *thoughts, const struct reply_calls *calls,
                        struct str named, reply_fn tell, void *arg);
/* The tools of the request, borrowed: what their schemas call a text is no number. */
void reply_know_tools(struct reply *r, const struct json *tools);
/* What the request says of thoughts, before the first text. Whether they are read, and so counted. */
enum reply_asked {
    REPLY_ASKED_NOTHING,
    REPLY_ASKED_NONE,
    REPLY_ASKED,
    REPLY_ASKED_EFFORT,
    /* By thinking_mode alone, which some models' parsers look at: for none, for them. */
    REPLY_MODE_CHAT,
    REPLY_MODE_THINKING,
};
bool reply_expect_thoughts(struct reply *r, enum reply_asked asked);
/* The prompt opened thoughts, before the first text: where they are read, the answer goes on with
 * them, and the mark that begins others is text until they end. */
void reply_open_thoughts(struct reply *r);
struct reply *reply_free(struct reply *r);
DEFINE_CLEANUP(struct reply *, reply_free)

/* True when @text counts as thoughts: something of it was told as one, or it goes on where the text
 * before it was, as the mark that ends them does. */
bool reply_push(struct reply *r, struct str text);
/* Tells what was held back. */
void reply_end(struct reply *r);
