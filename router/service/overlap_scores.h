/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds how much of a prompt, tier by tier, as 1.6.1 tells it: the selection service over HTTP,
 * the stand-alone router at its endpoint get_overlap_scores. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/json_put.h"
#include "router/kv/shared_pages.h"
#include "router/sched/route_decision.h"

/* What is told of the cache that the workers share. */
struct overlap_shared {
    bool enabled;                   /* there may be one */
    const struct shared_hits *hits; /* by which @d was made; NULL = none */
};

/* One object: a row for each candidate of @d, blocks counted from the start of the prompt. */
void overlap_scores_put(struct json_put *j, uint32_t block_size, size_t n_blocks,
                        const struct overlap_shared *shared, const struct route_decision *d);
