/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The modes that do not look at caches (router.md §5).
 */
#include "router/sched/policy_inner.h"

static size_t pick_in_turn(const struct route_candidate *candidates,
                           const struct route_score *scores, size_t n,
                           const struct policy_inputs *in, struct policy_pick *ret)
{
    (void)candidates;
    (void)scores;
    (void)ret;
    return (size_t)(in->turn % n);
}

static bool turn_follows(const struct policy_part *part, const struct policy_inputs *in,
                         const struct policy_pick *pick)
{
    (void)part;
    return pick->at == in->turn % pick->n;
}

static size_t pick_random(const struct route_candidate *candidates,
                          const struct route_score *scores, size_t n,
                          const struct policy_inputs *in, struct policy_pick *ret)
{
    (void)candidates;
    (void)scores;
    return policy_draw_of(in->random, n, ret);
}

static bool random_follows(const struct policy_part *part, const struct policy_inputs *in,
                           const struct policy_pick *pick)
{
    return policy_draw_follows(in->random, pick, part->chosen, part->n) && pick->nth == pick->at;
}

/* --- fewest requests ---------------------------------------------------------------------------
 */

static void score_requests(const struct route_candidate *candidates, size_t n,
                           const struct policy_inputs *in, struct route_score *ret)
{
    (void)in;
    for (size_t i = 0; i < n; i++)
        ret[i].logit = ret[i].terms[0] = candidates[i].requests;
}

/* Two different ones by chance: half of the bits for each, 32 would do for @n. */
static void draw_two(uint64_t random, size_t n, size_t *ret_first, size_t *ret_second)
{
    *ret_first = policy_draw(random << 32, n);
    *ret_second = policy_draw(random >> 32 << 32, n - 1);
    *ret_second += *ret_second >= *ret_first;
}

/* The one with fewer requests, the first of the two when equal. */
static size_t pick_of_two(const struct route_candidate *candidates,
                          const struct route_score *scores, size_t n,
                          const struct policy_inputs *in, struct policy_pick *ret)
{
    size_t first, second;

    (void)candidates;
    if (n == 1)
        return 0;
    draw_two(in->random, n, &first, &second);
    ret->tied = scores[first].logit == scores[second].logit;
    ret->other = (uint32_t)(scores[second].logit < scores[first].logit ? first : second);
    return ret->other == first ? second : first;
}

static bool two_follow(const struct policy_part *part, const struct policy_inputs *in,
                       const struct policy_pick *pick)
{
    double chosen = part->scores[part->chosen].logit, other = part->scores[part->other].logit;
    size_t first, second;

    if (pick->n == 1)
        return pick->at == 0;
    draw_two(in->random, pick->n, &first, &second);
    if (pick->at == second)
        return pick->other == first && chosen < other;
    return pick->at == first && pick->other == second && chosen <= other;
}

/* --- fewest requests, on CPUs or on accelerators ------------------------------------------------
 */

static uint64_t product(uint64_t a, uint64_t b)
{
    uint64_t r;

    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* CPUs take their share of what runs on accelerators, rounded down: the first request of an idle
 * fleet goes to one of these. */
static bool is_turn_of_cpus(const struct policy_inputs *in)
{
    uint64_t share;

    if (in->cpus == 0 || in->accelerators == 0)
        return in->cpus > 0;
    share = product(in->accelerator_requests, in->cpus) /
            product(MAX(in->accelerator_ratio, UINT64_C(1)), in->accelerators);
    return in->cpu_requests < share;
}

static void score_device_requests(const struct route_candidate *candidates, size_t n,
                                  const struct policy_inputs *in, struct route_score *ret)
{
    bool cpus = is_turn_of_cpus(in);

    for (size_t i = 0; i < n; i++) {
        ret[i].terms[0] = candidates[i].requests;
        ret[i].terms[1] = candidates[i].on_cpu == cpus ? 0 : POLICY_OUT_OF_TURN;
        ret[i].logit = ret[i].terms[0] + ret[i].terms[1];
    }
}

const struct policy POLICY_ROUND_ROBIN = {
    .name = "round-robin", .pick = pick_in_turn, .follows = turn_follows};
const struct policy POLICY_RANDOM = {
    .name = "random", .pick = pick_random, .follows = random_follows};
const struct policy POLICY_POWER_OF_TWO = {.name = "power-of-two",
                                           .terms = {"requests"},
                                           .score = score_requests,
                                           .pick = pick_of_two,
                                           .follows = two_follow};
const struct policy POLICY_LEAST_LOADED = {.name = "least-loaded",
                                           .terms = {"requests"},
                                           .score = score_requests,
                                           .pick = policy_pick_least,
                                           .follows = policy_least_follows};
const struct policy POLICY_DEVICE_AWARE = {.name = "device-aware-weighted",
                                           .terms = {"requests", "out_of_turn"},
                                           .score = score_device_requests,
                                           .pick = policy_pick_least,
                                           .follows = policy_least_follows};
/* The request's pin leaves one candidate; the eligibility stage refuses requests without one. */
const struct policy POLICY_DIRECT = {
    .name = "direct", .pick = pick_random, .follows = random_follows};
