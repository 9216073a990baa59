/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BLAKE3, plain and keyed, 32 bytes out (J. O'Connor et al., "BLAKE3: one function, fast everywhere", §2).
 *
 * Portable and one block at a time: it checks model files at start-up, where 500 MB/s is plenty.
 * The tree of 1 KiB chunks is folded with a stack of chaining values, one per level: after chunk
 * number n, as many subtrees are complete as n has trailing zero bits.
 */
#include "lib/base/digest.h"

#include <string.h>

enum {
    CHUNK = 1024,
    BLOCK = 64,
    CHUNK_START = 1,
    CHUNK_END = 2,
    PARENT = 4,
    ROOT = 8,
    KEYED = 16,
    DEPTH_MAX = 54, /* 2^64 bytes */
};

static const uint32_t IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                               0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
static const uint8_t PERMUTATION[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};

/* What every node begins with: the key in place of IV, and a flag, when there is one. */
struct mode {
    uint32_t iv[8];
    uint32_t flags;
};

/* What one compression still needs: kept, because the last one gets the ROOT flag added. */
struct node {
    uint32_t cv[8];
    uint32_t words[16];
    uint64_t counter;
    uint32_t len, flags;
};

static uint32_t rotr32(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void mix(uint32_t *s, const uint8_t at[4], uint32_t x, uint32_t y)
{
    uint32_t *a = s + at[0], *b = s + at[1], *c = s + at[2], *d = s + at[3];

    *a += *b + x;
    *d = rotr32(*d ^ *a, 16);
    *c += *d;
    *b = rotr32(*b ^ *c, 12);
    *a += *b + y;
    *d = rotr32(*d ^ *a, 8);
    *c += *d;
    *b = rotr32(*b ^ *c, 7);
}

static void compress(const struct node *n, uint32_t ret_cv[8])
{
    static const uint8_t lanes[8][4] = {{0, 4, 8, 12},  {1, 5, 9, 13},  {2, 6, 10, 14},
                                        {3, 7, 11, 15}, {0, 5, 10, 15}, {1, 6, 11, 12},
                                        {2, 7, 8, 13},  {3, 4, 9, 14}};
    uint32_t s[16], m[16], permuted[16];

    memcpy(s, n->cv, 32);
    memcpy(s + 8, IV, 16);
    s[12] = (uint32_t)n->counter;
    s[13] = (uint32_t)(n->counter >> 32);
    s[14] = n->len;
    s[15] = n->flags;
    memcpy(m, n->words, sizeof(m));

    for (int round = 0; round < 7; round++) {
        for (int lane = 0; lane < 8; lane++)
            mix(s, lanes[lane], m[2 * lane], m[2 * lane + 1]);
        for (int i = 0; i < 16; i++)
            permuted[i] = m[PERMUTATION[i]];
        memcpy(m, permuted, sizeof(m));
    }
    for (int i = 0; i < 8; i++)
        ret_cv[i] = s[i] ^ s[i + 8];
}

static void load_words(uint32_t words[16], const uint8_t *data, size_t n)
{
    uint8_t block[BLOCK] = {0};

    memcpy(block, data, n);
    for (int i = 0; i < 16; i++)
        words[i] = (uint32_t)block[4 * i] | (uint32_t)block[4 * i + 1] << 8 |
                   (uint32_t)block[4 * i + 2] << 16 | (uint32_t)block[4 * i + 3] << 24;
}

/* All but the last compression of a chunk; the last one is returned undone. */
static struct node chunk_node(const struct mode *mode, const uint8_t *data, size_t n,
                              uint64_t counter)
{
    struct node node = {.counter = counter, .flags = mode->flags | CHUNK_START};

    memcpy(node.cv, mode->iv, sizeof(mode->iv));
    while (n > BLOCK) {
        load_words(node.words, data, BLOCK);
        node.len = BLOCK;
        compress(&node, node.cv);
        node.flags = mode->flags;
        data += BLOCK;
        n -= BLOCK;
    }
    load_words(node.words, data, n);
    node.len = (uint32_t)n;
    node.flags |= CHUNK_END;
    return node;
}

static struct node parent_node(const struct mode *mode, const uint32_t left[8],
                               const uint32_t right[8])
{
    struct node node = {.len = BLOCK, .flags = mode->flags | PARENT};

    memcpy(node.cv, mode->iv, sizeof(mode->iv));
    memcpy(node.words, left, 32);
    memcpy(node.words + 8, right, 32);
    return node;
}

static void digest(const struct mode *mode, struct str data, uint8_t ret_sum[32])
{
    static const uint8_t nothing[1];
    const uint8_t *at = data.len ? (const uint8_t *)data.ptr : nothing;
    uint32_t stack[DEPTH_MAX][8], cv[8];
    size_t depth = 0, left = data.len;
    uint64_t n_chunks = 0;
    struct node last;

    while (left > CHUNK) {
        struct node node = chunk_node(mode, at, CHUNK, n_chunks++);

        compress(&node, cv);
        for (uint64_t done = n_chunks; done % 2 == 0; done /= 2) {
            node = parent_node(mode, stack[--depth], cv);
            compress(&node, cv);
        }
        memcpy(stack[depth++], cv, sizeof(cv));
        at += CHUNK;
        left -= CHUNK;
    }
    last = chunk_node(mode, at, left, n_chunks);
    while (depth > 0) {
        compress(&last, cv);
        last = parent_node(mode, stack[--depth], cv);
    }
    last.flags |= ROOT;
    compress(&last, cv);
    for (int i = 0; i < 32; i++)
        ret_sum[i] = (uint8_t)(cv[i / 4] >> (8 * (i % 4)));
}

void digest_blake3_hex(struct str data, char ret_hex[DIGEST_HEX_SIZE])
{
    struct mode plain = {.flags = 0};
    uint8_t sum[32];

    memcpy(plain.iv, IV, sizeof(IV));
    digest(&plain, data, sum);
    digest_hex(sum, ret_hex);
}

void digest_blake3_keyed(const uint8_t key[32], struct str data, uint8_t ret_sum[32])
{
    struct mode keyed = {.flags = KEYED};

    for (int i = 0; i < 8; i++)
        keyed.iv[i] = (uint32_t)key[4 * i] | (uint32_t)key[4 * i + 1] << 8 |
                      (uint32_t)key[4 * i + 2] << 16 | (uint32_t)key[4 * i + 3] << 24;
    digest(&keyed, data, ret_sum);
}
