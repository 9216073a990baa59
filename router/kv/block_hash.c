/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/block_hash.h"

#include <assert.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token ids are hashed as they lie in memory, which must be little endian"
#endif

uint64_t block_hash_seed(struct str lora_name, struct str cache_salt)
{
    uint64_t seed = BLOCK_HASH_SEED;

    if (lora_name.len)
        seed += XXH3_64bits_withSeed(lora_name.ptr, lora_name.len, 0);
    if (cache_salt.len)
        seed += XXH3_64bits_withSeed(cache_salt.ptr, cache_salt.len, 1);
    return seed;
}

enum { USUAL_SIZE = 16 };

/* By itself, as a hash whose length the compiler knows takes two thirds of the time. */
static void hash_usual_blocks(uint64_t seed, const uint32_t *tokens, size_t n, uint64_t *ret_local)
{
    for (size_t i = 0; i < n; i++)
        ret_local[i] =
            XXH3_64bits_withSeed(tokens + i * USUAL_SIZE, USUAL_SIZE * sizeof(*tokens), seed);
}

size_t block_hash_local_seeded(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                               uint32_t block_size, uint64_t *ret_local)
{
    size_t n = n_tokens / block_size;

    assert(block_size >= 1);
    if (block_size == USUAL_SIZE)
        hash_usual_blocks(seed, tokens, n, ret_local);
    for (size_t i = 0; i < n && block_size != USUAL_SIZE; i++)
        ret_local[i] = XXH3_64bits_withSeed(tokens + i * block_size,
                                            (size_t)block_size * sizeof(*tokens), seed);
    return n;
}

size_t block_hash_local(const uint32_t *tokens, size_t n_tokens, uint32_t block_size,
                        uint64_t *ret_local)
{
    return block_hash_local_seeded(BLOCK_HASH_SEED, tokens, n_tokens, block_size, ret_local);
}

size_t block_hash_local_eagle_seeded(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                                     uint32_t block_size, uint64_t *ret_local)
{
    size_t n = n_tokens ? (n_tokens - 1) / block_size : 0;

    assert(block_size >= 1);
    for (size_t i = 0; i < n; i++)
        ret_local[i] = XXH3_64bits_withSeed(tokens + i * block_size,
                                            ((size_t)block_size + 1) * sizeof(*tokens), seed);
    return n;
}

size_t block_hash_local_eagle(const uint32_t *tokens, size_t n_tokens, uint32_t block_size,
                              uint64_t *ret_local)
{
    return block_hash_local_eagle_seeded(BLOCK_HASH_SEED, tokens, n_tokens, block_size, ret_local);
}

static uint64_t next_seeded(uint64_t seed, uint64_t parent_sequence, uint64_t local)
{
    uint64_t pair[2] = {parent_sequence, local};

    return XXH3_64bits_withSeed(pair, sizeof(pair), seed);
}

uint64_t block_hash_next(uint64_t parent_sequence, uint64_t local)
{
    return next_seeded(BLOCK_HASH_SEED, parent_sequence, local);
}

void block_hash_sequence_seeded(uint64_t seed, const uint64_t *local, size_t n,
                                uint64_t *ret_sequence)
{
    uint64_t before = 0;

    for (size_t i = 0; i < n; i++) {
        before = i == 0 ? local[0] : next_seeded(seed, before, local[i]);
        ret_sequence[i] = before;
    }
}

void block_hash_sequence(const uint64_t *local, size_t n, uint64_t *ret_sequence)
{
    block_hash_sequence_seeded(BLOCK_HASH_SEED, local, n, ret_sequence);
}
