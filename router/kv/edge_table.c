/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/edge_table.h"

#include <assert.h>

enum { CAP_MIN = 16 };

void edge_table_done(struct edge_table *t, struct kv_mem *mem)
{
    kv_free(mem, t->edges, edge_table_bytes(t));
    *t = (struct edge_table){0};
}

static size_t home_of(const struct edge_table *t, uint32_t parent, uint64_t label)
{
    uint64_t h = (label ^ parent * UINT64_C(0xD6E8FEB86659FD93)) * UINT64_C(0x9E3779B97F4A7C15);

    return (size_t)(h ^ h >> 32) & (t->cap - 1);
}

/* Where the edge is, or the free place where it would be. */
static size_t locate(const struct edge_table *t, uint32_t parent, uint64_t label)
{
    size_t i = home_of(t, parent, label);

    while (t->edges[i].child && (t->edges[i].label != label || t->edges[i].parent != parent))
        i = (i + 1) & (t->cap - 1);
    return i;
}

static bool resize(struct edge_table *t, struct kv_mem *mem, size_t cap)
{
    struct edge_table other = {.cap = cap, .len = t->len};

    other.edges = kv_alloc(mem, edge_table_bytes(&other));
    if (!other.edges)
        return false;
    for (size_t i = 0; i < t->cap; i++)
        if (t->edges[i].child)
            other.edges[locate(&other, t->edges[i].parent, t->edges[i].label)] = t->edges[i];
    edge_table_done(t, mem);
    *t = other;
    return true;
}

uint32_t edge_table_find(const struct edge_table *t, uint32_t parent, uint64_t label)
{
    return t->len ? t->edges[locate(t, parent, label)].child : 0;
}

bool edge_table_reserve(struct edge_table *t, struct kv_mem *mem)
{
    if ((t->len + 1) * 4 <= t->cap * 3)
        return true;
    /* Fuller than it should be is better than failing. */
    return resize(t, mem, t->cap ? t->cap * 2 : CAP_MIN) || t->len + 1 < t->cap;
}

void edge_table_put(struct edge_table *t, uint32_t parent, uint64_t label, uint32_t child)
{
    size_t at;

    assert(child && t->len < t->cap);
    at = locate(t, parent, label);
    t->len += t->edges[at].child == 0;
    t->edges[at] = (struct edge){label, parent, child};
}

/* Later edges of the probe run move back over the hole, so that lookups need no tombstones. */
static void close_hole(struct edge_table *t, size_t hole)
{
    size_t mask = t->cap - 1;

    for (size_t i = (hole + 1) & mask; t->edges[i].child; i = (i + 1) & mask) {
        size_t home = home_of(t, t->edges[i].parent, t->edges[i].label);

        if (((i - home) & mask) >= ((i - hole) & mask)) {
            t->edges[hole] = t->edges[i];
            hole = i;
        }
    }
    t->edges[hole].child = 0;
}

void edge_table_remove(struct edge_table *t, struct kv_mem *mem, uint32_t parent, uint64_t label)
{
    size_t at = locate(t, parent, label);

    assert(t->edges[at].child);
    close_hole(t, at);
    t->len--;
    if (t->len == 0)
        edge_table_done(t, mem);
    else if (t->cap > CAP_MIN && t->len * 8 < t->cap)
        (void)resize(t, mem, t->cap / 2); /* without memory it stays large */
}
