/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from u32, not 0, to u32, in 8 bytes an entry: open addressing, linear probing, load at
 * most 3/4, no tombstones; it grows by half and shrinks with its content. Growth may fail, and only
 * map32_reserve() grows. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/kv/kv_mem.h"

struct map32_entry {
    uint32_t key; /* 0 marks a free place */
    uint32_t value;
};

/* Embedded by value; zero-initialised is empty. */
struct map32 {
    struct map32_entry *entries;
    uint32_t cap, len;
};

void map32_done(struct map32 *m, struct kv_mem *mem);
/* Borrowed until the next change; NULL when absent. */
uint32_t *map32_find(const struct map32 *m, uint32_t key);
/* Makes room for one more key; false when there is no memory. */
MUST_CHECK bool map32_reserve(struct map32 *m, struct kv_mem *mem);
/* The value, 0 if the key is new; room was reserved. */
uint32_t *map32_put(struct map32 *m, uint32_t key);
/* Without effect when the key is absent. */
void map32_remove(struct map32 *m, struct kv_mem *mem, uint32_t key);

static inline size_t map32_bytes(const struct map32 *m)
{
    return m->cap * sizeof(struct map32_entry);
}
