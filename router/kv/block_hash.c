/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/block_hash.h"

#include <assert.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token ids are hashed as they lie in memory, which must be little endian"
#endif

size_t block_hash_local(const uint32_t *tokens, size_t n_tokens, uint32_t block_size,
                        uint64_t *ret_local)
{
    size_t n = n_tokens / block_size;

    assert(block_size >= 1);
    for (size_t i = 0; i < n; i++)
        ret_local[i] = XXH3_64bits_withSeed(tokens + i * block_size,
                                            (size_t)block_size * sizeof(*tokens), BLOCK_HASH_SEED);
    return n;
}

uint64_t block_hash_next(uint64_t parent_sequence, uint64_t local)
{
    uint64_t pair[2] = {parent_sequence, local};

    return XXH3_64bits_withSeed(pair, sizeof(pair), BLOCK_HASH_SEED);
}

void block_hash_sequence(const uint64_t *local, size_t n, uint64_t *ret_sequence)
{
    uint64_t before = 0;

    for (size_t i = 0; i < n; i++) {
        before = i == 0 ? local[0] : block_hash_next(before, local[i]);
        ret_sequence[i] = before;
    }
}
