/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a load run measured: kept in fixed memory, printed as a table or as one JSON object.
 *
 * Keys of the object: label, requests (all), failures, failures_by_kind{}, duration_s,
 * ttft_ms/itl_ms/tpot_ms/e2e_ms {p50,p90,p95,p99,mean,max}, hit_rate (cached / prompt tokens, of
 * the server's usage; null when it tells none), first_requests_hit_rate (of the first 100
 * answered), prompt_tokens, cached_tokens, output_tokens, output_tokens_per_s, requests_per_s. itl:
 * between two chunks with text; tpot: per request, (end - first) / (tokens - 1). One loop.
 */
#pragma once

#include <stdio.h>

#include "bench/load/latency.h"
#include "bench/load/load_call.h"

enum { SCORE_FIRST = 100 };

struct score {
    struct latency ttft, gaps, tpot, e2e; /* successes only, but gaps */
    uint64_t n_requests, by_outcome[LOAD_OUTCOMES];
    uint64_t prompt_tokens, cached_tokens, output_tokens;
    uint64_t n_usage, first_prompt_tokens, first_cached_tokens;
    uint64_t start_ns, end_ns;
    FILE *timeline; /* borrowed; NULL = none */
};

struct score *score_new(uint64_t now_ns, FILE *timeline) __attribute__((returns_nonnull));
struct score *score_free(struct score *s);
DEFINE_CLEANUP(struct score *, score_free)
void score_add(struct score *s, const struct load_result *r);
/* The run is over. */
void score_stop(struct score *s, uint64_t now_ns);
uint64_t score_failures(const struct score *s);
/* -1 when the server told no usage. */
double score_hit_rate(const struct score *s);

struct json *score_to_json(const struct score *s, const char *label);
/* One column per run; the last one gives, with two runs, the second relative to the first. */
void score_print_table(FILE *out, struct json *const *runs, size_t n_runs);
