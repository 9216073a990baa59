/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edges of a tree whose nodes are numbered: (parent, label) -> child.
 *
 * One table serves a whole tree, so that a node needs no container of its own and a step costs one
 * probe however many children there are. Numbers start at 1 for children; the parent may be any
 * u32. Open addressing, linear probing, load at most 3/4, no tombstones; the table shrinks with its
 * content. Growth may fail, and only edge_table_reserve() grows. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/kv/kv_mem.h"

struct edge {
    uint64_t label;
    uint32_t parent;
    uint32_t child; /* 0 marks a free place */
};

/* Embedded by value; zero-initialised is empty. */
struct edge_table {
    struct edge *edges;
    size_t cap; /* power of two or 0 */
    size_t len;
};

void edge_table_done(struct edge_table *t, struct kv_mem *mem);
/* 0 when there is no such edge. */
uint32_t edge_table_find(const struct edge_table *t, uint32_t parent, uint64_t label);
/* Makes room for one more edge; false when there is no memory. */
MUST_CHECK bool edge_table_reserve(struct edge_table *t, struct kv_mem *mem);
/* Room was reserved. Adds the edge, or turns the one that is there to @child, which is not 0. */
void edge_table_put(struct edge_table *t, uint32_t parent, uint64_t label, uint32_t child);
/* The edge is there. */
void edge_table_remove(struct edge_table *t, struct kv_mem *mem, uint32_t parent, uint64_t label);

static inline size_t edge_table_bytes(const struct edge_table *t)
{
    return t->cap * sizeof(struct edge);
}
