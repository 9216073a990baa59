/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plain OpenAI servers may serve beside chats, completions and embeddings. Pure.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/str.h"

struct own_api {
    const char *path;
    const char *endpoint; /* a label of metrics */
    unsigned lack;        /* the bit of pool_worker.lacks; 0 = none is kept */
};

/* Of a request on such a server. */
struct own_words {
    const struct own_api *api; /* NULL = it is a chat or its kin */
    bool answers;       /* the server serves it: its events are its own, no farewell is added */
    bool said;          /* the error is in its words, which may quote the prompt: not logged */
    struct str refusal; /* …as it came; a view of the relay's; empty = it has none */
};

/* Those that are made chats for engines that do not serve them. */
extern const struct own_api OWN_RESPONSES, OWN_MESSAGES;
extern const struct own_api OWN_COUNT; /* of tokens, for Anthropic's clients */
/* Of the others; NULL when a request's target is none of them. */
const struct own_api *own_api_find(struct str target);
