/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree inside the prefix index: blocks in their context, and who holds each.
 *
 *     node 7 ─ A B C D E          a node is a stretch of up to 16 blocks (cells), each following
 *              │   └─ node 9 ─ X  the one before it; it never starts anywhere but at its first
 *              holders 0:11111    child nodes hang below any cell, so nothing is ever split
 *                      1:00111    a holder is a worker's slot and the mask of cells it holds
 *
 * A position, node × 16 + cell, names a block for as long as it exists: neither growth nor
 * divergence moves one. Position 0 is the root, above all first blocks. A cell goes when nobody
 * holds it and nothing follows it; a node when its last cell goes.
 *
 * Nodes lie in segments that are allocated and freed as a whole, so that memory returns when
 * workers leave. Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "router/kv/edge_table.h"

enum {
    TREE_ROOT = 0,
    TREE_CELLS = 16, /* bits of a holder's mask */
    TREE_SEGMENT_NODES = 1024,
    TREE_INLINE_HOLDERS = 4,
    TREE_SLOTS_MAX = 65536,
};

struct tree_node {
    union { /* sorted; each is slot << 16 | mask, the mask is not 0 */
        uint32_t here[TREE_INLINE_HOLDERS];
        uint32_t *heap; /* when cap_log2 says more */
    };
    uint32_t up;   /* position that the first cell follows */
    uint32_t next; /* node that the last of 16 cells goes on in, 0 = none; the edge table has
                           all others */
    uint32_t n_holders;
    uint16_t branches; /* cells below which the edge table has children */
    uint8_t len;       /* cells; 0 in a free node, whose `next` is the next free one */
    uint8_t cap_log2;  /* of holders */
    uint64_t local[TREE_CELLS];
};

struct tree_segment {
    struct list open;    /* among those with room */
    uint32_t first;      /* number of nodes[0] */
    uint32_t first_free; /* 0 = none */
    uint32_t n_touched;  /* nodes behind have never been used, nor has their memory */
    uint32_t n_live;
    struct tree_node nodes[TREE_SEGMENT_NODES];
};

struct prefix_tree {
    struct tree_segment **segments;
    uint32_t n_segments, cap_segments;
    struct list open;
    struct edge_table edges;   /* (position, local hash) -> node */
    struct map64 branch_count; /* position -> edges below it */
    size_t n_cells;            /* without the root */
    size_t n_live_segments, holder_bytes;
};

void prefix_tree_init(struct prefix_tree *t);
void prefix_tree_done(struct prefix_tree *t);
/* Position of the block below @position, 0 when there is none. */
uint32_t prefix_tree_child(const struct prefix_tree *t, uint32_t position, uint64_t local);
/* Likewise, made if missing. Somebody must be marked as its holder before anything is cleared. */
uint32_t prefix_tree_need_child(struct prefix_tree *t, uint32_t position, uint64_t local);
/* Cells of the node that the slot holds. */
uint32_t prefix_tree_mask(const struct prefix_tree *t, uint32_t node, uint32_t slot);
/* Adds to them. */
void prefix_tree_mark(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells);
/* Takes from them, and frees what then holds nothing, upwards as far as need be. */
void prefix_tree_clear(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells);
size_t prefix_tree_bytes(const struct prefix_tree *t);
/* Asserts every invariant; returns how many (slot, cell) pairs there are. O(size). For tests. */
size_t prefix_tree_check(const struct prefix_tree *t);

static inline uint32_t tree_position(uint32_t node, uint32_t cell)
{
    return node * TREE_CELLS + cell;
}

static inline struct tree_node *tree_node(const struct prefix_tree *t, uint32_t id)
{
    return &t->segments[id / TREE_SEGMENT_NODES]->nodes[id % TREE_SEGMENT_NODES];
}

static inline uint32_t *tree_holders(struct tree_node *n)
{
    return 1u << n->cap_log2 > TREE_INLINE_HOLDERS ? n->heap : n->here;
}
