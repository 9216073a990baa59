/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ids of words seen before: 0.9 MB that belongs to one thread and one tokenizer. Short words, which are
 * most, lie two in a cache line and may be in either of two lines; a longer one has one place. A word or ids that do not fit are encoded every time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/str.h"

enum {
    WORD_SHORT_TEXT = 15,
    WORD_SHORT_IDS = 3,
    WORD_LONG_TEXT = 112,
    WORD_LONG_IDS = 27,
    WORD_SETS = 8192,
    WORD_LONG_SLOTS = 2048,
};

/* A short word: its bytes with zeros behind them, and in the last byte their number. */
struct word_key {
    uint64_t part[2]; /* WORD_NOT_SHORT the second: it is empty or longer */
    uint64_t hash;    /* tells the two sets that it may be in */
};
#define WORD_NOT_SHORT UINT64_MAX

struct word_short {
    uint64_t part[2]; /* of its key; second part 0: free */
    uint32_t n_ids;
    uint32_t ids[WORD_SHORT_IDS];
};

struct word_long {
    uint16_t len, n_ids;
    char text[WORD_LONG_TEXT];
    uint32_t ids[WORD_LONG_IDS];
};

struct word_cache {
    void *memory;
    struct word_short (*sets)[2]; /* in memory, at borders of cache lines */
    struct word_long *slots;
};

void word_cache_init(struct word_cache *c);
void word_cache_done(struct word_cache *c);
/* Remembers it, if it fits. @k is its key. */
void word_cache_put(struct word_cache *c, const struct word_key *k, struct str word,
                    const uint32_t *ids, size_t n);
/* The ids of a word that is not short; NULL when it was not seen, or long ago. */
const uint32_t *word_cache_find_long(const struct word_cache *c, struct str word, size_t *ret_n);

/* Where fewer than 16 bytes may be read. */
void word_key_at_end(struct word_key *k, struct str word);

/* What of 16 bytes belongs to a word, by its length. */
extern const uint64_t WORD_KEPT[WORD_SHORT_TEXT + 1][2];

/* @room bytes may be read at word.ptr. */
static inline void word_key_set(struct word_key *k, struct str word, size_t room)
{
    unsigned __int128 product;
    uint64_t a, b;

    if (__builtin_expect(word.len - 1 >= WORD_SHORT_TEXT, false)) {
        *k = (struct word_key){.part = {0, WORD_NOT_SHORT}};
        return;
    }
    if (__builtin_expect(room <= WORD_SHORT_TEXT, false)) {
        word_key_at_end(k, word);
        return;
    }
    memcpy(&a, word.ptr, sizeof(a));
    memcpy(&b, word.ptr + sizeof(a), sizeof(b));
    a &= WORD_KEPT[word.len][0];
    b = (b & WORD_KEPT[word.len][1]) | (uint64_t)word.len << 56;
    product =
        (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15)) * (b ^ UINT64_C(0xd1b54a32d192ed03));
    k->part[0] = a;
    k->part[1] = b;
    k->hash = (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The first and the second set for a key. */
static inline struct word_short *word_home(const struct word_cache *c, const struct word_key *k)
{
    return c->sets[k->hash % WORD_SETS];
}

static inline struct word_short *word_other_home(const struct word_cache *c,
                                                 const struct word_key *k)
{
    return c->sets[(k->hash >> 32) % WORD_SETS];
}

/* 0 when it is the word's. */
static inline uint64_t word_differs(const struct word_short *w, const struct word_key *k)
{
    return (w->part[0] ^ k->part[0]) | (w->part[1] ^ k->part[1]);
}

/* Which of the two it is cannot be foretold, so there is no jump for it. */
static inline const struct word_short *word_in_set(const struct word_short *set,
                                                   const struct word_key *k)
{
    uint64_t first = word_differs(&set[0], k), second = word_differs(&set[1], k);

    return MIN(first, second) == 0 ? &set[second == 0] : NULL;
}

/* NULL when the word was not seen, or long ago; and when it is not short. */
static inline const struct word_short *word_cache_find(const struct word_cache *c,
                                                       const struct word_key *k)
{
    const struct word_short *found = word_in_set(word_home(c, k), k);

    return found ? found : word_in_set(word_other_home(c, k), k);
}
