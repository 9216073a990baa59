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
    WORD_SHORT_TEXT = 16,
    WORD_SHORT_IDS = 3,
    WORD_LONG_TEXT = 112,
    WORD_LONG_IDS = 27,
    WORD_SETS = 8192,
    WORD_LONG_SLOTS = 2048,
};

/* A short word: its bytes, moved to the top, and their number. */
struct word_key {
    uint64_t part[2];
    uint32_t len;      /* WORD_NOT_SHORT: it is empty or longer */
    uint32_t homes[2]; /* sets that it may be in */
};
enum { WORD_NOT_SHORT = UINT32_MAX };

struct word_short {
    uint64_t part[2];
    uint16_t len, n_ids; /* len 0: free */
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

static inline uint64_t word_hash(uint64_t a, uint64_t b, size_t len)
{
    unsigned __int128 product = (unsigned __int128)(a ^ UINT64_C(0x9e3779b97f4a7c15) ^ len) *
                                (b ^ UINT64_C(0xd1b54a32d192ed03));

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Where fewer than 16 bytes may be read. */
void word_key_at_end(struct word_key *k, struct str word);

/* @room bytes may be read at word.ptr. */
static inline void word_key_set(struct word_key *k, struct str word, size_t room)
{
    uint64_t a, b, hash;

    if (__builtin_expect(word.len > WORD_SHORT_TEXT || word.len == 0, false)) {
        *k = (struct word_key){.len = WORD_NOT_SHORT};
        return;
    }
    if (__builtin_expect(room < WORD_SHORT_TEXT, false)) {
        word_key_at_end(k, word);
        return;
    }
    memcpy(&a, word.ptr, sizeof(a));
    memcpy(&b, word.ptr + sizeof(a), sizeof(b));
    /* What does not belong to it falls out at the top. */
    a <<= word.len < 8 ? 64 - 8 * word.len : 0;
    b = word.len > 8 ? b << (128 - 8 * word.len) : 0;
    hash = word_hash(a, b, word.len);
    k->part[0] = a;
    k->part[1] = b;
    k->len = (uint32_t)word.len;
    k->homes[0] = (uint32_t)hash & (WORD_SETS - 1);
    k->homes[1] = (uint32_t)(hash >> 32) & (WORD_SETS - 1);
}

static inline bool word_is(const struct word_short *w, const struct word_key *k)
{
    return ((w->part[0] ^ k->part[0]) | (w->part[1] ^ k->part[1]) | (w->len ^ k->len)) == 0;
}

/* NULL when the word was not seen, or long ago; and when it is not short. */
static inline const struct word_short *word_cache_find(const struct word_cache *c,
                                                       const struct word_key *k)
{
    for (uint32_t i = 0; i < 2; i++) {
        const struct word_short *set = c->sets[k->homes[i]];
        bool first = word_is(&set[0], k), second = word_is(&set[1], k);

        if (first | second) /* which one cannot be foretold, so there is no jump for it */
            return &set[second];
    }
    return NULL;
}
