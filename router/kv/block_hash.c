/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/block_hash.h"

#include <assert.h>
#include <stdlib.h>

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

/*
 * XXH3_64bits_withSeed() of a block. Where the compiler knows the length it takes two thirds of the
 * time, but not as the call that gcc makes of that function when there are several of it.
 */
static inline uint64_t hash_block(uint64_t seed, const uint32_t *tokens, size_t block_size)
{
    size_t bytes = block_size * sizeof(*tokens);

    if (block_size == USUAL_SIZE)
        return XXH3_len_17to128_64b((const xxh_u8 *)tokens, bytes, XXH3_kSecret,
                                    sizeof(XXH3_kSecret), seed);
    return XXH3_64bits_withSeed(tokens, bytes, seed);
}

size_t block_hash_local_seeded(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                               uint32_t block_size, uint64_t *ret_local)
{
    size_t n = n_tokens / block_size;

    assert(block_size >= 1);
    for (size_t i = 0; i < n; i++)
        ret_local[i] = hash_block(seed, tokens + i * block_size, block_size);
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

uint64_t block_media_hash(struct str url)
{
    return XXH3_64bits(url.ptr, url.len);
}

uint32_t block_media_token(uint64_t mm_hash)
{
    enum { BEYOND_VOCABULARIES = 1000000, BITS = (1 << 30) - 1 };

    return (uint32_t)(BEYOND_VOCABULARIES + (mm_hash & BITS));
}

static int by_block_and_hash(const void *a, const void *b)
{
    const struct block_media *x = a, *y = b;

    if (x->block != y->block)
        return x->block < y->block ? -1 : 1;
    return (x->mm_hash > y->mm_hash) - (x->mm_hash < y->mm_hash);
}

void block_media_sort(struct block_media *media, size_t n)
{
    if (n > 1)
        qsort(media, n, sizeof(*media), by_block_and_hash);
}

/* Hashes the blocks with media anew, each of @window tokens. */
static void hash_media(const struct block_naming *nm, const uint32_t *tokens, size_t window,
                       size_t n, uint64_t *ret_local)
{
    size_t at = 0;

    while (at < nm->n_media && nm->media[at].block < n) {
        size_t block = nm->media[at].block;
        XXH3_state_t state;

        XXH3_INITSTATE(&state); /* what the next line sets anyway, as the compiler does not see */
        (void)XXH3_64bits_reset_withSeed(&state, nm->seed);
        (void)XXH3_64bits_update(&state, tokens + block * nm->block_size, window * sizeof(*tokens));
        for (; at < nm->n_media && nm->media[at].block == block; at++)
            (void)XXH3_64bits_update(&state, &nm->media[at].mm_hash, sizeof(nm->media[at].mm_hash));
        ret_local[block] = XXH3_64bits_digest(&state);
    }
}

size_t block_hash_local_named(const struct block_naming *nm, const uint32_t *tokens,
                              size_t n_tokens, uint64_t *ret_local)
{
    size_t n =
        nm->eagle
            ? block_hash_local_eagle_seeded(nm->seed, tokens, n_tokens, nm->block_size, ret_local)
            : block_hash_local_seeded(nm->seed, tokens, n_tokens, nm->block_size, ret_local);

    hash_media(nm, tokens, nm->block_size + (nm->eagle ? 1u : 0u), n, ret_local);
    return n;
}

enum { PAIR_SIZE = 2 * sizeof(uint64_t) };

#define AVALANCHE UINT64_C(0x165667919E3779F9)

static uint64_t secret(size_t at)
{
    return XXH_readLE64(XXH3_kSecret + at);
}

/*
 * XXH3_64bits_withSeed() of two numbers, in which the key of the first one is applied when the hash of
 * the step before is finished: a step has to wait for the one before it, but not for all of that.
 */
struct chain {
    uint64_t parent_key, local_key;
    uint64_t keyed_parent;
};

static struct chain chain_from(uint64_t seed, uint64_t parent_sequence)
{
    struct chain c = {
        .parent_key = (secret(24) ^ secret(32)) + seed,
        .local_key = (secret(40) ^ secret(48)) - seed,
    };

    c.keyed_parent = parent_sequence ^ c.parent_key;
    return c;
}

static uint64_t chain_next(struct chain *c, uint64_t local)
{
    uint64_t keyed = local ^ c->local_key;
    uint64_t h = PAIR_SIZE + XXH_swap64(c->keyed_parent) + keyed +
                 XXH3_mul128_fold64(c->keyed_parent, keyed);

    h = (h ^ h >> 37) * AVALANCHE;
    c->keyed_parent = h ^ c->parent_key ^ h >> 32;
    return h ^ h >> 32;
}

uint64_t block_hash_next(uint64_t parent_sequence, uint64_t local)
{
    struct chain c = chain_from(BLOCK_HASH_SEED, parent_sequence);

    return chain_next(&c, local);
}

void block_hash_sequence_seeded(uint64_t seed, const uint64_t *local, size_t n,
                                uint64_t *ret_sequence)
{
    struct chain c;

    if (n == 0)
        return;
    c = chain_from(seed, local[0]);
    ret_sequence[0] = local[0];
    for (size_t i = 1; i < n; i++)
        ret_sequence[i] = chain_next(&c, local[i]);
}

/* @n >= 1. */
static inline void hash_prompt(uint64_t seed, const uint32_t *tokens, size_t n, size_t block_size,
                               uint64_t *ret_local, uint64_t *ret_sequence)
{
    struct chain c;

    ret_local[0] = ret_sequence[0] = hash_block(seed, tokens, block_size);
    c = chain_from(BLOCK_HASH_SEED, ret_local[0]);
    for (size_t i = 1; i < n; i++) {
        ret_local[i] = hash_block(seed, tokens + i * block_size, block_size);
        ret_sequence[i] = chain_next(&c, ret_local[i]);
    }
}

size_t block_hash_prompt(uint64_t seed, const uint32_t *tokens, size_t n_tokens,
                         uint32_t block_size, uint64_t *ret_local, uint64_t *ret_sequence)
{
    size_t n;

    assert(block_size >= 1);
    n = n_tokens / block_size;
    if (n && block_size == USUAL_SIZE)
        hash_prompt(seed, tokens, n, USUAL_SIZE, ret_local, ret_sequence);
    else if (n)
        hash_prompt(seed, tokens, n, block_size, ret_local, ret_sequence);
    return n;
}

void block_hash_sequence(const uint64_t *local, size_t n, uint64_t *ret_sequence)
{
    block_hash_sequence_seeded(BLOCK_HASH_SEED, local, n, ret_sequence);
}

size_t block_hash_prompt_named(const struct block_naming *nm, const uint32_t *tokens,
                               size_t n_tokens, uint64_t *ret_local, uint64_t *ret_sequence)
{
    size_t n;

    if (!nm->eagle && !nm->n_media)
        return block_hash_prompt(nm->seed, tokens, n_tokens, nm->block_size, ret_local,
                                 ret_sequence);
    n = block_hash_local_named(nm, tokens, n_tokens, ret_local);
    block_hash_sequence(ret_local, n, ret_sequence);
    return n;
}
