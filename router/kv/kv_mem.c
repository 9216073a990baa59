/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/kv_mem.h"

#include <assert.h>

enum {
    PAGE = 4096,
    SLAB = 4 * PAGE,
    HEAD = 64,
    SMALLEST_LOG2 = 6,
    SMALL_MAX = 1 << SMALLEST_LOG2 << (KV_CLASSES - 1),
    LARGE = 1 << 20, /* worth huge pages */
};

/* The address sanitizer knows the bounds of what malloc() gave. */
#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
enum { ALL_FROM_MALLOC = 1 };
#else
enum { ALL_FROM_MALLOC = 0 };
#endif

/* Lies at a multiple of its size, so that a piece leads to it. */
struct kv_slab {
    struct kv_slab *next, **link; /* among those of the class with room; link is what points here */
    void *first_free;             /* each holds the next */
    uint32_t class, cap, n_touched, n_live;
};

static uint32_t class_of(size_t size)
{
    return size <= 1 << SMALLEST_LOG2 ? 0
                                      : 64 - (uint32_t)__builtin_clzll(size - 1) - SMALLEST_LOG2;
}

static void slab_link(struct kv_mem *m, struct kv_slab *s)
{
    s->link = &m->slabs[s->class];
    s->next = *s->link;
    if (s->next)
        s->next->link = &s->next;
    *s->link = s;
}

static void slab_unlink(struct kv_slab *s)
{
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
}

static struct kv_slab *slab_new(struct kv_mem *m, uint32_t class)
{
    struct kv_slab *s = try_map_aligned(SLAB, SLAB);

    if (!s)
        return NULL;
    s->class = class;
    s->cap = (SLAB - HEAD) >> SMALLEST_LOG2 >> class;
    slab_link(m, s);
    return s;
}

static void slab_free(struct kv_slab *s)
{
    slab_unlink(s);
    mem_unmap(s, SLAB);
}

static void *small_alloc(struct kv_mem *m, size_t size)
{
    uint32_t class = class_of(size);
    struct kv_slab *s = m->slabs[class];
    void *p;

    if (!s)
        s = slab_new(m, class);
    else if (mem_must_fail())
        s = NULL;
    if (!s)
        return NULL;
    p = s->first_free;
    if (p)
        memcpy(&s->first_free, p, sizeof(p));
    else
        p = (char *)s + HEAD + ((size_t)s->n_touched++ << SMALLEST_LOG2 << class);
    if (++s->n_live == s->cap)
        slab_unlink(s);
    return p;
}

static void small_free(struct kv_mem *m, void *p)
{
    struct kv_slab *s = (struct kv_slab *)((uintptr_t)p & ~(uintptr_t)(SLAB - 1));

    assert(s->n_live > 0);
    memcpy(p, &s->first_free, sizeof(p));
    s->first_free = p;
    if (s->n_live-- == s->cap)
        slab_link(m, s);
    if (s->n_live == 0 && (m->slabs[s->class] != s || s->next))
        slab_free(s);
}

/* --- all sizes ---------------------------------------------------------------------------------
 */

void *kv_alloc_part(struct kv_mem *m, size_t size, size_t charge)
{
    void *p;

    if (charge > m->limit - MIN(m->used, m->limit))
        return NULL;
    if (size >= LARGE)
        p = try_map(size);
    else if (ALL_FROM_MALLOC)
        p = try_alloc(size);
    else
        p = size > SMALL_MAX ? try_map_aligned(size, PAGE) : small_alloc(m, size);
    if (p && (ALL_FROM_MALLOC ? size < LARGE : size <= SMALL_MAX))
        memset(p, 0, size);
    m->used += p ? charge : 0;
    return p;
}

void kv_free_part(struct kv_mem *m, void *p, size_t size, size_t charge)
{
    if (!p)
        return;
    m->used -= charge;
    if (ALL_FROM_MALLOC && size < LARGE)
        free(p);
    else if (size > SMALL_MAX)
        mem_unmap(p, size);
    else
        small_free(m, p);
    for (uint32_t i = 0; m->used == 0 && i < KV_CLASSES; i++)
        if (m->slabs[i])
            slab_free(m->slabs[i]);
}
