/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of what is seen of a prompt: one of N blocks, and two workers that may hold some of them.
 */
#pragma once

#include "lib/base/test.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"

enum { BLOCK = 4, N = 10, MS = 1000000 };
static const struct worker_rank ONE = {1, 0}, TWO = {2, 0};

static uint64_t local[N], sequence[N];

/* Workers 1 and 2, which hold nothing yet. */
static inline struct scheduler *with_workers(const struct route_conf *conf)
{
    struct scheduler *s = scheduler_new(BLOCK, conf);

    for (size_t i = 0; i < N; i++) {
        local[i] = 100 + i;
        sequence[i] = 200 + i;
    }
    for (uint64_t id = 1; id <= 2; id++)
        assert_true(scheduler_put_worker(s, &(struct worker_info){.worker_id = id, .dp_size = 1}));
    return s;
}

/* Blocks [first, end) of the prompt, in names of the worker's own. @tier < 0: on the device. */
static inline void hold(struct scheduler *s, struct worker_rank w, int tier, size_t first,
                        size_t end)
{
    struct prefix_block blocks[N];
    uint64_t parent = 1000 * w.worker_id + first - 1;

    for (size_t i = first; i < end; i++)
        blocks[i - first] = (struct prefix_block){1000 * w.worker_id + i, local[i]};
    if (tier >= 0)
        scheduler_tier_store(s, w, (enum cache_tier)tier, first ? &parent : NULL, blocks,
                             end - first);
    else
        assert_int_equal(scheduler_store(s, w, first ? &parent : NULL, blocks, end - first), 0);
}
