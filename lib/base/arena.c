/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_BLOCK = 8192 };

struct block {
    struct block *next;
    size_t cap, used;
    alignas(max_align_t) char bytes[];
};

struct arena {
    struct block *head; /* the one that is filled; full ones behind it */
    size_t used;
};

static struct block *block_new(size_t cap, struct block *next)
{
    struct block *b = xmalloc(sizeof(*b) + cap);

    b->next = next;
    b->cap = cap;
    b->used = 0;
    return b;
}

struct arena *arena_new(void)
{
    struct arena *a = xcalloc(1, sizeof(*a));

    a->head = block_new(ARENA_BLOCK, NULL);
    return a;
}

static void free_blocks(struct block *b)
{
    while (b) {
        struct block *next = b->next;

        free(b);
        b = next;
    }
}

struct arena *arena_free(struct arena *a)
{
    if (!a)
        return NULL;
    free_blocks(a->head);
    free(a);
    return NULL;
}

void *arena_alloc(struct arena *a, size_t size)
{
    size_t rounded = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    void *p;

    if (a->head->cap - a->head->used < rounded)
        a->head = block_new(MAX(rounded, (size_t)ARENA_BLOCK), a->head);
    p = a->head->bytes + a->head->used;
    a->head->used += rounded;
    a->used += rounded;
    return memset(p, 0, size);
}

char *arena_strdup(struct arena *a, struct str s)
{
    char *copy = arena_alloc(a, s.len + 1);

    if (s.len)
        memcpy(copy, s.ptr, s.len);
    return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list ap, again;
    char *out;
    int n;

    va_start(ap, format);
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, format, ap);
    out = arena_alloc(a, (size_t)MAX(n, 0) + 1);
    (void)vsnprintf(out, (size_t)MAX(n, 0) + 1, format, again);
    va_end(again);
    va_end(ap);
    return out;
}

size_t arena_used(const struct arena *a)
{
    return a->used;
}

void arena_reset(struct arena *a)
{
    free_blocks(a->head->next);
    a->head->next = NULL;
    a->head->used = 0;
    a->used = 0;
}
