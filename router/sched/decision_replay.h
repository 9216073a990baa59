/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a policy makes of a recorded decision: the same again, or another one. Pure.
 */
#pragma once

#include "router/sched/decision_record.h"

struct decision_replay {
    struct route_score scores[DECISION_CANDIDATES_MAX]; /* one per candidate of the record */
    uint32_t pick;
    bool tied;
};

/* @policy with @in over the candidates of @r, which has some. */
void decision_replay(const struct decision_record *r, const struct policy *policy,
                     const struct policy_inputs *in, struct decision_replay *ret);

enum decision_verdict {
    DECISION_SAME,       /* bit-equal scores and terms, same pick */
    DECISION_INCOMPLETE, /* bit-equal scores and terms; of an older record, that does not tell how the
                            pick came about among more candidates than it holds */
    DECISION_SCORES_DIFFER,
    DECISION_PICK_DIFFERS,
};
/* The record's own policy with its own inputs. */
enum decision_verdict decision_verify(const struct decision_record *r, struct decision_replay *ret);

/*
 * Asks @policy about all candidates of @d without effect and notes its pick in @r, unless @r is full
 * of shadows or nobody was chosen. It gets the random bits of the decision; its turn is the record's
 * number. @scratch has room for d->n_candidates scores. Returns what it noted, or NULL.
 */
const struct decision_shadow *decision_shadow(struct decision_record *r,
                                              const struct route_decision *d,
                                              const struct policy *policy,
                                              struct route_score *scratch);
