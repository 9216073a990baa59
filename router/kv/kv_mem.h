/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory under a budget. Whatever the index grows is taken here, so that the budget cannot be
 * passed; a budget that is used up looks like memory that is gone, and both are met in one place.
 * Who takes memory knows its size when giving it back.
 *
 * It comes from the system and goes back there, past malloc(): what workers leave behind after
 * having come and gone in any order would be scattered over a heap's pages, and lie in the caches of
 * threads. Small pieces, of which there are many, share slabs of their size class. A class keeps one
 * empty slab as long as megabytes are in use: giving memory back interrupts all threads, which here
 * would be under a lock. Of large tables that are given back, as happens when they have grown, a
 * quarter of what is in use at most stays for kv_alloc_page(): the system takes longer to clear a
 * page than it takes to fill one. Pure; one thread at a time.
 */
#pragma once

#include <string.h>

#include "lib/base/mem.h"

enum {
    KV_CLASSES = 9, /* 64 bytes to 16 KiB */
    KV_PAGE = 2 << 20,
};

/* Zero-initialised but for the limit. */
struct kv_mem {
    size_t used, limit;
    struct kv_slab *slabs[KV_CLASSES]; /* those with room */
    struct kv_page *spare;             /* given back, for kv_alloc_page() */
    size_t n_spare;
};

/*
 * Zeroed; NULL when the budget or memory is gone. @charge is what counts against the budget, less
 * than @size for memory that is never touched as a whole.
 */
MUST_CHECK void *kv_alloc_part(struct kv_mem *m, size_t size, size_t charge);
/* @p may be NULL; the sizes are those that it was taken with. */
void kv_free_part(struct kv_mem *m, void *p, size_t size, size_t charge);

/* KV_PAGE bytes that are not zeroed; likewise NULL. */
MUST_CHECK void *kv_alloc_page(struct kv_mem *m);
/*
 * Makes it larger, where what is added is not zeroed, or smaller; NULL when that fails and nothing
 * has happened. Several pages need no second copy. @p may be NULL.
 */
MUST_CHECK void *kv_resize(struct kv_mem *m, void *p, size_t size, size_t new_size);

MUST_CHECK static inline void *kv_alloc(struct kv_mem *m, size_t size)
{
    return kv_alloc_part(m, size, size);
}

static inline void kv_free(struct kv_mem *m, void *p, size_t size)
{
    kv_free_part(m, p, size, size);
}
