/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What policies are made of: credits for what is cached, draws, picks by the lowest score, and parts of
 * a formula's line. For policies alone; all of it is pure.
 */
#pragma once

#include "router/sched/policy.h"

/* More than any number of requests, and still exact when one is added. */
#define POLICY_OUT_OF_TURN 1e9
/* Tokens of the prompt that the candidate holds, as far as that is believed. */
static inline double policy_cached_tokens(const struct route_candidate *c,
                                          const struct policy_inputs *in)
{
    return (double)((uint64_t)c->overlap_blocks * in->block_size) * c->confidence;
}
/* Blocks of the prompt that the candidate holds, those on slower tiers by what they are worth. */
static inline double policy_effective_blocks(const struct route_candidate *c,
                                             const struct policy_inputs *in)
{
    return c->overlap_blocks * c->confidence + in->host_weight * c->host_blocks +
           in->disk_weight * c->disk_blocks;
}
double policy_preference_factor(double sum);
/* Factor of the score for preferred taints: exp(-tanh(sum of weights)), 1 without any (router.md
 * §4.8). */
static inline double policy_preference(const struct route_candidate *c)
{
    return c->preference != 0 ? policy_preference_factor(c->preference) : 1;
}
/* Tells of that factor at the end of a formula line, where there is one. */
void policy_put_preference(const struct route_candidate *c, struct buf *out);
/* "Formula for worker_id=… dp_rank=… with " */
void policy_put_head(const struct route_candidate *c, struct buf *out);
/* 53 bits of @random as a number in [0, 1). */
double policy_unit(uint64_t random);
/* A number below @n, from @random. */
size_t policy_draw(uint64_t random, size_t n);
#define POLICY_TIE_NOTE "Multiple workers tied with same logit, using tree size as tie-breaker"
/*
 * Temperature 0: the lowest logit; ties go to the smaller tree, then to chance. Temperature T > 0:
 * one draw from softmax(-logit / (max - min) / T), uniform where all logits are equal (router.md
 * §4.2).
 */
size_t policy_pick_lowest(const struct route_candidate *candidates,
                          const struct route_score *scores, size_t n,
                          const struct policy_inputs *in, struct policy_pick *ret);
bool policy_lowest_follows(const struct policy_part *part, const struct policy_inputs *in,
                           const struct policy_pick *pick);
/* The lowest score whatever the temperature; ties go to chance. */
size_t policy_pick_least(const struct route_candidate *candidates, const struct route_score *scores,
                         size_t n, const struct policy_inputs *in, struct policy_pick *ret);
bool policy_least_follows(const struct policy_part *part, const struct policy_inputs *in,
                          const struct policy_pick *pick);
/* The index of the lowest score; the first of equals. */
size_t policy_lowest(const struct route_score *scores, size_t n);
/* A draw of one among @pool that are as good: noted in *ret. */
uint32_t policy_draw_of(uint64_t random, size_t pool, struct policy_pick *ret);
/* Whether that draw gave that: and there are @n_known of them before the chosen, @n_all in all. */
bool policy_draw_follows(uint64_t random, const struct policy_pick *pick, size_t n_before,
                         size_t n_all);
