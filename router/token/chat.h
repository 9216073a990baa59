/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the messages of a chat request to the prompt: which template of a model applies, how
 * messages look to it, and which variables it sees (wire.md 8.4).
 *
 * A struct chat is immutable after load; any number of threads may render. Pure.
 */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/token/chat_messages.h"
#include "router/token/chat_native.h"
#include "router/token/template.h"

struct chat;
struct err;
struct json;

/* How a prompt ends: with the head of the answer, with the last message, or in the midst of it, so
 * that the answer goes on with it. */
enum chat_end { CHAT_ANSWER, CHAT_MESSAGES, CHAT_CONTINUE };

/* All borrowed during the call. */
struct chat_input {
    const struct json *messages; /* array, as the client sent it */
    const struct json *tools;    /* array; NULL or null when absent */
    const struct json *args; /* object, chat_template_args or chat_template_kwargs; may be NULL */
    const struct tm *now;    /* local time, for strftime_now(); may be NULL */
    uint64_t steps;          /* of struct template_context */
    enum chat_end end;
    struct chat_choice choice;
    struct str response_format; /* JSON object; only some models are told. STR_NULL = none */
    struct text_pieces *pieces; /* empty; filled in where the prompt has any, see text_pieces.h */
};

/* What of a model says how its prompts are written, beside its template. */
struct chat_model {
    struct str type; /* model_type of config.json; empty where there is none */
    struct str name;
};

/*
 * @release: whose frontend's prompts are made, of messages that look as they do there.
 * @style: how values print, and whether a template file keeps its newlines (0.9.0 drops them all).
 * @config is tokenizer_config.json. @file is the content of the card's chat template file, which
 * comes first; STR_NULL when the card has none. -ENOENT when neither holds a template, -EINVAL or
 * -ENOTSUP when a template does not parse.
 */
MUST_CHECK int chat_load(struct chat **ret, const struct json *config, struct str file,
                         enum template_style style, enum chat_release release, struct err *e);
/* NULL when the model's prompts are made by its template. */
struct chat *chat_load_native(const struct chat_model *m, enum chat_release release);
struct chat *chat_free(struct chat *c);
DEFINE_CLEANUP(struct chat *, chat_free)

/* Whether the template wants message content as arrays of parts (probed at load). */
bool chat_wants_parts(const struct chat *c);
/* Appends the prompt to @out, which is empty where pieces are asked for, add_generation_prompt on unless @in->end says otherwise. Errors as
 * template_render(), and -EINVAL when messages or tools have the wrong shape or the message to go
 * on with is not in the prompt. */
MUST_CHECK int chat_render(const struct chat *c, const struct chat_input *in, struct buf *out,
                           struct err *e);
