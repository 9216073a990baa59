/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/policy.h"

#include <math.h>

double policy_unit(uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53;
}

void policy_kv_score(struct route_candidate *candidates, size_t n, double overlap_weight)
{
    for (size_t i = 0; i < n; i++) {
        struct route_candidate *c = &candidates[i];

        c->logit = overlap_weight * c->prefill_blocks + c->decode_blocks;
    }
}

struct range {
    double min, max;
};

static struct range logit_range(const struct route_candidate *candidates, size_t n)
{
    struct range r = {candidates[0].logit, candidates[0].logit};

    for (size_t i = 1; i < n; i++) {
        r.min = MIN(r.min, candidates[i].logit);
        r.max = MAX(r.max, candidates[i].logit);
    }
    return r;
}

static size_t pick_lowest(const struct route_candidate *candidates, size_t n, uint64_t random,
                          bool *ret_tied)
{
    double lowest = logit_range(candidates, n).min;
    uint64_t smallest = UINT64_MAX;
    size_t n_lowest = 0, n_best = 0, nth;

    for (size_t i = 0; i < n; i++) {
        if (candidates[i].logit != lowest)
            continue;
        n_lowest++;
        if (candidates[i].tree_size < smallest) {
            smallest = candidates[i].tree_size;
            n_best = 0;
        }
        n_best += candidates[i].tree_size == smallest;
    }
    *ret_tied = n_lowest > 1;

    nth = (size_t)(policy_unit(random) * (double)n_best);
    for (size_t i = 0; i < n; i++)
        if (candidates[i].logit == lowest && candidates[i].tree_size == smallest && nth-- == 0)
            return i;
    return 0;
}

static double weight_of(const struct route_candidate *c, struct range r, double temperature)
{
    /* Shifted so that the best has exponent 0: nothing overflows. */
    return exp((r.min - c->logit) / (r.max - r.min) / temperature);
}

static size_t pick_softmax(const struct route_candidate *candidates, size_t n, double temperature,
                           uint64_t random)
{
    struct range r = logit_range(candidates, n);
    double u = policy_unit(random), sum = 0, reached = 0;

    if (r.max == r.min)
        return (size_t)(u * (double)n);
    for (size_t i = 0; i < n; i++)
        sum += weight_of(&candidates[i], r, temperature);
    for (size_t i = 0; i < n; i++) {
        reached += weight_of(&candidates[i], r, temperature) / sum;
        if (reached >= u)
            return i;
    }
    return n - 1;
}

size_t policy_kv_pick(const struct route_candidate *candidates, size_t n, double temperature,
                      uint64_t random, bool *ret_tied)
{
    *ret_tied = false;
    if (temperature > 0)
        return pick_softmax(candidates, n, temperature, random);
    return pick_lowest(candidates, n, random, ret_tied);
}
