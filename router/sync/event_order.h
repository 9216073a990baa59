/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of KV events: which to apply now, which to hold, what to ask a worker for
 * (router.md §2.6).
 *
 * Each rank of each worker numbers its events from 0. Here they are brought into that order:
 *
 *     id = expected        applied, and those that waited for it
 *     id > expected        a gap: held until the worker has told what is missing
 *     id < expected        seen before: dropped. One that shares the id of the last one is applied,
 *                          as all events of an engine's batch may carry one id (router.md §2.7)
 *     id < expected, and   the engine restarted: its blocks are dropped at once and the numbers
 *     sent later           begin again; what it sent before is dropped from then on
 *
 * Questions are by rank, with what a worker of either generation can answer:
 *
 *     RANGE     events [first, last], of which later ones were seen
 *     NEWS      events from `first` on: anything that came to nobody's notice, after a connection
 *               was lost. The usual answer is "too new"
 *     POSITION  an id that nobody has reached: the answer names the newest. Asked before the first
 *               dump, which in 0.9.0 does not say up to which event it goes
 *     DUMP      all that the rank holds
 *
 * The worker answers a range that it remembers no longer with a dump. A dump replaces the rank's
 * blocks. It holds at least every event that was seen before it was asked for, so those are not
 * applied again; later ones are held meanwhile and follow it: what a block's last event says
 * stands, whether the dump knew that event or not. Held events are bounded per rank and over all;
 * beyond that they are dropped and a dump is asked.
 *
 * Questions are bounded, one per worker and QUESTIONS_MAX over all; a failed one is asked again
 * after 200 ms · 2^n, ATTEMPTS times, then what is held is applied as it is. A dump for a doubt (an
 * event whose parent is unknown) is asked at once, then after 1 s · 2^n while doubts go on.
 *
 * A restart shows by an id that falls. One of an engine that had told nothing but its first few
 * events, and whose first few new ones were all lost, cannot be told from no restart.
 *
 * Pure: time is an argument, in ms. One thread. Nothing may be called from within the sink.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/kv/worker_table.h"
#include "router/wire/kv_event.h"
#include "router/wire/optional.h"

struct event_order;

enum {
    EVENT_ATTEMPTS = 8,
    EVENT_QUESTIONS_MAX = 8,
    EVENT_RANKS_MAX = 256,      /* of one worker */
    EVENT_HELD_BYTES = 1 << 20, /* by one rank */
    EVENT_HELD_BYTES_ALL = 64 << 20,
    EVENT_STRANGERS_MAX = 1024, /* workers that send events and that discovery does not know */
    EVENT_STRANGER_MS = 60000,  /* they are forgotten when they fall silent */
};
/* No engine counts that far. */
#define EVENT_ID_NEVER (UINT64_C(1) << 62)

enum event_note {
    EVENT_GAP,          /* ids first … last are missing */
    EVENT_RESTARTED,    /* the engine did; last = newest id before */
    EVENT_DUPLICATE,    /* not applied again */
    EVENT_STALE,        /* of an engine that is gone: not applied */
    EVENT_OVERFLOW,     /* held ones were dropped, first = how many */
    EVENT_UNKNOWN_RANK, /* of a rank that the worker does not have, or a stranger too many */
    EVENT_GAVE_UP,      /* no answer after all attempts; what was held is applied */
};

struct event_order_sink {
    /* False: the block that it follows is unknown. @live: came by itself, not in an answer. */
    bool (*apply)(void *arg, const struct kv_event *ev, bool live);
    void (*clear)(void *arg, struct worker_rank w); /* the rank holds nothing any more */
    void (*forget)(void *arg, uint64_t worker_id);  /* a stranger that fell silent */
    void (*withdraw)(void *arg, uint64_t question); /* its answer is not needed any more */
    void (*note)(void *arg, enum event_note what, struct worker_rank w, uint64_t first,
                 uint64_t last);
    void *arg;
};

/* Never NULL. */
struct event_order *event_order_new(const struct event_order_sink *sink);
/* Open questions are not withdrawn. */
struct event_order *event_order_free(struct event_order *o);
DEFINE_CLEANUP(struct event_order *, event_order_free)

/*
 * The worker is there with ranks dp_start … dp_start + dp_size - 1. What is known of others of its
 * ranks is forgotten (their blocks are the caller's to drop). If it is @askable, new ranks are asked
 * for what they hold.
 */
void event_order_put_worker(struct event_order *o, uint64_t worker_id, uint32_t dp_start,
                            uint32_t dp_size, bool askable, uint64_t now_ms);
void event_order_remove_worker(struct event_order *o, uint64_t worker_id);

/* How far a rank's events are applied, for who keeps its blocks in a file. */
struct event_position {
    uint64_t next;      /* id of the first that is not applied */
    uint64_t newest_ms; /* when the newest was sent, 0 = unknown */
    uint64_t resets;    /* how often its blocks were replaced, for whoever compares */
    uint64_t proof; /* what the last one said (event_proof.h), 0 = not known; not looked at here */
};
/* False when what is known of the rank is not exactly what its events up to there say. */
bool event_order_position(const struct event_order *o, struct worker_rank w,
                          struct event_position *ret);
/*
 * The rank's blocks are there as its events before @at.next left them. Its worker, when it appears,
 * is asked for the events since; one that is not askable is not believed, and a rank whose worker
 * does not appear is forgotten like a stranger. False when the rank is known already, or there are
 * too many.
 */
MUST_CHECK bool event_order_resume(struct event_order *o, struct worker_rank w,
                                   struct event_position at, uint64_t now_ms);

/* @sent_ms: the sender's clock; 0 = unknown, then only id 0 tells of a restart. */
void event_order_live(struct event_order *o, const struct kv_event *ev, uint64_t sent_ms,
                      uint64_t now_ms);
/* What is known of the rank may be wrong: ask it, but not too often. */
void event_order_doubt(struct event_order *o, struct worker_rank w, uint64_t now_ms);
/* Events may have been missed of every rank. */
void event_order_check(struct event_order *o, uint64_t now_ms);
/* Likewise of the ranks of one worker; false when it is not known. */
bool event_order_check_worker(struct event_order *o, uint64_t worker_id, uint64_t now_ms);
/* Forgets silent strangers. Call it every few seconds. */
void event_order_tick(struct event_order *o, uint64_t now_ms);

/* --- questions -------------------------------------------------------------------------------- */

enum event_question_kind { EVENT_ASK_NEWS, EVENT_ASK_RANGE, EVENT_ASK_POSITION, EVENT_ASK_DUMP };

struct event_question {
    uint64_t number; /* never 0 */
    struct worker_rank worker;
    enum event_question_kind kind;
    struct opt_u64 first, last; /* event ids, both included */
};

/* The next one to ask now; false when there is none. */
bool event_order_next(struct event_order *o, uint64_t now_ms, struct event_question *ret);
/* When to look again although nothing came; UINT64_MAX = no need. */
uint64_t event_order_wake_ms(const struct event_order *o);

/*
 * An answer with events: _begin, _feed for each, _end. False when it is not wanted (any more): then
 * leave it at that. @last: the newest id that the dump knows, where it says so. @whole: false when
 * the answer could not be read to its end; it counts as failed.
 */
bool event_order_answer_begin(struct event_order *o, uint64_t question, bool is_dump,
                              struct opt_u64 last);
void event_order_answer_feed(struct event_order *o, const struct kv_event *ev);
void event_order_answer_end(struct event_order *o, bool whole, uint64_t now_ms);
/* The worker's newest event is before what was asked. */
void event_order_answer_too_new(struct event_order *o, uint64_t question, uint64_t newest,
                                uint64_t now_ms);
/* @never: the worker does not answer such questions at all. */
void event_order_answer_failed(struct event_order *o, uint64_t question, bool never,
                               uint64_t now_ms);

struct event_order_stats {
    size_t ranks, strangers;
    size_t held, held_bytes, asking, waiting; /* now */
};
struct event_order_stats event_order_stats(const struct event_order *o);
