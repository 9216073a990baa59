/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the prefix index share. Everything here needs the lock. */
#pragma once

#include "router/kv/alias_table.h"
#include "router/kv/node_list.h"
#include "router/kv/prefix_index.h"
#include "router/kv/prefix_tree.h"
#include "router/kv/turn_lock.h"

enum { HELD_CHUNK = 256 /* slots */ };

#define PLACE_NONE UINT32_MAX

/* What one worker holds. */
struct held {
    struct node_list nodes; /* where it holds blocks */
    size_t n_entries;       /* written under the lock, read without */
    size_t n_aliases;
    uint32_t cursor; /* position that it stored or removed last, where it will likely go on */
    bool evicted;    /* the budget took blocks of it */
};

struct prefix_index {
    struct turn_lock lock;
    struct prefix_tree tree;
    struct alias_table aliases;
    struct held *held[TREE_SLOTS_MAX / HELD_CHUNK]; /* made when needed, stay until the end */
    uint32_t hand;                                  /* node where eviction looks next */
    struct prefix_stats counts;
};

/*
 * One event of one worker. Its cells in one node are gathered while it stays there, so that it
 * searches the holders once for up to 16 blocks.
 */
struct touch {
    struct prefix_index *ix;
    struct held *held;
    uint32_t slot;
    bool clearing;
    uint32_t node;  /* TREE_ROOT = none */
    uint32_t place; /* of the node in the worker's list, or PLACE_NONE */
    uint32_t mask;  /* cells that the worker holds, */
    uint32_t named; /* those of them that it knows by their name, */
    uint32_t alias; /* and the chain of its aliases */
    uint32_t cells; /* to mark or to clear */
};

/* NULL when the worker never held anything. */
struct held *held_if_any(const struct prefix_index *ix, uint32_t slot);
struct held *held_by(struct prefix_index *ix, uint32_t slot);
/* The cells that the worker knows by their names, of the @mask that it holds at its place. */
uint32_t held_named(const struct prefix_index *ix, const struct node_place *at, uint32_t mask);
/* What is gathered takes effect, and what is known of the node is looked up anew. */
void touch_leave(struct touch *t);
/* What is gathered from now on is of this node, and needs no more memory; false when there is none. */
bool touch_enter_to_mark(struct touch *t, uint32_t node);
/*
 * Notes that the worker calls the block at @position, in the node that was entered, @external; an
 * older meaning of that hash ends. 0, -ENOMEM or PREFIX_FULL.
 */
int touch_note(struct touch *t, uint64_t external, uint32_t position);
