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
    bool of_1;                 /* the workers' generation */
    bool has_thoughts;         /* the card names a parser of them */
    struct str prompt;         /* as the template made it */
    const uint64_t *mm_hashes; /* what routing calls its images, in their order; 1.x's workers */
    size_t n_mm_hashes;        /* publish their blocks by these. 0 = it does not know them all */
};

/* What tells an image of a chat from others. */
struct chat_image {
    struct str url; /* empty: the engine has seen it */
    struct str uuid;
};

/* The images of a chat in their order, borrowed from @r. *ret_others: it has videos or sounds, too. */
size_t chat_images(const struct openai_request *r, struct arena *a, struct chat_image **ret,
                   bool *ret_others);
/* @a holds all but the request's own. */
void chat_extras_make(const struct openai_request *r, const struct chat_extras_conf *conf,
                      struct arena *a, struct chat_extras *ret);
