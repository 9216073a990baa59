/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/decision_replay.h"

#include <string.h>

static void score_all(const struct policy *policy, const struct route_candidate *candidates,
                      size_t n, const struct policy_inputs *in, struct route_score *ret)
{
    memset(ret, 0, n * sizeof(*ret));
    if (policy->score)
        policy->score(candidates, n, in, ret);
}

static void put_seen(const struct decision_record *r, struct route_candidate *ret)
{
    for (uint32_t i = 0; i < r->n_candidates; i++)
        ret[i] = r->candidates[i].seen;
}

void decision_replay(const struct decision_record *r, const struct policy *policy,
                     const struct policy_inputs *in, struct decision_replay *ret)
{
    struct route_candidate seen[DECISION_CANDIDATES_MAX];
    struct policy_pick pick;

    put_seen(r, seen);
    score_all(policy, seen, r->n_candidates, in, ret->scores);
    ret->pick = (uint32_t)policy_choose(policy, seen, ret->scores, r->n_candidates, in, &pick);
    ret->tied = pick.tied;
}

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static bool same_score(const struct policy *policy, const struct route_score *a,
                       const struct route_score *b)
{
    if (!same_bits(a->logit, b->logit))
        return false;
    for (size_t i = 0; i < POLICY_TERMS_MAX && policy->terms[i]; i++)
        if (!same_bits(a->terms[i], b->terms[i]))
            return false;
    return true;
}

/* Of more candidates than a record holds: whether the pick is right by what it tells of the others. */
static bool pick_follows(const struct decision_record *r, const struct route_score *scores)
{
    struct route_candidate seen[DECISION_CANDIDATES_MAX];
    const struct policy_part part = {seen, scores, r->n_candidates, r->chosen, r->other};

    put_seen(r, seen);
    return r->policy->follows(&part, &r->inputs, &r->pick);
}

enum decision_verdict decision_verify(const struct decision_record *r, struct decision_replay *ret)
{
    decision_replay(r, r->policy, &r->inputs, ret);
    for (uint32_t i = 0; i < r->n_candidates; i++)
        if (!same_score(r->policy, &ret->scores[i], &r->candidates[i].score))
            return DECISION_SCORES_DIFFER;
    if (r->more_candidates && r->pick.n != r->n_candidates + r->more_candidates)
        return DECISION_INCOMPLETE;
    if (r->more_candidates) {
        ret->pick = r->chosen;
        ret->tied = r->pick.tied;
        return pick_follows(r, ret->scores) ? DECISION_SAME : DECISION_PICK_DIFFERS;
    }
    return ret->pick == r->chosen ? DECISION_SAME : DECISION_PICK_DIFFERS;
}

const struct decision_shadow *decision_shadow(struct decision_record *r,
                                              const struct route_decision *d,
                                              const struct policy *policy,
                                              struct route_score *scratch)
{
    struct policy_inputs in = d->inputs;
    struct decision_shadow *shadow;
    struct policy_pick how;
    size_t pick;

    if (r->n_shadows == DECISION_SHADOWS_MAX || r->result != 0)
        return NULL;
    in.turn = r->seq;
    score_all(policy, d->candidates, d->n_candidates, &in, scratch);
    pick = policy_choose(policy, d->candidates, scratch, d->n_candidates, &in, &how);
    shadow = &r->shadows[r->n_shadows++];
    *shadow = (struct decision_shadow){.policy = policy,
                                       .pick = d->candidates[pick].worker,
                                       .pick_logit = scratch[pick].logit,
                                       .chosen_logit = scratch[d->chosen].logit};
    return shadow;
}
