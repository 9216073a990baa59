/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity of KV blocks (router.md §1).
 *
 * A prompt is cut into blocks of block_size tokens; a partial last block has no hash. The local
 * hash of a block covers its own tokens: XXH3_64 with seed 1337 over the token ids as u32 little
 * endian. The sequence hash chains it with all before: s[0] = local[0],
 * s[i] = XXH3_64(LE64(s[i-1]) || LE64(local[i]), seed 1337). Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"

enum { BLOCK_HASH_SEED = 1337 };

/*
 * What stands for BLOCK_HASH_SEED in the local hashes of a LoRA adapter, and of a prompt with a cache
 * salt: the seed plus XXH3_64(name, 0) plus XXH3_64(salt, 1), wrapping (router.md §1.6). Empty = none.
 */
uint64_t block_hash_seed(struct str lora_name, struct str cache_salt);
/* block_hash_local() with another seed. */
size_t block_hash_local_seeded(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                               uint32_t block_size, uint64_t *ret_local);
/* Writes n_tokens / block_size hashes, returns how many. @block_size >= 1. */
size_t block_hash_local(const uint32_t *tokens, size_t n_tokens, uint32_t block_size,
                        uint64_t *ret_local);
/*
 * The same for engines that draft tokens ahead (EAGLE, MTP): a block is its block_size tokens and the
 * one that follows, so the last full block needs one token more (router.md §1.6).
 */
size_t block_hash_local_eagle(const uint32_t *tokens, size_t n_tokens, uint32_t block_size,
                              uint64_t *ret_local);
/* The same with another seed. */
size_t block_hash_local_eagle_seeded(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                                     uint32_t block_size, uint64_t *ret_local);
/* An image, or what else is no text, that lies in a block, or in a part of it. */
struct block_media {
    size_t block; /* counted from the first one that is hashed */
    uint64_t mm_hash;
};
/* Of an image: of the URL that it is had by. */
uint64_t block_media_hash(struct str url);
/*
 * What stands in a prompt for each token of an image, so that prompts with the same images alone have the
 * same blocks (router.md §1.5): 1.x's way of telling images apart, where block_mm_infos is vLLM's.
 */
uint32_t block_media_token(uint64_t mm_hash);
/* By block, then by hash. */
void block_media_sort(struct block_media *media, size_t n);
/*
 * All that tells blocks of the same tokens apart. Behind its tokens a block has the hashes of the media
 * that lie in it, as u64 little endian (router.md §1.2): sorted, an object that is named twice counts
 * twice, and what is of no full block is ignored.
 */
struct block_naming {
    uint64_t seed;
    uint32_t block_size;
    bool eagle;
    const struct block_media *media;
    size_t n_media;
};
/* block_hash_local() of blocks that are named so: at most n_tokens / block_size. */
size_t block_hash_local_named(const struct block_naming *nm, const uint32_t *tokens,
                              size_t n_tokens, uint64_t *ret_local);
/* block_hash_prompt() of the same. */
size_t block_hash_prompt_named(const struct block_naming *nm, const uint32_t *tokens,
                               size_t n_tokens, uint64_t *ret_local, uint64_t *ret_sequence);
/* @ret_sequence may be @local itself. */
void block_hash_sequence(const uint64_t *local, size_t n, uint64_t *ret_sequence);
/* The same with another seed. */
void block_hash_sequence_seeded(uint64_t seed, const uint64_t *local, size_t n,
                                uint64_t *ret_sequence);
/*
 * block_hash_local_seeded() and block_hash_sequence() of what it says, in one go: a step of the chain
 * waits for the one before it, and the hashes of the blocks that follow are done meanwhile. The two
 * results do not overlap.
 */
size_t block_hash_prompt(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_size, uint64_t *ret_local, uint64_t *ret_sequence);
/* One step of the chain. */
uint64_t block_hash_next(uint64_t parent_sequence, uint64_t local);
