/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scheduler of one model: chooses a worker for a request and books it, in one atomic step.
 *
 * Owns the worker table, the prefix index, the approximate index and the active sequences; all of
 * them are kept up to date in every mode, so that a change of mode meets warm state. The order of a
 * decision: eligible candidates (eligible.c, the same in every mode) → what is known of each → the
 * policy's scores and pick (policy.h) → booking. All of it is in the decision record.
 *
 * Pure: time and randomness are arguments. One thread: the loop that routes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/list.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/prefix_index.h"
#include "router/kv/tier_index.h"
#include "router/sched/matches.h"
#include "router/sched/route_conf.h"
#include "router/sched/route_decision.h"
#include "router/sched/route_request.h"

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
    uint64_t total_kv_blocks, max_num_seqs; /* 0 = unknown */
    uint64_t max_batched_tokens;            /* of one engine step, 0 = unknown */
    bool on_cpu;                            /* its record's device_type */
    const char *const *taints;              /* what requests may require or prefer; copied */
    size_t n_taints;                        /* those beyond WORKER_TAINTS_MAX are not seen */
};
enum { WORKER_TAINTS_MAX = 64 };

/* Adds, or updates what changed. False when there is no room for it (WORKER_SLOTS_MAX). */
bool scheduler_put_worker(struct scheduler *s, const struct worker_info *w);
/* Its bookings stay with their owners and count for nothing; its blocks leave the index. */
void scheduler_remove_worker(struct scheduler *s, uint64_t worker_id);
size_t scheduler_workers(const struct scheduler *s);
bool scheduler_knows(const struct scheduler *s, struct worker_rank w); /* one to choose from */
/* What the worker says of itself (kv_metrics); for busy thresholds. */
void scheduler_report_load(struct scheduler *s, struct worker_rank w,
                           uint64_t active_decode_blocks);

/* --- KV events; an event of a worker that discovery does not know (yet) is kept for it --- */

/* Outcomes of prefix_index_store(). */
MUST_CHECK int scheduler_store(struct scheduler *s, struct worker_rank w, const uint64_t *parent,
                               const struct prefix_block *blocks, size_t n);
int scheduler_remove(struct scheduler *s, struct worker_rank w, const uint64_t *external, size_t n);
void scheduler_clear(struct scheduler *s, struct worker_rank w);
/* The same for each of its ranks. */
void scheduler_clear_worker(struct scheduler *s, uint64_t worker_id);

/* On slower tiers. What they follow may be unknown; clearing clears these as well. */
void scheduler_tier_store(struct scheduler *s, struct worker_rank w, enum cache_tier tier,
                          const uint64_t *parent, const struct prefix_block *blocks, size_t n);
/* Outcomes of tier_index_remove(). */
int scheduler_tier_remove(struct scheduler *s, struct worker_rank w, enum cache_tier tier,
                          const uint64_t *external, size_t n);
void scheduler_tier_clear(struct scheduler *s, struct worker_rank w, enum cache_tier tier);
const struct tier_index *scheduler_tiers(const struct scheduler *s); /* borrowed */

/* For index files: any thread may read it. Borrowed. */
struct prefix_index *scheduler_index(struct scheduler *s);
/* The rank's slot in it, given now if it is new; WORKER_SLOT_NONE when all are taken. */
uint32_t scheduler_slot(struct scheduler *s, struct worker_rank w);
/* False for a slot that nobody has; slots are below scheduler_slots_end(). */
bool scheduler_rank_at(const struct scheduler *s, uint32_t slot, struct worker_rank *ret);
uint32_t scheduler_slots_end(const struct scheduler *s);

/* --- decisions --- */

enum {
    ROUTE_NO_WORKERS = 1, /* none is known, or all are excluded */
    ROUTE_ALL_BUSY = 2,   /* every worker is over a busy threshold */
    ROUTE_NO_SUCH_PIN = 3,
    ROUTE_CONSTRAINED = 4, /* no worker has the required taints */
    ROUTE_PIN_NEEDED = 5,  /* mode direct: the request has to name its worker */
    ROUTE_RESULTS,         /* how many there are, 0 included */
};

/*
 * Decides and, unless query_only, books: *ret_booking is then owned by the caller, who releases it
 * on every exit with booking_end(). @ret_decision is reused: zero-initialise it once. 0 or one of
 * the outcomes above; the record then still says who was rejected, and why.
 */
MUST_CHECK int scheduler_route(struct scheduler *s, const struct route_request *q,
                               struct route_decision *ret_decision, struct booking **ret_booking);

/* --- room, for the queue (route_queue.h) --- */

/* When a target counts as full: it has more active prefill tokens than either bound says. */
struct room_limit {
    double tokens; /* NAN = none */
    double share;  /* of its max_batched_tokens, 10,000,000 when unknown; NAN = none */
    double ratio;  /* no room from this share of full targets on: 1 = all of them */
};

/* Whether the request would find a target with room. True also when it finds no target at all: to
 * wait would not help it. */
bool scheduler_has_room(struct scheduler *s, const struct route_request *q,
                        const struct room_limit *limit);
/* Tokens of the prompt on the eligible target that has most of it. */
uint64_t scheduler_best_cached(struct scheduler *s, const struct route_request *q);

/* --- other replicas (router/sync/replica.h) --- */

/* What scheduler_route() has booked. Views. */
struct route_booked {
    const struct booking *booking;
    struct str id;
    struct worker_rank worker;
    const uint64_t *sequence; /* as tracked; NULL when blocks are not */
    size_t n_blocks;
    uint32_t isl, overlap_blocks;
    uint32_t prefill_tokens; /* of isl, those that are to be computed there */
};

/*
 * Told of bookings, while linked by scheduler_observe(); list_remove() ends it. Callbacks note what
 * happened and act later: they neither route, book nor end. The first hears of what
 * scheduler_route() books, the others of every booking. Any may be NULL.
 */
struct scheduler_observer {
    struct list link;
    void (*booked)(struct scheduler_observer *o, const struct route_booked *b);
    void (*prefilled)(struct scheduler_observer *o, const struct booking *b);
    void (*grown)(struct scheduler_observer *o, const struct booking *b); /* an output block */
    void (*ended)(struct scheduler_observer *o, const struct booking *b);
};
void scheduler_observe(struct scheduler *s, struct scheduler_observer *o);

/* Routers that place requests on these workers, this one included: see unheard.h. 1 at first. */
void scheduler_set_replicas(struct scheduler *s, size_t n);
/* Books what another router has placed: ended like any booking. NULL when the target is not
 * known. @sequence may be NULL. */
struct booking *scheduler_book_remote(struct scheduler *s, const struct route_booked *b,
                                      uint64_t now_ns);

/* --- what is there, for metrics and /busy_threshold --- */

struct worker_load {
    struct worker_rank worker;
    uint64_t active_decode_blocks; /* booked, or what the worker says if that is more */
    uint64_t booked_blocks, active_prefill_tokens, active_requests, cached_blocks;
    uint64_t total_kv_blocks;
    bool busy;
};
/* Bookings that were silent for the expiry time, since the start; drops those of @now_ns. */
uint64_t scheduler_expire(struct scheduler *s, uint64_t now_ns);
/* Of one target; false for a slot that is free. */
bool scheduler_load(const struct scheduler *s, uint32_t slot, struct worker_load *ret);
/* Fills at most @cap rows, returns how many there are. */
size_t scheduler_loads(const struct scheduler *s, struct worker_load *ret, size_t cap);
struct prefix_stats scheduler_index_stats(const struct scheduler *s);
