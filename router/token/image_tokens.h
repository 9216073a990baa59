/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many tokens a model makes of an image, and in whose place they stand (router.md §1.5): by the
 * family that its processor is of, and its config.json and preprocessor_config.json, as the frontend of
 * ai-dynamo 1.6.1 reckons them. Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/token/image_size.h"

struct json;

enum image_family {
    IMAGES_UNKNOWN, /* so many tokens that nobody here can tell */
    IMAGES_QWEN,    /* Qwen 2 VL and all after it: cells, as many as there are pixels */
    IMAGES_LLAVA,   /* always the same */
    IMAGES_LLAVA_NEXT,
    IMAGES_LLAMA4,
    IMAGES_PHI3,
    IMAGES_KIMI,
};

/* Copied at will; zero-initialised knows nothing. */
struct image_tokens {
    enum image_family family;
    bool has_placeholder;
    uint32_t placeholder;            /* stands once in a prompt for each image */
    uint64_t patch, merge;           /* pixels of a patch's side, patches of a token's side */
    uint64_t min_pixels, max_pixels; /* of Qwen */
    uint64_t max_patches, max_side;  /* of Kimi, the latter in patches */
    uint64_t side;                   /* of LLaVA, in pixels */
};

/*
 * @model is where the model is from, which goes before what @config calls its type. Without
 * @preprocessor (NULL) no family is known, as 1.6.1 does it.
 */
void image_tokens_read(struct image_tokens *ret, struct str model, const struct json *config,
                       const struct json *preprocessor);
/* Of a family that is known: at least 0, at most what the model's files let it be. */
uint64_t image_tokens_count(const struct image_tokens *t, struct image_size size);
