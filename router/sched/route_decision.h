/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of one decision: who could be chosen and why the others could not, what was known of
 * each, what the policy made of it, and the choice. Trace lines are printed from it and from nothing
 * else: what a user reads is what was computed.
 */
#pragma once

#include "lib/base/mem.h"
#include "router/sched/policy.h"

/* Why a worker was not a candidate. */
enum route_reject {
    ROUTE_REJECT_FAILED,     /* it failed this request, or somebody's a moment ago */
    ROUTE_REJECT_BUSY,       /* it is over a busy threshold */
    ROUTE_REJECT_NOT_PINNED, /* the request names another one */
    ROUTE_REJECT_TAINT,      /* it lacks a taint that the request requires */
    ROUTE_REJECT_SESSION,    /* the session is bound to another one, which may be chosen */
};
const char *route_reject_word(enum route_reject why);

struct route_rejection {
    struct worker_rank worker;
    enum route_reject why;
};

struct route_decision {
    enum route_mode mode;
    const struct policy *policy;
    struct policy_inputs inputs;
    struct route_candidate *candidates; /* owned, like the two below */
    struct route_score *scores;         /* one per candidate */
    struct route_rejection *rejections;
    size_t n_candidates, cap_candidates, n_rejections, cap_rejections;
    size_t chosen; /* index into candidates */
    struct policy_pick pick;
    uint32_t isl_blocks;            /* blocks of the prompt, rounded up */
    uint64_t match_ns;              /* that the index took, by the request's clock */
    uint64_t shared_ns;             /* that a look-up in the shared cache took, by who did it */
    bool shared_asked;              /* a cache that all share was looked at, */
    uint32_t n_pages, shared_pages; /* for so many pages of the prompt; those that it holds */
    uint64_t match_at_ns;           /* when it was asked */
};

void route_decision_done(struct route_decision *d);
DEFINE_CLEANUP_EMBEDDED(struct route_decision, route_decision_done)

/*
 * The reference's trace lines, bit for bit: one "Formula for …" per candidate (kv mode), the tie
 * note, and "Selected worker: …". @line is called for each, in order.
 */
void route_decision_trace(const struct route_decision *d, void (*line)(void *arg, struct str text),
                          void *arg);
