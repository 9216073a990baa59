/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dense numbers for routing targets.
 *
 * A routing target is a worker (discovery instance id, u64) and a data-parallel rank; 0 where the
 * engine has no ranks. Index, tracker and policies keep plain arrays, so each target gets a small
 * number, its slot, which is given again to another target only after the first one has left.
 * Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

struct worker_table;

struct worker_rank {
    uint64_t worker_id;
    uint32_t dp_rank;
};
static inline bool worker_rank_eq(struct worker_rank a, struct worker_rank b)
{
    return a.worker_id == b.worker_id && a.dp_rank == b.dp_rank;
}
/* For maps. Ranks are few and small, so that different targets share a key only by bad luck. */
static inline uint64_t worker_rank_key(struct worker_rank w)
{
    return w.worker_id ^ (uint64_t)w.dp_rank * UINT64_C(0xD6E8FEB86659FD93);
}

enum { WORKER_SLOTS_MAX = 65536, WORKER_SLOT_NONE = UINT32_MAX };

struct worker_table *worker_table_new(void);
struct worker_table *worker_table_free(struct worker_table *t);
DEFINE_CLEANUP(struct worker_table *, worker_table_free)
/* The target's slot, given now if it is new. WORKER_SLOT_NONE when all slots are taken. */
uint32_t worker_table_add(struct worker_table *t, struct worker_rank w);
uint32_t worker_table_find(const struct worker_table *t, struct worker_rank w);
/* The slot becomes free; whoever keeps state under it has dropped that before. */
void worker_table_remove(struct worker_table *t, uint32_t slot);
/* One more than the highest slot in use: the size of arrays by slot. */
uint32_t worker_table_end(const struct worker_table *t);
/* False for a free slot. */
bool worker_table_get(const struct worker_table *t, uint32_t slot, struct worker_rank *ret);
