/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routing policies: pure functions from what is known of the eligible workers to one of them.
 *
 * The scheduler gathers a struct route_candidate per eligible target once per decision, plus one
 * struct policy_inputs that is the same for all of them. Both are plain values without pointers: any
 * number of policies can look at them, and a recorded decision gives the same scores and the same
 * pick again, bit for bit, on every machine (no library of mathematics, no contraction of floats).
 *
 *     score   fills one struct route_score per candidate; lower is better. Policies that only
 *             count (round-robin, random …) leave all of them 0
 *     pick    chooses, by the scores and by inputs->random
 *     put     the policy's own account of one candidate, the "Formula …" line: what it prints
 *             computes to the score
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/worker_table.h"
#include "router/sched/route_conf.h"

/* What is known of one eligible target when the decision is made, before it is booked. */
struct route_candidate {
    struct worker_rank worker;
    uint32_t slot;
    uint32_t overlap_blocks;           /* leading blocks cached on the device */
    uint32_t host_blocks, disk_blocks; /* those that go on in slower tiers */
    uint32_t new_blocks;               /* full blocks of this prompt that are not active there */
    uint32_t requests;                 /* running there, booked by us */
    uint64_t tree_size;                /* blocks that it holds; 0 without overlap */
    uint64_t prefill_tokens;           /* booked and not computed yet */
    uint64_t queued_tokens;            /* the same, at least one of each such request */
    uint64_t active_blocks;            /* distinct blocks of running requests */
    uint64_t max_num_seqs;             /* 0 = unknown */
    uint64_t total_kv_blocks;          /* 0 = unknown */
    double preference;                 /* sum of the weights of preferred taints that it has */
    double confidence;                 /* 0..1: how far its overlap is believed */
    double slowness, lifetime;         /* learned (learned.h): 1 = as the fleet; seconds */
    uint32_t shared_blocks;            /* behind overlap_blocks, in the cache that all share */
    bool on_cpu;                       /* its record says so; all others are accelerators */
};

/* What is the same for every candidate of one decision. */
struct policy_inputs {
    uint32_t block_size;
    uint32_t isl;    /* prompt tokens, >= 1 */
    uint64_t random; /* 64 fresh bits: all chance in a decision */
    uint64_t turn;   /* decisions made in turn before this one */
    /* Over the candidates. */
    double mean_requests;
    uint64_t min_prefill_tokens;
    uint32_t min_requests, max_requests;
    double most_cached;          /* blocks on the device, as far as they are believed */
    uint32_t cpus, accelerators; /* candidates of either kind, and what runs there */
    uint64_t cpu_requests, accelerator_requests;
    double seconds_per_token; /* learned over all workers */
    /* From the configuration or the request. */
    double temperature, overlap_weight;
    double overlap_credit, credit_decay, host_weight, disk_weight;
    double shared_weight; /* 0: no cache is shared */
    double prefill_load_scale, active_request_weight;
    uint64_t accelerator_ratio; /* >= 1 */
    struct two_tier_conf two_tier;
    bool track_prefill_tokens; /* false: prompts are computed elsewhere */
};

enum { POLICY_TERMS_MAX = 6 };

/* What a policy made of a candidate: the score and the terms that it is the sum or product of. */
struct route_score {
    double logit;
    double terms[POLICY_TERMS_MAX]; /* named by policy->terms */
};

/*
 * How a pick came about: with it a part of the candidates is enough to tell whether it follows from
 * their scores (policy->follows), as long as the lowest scores are among them.
 */
struct policy_pick {
    bool tied;          /* several had the lowest score */
    uint32_t n;         /* candidates there were */
    uint32_t at, other; /* position of the chosen; and of the one it was compared to, else = at */
    uint32_t pool, nth; /* it was drawn as the nth of so many that were as good */
    double highest;     /* drawn by weight: the highest score, */
    double sum, before; /* the sum of weights, and the share of those before the chosen */
};

/* Some of the candidates of a decision, in their order, all with the lowest scores among them. */
struct policy_part {
    const struct route_candidate *candidates;
    const struct route_score *scores;
    size_t n, chosen, other; /* indices */
};

struct policy {
    const char *name;
    const char *terms[POLICY_TERMS_MAX + 1]; /* NULL-ended */
    void (*score)(const struct route_candidate *candidates, size_t n,
                  const struct policy_inputs *in, struct route_score *ret);
    /* Index of the chosen one; @n >= 1. Fills of *ret, which is zero, what it has to tell. Called by
     * policy_choose(). */
    size_t (*pick)(const struct route_candidate *candidates, const struct route_score *scores,
                   size_t n, const struct policy_inputs *in, struct policy_pick *ret);
    /* Whether it would pick so, as far as the part tells. */
    bool (*follows)(const struct policy_part *part, const struct policy_inputs *in,
                    const struct policy_pick *pick);
    const char *tie_note; /* what decided among them, for the log */
    bool counts_tiers;    /* blocks in host memory and on disk are credited, by their weights */
    bool counts_shared;   /* those in a cache that all workers share, too */
    void (*put)(const struct route_candidate *c, const struct route_score *score,
                const struct policy_inputs *in, struct buf *out); /* NULL: has no formula */
};

/* Every policy there is: modes other than kv are policies that do not look at costs. */
extern const struct policy POLICY_ROUND_ROBIN, POLICY_RANDOM, POLICY_POWER_OF_TWO,
    POLICY_LEAST_LOADED, POLICY_DEVICE_AWARE, POLICY_DIRECT, POLICY_DYNAMO, POLICY_DYNAMO_1,
    POLICY_MARGINAL, POLICY_TWO_TIER, POLICY_THUNDERAGENT;

/* By name, in the words of the configuration; NULL when there is none of that name. */
const struct policy *policy_find(struct str name);
/* The policy that the configuration asks for. */
const struct policy *policy_of(const struct route_conf *conf);
/* The word of what keeps the shared cache that it asks for from counting: "load-aware", a mode, a policy.
 * NULL = nothing does, or none is asked for. */
const char *policy_ignores_shared(const struct route_conf *conf);

/* The policy's choice among all candidates, @n >= 1; returns its index. */
size_t policy_choose(const struct policy *policy, const struct route_candidate *candidates,
                     const struct route_score *scores, size_t n, const struct policy_inputs *in,
                     struct policy_pick *ret);

/* Tokens of the prompt that need not be computed there, in the policy's eyes. */
uint64_t policy_credited_tokens(const struct policy *policy, const struct route_candidate *c,
                                const struct policy_inputs *in);
/* Blocks that it holds on any tier. */
static inline uint32_t policy_held_blocks(const struct route_candidate *c)
{
    return c->overlap_blocks + c->host_blocks + c->disk_blocks;
}
/* Of those, the ones that an engine takes from its cache: a prompt's last token is computed anew, as
 * there is no output without it, and with it the block that it ends. What engines say is compared
 * with this; costs are not made of it, as the reference's are not. */
static inline uint32_t policy_served_blocks(const struct route_candidate *c,
                                            const struct policy_inputs *in)
{
    return MIN(policy_held_blocks(c), (in->isl - 1) / in->block_size);
}
/* Blocks of the prompt on its device, as far as that is believed. */
static inline double policy_cached_blocks(const struct route_candidate *c)
{
    return c->overlap_blocks * c->confidence;
}
