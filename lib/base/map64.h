/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from u64 to a pointer or a u64: open addressing, linear probing, load at most 3/4, backward-shift
 * deletion, so that no tombstones remain. Keys are mixed, hence hashes and small ids do equally
 * well. Growth aborts on memory exhaustion; callers bound the number of entries. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct map64_slot {
    uint64_t key;
    uint64_t value;
};

/* Embedded by value; zero-initialised is empty. */
struct map64 {
    struct map64_slot *slots;
    uint8_t *used; /* one byte a slot */
    size_t cap;    /* power of two or 0 */
    size_t len;
};

void map64_done(struct map64 *m);
DEFINE_CLEANUP_EMBEDDED(struct map64, map64_done)
void map64_clear(struct map64 *m); /* keeps the memory */
/* Borrowed slot value until the next put or remove; NULL when absent. */
uint64_t *map64_find(const struct map64 *m, uint64_t key);
/* Inserts or finds; *ret_new (may be NULL) says which. A new value is 0. */
uint64_t *map64_put(struct map64 *m, uint64_t key, bool *ret_new);
/* False when absent; otherwise *ret_value (may be NULL) is what was stored. */
bool map64_remove(struct map64 *m, uint64_t key, uint64_t *ret_value);
/* Iteration in slot order: start with *at = 0. No changes meanwhile. */
bool map64_next(const struct map64 *m, size_t *at, uint64_t *ret_key, uint64_t *ret_value);

static inline void *map64_find_ptr(const struct map64 *m, uint64_t key)
{
    uint64_t *v = map64_find(m, key);
    return v ? (void *)(uintptr_t)*v : NULL;
}
static inline void map64_put_ptr(struct map64 *m, uint64_t key, const void *ptr)
{
    *map64_put(m, key, NULL) = (uint64_t)(uintptr_t)ptr;
}
