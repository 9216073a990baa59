/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing policies: pure functions over the candidates of one decision.
 */
#pragma once

#include "router/sched/scheduler.h"

/*
 * Cost of the reference, 0.9.0 (router.md §4.2): fills logit of every candidate from its
 * prefill_blocks and decode_blocks. Lower is better.
 */
void policy_kv_score(struct route_candidate *candidates, size_t n, double overlap_weight);

/*
 * Temperature 0: the lowest logit; ties go to the smaller tree, then to chance. *ret_tied says that
 * the lowest logit was shared. Temperature T > 0: one draw from softmax(-logit / (max - min) / T),
 * uniform where all logits are equal. @random: 64 fresh bits. @n >= 1.
 */
size_t policy_kv_pick(const struct route_candidate *candidates, size_t n, double temperature,
                      uint64_t random, bool *ret_tied);
/* 53 bits of @random as a number in [0, 1). */
double policy_unit(uint64_t random);
