/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Why this worker?": one routing decision as a value of fixed size, which outlives the request.
 *
 * Holds all that the policy saw and made of it, so that the same policy gives the same scores and
 * the same pick again, bit for bit, and another one can be asked what it would have done; then who
 * could not be chosen and why, what shadow policies would have chosen, and later how it went. What
 * does not fit is counted: of more than DECISION_CANDIDATES_MAX candidates the chosen one and those
 * with the lowest scores are kept. No prompt, no token, no pointer but to static policies.
 *
 * GET /explain, GET /decisions and recorded files come from it. Pure.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/str.h"
#include "router/sched/route_decision.h"
#include "router/sched/scheduler.h"

enum {
    DECISION_CANDIDATES_MAX = 32,
    DECISION_REJECTED_MAX = 16,
    DECISION_SHADOWS_MAX = 8,
    DECISION_ID_SIZE = 40, /* a request id is a UUID */
    DECISION_TYPE_SIZE = 16,
    DECISION_MODEL_SIZE = 96, /* longer names are cut */
};
#define DECISION_UNKNOWN UINT64_MAX /* of a number that nobody told */
#define DECISION_NONE UINT32_MAX    /* of an index */

/* How the request ended, on the worker that was chosen. */
enum decision_end {
    DECISION_RUNNING,
    DECISION_FINISHED,
    DECISION_FAILED,      /* the client got an error */
    DECISION_RETRIED,     /* the worker failed before its first token; another decision followed */
    DECISION_CLIENT_GONE, /* the client left */
    DECISION_NOT_SENT,    /* nobody could be chosen, or the choice was only asked for */
};

/* What said what is cached where. */
enum decision_index {
    DECISION_INDEX_OWN,
    DECISION_INDEX_REMOTE, /* the router that keeps the index */
    DECISION_INDEX_LOST,   /* it should have, and did not: this router went by its own placements */
};

struct decision_outcome {
    enum decision_end ended;
    uint64_t cached_tokens; /* that the engine reported; DECISION_UNKNOWN */
    uint64_t output_tokens;
    double ttft_ms, duration_ms; /* since the request came; NAN */
};

struct decision_candidate {
    struct route_candidate seen;
    struct route_score score;
};

/* What a policy without effect would have done with the same candidates. */
struct decision_shadow {
    const struct policy *policy;
    struct worker_rank pick;
    double pick_logit, chosen_logit; /* its own scores of its pick and of the worker chosen */
};

struct decision_record {
    uint64_t seq;     /* given by the ring, from 1 */
    uint64_t time_ms; /* since the epoch */
    char request_id[DECISION_ID_SIZE];
    char model[DECISION_MODEL_SIZE];
    char worker_type[DECISION_TYPE_SIZE]; /* "decode" or "prefill" */
    uint32_t attempt;                     /* 1, and more after failures before the first token */
    int result;                           /* 0 or the outcome of scheduler_route() */
    enum route_mode mode;
    const struct policy *policy;
    struct policy_inputs inputs;
    bool pinned, query_only;
    enum decision_index index;
    struct policy_pick pick; /* among all candidates, those that were not kept included */
    uint32_t isl_blocks;
    uint32_t chosen, runner_up; /* indices of candidates, or DECISION_NONE */
    uint32_t other;             /* that of pick.other; = chosen where there is none */
    double margin;              /* score of the runner-up less that of the chosen; NAN without */
    uint64_t index_age_ms;      /* since the last KV event of the chosen; DECISION_UNKNOWN */
    uint64_t predicted_cached_tokens;
    struct decision_outcome outcome;
    uint32_t n_candidates, more_candidates, n_rejected, more_rejected, n_shadows;
    struct decision_shadow shadows[DECISION_SHADOWS_MAX];
    struct route_rejection rejected[DECISION_REJECTED_MAX];
    struct decision_candidate candidates[DECISION_CANDIDATES_MAX]; /* by slot, as gathered */
};

/* What the decision itself does not know. */
struct decision_context {
    struct str model;
    const char *worker_type;
    uint32_t attempt;
    uint64_t time_ms, index_age_ms;
};

/* Fills all but seq. @result as scheduler_route() gave it. */
void decision_record_fill(struct decision_record *ret, const struct route_request *q,
                          const struct route_decision *d, int result,
                          const struct decision_context *context);
static inline const struct decision_candidate *decision_chosen(const struct decision_record *r)
{
    return r->chosen == DECISION_NONE ? NULL : &r->candidates[r->chosen];
}

/* A few lines for a person; the first is one sentence that says why. */
void decision_record_put_text(struct buf *out, const struct decision_record *r);

const char *decision_result_word(int result); /* "chosen", "no-workers" … */
const char *decision_end_word(enum decision_end end);
const char *decision_index_word(enum decision_index index); /* "own", "remote", "remote-lost" */
