/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost of the reference, 0.9.0 (router.md §4.2).
 */
#include "router/sched/policy_inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { PREFILL_BLOCKS, DECODE_BLOCKS };

static void score(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret)
{
    for (size_t i = 0; i < n; i++) {
        const struct route_candidate *c = &candidates[i];
        double cached = policy_cached_tokens(c, in);
        double tokens = (double)c->prefill_tokens + (cached < in->isl ? in->isl - cached : 0);
        double prefill_blocks = tokens / in->block_size;
        double decode_blocks = (double)(c->active_blocks + c->new_blocks);

        ret[i].terms[PREFILL_BLOCKS] = prefill_blocks;
        ret[i].terms[DECODE_BLOCKS] = decode_blocks;
        ret[i].logit = (in->overlap_weight * prefill_blocks + decode_blocks) * policy_preference(c);
    }
}

/* One digit after the point like the reference, more only when the weight has more: the line must
 * compute. */
static const char *weight_text(double weight, char *out, size_t size)
{
    (void)snprintf(out, size, "%.1f", weight);
    if (strtod(out, NULL) != weight)
        (void)snprintf(out, size, "%.9g", weight);
    return out;
}

static void put(const struct route_candidate *c, const struct route_score *s,
                const struct policy_inputs *in, struct buf *out)
{
    char text[32];
    const char *weight = weight_text(in->overlap_weight, text, sizeof(text));

    policy_put_head(c, out);
    buf_printf(out,
               "%" PRIu32 " cached blocks: %.3f = %s * prefill_blocks + decode_blocks = %s * %.3f"
               " + %.3f",
               c->overlap_blocks, s->logit, weight, weight, s->terms[PREFILL_BLOCKS],
               s->terms[DECODE_BLOCKS]);
    policy_put_preference(c, out);
}

const struct policy POLICY_DYNAMO = {.name = "dynamo",
                                     .terms = {"prefill_blocks", "decode_blocks"},
                                     .score = score,
                                     .pick = policy_pick_lowest,
                                     .follows = policy_lowest_follows,
                                     .tie_note = POLICY_TIE_NOTE,
                                     .put = put};
