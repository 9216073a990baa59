/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers of tokens are told of a chat beside its prompt (wire.md §5.1, 15.4): the images, videos and sounds
 * that its messages name, which engines fetch themselves, and what workers of 1.x look for in `extra_args`.
 *
 * Parts are those that openai_check_strictly() lets through. Pure.
 */
#pragma once

#include "router/openai/openai.h"

/* JSON; empty = nothing to tell. */
struct chat_extras {
    struct str media, uuids; /* by the type of part, in the order of the messages */
    struct str args;         /* all of extra_args, the request's own too */
};

struct chat_extras_conf {
    bool of_1;         /* the workers' generation */
    bool has_thoughts; /* the card names a parser of them */
    struct str prompt; /* as the template made it */
};

/* @a holds all but the request's own. */
void chat_extras_make(const struct openai_request *r, const struct chat_extras_conf *conf,
                      struct arena *a, struct chat_extras *ret);
