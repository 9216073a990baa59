/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduler of one model: chooses a worker for a request and books it, in one atomic step.
 *
 * Owns the worker table, the prefix index, the approximate index and the active sequences; all of
 * them are kept up to date in every mode, so that a change of mode meets warm state. The order of a
 * decision: eligible candidates (busy thresholds, exclusions, pins) → scores → policy → booking →
 * decision record. The trace lines of the reference are printed from that record.
 *
 * Pure: time and randomness are arguments. One thread: the loop that routes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/prefix_index.h"
#include "router/kv/worker_table.h"
#include "router/sched/route_conf.h"

struct scheduler;
struct booking;

struct scheduler *scheduler_new(uint32_t block_size, const struct route_conf *conf);
struct scheduler *scheduler_free(struct scheduler *s); /* bookings must have been released */
DEFINE_CLEANUP(struct scheduler *, scheduler_free)
/* Takes effect with the next decision; index and bookings are kept. */
void scheduler_configure(struct scheduler *s, const struct route_conf *conf);
const struct route_conf *scheduler_conf(const struct scheduler *s);
uint32_t scheduler_block_size(const struct scheduler *s);

/* --- workers --- */

struct worker_info {
    uint64_t worker_id;
    uint32_t dp_start, dp_size; /* ranks dp_start … dp_start + dp_size - 1; size >= 1 */
    uint64_t total_kv_blocks;   /* 0 = unknown */
    uint64_t max_num_seqs;      /* 0 = unknown */
};

/* Adds, or updates what changed. False when there is no room for it (WORKER_SLOTS_MAX). */
bool scheduler_put_worker(struct scheduler *s, const struct worker_info *w);
/* Its bookings stay with their owners and count for nothing; its blocks leave the index. */
void scheduler_remove_worker(struct scheduler *s, uint64_t worker_id);
size_t scheduler_workers(const struct scheduler *s);
/* What the worker says of itself (kv_metrics); for busy thresholds. */
void scheduler_report_load(struct scheduler *s, struct worker_rank w,
                           uint64_t active_decode_blocks);

/* --- KV events; an event of a worker that discovery does not know (yet) is kept for it --- */

/* Outcomes of prefix_index_store(). */
MUST_CHECK int scheduler_store(struct scheduler *s, struct worker_rank w, const uint64_t *parent,
                               const struct prefix_block *blocks, size_t n);
int scheduler_remove(struct scheduler *s, struct worker_rank w, const uint64_t *external, size_t n);
void scheduler_clear(struct scheduler *s, struct worker_rank w);

/* --- decisions --- */

struct route_request {
    struct str id;            /* request id, for the trace */
    const uint64_t *local;    /* block_hash_local() of the prompt */
    const uint64_t *sequence; /* block_hash_sequence() of it */
    size_t n_blocks;
    uint32_t isl; /* prompt tokens, >= 1 */
    bool pinned;  /* route to pin.worker_id, rank pin.dp_rank */
    struct worker_rank pin;
    const uint64_t *exclude; /* workers that just failed this request */
    size_t n_exclude;
    double overlap_weight; /* per-request override, NAN = none */
    double temperature;    /* likewise */
    bool query_only;       /* decide without booking */
    uint64_t now_ms;       /* monotonic */
    uint64_t random;       /* 64 fresh random bits */
};

enum {
    ROUTE_NO_WORKERS = 1, /* none is known, or all are excluded */
    ROUTE_ALL_BUSY = 2,   /* every worker is over a busy threshold */
    ROUTE_NO_SUCH_PIN = 3,
};

/* One row of a decision: every term of the cost (router.md §4.2). */
struct route_candidate {
    struct worker_rank worker;
    uint32_t slot;
    uint32_t overlap_blocks; /* cached blocks */
    uint64_t tree_size;      /* blocks that the worker holds; 0 without overlap */
    double prefill_blocks;
    double decode_blocks;
    double logit;
    bool busy;
};

struct route_decision {
    enum route_mode mode;
    double overlap_weight, temperature;
    struct route_candidate
        *candidates; /* owned; empty modes other than kv list them without cost */
    size_t n_candidates, cap_candidates;
    size_t chosen;            /* index into candidates */
    bool tied;                /* several shared the lowest logit */
    uint32_t isl, isl_blocks; /* blocks rounded up */
    uint64_t total_kv_blocks; /* of the chosen worker, 0 = unknown */
};

void route_decision_done(struct route_decision *d);
DEFINE_CLEANUP_EMBEDDED(struct route_decision, route_decision_done)

/*
 * Decides and, unless query_only, books: *ret_booking is then owned by the caller, who releases it
 * on every exit with booking_release(). @ret_decision is reused: zero-initialise it once. 0,
 * ROUTE_NO_WORKERS, ROUTE_ALL_BUSY or ROUTE_NO_SUCH_PIN.
 */
MUST_CHECK int scheduler_route(struct scheduler *s, const struct route_request *q,
                               struct route_decision *ret_decision, struct booking **ret_booking);

/*
 * The reference's trace lines, bit for bit: one "Formula for …" per candidate (kv mode), the tie
 * note, and "Selected worker: …". @line is called for each, in order.
 */
void route_decision_trace(const struct route_decision *d, void (*line)(void *arg, struct str text),
                          void *arg);

/* --- what is there, for metrics and /busy_threshold --- */

struct worker_load {
    struct worker_rank worker;
    uint64_t active_decode_blocks, active_prefill_tokens, active_requests, cached_blocks;
    uint64_t total_kv_blocks;
    bool busy;
};
/* Fills at most @cap rows, returns how many there are. */
size_t scheduler_loads(const struct scheduler *s, struct worker_load *ret, size_t cap);
struct prefix_stats scheduler_index_stats(const struct scheduler *s);
