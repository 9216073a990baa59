/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-way table between token ids and byte strings. Filled once, then read by any number of
 * threads. All text lies in one block, so a token costs its bytes and 16 bytes more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"

enum { VOCAB_NONE = UINT32_MAX }; /* no id */

struct vocab_entry {
    uint32_t start, len;
    bool present;
};

/* Embedded by value; zero-initialised is empty. */
struct vocab {
    struct buf text;
    struct vocab_entry *entries; /* by id */
    uint32_t limit, cap;         /* one more than the largest id */
    size_t len;                  /* tokens present */
    uint32_t *slots;             /* open addressing by text: id + 1, or 0 */
    size_t mask;
};

void vocab_done(struct vocab *v);
/* False when the id is taken. The caller bounds @id and the sum of lengths (below 4 GiB). */
bool vocab_add(struct vocab *v, uint32_t id, struct str text);
/* VOCAB_NONE when there is no such token. */
uint32_t vocab_find(const struct vocab *v, struct str text);
/* STR_NULL with a NULL pointer when the id is unknown. */
static inline struct str vocab_text(const struct vocab *v, uint32_t id)
{
    if (id >= v->limit || !v->entries[id].present)
        return STR_NULL;
    return (struct str){buf_data(&v->text) + v->entries[id].start, v->entries[id].len};
}

/* A quick hash for tables that are bounded or filled from trusted files. */
static inline uint64_t vocab_hash(struct str s)
{
    const uint64_t k = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t h = s.len * k, w;
    size_t i = 0;

    for (; i + 8 <= s.len; i += 8) {
        memcpy(&w, s.ptr + i, 8);
        h = (h ^ w) * k;
        h ^= h >> 29;
    }
    for (w = 0; i < s.len; i++)
        w = w << 8 | (uint8_t)s.ptr[i];
    h = (h ^ w) * k;
    return h ^ h >> 32;
}
