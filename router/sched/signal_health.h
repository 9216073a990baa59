/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the KV events of one target (worker and rank) can be believed.
 *
 * What goes in: each live event, each fault of them (a gap, an orphan), each prompt that was
 * computed there and must have led to an event, and what the engine says it had cached beside what
 * was predicted. What comes out:
 *
 *   confidence  0..1, scales the credit for cached blocks. It is exactly 1 while all is well, so
 *               that costs are the reference's bit for bit:
 *                   accuracy   mean of min(1, (observed + 1) / predicted) blocks, a new one weighs
 *                              1/8; from 0.9 on it counts as 1. One block is forgiven: engines
 *                              compute the last one anew
 *                   faults     share of events with a fault, a new one weighs 1/64; up to 5 % count
 *                              as none, 30 % take all
 *   dead        SIGNAL_PROMPTS prompts were computed and SIGNAL_DEAD_MS went by since, without an
 *               event: what the target holds is guessed from what was sent there (approximate
 *               index), until an event comes
 *               (a target whose blocks have another size than the router's is dead from the start)
 *   verdicts    the worker should be asked for news (a prompt was computed and no event came for
 *               SIGNAL_ASK_MS: the last event may be lost), or for all it holds (SIGNAL_MISSES wrong
 *               predictions in a row although events come)
 *
 * Pure: time is an argument, ms. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "router/kv/worker_table.h"

enum {
    SIGNAL_PROMPTS = 8,
    SIGNAL_DEAD_MS = 10000,
    SIGNAL_SUSPECT_MS = 500, /* an event that follows its prompt has come by then */
    SIGNAL_ASK_MS = 2000,
    SIGNAL_ASK_AGAIN_MS = 10000,
    SIGNAL_MISSES = 4,
};

/* Embedded by value; zero-initialised is ready and believed. */
struct signal_health {
    uint64_t events, prompts, gaps, orphans, observed, missed; /* so far */
    uint64_t told_ms;    /* when anything of its cache was learned; 0 = never */
    uint64_t unheard;    /* prompts computed since the last event */
    uint64_t unheard_ms; /* when the first of them was */
    uint64_t asked_ms;
    unsigned misses;           /* wrong predictions in a row */
    uint32_t block_size;       /* of its engine, where that does not fit; 0 = it does */
    double inaccuracy, faults; /* 1 - accuracy; share of events */
    bool dead;
};

enum signal_fault { SIGNAL_GAP, SIGNAL_ORPHAN };

/* A live event. */
void signal_health_event(struct signal_health *h, uint64_t now_ms);
void signal_health_fault(struct signal_health *h, enum signal_fault what);
/* A prompt has been computed, of which the index did not have every block. */
void signal_health_prompt(struct signal_health *h, uint64_t now_ms);
/* Blocks of a prompt that were believed to be cached, and those that were. */
void signal_health_cached(struct signal_health *h, uint64_t predicted, uint64_t observed);

enum signal_verdict {
    SIGNAL_SAME,
    SIGNAL_DIED,
    SIGNAL_REVIVED,
    SIGNAL_ASK_NEWS, /* something may have been lost */
    SIGNAL_ASK_ALL,  /* predictions are wrong */
};
/* What has changed by now; each change is told once. Call it every second or so. */
enum signal_verdict signal_health_judge(struct signal_health *h, uint64_t now_ms);

/* Whether to guess along in case that it turns out to be dead: there was never an event, or none came
 * for a while after a prompt was computed. */
bool signal_health_is_suspect(const struct signal_health *h, uint64_t now_ms);
double signal_health_confidence(const struct signal_health *h);
/* What is wrong, for people; nothing is written while all is well. */
void signal_health_reason(const struct signal_health *h, struct worker_rank w, uint64_t now_ms,
                          struct buf *out);
