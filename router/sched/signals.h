/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a scheduler is told of its targets' KV events, and makes of it (signal_health.h).
 *
 * Where no events come although prompts are computed, what the target holds is guessed from what was
 * routed there, for this target alone and until an event comes; route_conf.event_fallback allows it.
 * Guesses are taken down from the first doubt on, so that they are there when they are needed.
 *
 * Pure; one thread, that of the scheduler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/kv/worker_table.h"
#include "router/sched/signal_health.h"

struct scheduler;

/* A live event came. */
void scheduler_signal_event(struct scheduler *s, struct worker_rank w, uint64_t now_ms);
/* An event was recovered: that says what is cached, and nothing about the signal. */
void scheduler_signal_told(struct scheduler *s, struct worker_rank w, uint64_t now_ms);
void scheduler_signal_fault(struct scheduler *s, struct worker_rank w, enum signal_fault what);
/* The worker's engine has blocks of this size; 0 = unknown, taken for ours. False: they do not fit,
 * and its events must be left out. */
bool scheduler_signal_block_size(struct scheduler *s, uint64_t worker_id, uint32_t block_size);
/* A prompt of @n_blocks full blocks, of which @predicted were believed to be there, was computed. */
void scheduler_signal_prompt(struct scheduler *s, struct worker_rank w, size_t n_blocks,
                             size_t predicted, uint64_t now_ms);

/* What an engine says of a prompt that it has computed. */
struct observed_prompt {
    struct worker_rank worker;
    const uint64_t *local, *sequence;
    size_t n_blocks;
    size_t predicted; /* blocks that the decision believed to be served from the cache */
    uint64_t cached_tokens;
};
/*
 * Corrects confidence and index. A guess is corrected at once: fewer blocks than predicted, and the
 * prompt's tail is dropped (the engine has computed it anew by now, but what it lost once in that
 * time it will lose again; if not, the next observation brings it back), more, and they are
 * inserted. The exact index is not written: its blocks have names that only the engine knows, and
 * events of what was evicted or computed are on their way or lost; wrong predictions in a row lead
 * to SIGNAL_ASK_ALL instead, and the worker's own books put all of it right.
 */
void scheduler_signal_cached(struct scheduler *s, const struct observed_prompt *p, uint64_t now_ms);

typedef void (*scheduler_signal_fn)(void *arg, struct worker_rank w, const struct signal_health *h,
                                    enum signal_verdict verdict);
/* Judges every target and tells what has changed; SIGNAL_DIED and SIGNAL_REVIVED have effect on the
 * next decision. Every second or so. Not to be called from @fn. */
void scheduler_judge_signals(struct scheduler *s, uint64_t now_ms, scheduler_signal_fn fn,
                             void *arg);
/* Since anything of the target's cache was last told, in ms; UINT64_MAX = never. */
uint64_t scheduler_index_age_ms(const struct scheduler *s, uint32_t slot, uint64_t now_ms);
/* Every target that discovery knows, with SIGNAL_SAME. */
void scheduler_each_signal(const struct scheduler *s, scheduler_signal_fn fn, void *arg);
