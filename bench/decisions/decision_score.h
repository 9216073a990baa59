/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recorded decisions asked again: does each policy still give what it gave, and what would another
 * one, or other weights, have done?
 *
 * Each decision stands alone: its candidates are as they were recorded, not as they would have
 * become had other workers been chosen before. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "router/kv/worker_table.h"
#include "router/sched/decision_record.h"

/* What is changed; NULL and NAN keep what was recorded. */
struct decision_question {
    const struct policy *policy;
    double overlap_weight, temperature;
};

struct decision_share {
    struct worker_rank worker;
    uint64_t recorded, replayed;
};

/* Embedded by value; decision_score_init(), decision_score_done(). */
struct decision_score {
    struct decision_question question;
    uint64_t decisions, same, incomplete, scores_differ, picks_differ; /* the first is the sum */
    uint64_t nobody;           /* records without a choice */
    uint64_t overwritten;      /* that the file says it lacks */
    uint64_t first_difference; /* number of that record, 0 = none */
    uint64_t agreements, blocks, hits_recorded, hits_replayed;
    double regret_recorded; /* recorded policy's scores of the picks less those of the chosen */
    double regret_replayed; /* asked policy's scores of the chosen less those of its picks */
    struct worker_table *workers;
    struct decision_share *shares; /* by slot of `workers` */
    size_t n_shares;
};

void decision_score_init(struct decision_score *s, const struct decision_question *question);
void decision_score_done(struct decision_score *s);
DEFINE_CLEANUP_EMBEDDED(struct decision_score, decision_score_done)
void decision_score_add(struct decision_score *s, const struct decision_record *r);
/* Whether every record gave again what it had given. */
bool decision_score_is_exact(const struct decision_score *s);
void decision_score_print(const struct decision_score *s, FILE *out);
void decision_score_put_json(const struct decision_score *s, struct buf *out);
