/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the worker that decodes computes a prompt itself, although there are prefill workers
 * (router.md §5.1, "conditional disagg" of 1.5).
 *
 * It may when what is not cached there is little, in tokens and as a share of the prompt, or when the
 * prefill worker in question is busy; but not when it is busy itself. What is unknown speaks for the
 * prefill worker. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum bypass_policy { BYPASS_ISL_BOUNDING, BYPASS_PREFILL_LOAD, BYPASS_ISL_OR_LOAD };
extern const char *const BYPASS_POLICY_WORDS[]; /* in that order, NULL-ended */

struct bypass_conf {
    bool enabled;
    int policy;          /* enum bypass_policy */
    uint64_t isl;        /* fewer new tokens than this… (2048) */
    double isl_ratio;    /* …and a smaller share than this (0.7) */
    double prefill_busy; /* share of a batch that waits on the prefill worker; NAN = not given */
    double decode_busy; /* share of the blocks in use on the decode worker; NAN = does not matter */
};

/* Of the workers that would be chosen. */
struct bypass_signals {
    uint64_t prompt_tokens, cached_tokens;          /* cached on the decode worker */
    uint64_t prefill_tokens, prefill_batch;         /* batch 0 = unknown */
    uint64_t decode_blocks, decode_capacity_blocks; /* with this prompt; capacity 0 = unknown */
};

enum bypass { BYPASS_NO, BYPASS_SHORT, BYPASS_PREFILL_BUSY, BYPASS_VETOED };

enum bypass bypass_decide(const struct bypass_conf *c, const struct bypass_signals *s);
/* Label of metrics: "isl", "prefill_busy", "decode_busy" for a veto. */
const char *bypass_word(enum bypass b);
static inline bool bypass_is_on(enum bypass b)
{
    return b == BYPASS_SHORT || b == BYPASS_PREFILL_BUSY;
}
