/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy marginal: a request is charged for the work that it adds, times those who must wait for it.
 * The README has the rule and the reasons; it was found and measured in simulation.
 *
 *     J = slowness * (queued + new * (1 + 0.1 * requests))    own wait, and delay of those there
 *       + lifetime / S / c * softplus of the slots over S     price of a slot, near S = max_num_seqs
 *       + 16000 * (deviations above the mean - 0.5)²          price of a pile-up
 *
 * in tokens of prompt computation; one of those within 5 % of the lowest J is drawn.
 */
#include "router/sched/policy_inner.h"

#include <inttypes.h>
#include <math.h>

#include "lib/base/portable_math.h"

/* A second of stalled decoding against a second of waiting for the first token. */
static const double STALL = 0.1;
static const double NEAR_TIE = 0.05;
static const double KNEE_SLOTS = 2;         /* how softly the last slots become expensive */
static const double PILE_UP_TOKENS = 16000; /* per squared standard deviation … */
static const double PILE_UP_FREE = 0.5;     /* … above this one */

enum { SLOWNESS, QUEUED_TOKENS, NEW_TOKENS, REQUESTS, SLOT_PRICE, PILE_UP_PRICE };

/* At least one token: the engine computes something for every request. */
static double new_tokens(const struct route_candidate *c, const struct policy_inputs *in)
{
    double cached = floor(policy_cached_tokens(c, in));

    return in->isl - MIN(cached, (double)in->isl - 1);
}

/* ln(1 + e^over) of a decision's workers: many, with few different numbers of free slots. */
struct knee {
    double over[32], height[32];
};

static double knee_height(struct knee *k, double over)
{
    size_t at;

    if (over < -45)
        return 0; /* less than the last bit of one token */
    if (over > 30)
        return over;
    at = (size_t)((int64_t)(over * KNEE_SLOTS) & 31); /* one number of slots, one place */
    if (k->over[at] != over) {
        k->over[at] = over;
        k->height[at] = portable_log1p(portable_exp(over));
    }
    return k->height[at];
}

/* Expected wait for a slot, in tokens: nothing far below the limit, then rising a slot's lifetime
 * per request. */
static double slot_price(const struct route_candidate *c, const struct policy_inputs *in,
                         struct knee *knee)
{
    double slots = (double)c->max_num_seqs;

    if (c->max_num_seqs == 0)
        return 0;
    return c->lifetime / slots / in->seconds_per_token * KNEE_SLOTS *
           knee_height(knee, (c->requests + 1 - slots) / KNEE_SLOTS);
}

static double pile_up_price(const struct route_candidate *c, const struct policy_inputs *in,
                            double deviation)
{
    double z = (c->requests - in->mean_requests) / deviation - PILE_UP_FREE;

    return z > 0 ? PILE_UP_TOKENS * z * z : 0;
}

static void score(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret)
{
    /* Where prompts are computed elsewhere, or said to cost nothing, only slots are left to price;
     * one token each keeps the scores apart by requests. */
    bool prices_prompt = in->track_prefill_tokens && in->overlap_weight > 0;
    double deviation = sqrt(in->mean_requests + 1);
    struct knee knee;

    for (size_t i = 0; i < ARRAY_LEN(knee.over); i++)
        knee.over[i] = NAN;

    for (size_t i = 0; i < n; i++) {
        const struct route_candidate *c = &candidates[i];
        double *t = ret[i].terms;

        t[SLOWNESS] = c->slowness;
        t[QUEUED_TOKENS] = prices_prompt ? (double)c->queued_tokens : 0;
        t[NEW_TOKENS] = prices_prompt ? new_tokens(c, in) : 1;
        t[REQUESTS] = c->requests;
        t[SLOT_PRICE] = slot_price(c, in, &knee);
        t[PILE_UP_PRICE] = pile_up_price(c, in, deviation);
        ret[i].logit =
            (t[SLOWNESS] * (t[QUEUED_TOKENS] + t[NEW_TOKENS] * (1 + STALL * c->requests)) +
             t[SLOT_PRICE] + t[PILE_UP_PRICE]) *
            policy_preference(c);
    }
}

static size_t count_near(const struct route_score *scores, size_t n, double limit)
{
    size_t n_near = 0;

    for (size_t i = 0; i < n; i++)
        n_near += scores[i].logit <= limit;
    return n_near;
}

/* One of those within the band above the lowest: equal choices must not become a convoy. */
static size_t pick(const struct route_candidate *candidates, const struct route_score *scores,
                   size_t n, const struct policy_inputs *in, struct policy_pick *ret)
{
    double limit = scores[policy_lowest(scores, n)].logit * (1 + NEAR_TIE);
    size_t n_near = count_near(scores, n, limit), nth;

    (void)candidates;
    ret->tied = n_near > 1;
    nth = policy_draw_of(in->random, n_near, ret);
    for (size_t i = 0; i < n; i++)
        if (scores[i].logit <= limit && nth-- == 0)
            return i;
    return 0;
}

static bool follows(const struct policy_part *part, const struct policy_inputs *in,
                    const struct policy_pick *pick)
{
    double limit = part->scores[policy_lowest(part->scores, part->n)].logit * (1 + NEAR_TIE);

    return part->scores[part->chosen].logit <= limit &&
           policy_draw_follows(in->random, pick, count_near(part->scores, part->chosen, limit),
                               count_near(part->scores, part->n, limit));
}

static void put(const struct route_candidate *c, const struct route_score *s,
                const struct policy_inputs *in, struct buf *out)
{
    const double *t = s->terms;

    (void)in;
    policy_put_head(c, out);
    buf_printf(out,
               "%" PRIu32
               " cached blocks: %.3f = slowness * (queued_tokens + new_tokens * (1 + 0.1 "
               "* requests)) + slot_price + pile_up_price = %.9g * (%.0f + %.0f * (1 + 0.1 * %.0f))"
               " + %.3f + %.3f",
               c->overlap_blocks, s->logit, t[SLOWNESS], t[QUEUED_TOKENS], t[NEW_TOKENS],
               t[REQUESTS], t[SLOT_PRICE], t[PILE_UP_PRICE]);
    policy_put_preference(c, out);
}

const struct policy POLICY_MARGINAL = {
    .name = "marginal",
    .terms = {"slowness", "queued_tokens", "new_tokens", "requests", "slot_price", "pile_up_price"},
    .score = score,
    .pick = pick,
    .follows = follows,
    .tie_note = "Several workers within 5% of the lowest score, one drawn",
    .put = put};
