/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edges of a tree whose nodes are numbered: (parent, label) -> child.
 *
 * One table serves a whole tree, so that a node needs no container of its own and a step costs one
 * probe however many children there are. Numbers start at 1 for children; the parent may be any
 * u32. Open addressing, linear probing, load at most 3/4, no tombstones; the table shrinks with its
 * content. Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

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

void edge_table_done(struct edge_table *t);
DEFINE_CLEANUP_EMBEDDED(struct edge_table, edge_table_done)
/* 0 when there is no such edge. */
uint32_t edge_table_find(const struct edge_table *t, uint32_t parent, uint64_t label);
/* Adds the edge, or turns the one that is there to @child, which is not 0. */
void edge_table_put(struct edge_table *t, uint32_t parent, uint64_t label, uint32_t child);
/* The edge is there. */
void edge_table_remove(struct edge_table *t, uint32_t parent, uint64_t label);
static inline size_t edge_table_bytes(const struct edge_table *t)
{
    return t->cap * sizeof(struct edge);
}
