/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dynamo-bench is told: one table of flags for each of its commands.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/base/conf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"

enum bench_command { BENCH_LOAD, BENCH_TRACE, BENCH_COMPARE, BENCH_DECISIONS, BENCH_HELP };

struct bench_conf {
    enum bench_command command;
    /* load and trace */
    char *url, *model, *label, *json, *timeline;
    uint64_t timeout_ms, duration_ms, seed;
    bool ignore_eos, worker_ids;
    /* load */
    uint64_t concurrency, conversations, n_starters, starter_tokens, question_tokens, think_ms,
        starter_seed;
    char *turns_text, *output_text;
    uint64_t turns_min, turns_max, output_min, output_max;
    double tokens_per_word;
    /* trace */
    char *file, *token_text;
    double speed;
    uint64_t requests_max, in_flight_max, input_max;
    uint64_t token_first, token_last;
    /* decisions */
    char *replay, *policy;
    double overlap_weight, temperature; /* NAN = as recorded */
    /* compare: borrowed from argv */
    char *const *runs;
    int n_runs;
};

/* 0, CONF_HELP, CONF_VERSION, or -EINVAL. Free with bench_conf_done() in every case. */
MUST_CHECK int bench_conf_load(struct bench_conf *ret, int argc, char *const *argv,
                               const char *(*env)(const char *name), struct err *e);
void bench_conf_done(struct bench_conf *c);
DEFINE_CLEANUP_EMBEDDED(struct bench_conf, bench_conf_done)
void bench_conf_print_help(const struct bench_conf *c, FILE *out);
