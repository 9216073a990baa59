/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a request would find a target with room: asked by the queue before the decision.
 */
#include "router/sched/scheduler_inner.h"

#include <math.h>

static const double BATCHED_TOKENS_DEFAULT = 1e7;

double scheduler_batched_tokens(const struct scheduler *s, uint32_t slot)
{
    uint64_t tokens = s->targets[slot].max_batched_tokens;

    return tokens ? (double)tokens : BATCHED_TOKENS_DEFAULT;
}

static bool is_full(const struct scheduler *s, uint32_t slot, const struct room_limit *limit)
{
    double active = (double)sequences_load(s->sequences, slot)->prefill_tokens;

    return (!isnan(limit->tokens) && active > limit->tokens) ||
           (!isnan(limit->share) && active > limit->share * scheduler_batched_tokens(s, slot));
}

bool scheduler_has_room(struct scheduler *s, const struct route_request *q,
                        const struct room_limit *limit)
{
    size_t n_full = 0;

    if (eligible_gather(s, q, &s->probe) != 0)
        return true;
    for (size_t i = 0; i < s->n_eligible; i++)
        n_full += is_full(s, s->eligible[i], limit);
    return (double)n_full < limit->ratio * (double)s->n_eligible;
}

uint64_t scheduler_best_cached(struct scheduler *s, const struct route_request *q)
{
    uint32_t most = 0;

    if (eligible_gather(s, q, &s->probe) != 0)
        return 0;
    scheduler_match_prompt(s, q);
    for (size_t i = 0; i < s->n_eligible; i++)
        most = MAX(most, s->scores[s->eligible[i]]);
    return MIN((uint64_t)most * s->block_size, (uint64_t)q->isl);
}
