/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that a worker does not call by their name in the tree.
 *
 * Engines mostly agree on hashes, or hold blocks that nobody else does; then the tree's names are
 * enough. Where they disagree (hash seeds of their own), where a worker knows one block by several
 * hashes, or one hash means different blocks to different workers, the hash is an alias. Aliases
 * lie in runs, each for one worker and one node, as names lie in nodes; the runs of the same worker
 * and node form a chain, whose head the caller keeps (0 = none). Several are needed only where a
 * block has several aliases.
 *
 * A reference is run × 16 + cell. Growth may fail, and nothing has changed then. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/kv/kv_mem.h"
#include "router/kv/name_table.h"

enum {
    ALIAS_CELLS = 16,
    ALIAS_RUNS_MAX = 16, /* of one worker and node */
    ALIAS_TOO_MANY = 1,
};

struct alias_run {
    uint32_t slot, node;
    uint32_t next;  /* in the chain; of free runs: the next free one */
    uint16_t cells; /* whose `external` is an alias; 0 in a free run */
    uint16_t named; /* of the head: cells that the worker knows by their name in the tree, too */
    uint64_t external[ALIAS_CELLS];
};

/* Embedded by value; zero-initialised is empty. */
struct alias_table {
    struct alias_run **segments;
    uint32_t n_segments, n_touched, first_free;
    struct name_table names; /* slot and external hash -> reference */
};

void alias_table_done(struct alias_table *t, struct kv_mem *mem);
/* 0 when the worker has no such alias. */
uint32_t alias_table_find(const struct alias_table *t, uint32_t slot, uint64_t external);
/*
 * The block gets an alias that the worker has not. *head is the chain; a chain that begins has
 * @named. 0, -ENOMEM, or ALIAS_TOO_MANY: the block has ALIAS_RUNS_MAX aliases.
 */
MUST_CHECK int alias_table_put(struct alias_table *t, struct kv_mem *mem, uint32_t *head,
                               const struct alias_run *of, uint32_t cell, uint64_t external);
/* Ends the alias at @reference, which is in the chain. */
void alias_table_drop(struct alias_table *t, struct kv_mem *mem, uint32_t *head,
                      uint32_t reference);
/* Cells that have aliases in the chain. */
uint32_t alias_table_cells(const struct alias_table *t, uint32_t head);
/* Asserts every invariant; O(size). For tests. */
void alias_table_check(const struct alias_table *t);

enum { ALIAS_SEGMENT_RUNS = 64 };

static inline struct alias_run *alias_run(const struct alias_table *t, uint32_t id)
{
    return &t->segments[id / ALIAS_SEGMENT_RUNS][id % ALIAS_SEGMENT_RUNS];
}
