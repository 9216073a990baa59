/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/kv_mem.h"

#include <assert.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    SLAB = 4 * PAGE,
    BIG_SLAB = 4 * SLAB, /* of pieces larger than this many: */
    BIG_ABOVE = PAGE / 2,
    KEEP_ABOVE = 4 << 20, /* an index of fewer bytes keeps no empty slab */
    HEAD = 64,
    SMALLEST_LOG2 = 6,
    SMALL_MAX = 1 << SMALLEST_LOG2 << (KV_CLASSES - 1),
    LARGE = 1 << 20, /* worth huge pages */
    SPARE_SHARE = 4, /* as much of what is in use may be spare besides: a quarter */
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

static size_t slab_size(uint32_t class)
{
    return 1u << SMALLEST_LOG2 << class > BIG_ABOVE ? BIG_SLAB : SLAB;
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
    size_t size = slab_size(class);
    struct kv_slab *s = try_map_aligned(size, size);

    if (!s)
        return NULL;
    s->class = class;
    s->cap = (uint32_t)(size - HEAD) >> SMALLEST_LOG2 >> class;
    slab_link(m, s);
    return s;
}

static void slab_free(struct kv_slab *s)
{
    slab_unlink(s);
    mem_unmap(s, slab_size(s->class));
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

static void small_free(struct kv_mem *m, void *p, size_t size)
{
    uintptr_t within = slab_size(class_of(size)) - 1;
    struct kv_slab *s = (struct kv_slab *)((uintptr_t)p & ~within);

    assert(s->n_live > 0);
    memcpy(p, &s->first_free, sizeof(p));
    s->first_free = p;
    if (s->n_live-- == s->cap)
        slab_link(m, s);
    if (s->n_live == 0 && (m->slabs[s->class] != s || s->next))
        slab_free(s);
}

/* --- spare pages -------------------------------------------------------------------------------
 */

struct kv_page {
    struct kv_page *next;
};

static void *spare_take(struct kv_mem *m)
{
    struct kv_page *p = m->spare;

    m->spare = p->next;
    m->n_spare--;
    return p;
}

static void spare_keep(struct kv_mem *m, size_t bytes)
{
    while (m->n_spare && m->n_spare * KV_PAGE > bytes)
        mem_unmap(spare_take(m), KV_PAGE);
}

/* As many of the pages at @p as may be; the rest goes back. @touched: bytes with memory behind. */
static void give_back(struct kv_mem *m, char *p, size_t size, size_t touched)
{
    char *end = p + size;

    for (; touched >= KV_PAGE && (m->n_spare + 1) * KV_PAGE <= m->used / SPARE_SHARE;
         touched -= KV_PAGE, p += KV_PAGE) {
        struct kv_page *page = (struct kv_page *)(void *)p;

        page->next = m->spare;
        m->spare = page;
        m->n_spare++;
    }
    if (p < end)
        mem_unmap(p, (size_t)(end - p));
}

/* --- all sizes ---------------------------------------------------------------------------------
 */

/* Whether the budget allows it; what is spare makes room if need be. */
static bool admit(struct kv_mem *m, size_t charge)
{
    size_t left = m->limit - MIN(m->used, m->limit);

    if (charge > left)
        return false;
    spare_keep(m, left - charge);
    return true;
}

void *kv_alloc_page(struct kv_mem *m)
{
    void *p;

    if (!admit(m, KV_PAGE))
        return NULL;
    if (!m->spare)
        p = try_map(KV_PAGE);
    else
        p = mem_must_fail() ? NULL : spare_take(m);
    m->used += p ? KV_PAGE : 0;
    return p;
}

/* Zeroed if the system has cleared it just now. */
static void *alloc_any(struct kv_mem *m, size_t size, size_t charge)
{
    void *p;

    if (!admit(m, charge))
        return NULL;
    if (size >= LARGE)
        p = try_map(size);
    else if (ALL_FROM_MALLOC)
        p = try_alloc(size);
    else
        p = size > SMALL_MAX ? try_map_aligned(size, PAGE) : small_alloc(m, size);
    m->used += p ? charge : 0;
    return p;
}

void *kv_alloc_part(struct kv_mem *m, size_t size, size_t charge)
{
    void *p = alloc_any(m, size, charge);

    if (p && (ALL_FROM_MALLOC ? size < LARGE : size <= SMALL_MAX))
        memset(p, 0, size);
    return p;
}

static bool is_pages(size_t size)
{
    return !ALL_FROM_MALLOC && size > SMALL_MAX && size < LARGE;
}

static size_t whole_pages(size_t size)
{
    return (size + PAGE - 1) & ~(size_t)(PAGE - 1);
}

static void *resize_pages(struct kv_mem *m, void *p, size_t size, size_t new_size)
{
    if (new_size > size && !admit(m, new_size - size))
        return NULL;
    p = mem_must_fail() ? MAP_FAILED
                        : mremap(p, whole_pages(size), whole_pages(new_size), MREMAP_MAYMOVE);
    if (p == MAP_FAILED)
        return NULL;
    m->used += new_size - size;
    return p;
}

void *kv_resize(struct kv_mem *m, void *p, size_t size, size_t new_size)
{
    void *to;

    if (p && is_pages(size) && is_pages(new_size))
        return resize_pages(m, p, size, new_size);
    to = alloc_any(m, new_size, new_size);
    if (to && p)
        memcpy(to, p, MIN(size, new_size));
    if (to)
        kv_free(m, p, size);
    return to;
}

void kv_free_part(struct kv_mem *m, void *p, size_t size, size_t charge)
{
    if (!p)
        return;
    m->used -= charge;
    if (ALL_FROM_MALLOC && size < LARGE)
        free(p);
    else if (size >= LARGE)
        give_back(m, p, size, charge);
    else if (size > SMALL_MAX)
        mem_unmap(p, size);
    else
        small_free(m, p, size);
    spare_keep(m, m->used / SPARE_SHARE);
    for (uint32_t i = 0; m->used < KEEP_ABOVE && i < KV_CLASSES; i++)
        if (m->slabs[i] && m->slabs[i]->n_live == 0)
            slab_free(m->slabs[i]);
}
