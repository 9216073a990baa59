/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What targets hold of a prompt as a value: found in one scheduler's index, used by the decision of
 * another one, in another process. Pure; one thread, that of the scheduler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/kv/worker_table.h"

struct scheduler;

enum match_tier { MATCH_DEVICE, MATCH_HOST, MATCH_DISK };

struct prompt_match {
    struct worker_rank worker;
    enum match_tier tier;
    uint32_t blocks; /* beyond those of faster tiers */
};

struct prompt_matches {
    struct prompt_match *rows; /* owned; device first */
    size_t n, cap;
    bool told;        /* false: who was asked did not say */
    uint64_t took_ns; /* to ask */
};
void prompt_matches_add(struct prompt_matches *m, const struct prompt_match *row);
void prompt_matches_done(struct prompt_matches *m);
DEFINE_CLEANUP_EMBEDDED(struct prompt_matches, prompt_matches_done)

/* What the index knows of a prompt; tiers below the device only if @with_tiers. @ret is emptied. */
void scheduler_find_matches(struct scheduler *s, const uint64_t *local, size_t n_blocks,
                            bool with_tiers, uint64_t now_ns, struct prompt_matches *ret);
/* Another router sent such a prompt to @w. False: it is not known, or events tell what it holds. */
MUST_CHECK bool scheduler_note_routed(struct scheduler *s, struct worker_rank w,
                                      const uint64_t *local, const uint64_t *sequence,
                                      size_t n_blocks, uint64_t now_ns);
