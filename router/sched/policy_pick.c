/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lowest score, or a draw by scores: how costs become a pick, and whether a pick follows from
 * them.
 */
#include "router/sched/policy_inner.h"

#include "lib/base/portable_math.h"

uint32_t policy_draw_of(uint64_t random, size_t pool, struct policy_pick *ret)
{
    ret->pool = (uint32_t)pool;
    ret->nth = (uint32_t)policy_draw(random, pool);
    return ret->nth;
}

bool policy_draw_follows(uint64_t random, const struct policy_pick *pick, size_t n_before,
                         size_t n_all)
{
    return pick->pool >= n_all && pick->pool <= pick->n && pick->nth >= n_before &&
           pick->pool - pick->nth >= n_all - n_before &&
           pick->nth == policy_draw(random, pick->pool);
}

size_t policy_lowest(const struct route_score *scores, size_t n)
{
    double lowest = scores[0].logit; /* by itself: the next load must not wait for the last pick */
    size_t at = 0;

    for (size_t i = 1; i < n; i++)
        if (scores[i].logit < lowest) {
            lowest = scores[i].logit;
            at = i;
        }
    return at;
}

/* --- temperature 0 ----------------------------------------------------------------------------- */

/* Of those with the lowest score the smallest tree, and how many have it. */
static uint64_t smallest_tree(const struct route_candidate *candidates,
                              const struct route_score *scores, size_t n, double lowest,
                              size_t *ret_lowest, size_t *ret_best)
{
    uint64_t smallest = UINT64_MAX;
    size_t n_lowest = 0, n_best = 0;

    for (size_t i = 0; i < n; i++) {
        if (scores[i].logit != lowest)
            continue;
        n_lowest++;
        if (candidates[i].tree_size < smallest) {
            smallest = candidates[i].tree_size;
            n_best = 0;
        }
        n_best += candidates[i].tree_size == smallest;
    }
    *ret_lowest = n_lowest;
    *ret_best = n_best;
    return smallest;
}

static size_t pick_minimum(const struct route_candidate *candidates,
                           const struct route_score *scores, size_t n, uint64_t random,
                           struct policy_pick *ret)
{
    double lowest = scores[policy_lowest(scores, n)].logit;
    size_t n_lowest, n_best, nth;
    uint64_t smallest = smallest_tree(candidates, scores, n, lowest, &n_lowest, &n_best);

    ret->tied = n_lowest > 1;
    nth = policy_draw_of(random, n_best, ret);
    for (size_t i = 0; i < n; i++)
        if (scores[i].logit == lowest && candidates[i].tree_size == smallest && nth-- == 0)
            return i;
    return 0;
}

static bool minimum_follows(const struct policy_part *part, uint64_t random,
                            const struct policy_pick *pick)
{
    double lowest = part->scores[policy_lowest(part->scores, part->n)].logit;
    size_t n_lowest, n_best, n_before = 0;
    uint64_t smallest =
        smallest_tree(part->candidates, part->scores, part->n, lowest, &n_lowest, &n_best);

    for (size_t i = 0; i < part->chosen; i++)
        n_before += part->scores[i].logit == lowest && part->candidates[i].tree_size == smallest;
    return part->scores[part->chosen].logit == lowest &&
           part->candidates[part->chosen].tree_size == smallest &&
           policy_draw_follows(random, pick, n_before, n_best);
}

/* --- the same without a look at trees ---------------------------------------------------------- */

size_t policy_pick_least(const struct route_candidate *candidates, const struct route_score *scores,
                         size_t n, const struct policy_inputs *in, struct policy_pick *ret)
{
    double lowest = scores[policy_lowest(scores, n)].logit;
    size_t n_lowest = 0, nth;

    (void)candidates;
    for (size_t i = 0; i < n; i++)
        n_lowest += scores[i].logit == lowest;
    ret->tied = n_lowest > 1;
    nth = policy_draw_of(in->random, n_lowest, ret);
    for (size_t i = 0; i < n; i++)
        if (scores[i].logit == lowest && nth-- == 0)
            return i;
    return 0;
}

bool policy_least_follows(const struct policy_part *part, const struct policy_inputs *in,
                          const struct policy_pick *pick)
{
    double lowest = part->scores[policy_lowest(part->scores, part->n)].logit;
    size_t n_before = 0, n_lowest = 0;

    for (size_t i = 0; i < part->n; i++) {
        n_lowest += part->scores[i].logit == lowest;
        n_before += part->scores[i].logit == lowest && i < part->chosen;
    }
    return part->scores[part->chosen].logit == lowest &&
           policy_draw_follows(in->random, pick, n_before, n_lowest);
}

/* --- by weight --------------------------------------------------------------------------------- */

struct range {
    double min, max;
};

static double weight_of(const struct route_score *score, struct range r, double temperature)
{
    /* Shifted so that the best has exponent 0: nothing overflows. */
    return portable_exp((r.min - score->logit) / (r.max - r.min) / temperature);
}

static size_t pick_softmax(const struct route_score *scores, size_t n, double temperature,
                           uint64_t random, struct policy_pick *ret)
{
    struct range r = {scores[policy_lowest(scores, n)].logit, scores[0].logit};
    double u = policy_unit(random), reached = 0;

    for (size_t i = 1; i < n; i++)
        r.max = MAX(r.max, scores[i].logit);
    ret->highest = r.max;
    if (r.max == r.min)
        return policy_draw_of(random, n, ret);
    for (size_t i = 0; i < n; i++)
        ret->sum += weight_of(&scores[i], r, temperature);
    for (size_t i = 0; i < n; i++) {
        ret->before = reached;
        reached += weight_of(&scores[i], r, temperature) / ret->sum;
        if (reached >= u)
            return i;
    }
    return n - 1;
}

static bool softmax_follows(const struct policy_part *part, double temperature, uint64_t random,
                            const struct policy_pick *pick)
{
    const struct route_score *chosen = &part->scores[part->chosen];
    struct range r = {part->scores[policy_lowest(part->scores, part->n)].logit, pick->highest};
    double u = policy_unit(random);

    if (r.max == r.min)
        return policy_draw_follows(random, pick, part->chosen, part->n) && pick->nth == pick->at;
    return r.max > r.min && pick->before < u + (pick->at == 0) &&
           (pick->before + weight_of(chosen, r, temperature) / pick->sum >= u ||
            pick->at + 1 == pick->n);
}

size_t policy_pick_lowest(const struct route_candidate *candidates,
                          const struct route_score *scores, size_t n,
                          const struct policy_inputs *in, struct policy_pick *ret)
{
    if (in->temperature > 0)
        return pick_softmax(scores, n, in->temperature, in->random, ret);
    return pick_minimum(candidates, scores, n, in->random, ret);
}

bool policy_lowest_follows(const struct policy_part *part, const struct policy_inputs *in,
                           const struct policy_pick *pick)
{
    if (in->temperature > 0)
        return softmax_follows(part, in->temperature, in->random, pick);
    return minimum_follows(part, in->random, pick);
}
