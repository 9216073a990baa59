/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and tools as a template sees them. The reference reads both into types of its own and
 * writes them anew, so that what it does not know never reaches a template; 1.x then makes them
 * what the template can show (measured: e2e/test_prompts_interop.py).
 *
 * Everything returned is the caller's. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/str.h"

struct json;

enum chat_release {
    CHAT_AS_SENT, /* all keys, as engines' own servers read them */
    CHAT_OF_0_9,
    CHAT_OF_1,
};

/* What of a template matters to its messages. All but the first two are for CHAT_OF_1 alone. */
struct chat_rules {
    enum chat_release release;
    bool wants_parts;     /* content as an array of parts, never as text */
    const char *media;    /* stands for a medium between texts, {n} is its number; NULL = parts */
    bool arguments_stay;  /* it prints arguments of calls that are text: no object is made */
    bool reads_thoughts;  /* else reasoning_content goes before the content, between marks */
    bool joins_thoughts;  /* it reads reasoning_content, but only as one text */
    bool one_system;      /* it refuses system messages that are not the first */
    bool users_alternate; /* it refuses two of a user one after the other */
};

/* Of arrays of objects. */
struct json *chat_known_messages(const struct json *messages, enum chat_release release);
/* That, and as the template can show them. */
struct json *chat_messages(const struct json *messages, const struct chat_rules *rules);
struct json *chat_tools(const struct json *tools, const struct chat_rules *rules);
/* Of the text of an object; NULL when it is none. */
struct json *chat_response_format(struct str text);
