/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the router learns about workers from its own requests (rule: README, "Policy marginal").
 *
 * From each first token: x0, the prompt tokens that were queued on the worker when the request was
 * sent, its own included, and how long the first token took. A decayed regression over all workers
 * gives the seconds per prompt token; the ratio of observed to expected times gives each worker's
 * slowness. From each end: how long a request holds its slot. Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct learned_worker;

struct learned {
    double s0, sx, sxx, sy, sxy;            /* decayed sums over all workers */
    double seconds_per_token, mean_seconds; /* slope, and mean time to first token */
    double lifetime;                        /* seconds from first token to end, over all workers */
    uint64_t n_ended;
    struct learned_worker *workers; /* by slot */
    size_t n_workers;
};

void learned_init(struct learned *l);
void learned_done(struct learned *l);
void learned_first_token(struct learned *l, uint32_t slot, double queued_tokens, double seconds);
void learned_end(struct learned *l, uint32_t slot, double seconds);
/* The worker has left, or restarted. */
void learned_forget(struct learned *l, uint32_t slot);

/* 1e-4 until something was observed. */
double learned_seconds_per_token(const struct learned *l);
/* 1 = as the fleet, 2 = half as fast; 1 too unless it is clearly different. */
double learned_slowness(const struct learned *l, uint32_t slot);
/* Seconds; the fleet's until the worker has ended 5 requests, 10 before any. */
double learned_lifetime(const struct learned *l, uint32_t slot);
