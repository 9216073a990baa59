/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cost of the reference, 1.x (router.md §4.8): cached blocks are credited by tier, the credit decays
 * on workers with more prompt tokens to compute than the least loaded one, and running requests may
 * have a price of their own.
 */
#include "router/sched/policy_inner.h"

#include <inttypes.h>

enum {
    ADJUSTED_PREFILL_BLOCKS,
    DECODE_BLOCKS,
    ACTIVE_REQUEST_COST,
    RAW_PREFILL_BLOCKS,
    OVERLAP_CREDIT,
    CREDIT_DECAY
};

static double decay_of(const struct route_candidate *c, const struct policy_inputs *in)
{
    uint32_t request_blocks = (in->isl + in->block_size - 1) / in->block_size;
    double excess;

    if (!in->track_prefill_tokens || c->prefill_tokens <= in->min_prefill_tokens)
        return 1;
    excess = (double)(c->prefill_tokens - in->min_prefill_tokens) / in->block_size;
    return 1 / (1 + in->credit_decay * (excess / MAX(request_blocks, 1u)));
}

/* As in 1.6.1, which does not ask about the cache where those of workers count for nothing. */
static double shared_cache(const struct route_candidate *c, const struct policy_inputs *in)
{
    return in->overlap_credit > 0 ? in->shared_weight * c->shared_blocks : 0;
}

static double slower_tiers(const struct route_candidate *c, const struct policy_inputs *in)
{
    return in->host_weight * c->host_blocks + in->disk_weight * c->disk_blocks;
}

/* A decode worker whose prompts are computed elsewhere: its cache is set against its load. */
static bool is_credit_against_load(const struct policy_inputs *in)
{
    return !in->track_prefill_tokens && in->overlap_credit > 0;
}

static void score_one(const struct route_candidate *c, const struct policy_inputs *in,
                      struct route_score *ret)
{
    double *t = ret->terms;

    t[CREDIT_DECAY] = decay_of(c, in);
    t[OVERLAP_CREDIT] = in->overlap_credit * t[CREDIT_DECAY] * (c->overlap_blocks * c->confidence) +
                        slower_tiers(c, in) + shared_cache(c, in);
    t[RAW_PREFILL_BLOCKS] =
        in->track_prefill_tokens ? (double)(c->prefill_tokens + in->isl) / in->block_size : 0;
    t[ADJUSTED_PREFILL_BLOCKS] = MAX(0, t[RAW_PREFILL_BLOCKS] - t[OVERLAP_CREDIT]);
    t[DECODE_BLOCKS] = (double)(c->active_blocks + c->new_blocks);
    t[ACTIVE_REQUEST_COST] = in->active_request_weight * c->requests;
    if (is_credit_against_load(in))
        ret->logit = MAX(0, t[DECODE_BLOCKS] - t[OVERLAP_CREDIT]) + t[ACTIVE_REQUEST_COST];
    else
        ret->logit = in->prefill_load_scale * t[ADJUSTED_PREFILL_BLOCKS] + t[DECODE_BLOCKS] +
                     t[ACTIVE_REQUEST_COST];
    ret->logit *= policy_preference(c);
}

static void score(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret)
{
    for (size_t i = 0; i < n; i++)
        score_one(&candidates[i], in, &ret[i]);
}

static void put(const struct route_candidate *c, const struct route_score *s,
                const struct policy_inputs *in, struct buf *out)
{
    const double *t = s->terms;

    policy_put_head(c, out);
    buf_printf(out, "%.2f effective cached blocks: %.3f = ", policy_effective_blocks(c, in),
               s->logit);
    if (is_credit_against_load(in))
        buf_printf(out,
                   "max(0, decode_blocks - overlap_credit_blocks) + active_request_cost_blocks = "
                   "max(0, %.3f - %.3f) + %.3f",
                   t[DECODE_BLOCKS], t[OVERLAP_CREDIT], t[ACTIVE_REQUEST_COST]);
    else
        buf_printf(out,
                   "prefill_load_scale * adjusted_prefill_blocks + decode_blocks + "
                   "active_request_cost_blocks = %.3f * %.3f + %.3f + %.3f (raw_prefill_blocks: "
                   "%.3f, overlap_credit_blocks: %.3f, overlap_credit_decay: %.3f)",
                   in->prefill_load_scale, t[ADJUSTED_PREFILL_BLOCKS], t[DECODE_BLOCKS],
                   t[ACTIVE_REQUEST_COST], t[RAW_PREFILL_BLOCKS], t[OVERLAP_CREDIT],
                   t[CREDIT_DECAY]);
    if (in->shared_weight > 0)
        buf_printf(out, " (%.3f of the overlap_credit_blocks in the shared cache)",
                   shared_cache(c, in));
    policy_put_preference(c, out);
}

const struct policy POLICY_DYNAMO_1 = {.name = "dynamo-1.x",
                                       .terms = {"adjusted_prefill_blocks", "decode_blocks",
                                                 "active_request_cost_blocks", "raw_prefill_blocks",
                                                 "overlap_credit_blocks", "overlap_credit_decay"},
                                       .score = score,
                                       .pick = policy_pick_lowest,
                                       .follows = policy_lowest_follows,
                                       .tie_note = POLICY_TIE_NOTE,
                                       .counts_tiers = true,
                                       .counts_shared = true,
                                       .put = put};
