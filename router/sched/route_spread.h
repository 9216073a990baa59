/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How evenly decisions and load lie over the workers. Pure; one thread.
 *
 * Herd index of a window of time: the largest share of its decisions that one worker got, over the
 * share that it would have had, 1 ÷ workers. 1 is perfectly even. A window counts only with at least
 * two decisions for each worker: with fewer the index says more of chance than of the router.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/sched/route_decision.h"

enum { HERD_WINDOW_MS = 100 };

/* Embedded by value; zero-initialised is ready. */
struct herd {
    uint64_t window; /* number of the one that is being counted */
    uint64_t total;
    uint32_t largest;
    size_t n_workers; /* to choose among, at most, in this window */
    uint32_t *counts; /* decisions by slot */
    size_t cap;
};

void herd_done(struct herd *h);
DEFINE_CLEANUP_EMBEDDED(struct herd, herd_done)
/* Counts a decision. The index of the window before when this decision ends one, else NAN. */
double herd_count(struct herd *h, uint64_t now_ms, uint32_t slot, size_t n_workers);
/* Standard deviation of the candidates' running requests over their mean; 0 when nothing runs. */
double load_variation(const struct route_candidate *candidates, size_t n);
