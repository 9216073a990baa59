/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decisions for tests and benchmarks, made up from a seed. Not part of any program.
 */
#pragma once

#include "router/sched/decision_record.h"

struct decision_sample {
    struct route_candidate candidates[1000];
    struct route_score scores[1000];
    struct route_rejection rejections[20];
    struct route_decision d; /* views the arrays above: not to be given to route_decision_done() */
    struct route_request q;
};

static inline uint64_t sample_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* A decision of @policy among @n candidates, as scheduler_route() would leave it. */
static inline void sample_decision(struct decision_sample *s, const struct policy *policy, size_t n,
                                   uint64_t seed)
{
    *s = (struct decision_sample){
        .d = {.mode = ROUTE_KV, .policy = policy, .n_candidates = n, .n_rejections = seed % 20}};
    s->q = (struct route_request){.id = STR("0f0e0d0c-0000-4000-8000-000000000001")};
    s->d.candidates = s->candidates;
    s->d.scores = s->scores;
    s->d.rejections = s->rejections;
    s->d.inputs = (struct policy_inputs){.block_size = 16,
                                         .isl = (uint32_t)(sample_next(&seed) % 5000) + 1,
                                         .random = sample_next(&seed),
                                         .turn = sample_next(&seed),
                                         .temperature = seed % 3 ? 0 : 0.7,
                                         .mean_requests = (double)(seed % 100) / 7,
                                         .min_prefill_tokens = seed % 50,
                                         .min_requests = seed % 3,
                                         .max_requests = seed % 60,
                                         .most_cached = 13,
                                         .two_tier = {0.5, 32, 1.1},
                                         .seconds_per_token = 1e-4 / 3,
                                         .cpus = (uint32_t)(n / 2),
                                         .accelerators = (uint32_t)(n - n / 2),
                                         .cpu_requests = seed % 11,
                                         .accelerator_requests = seed % 97,
                                         .accelerator_ratio = 1 + seed % 8,
                                         .overlap_weight = 1.0 / (double)(1 + seed % 7),
                                         .overlap_credit = 1.0 / (double)(1 + seed % 5),
                                         .credit_decay = 0.3,
                                         .host_weight = 0.75,
                                         .disk_weight = 0.25,
                                         .shared_weight = 0.5,
                                         .prefill_load_scale = 1.1,
                                         .active_request_weight = 0.2,
                                         .track_prefill_tokens = true};
    s->d.isl_blocks = (s->d.inputs.isl + 15) / 16;
    for (size_t i = 0; i < n; i++) {
        s->candidates[i] =
            (struct route_candidate){.worker = {sample_next(&seed), (uint32_t)(i % 3)},
                                     .slot = (uint32_t)i,
                                     .overlap_blocks = (uint32_t)(sample_next(&seed) % 40),
                                     .shared_blocks = (uint32_t)(i * 7 % 23),
                                     .new_blocks = (uint32_t)(sample_next(&seed) % 300),
                                     .requests = (uint32_t)(sample_next(&seed) % 9),
                                     .tree_size = sample_next(&seed) % 3,
                                     .prefill_tokens = sample_next(&seed) % 999,
                                     .queued_tokens = sample_next(&seed) % 999,
                                     .confidence = 1,
                                     .slowness = 1 + (double)(sample_next(&seed) % 9) / 7,
                                     .lifetime = 1 + (double)(sample_next(&seed) % 99) / 7,
                                     .active_blocks = sample_next(&seed) % 999,
                                     .max_num_seqs = 256,
                                     .on_cpu = i % 2,
                                     .total_kv_blocks = 16384};
    }
    for (size_t i = 0; i < s->d.n_rejections; i++)
        s->rejections[i] =
            (struct route_rejection){{i, 0}, (enum route_reject)(i % (ROUTE_REJECT_SESSION + 1))};
    if (policy->score)
        policy->score(s->candidates, n, &s->d.inputs, s->scores);
    s->d.chosen = policy_choose(policy, s->candidates, s->scores, n, &s->d.inputs, &s->d.pick);
}
