/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two-tier rule of 1.6.1 (dynamo-two-tier-cost-fn): the fewest running requests among those that
 * count. All do while load is very uneven, and when nobody holds enough of the prompt; otherwise
 * those do that hold the most of it on their device. Load, tiers below the device and preferred
 * taints have no other part in it.
 */
#include "router/sched/policy_inner.h"

enum { REQUESTS, OUT_OF_REACH };

/* Both have to hold: uneven in requests, and as a quotient. */
static bool is_uneven(const struct policy_inputs *in)
{
    return in->max_requests > in->min_requests &&
           in->max_requests - in->min_requests > in->two_tier.balance_abs_threshold &&
           in->max_requests > in->two_tier.balance_rel_threshold * in->min_requests;
}

static bool goes_by_cache(const struct policy_inputs *in)
{
    uint32_t request_blocks = in->isl / in->block_size + (in->isl % in->block_size != 0);

    return request_blocks > 0 && !is_uneven(in) &&
           in->most_cached / request_blocks > in->two_tier.cache_threshold;
}

static void score(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret)
{
    bool by_cache = goes_by_cache(in);

    for (size_t i = 0; i < n; i++) {
        bool counts = !by_cache || policy_cached_blocks(&candidates[i]) >= in->most_cached;

        ret[i].terms[REQUESTS] = candidates[i].requests;
        ret[i].terms[OUT_OF_REACH] = counts ? 0 : POLICY_OUT_OF_TURN;
        ret[i].logit = ret[i].terms[REQUESTS] + ret[i].terms[OUT_OF_REACH];
    }
}

static void put(const struct route_candidate *c, const struct route_score *s,
                const struct policy_inputs *in, struct buf *out)
{
    policy_put_head(c, out);
    buf_printf(out,
               "%.9g of %.9g cached blocks: %.9g = 1 * requests + out_of_reach = 1 * %.9g + %.9g "
               "(requests from %u to %u, by %s)",
               policy_cached_blocks(c), in->most_cached, s->logit, s->terms[REQUESTS],
               s->terms[OUT_OF_REACH], in->min_requests, in->max_requests,
               goes_by_cache(in) ? "cache" : "load");
}

const struct policy POLICY_TWO_TIER = {.name = "two-tier",
                                       .terms = {"requests", "out_of_reach"},
                                       .score = score,
                                       .pick = policy_pick_least,
                                       .follows = policy_least_follows,
                                       .put = put};
