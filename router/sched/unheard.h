/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other replicas have placed on a worker and we have not heard of yet.
 *
 * Replicas tell each other of every placement (router/sync/replica.h), but it takes some
 * milliseconds until the news is there. A worker that looks best to one replica looks best to all
 * of them meanwhile, so a burst gives it R times what one router would. The remedy: while the news
 * may be under way, each replica assumes that the others do as it does. Of R replicas (us included),
 * for each worker and over the last UNHEARD_WINDOW_MS:
 *
 *     unheard = max(0, (R - 1) × placed by us - heard from the others)
 *
 * for requests, prompt tokens to compute, and blocks. It is added to what is booked there when a
 * decision is made, in every mode and policy. What the others really did replaces the assumption as
 * it is heard, and after the window nothing of it is left: it is not a booking. With R = 1 it is 0
 * and decisions are those of a lone router, bit for bit.
 *
 * Holds, and simulated in scheduler_replicas_test.c: with three replicas, news that takes 2 to 20 ms
 * and bursts of 300 equal requests in 100 ms on 8 to 64 equal workers, no worker gets more than 1.5
 * times its fair share (1.3; without the term 1.7). Where one worker is better than the rest, it gets
 * at most 1.2 times what one router alone would give it (without: 1.5). Under sustained load with no
 * pause, windows of 100 ms on 64 workers reach 1.7 fair shares, where one router reaches 1.4. That is
 * 8 requests where 4.7 are fair and one router gives 7: a single double placement among thousands
 * makes it, and news within 0.1 ms does not cure it (1.6 to 1.7, with this term or without). Tried
 * in that simulation, and no better than 1.65: a window from 0.1 to 40 ms; what the others place at
 * the present rate expected on workers that are "theirs" by agreement, beside this term, instead of
 * it, or the larger of both; a draw by softmax. A window of 100 ms, with half of what was placed in it
 * on top, comes to 1.5, but only as that is the window of the measure: with 80 ms it is 1.9, with
 * 120 ms 1.7. Where news is much quicker than the window, the term costs cached blocks: of a shared
 * prefix with news after 1 ms, 60 % found instead of 62 % on 64 workers.
 *
 * Pure; one thread. Notes are bounded: beyond UNHEARD_NOTES_MAX the oldest are forgotten early.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"

enum { UNHEARD_WINDOW_MS = 25, UNHEARD_NOTES_MAX = 8192 };

struct unheard;

struct unheard_load {
    int64_t requests, prefill_tokens, blocks;
};

struct unheard *unheard_new(void) __attribute__((returns_nonnull));
struct unheard *unheard_free(struct unheard *u);
DEFINE_CLEANUP(struct unheard *, unheard_free)

/* R, at least 1. */
void unheard_set_replicas(struct unheard *u, size_t n);
/* A placement, by us or heard. Nothing is kept while R is 1. Time must not go backwards. */
void unheard_note(struct unheard *u, uint32_t slot, bool ours, struct unheard_load load,
                  uint64_t now_ns);
/* Forgets what is older than the window; before the questions of a decision. */
void unheard_advance(struct unheard *u, uint64_t now_ns);
/* Whether anything is assumed anywhere. */
bool unheard_any(const struct unheard *u);
struct unheard_load unheard_at(const struct unheard *u, uint32_t slot);
