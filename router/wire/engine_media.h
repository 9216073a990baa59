/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The media that an engine names for the blocks of a prompt, an entry for each block (router.md §2.7):
 *
 *     block_mm_infos: nil or {"mm_objects": [{"mm_hash": u64, "offsets": …}, …]}
 *     extra_keys:     nil or [key, …], an image's being its 64 hex digits or [those, its place]
 *
 * Of the digits the first 16 are its hash; all other keys are skipped. ai-dynamo 1.6.1 gives images
 * such names with 48 zeros behind, and knows no others. One thread per list.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct msgpack_reader;

enum { ENGINE_MEDIA_MAX = 1 << 20 /* of one event */ };

/* An image, or what else is no text, that lies in a block, or in a part of it. */
struct engine_medium {
    size_t block; /* counted from the event's first one */
    uint64_t mm_hash;
};

/* Embedded by value; zero-initialised is ready. */
struct engine_media {
    struct engine_medium *ptr; /* owned */
    size_t n, cap;
    bool padded_only; /* set by the owner: of the keys, only names with those zeros count */
};

void engine_media_done(struct engine_media *l);
DEFINE_CLEANUP_EMBEDDED(struct engine_media, engine_media_done)

/* False for what is no image's name. */
MUST_CHECK bool engine_media_parse(struct str key, uint64_t *ret_mm_hash);
/* Errors, of which one is that there are too many, stick to the reader. */
void engine_media_push(struct msgpack_reader *m, struct engine_media *l, size_t block,
                       uint64_t mm_hash);
/* A key that is a text: pushed if it is an image's that counts. */
void engine_media_take_key(struct msgpack_reader *m, struct engine_media *l, size_t block,
                           struct str key);
/* A key that is an array: reads it, and takes its first element as that text. */
void engine_media_read_pair(struct msgpack_reader *m, struct engine_media *l, size_t block);
/* A block's entry of block_mm_infos, which is a map. */
void engine_media_read_info(struct msgpack_reader *m, struct engine_media *l, size_t block);
/* Writes block_mm_infos of what is in the order of its blocks. */
void engine_media_put(struct buf *out, const struct engine_medium *media, size_t n);
