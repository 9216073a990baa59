/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request says of the media in the blocks of its prompt (router.md §1.2), an entry for each block:
 *
 *     null or {"mm_objects": [{"mm_hash": u64, "offsets": [[from, to], …]}, …]}
 *
 * Where in the block they lie does not matter. Pure, thread safe.
 */
#pragma once

#include <stddef.h>

#include "router/kv/block_hash.h"

struct arena;
struct json_pull;

struct media_list {
    struct block_media *ptr; /* sorted, in the arena; NULL when absent */
    size_t len;
};

/* Errors stick to @p. There are at most half as many as the text has bytes. */
void media_list_pull(struct arena *a, struct json_pull *p, struct media_list *ret);
