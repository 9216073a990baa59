/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree inside the prefix index: blocks in their context, who holds each, and its name.
 *
 *     node 7 ─ A B C D E          a node is a stretch of up to 16 blocks (cells), each following
 *              │   └─ node 9 ─ X  the one before it; it never starts anywhere but at its first
 *              holders 0:11111    child nodes hang below any cell, so nothing is ever split
 *                      1:00111    a holder is a worker's slot and the mask of cells it holds
 *
 * A position, node × 16 + cell, means a block for as long as it exists: neither growth nor
 * divergence moves one. Position 0 is the root, above all first blocks. A cell goes when nobody
 * holds it and nothing follows it; a node when its last cell goes.
 *
 * A cell's name is the external hash under which a worker first stored it. A name means one cell
 * and a cell has at most one name: what does not fit this is the alias table's.
 *
 * Nodes lie in segments that are allocated and freed as a whole, so that memory returns when
 * workers leave. Growth may fail, for memory has a budget, and nothing has changed then. Pure; one
 * writer, or many readers, which write nothing but a node's `used`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "router/kv/edge_table.h"
#include "router/kv/kv_mem.h"
#include "router/kv/map32.h"
#include "router/kv/name_table.h"
#include "router/kv/prefix_index.h"

enum {
    TREE_ROOT = 0,
    TREE_CELLS = 16,           /* bits of a holder's mask */
    TREE_SEGMENT_NODES = 6553, /* a huge page */
    TREE_INLINE_HOLDERS = 5,
    TREE_SLOTS_MAX = 65536,
    TREE_LINE = 64,  /* bytes that memory brings at once */
    TREE_AHEAD = 32, /* blocks between asking memory for a table entry and using it */
    TREE_SOON = 8,   /* likewise between asking for what is behind that and using it */
    TREE_NODES_AHEAD = 12,
};

/* A line of what everybody needs, two of what lookups compare, two of names. */
struct tree_node {
    /* Sorted words, slot << 16 | mask, where the mask is not 0; behind all room for words as many
     * places, each that of the node in the slot's list. */
    union {
        uint32_t here[2 * TREE_INLINE_HOLDERS];
        uint32_t *heap; /* when cap_log2 is not 0 */
    };
    uint32_t up;   /* position that the first cell follows */
    uint32_t next; /* node that the last of 16 cells goes on in, 0 = none; the edge table has
                           all others */
    uint32_t n_holders;
    uint32_t used; /* generation of the last store here, or match that ended here; what is above a
                          node is in use as it is, and gets its `used` when the node goes */
    uint16_t branches; /* cells below which the edge table has children */
    uint16_t named;    /* cells whose `external` is a name */
    uint8_t len;       /* cells; 0 in a free node, whose `next` is the next free one */
    uint8_t cap_log2;  /* of holders on the heap */
    uint64_t local[TREE_CELLS];
    uint64_t external[TREE_CELLS];
};

struct tree_segment {
    struct list open;    /* among those with room */
    uint32_t first;      /* number of nodes[0] */
    uint32_t first_free; /* 0 = none */
    uint32_t n_touched;  /* nodes behind have never been used, nor has their memory */
    uint32_t n_live;
    char fill[TREE_LINE - sizeof(struct list) - 4 * sizeof(uint32_t)]; /* nodes begin lines */
    struct tree_node nodes[TREE_SEGMENT_NODES];
};

struct prefix_tree {
    struct kv_mem mem; /* for all that the index grows */
    struct tree_segment **segments;
    uint32_t n_segments, cap_segments;
    struct list open;
    struct edge_table edges;   /* (position, local hash) -> node */
    struct map32 branch_count; /* position -> edges below it */
    struct name_table names;
    size_t n_cells; /* without the root */
    uint32_t generation;
};

/* The root's segment is there whatever @limit (bytes) says. */
void prefix_tree_init(struct prefix_tree *t, size_t limit);
void prefix_tree_done(struct prefix_tree *t);
/* Position of the block below @position, 0 when there is none. */
uint32_t prefix_tree_child(const struct prefix_tree *t, uint32_t position, uint64_t local);
/*
 * Likewise, made if missing; 0 when there is no memory. Somebody is marked as its holder before
 * anything is cleared, or else prefix_tree_trim() takes it back.
 */
MUST_CHECK uint32_t prefix_tree_need_child(struct prefix_tree *t, uint32_t position,
                                           uint64_t local);
/*
 * Makes blocks that are new to all, with their names, behind the last cell of a node. Returns how
 * many: fewer where the node ends, something else might have the name, or memory is gone. Each asks
 * for the places of the names that come TREE_AHEAD and TREE_SOON later, of the @n_all that there are:
 * asked for at once, so many would wait for each other.
 */
uint32_t prefix_tree_append(struct prefix_tree *t, uint32_t position,
                            const struct prefix_block *blocks, size_t n, size_t n_all);
/* Drops cells at the node's end that nothing needs, and upwards whatever only led to them. */
void prefix_tree_trim(struct prefix_tree *t, uint32_t node);
/* The position that has the name, 0 when none has. */
uint32_t prefix_tree_named(const struct prefix_tree *t, uint64_t external);
/* Names a cell that has no name; no other cell has this one. False when there is no memory. */
MUST_CHECK bool prefix_tree_name(struct prefix_tree *t, uint32_t position, uint64_t external);
/* Cells of the node that the slot holds; if there are some, *ret_place is what came with them. */
uint32_t prefix_tree_mask(const struct prefix_tree *t, uint32_t node, uint32_t slot,
                          uint32_t *ret_place);
/* Makes room for one more holder; false when there is no memory. */
MUST_CHECK bool prefix_tree_reserve_holder(struct prefix_tree *t, uint32_t node);
/* Cells for a slot that has none; room was reserved. */
void prefix_tree_add_holder(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells,
                            uint32_t place);
/* More cells for a slot that has some. */
void prefix_tree_mark(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells);
void prefix_tree_move_place(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t place);
/*
 * Takes from them, and frees what then holds nothing, upwards as far as need be. Returns what the
 * slot still holds of the node.
 */
uint32_t prefix_tree_clear(struct prefix_tree *t, uint32_t node, uint32_t slot, uint32_t cells);
/* prefix_index_match(). Notes at the end of what matches that it was used: to note it all along the way
 * would take from other threads the lines that they are about to read. */
size_t prefix_tree_match(const struct prefix_tree *t, const uint64_t *local, size_t n,
                         uint32_t *ret_scores, size_t n_slots);
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

/* NULL when there is no such node now. */
static inline struct tree_node *tree_node_if_live(const struct prefix_tree *t, uint32_t id)
{
    uint32_t i = id / TREE_SEGMENT_NODES, k = id % TREE_SEGMENT_NODES;
    struct tree_segment *seg = i < t->n_segments ? t->segments[i] : NULL;

    return seg && k < seg->n_touched && seg->nodes[k].len ? &seg->nodes[k] : NULL;
}

static inline uint32_t *tree_holders(struct tree_node *n)
{
    return n->cap_log2 ? n->heap : n->here;
}

static inline uint32_t *tree_places(struct tree_node *n)
{
    return n->cap_log2 ? n->heap + ((size_t)1 << n->cap_log2) : n->here + TREE_INLINE_HOLDERS;
}

/* Readers do this at the same time, hence the atomics; the value is a hint. */
static inline void tree_node_use(struct tree_node *n, uint32_t generation)
{
    if (__atomic_load_n(&n->used, __ATOMIC_RELAXED) != generation)
        __atomic_store_n(&n->used, generation, __ATOMIC_RELAXED);
}

/*
 * A long prompt lies in nodes that were mostly made one after the other, and have numbers that follow
 * each other: whoever walks it asks memory for the one so many numbers on. To ask for the next alone,
 * which is sure, would be too late.
 */
static inline const struct tree_node *tree_node_ahead(const struct prefix_tree *t, uint32_t id)
{
    uint32_t room = TREE_SEGMENT_NODES - 1 - id % TREE_SEGMENT_NODES;

    return tree_node(t, id) + MIN(room, (uint32_t)TREE_NODES_AHEAD);
}

/* Ask memory for a node's head, and its hashes or its names. Macros as NAME_TABLE_PREFETCH() is. */
#define TREE_PREFETCH_LOCAL(node)                                                                  \
    do {                                                                                           \
        __builtin_prefetch(node);                                                                  \
        for (uint32_t ahead = 0; ahead < TREE_CELLS; ahead += 8)                                   \
            __builtin_prefetch(&(node)->local[ahead]);                                             \
    } while (0)

#define TREE_PREFETCH_NAMES(node)                                                                  \
    do {                                                                                           \
        __builtin_prefetch((node), 1);                                                             \
        for (uint32_t ahead = 0; ahead < TREE_CELLS; ahead += 8)                                   \
            __builtin_prefetch(&(node)->external[ahead], 1);                                       \
    } while (0)
