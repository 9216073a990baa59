/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The card of a model that a plain OpenAI server serves.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/discovery/card.h"

struct engine_card_spec {
    const char *name;       /* towards clients */
    const char *engine_id;  /* what the engine calls it */
    const char *model_path; /* where a user says its files are; may be NULL */
    bool is_lora;           /* an adapter, whose blocks are not the base model's */
    const char *root;       /* where the engine says so; may be NULL, or a hub's name */
    const char *model_root; /* <model_root>/<name>; may be NULL */
    uint32_t block_size, context_length, dp_size;
    uint64_t total_blocks;
};

/*
 * Of the first directory that holds a config.json; of what the engine says where there is none, or it
 * cannot be used (then @ret_why says so; else it is empty). Reads and hashes files: off the loop.
 */
struct model_card *engine_card_build(const struct engine_card_spec *spec, struct err *ret_why)
    __attribute__((returns_nonnull));
