/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a template asks of messages, found out as the reference does: by its words, and by
 * rendering small conversations with it. Pure.
 */
#pragma once

#include "lib/base/str.h"
#include "router/token/chat_messages.h"

struct json;
struct template;

/* All borrowed during the calls. */
struct chat_probe {
    const struct template *template;
    struct str source;
    const struct json *tokens; /* variables of every rendering */
    bool with_tools;           /* it is for requests with tools */
};

/* Whether content has to be an array of parts. */
bool chat_probe_wants_parts(const struct chat_probe *p);
/* Fills in what of @rules is for CHAT_OF_1, but for its media. */
void chat_probe_rules(const struct chat_probe *p, struct chat_rules *rules);
/* struct chat_rules.media of a template that takes texts; static text or NULL. */
const char *chat_probe_media(const struct chat_probe *p);
