/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs: runs of agents, whose requests come one after another with pauses in between, in which a
 * tool does its part (reasoning and acting). What a program has in a worker's cache is worth keeping
 * through a pause, so no more programs are let in than there is memory for: the rule of 1.6.1's
 * `request_classifier: {type: thunderagent}`, with its parameters and defaults.
 *
 * A session is a program. It counts, where it was placed, for the tokens of its context and a buffer.
 * A request of a session that runs already waits for its turn. A new program is placed on the worker
 * with the fewest tokens that has room for it; with none it waits, and so do all new ones while some
 * wait. At each tick: those that wait or were paused are resumed, as many as fit below
 * pause_threshold - resume_hysteresis, the largest first onto the emptiest worker; those that wait too
 * long go to the worker with the most room, however full that is; and on a worker above
 * pause_threshold acting programs are paused, the smallest first, down to pause_target, and reasoning
 * ones after their request if that does not do. A program that acts for retention_s is forgotten, and
 * one whose request is its last, at once.
 *
 * Requests are tickets, embedded in what their owner has, that are let go in programs_next(). Pure; one
 * thread; times are ns of a monotonic clock. Bounded by max_tracked, requests and programs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/worker_table.h"

struct err;
struct json;
struct program;
struct programs;

struct programs_conf {
    bool on;
    double pause_threshold, pause_target, resume_hysteresis; /* shares of a worker's tokens */
    double resume_timeout_s, retention_s, interval_s;        /* the last: between ticks */
    double acting_weight; /* of the tokens of a program that acts */
    double acting_tau_s;  /* halves them, when the worker with the most room is looked for */
    uint64_t buffer;      /* tokens that each program counts for beside its own */
    uint64_t max_tracked; /* requests; and programs */
};

#define PROGRAMS_DEFAULTS                                                                          \
    {                                                                                              \
        false, 0.95, 0.8, 0.1, 1800, 1800, 5, 1, 1, 100, 10000                                     \
    } /* of the reference, and not on */

/* Of a policy file's section `request_classifier`; NULL or null: not on. -EINVAL with what is wrong
 * there; *ret is unchanged then. */
MUST_CHECK int programs_conf_read(struct programs_conf *ret, const struct json *section,
                                  struct err *e);

/* What a request that fails or is taken back leaves as it was. */
struct program_state {
    bool exists, acting, paused, marked; /* marked: to be paused when its request has ended */
    bool placed;
    struct worker_rank worker;
    uint64_t tokens; /* of the last request, when it was done */
    uint64_t steps;
    uint64_t acting_since_ns, deferred_since_ns; /* 0 = not */
};

struct program_ticket {
    /* The owner's. */
    uint64_t isl_tokens;
    uint64_t context_tokens; /* and what was generated so far: raised while it runs */
    bool is_last;            /* the session ends with it */
    bool pinned;
    struct worker_rank pin;
    /* Of programs: where to send it, if that is eligible, once it is let go. */
    bool has_target;
    struct worker_rank target;
    /* Of programs alone. */
    struct programs *in; /* NULL = it is not tracked */
    struct program *program;
    struct list link; /* among those of its session that wait, or that are to be told */
    bool began, released;
    struct program_state prior;
};

struct programs *programs_new(const struct programs_conf *conf) __attribute__((returns_nonnull));
struct programs *programs_free(struct programs *p); /* tickets must have left */
DEFINE_CLEANUP(struct programs *, programs_free)
/* When it is not on any more, all that wait are let go, and nothing is known. */
void programs_configure(struct programs *p, const struct programs_conf *conf);
/* @tokens that its cache has room for; 0 = it does not say, and nobody is placed there by us. */
void programs_put_worker(struct programs *p, struct worker_rank w, uint64_t tokens);
/* All ranks of the worker. */
void programs_remove_worker(struct programs *p, uint64_t worker_id);

enum { PROGRAMS_WAITS = 1, PROGRAMS_FULL = 2 };

/* 0: it may go now, to @t->target if it has one. PROGRAMS_FULL: max_tracked is reached. What belongs to
 * no session, @session empty, may always go. */
MUST_CHECK int programs_enter(struct programs *p, struct program_ticket *t, struct str session,
                              uint64_t now_ns);
/* Where it was sent in the end. Harmless, as the next, for what is not tracked. */
void programs_sent(struct program_ticket *t, struct worker_rank w);
/* It is over; @ok: answered to its end, else the program is as it was before. */
void programs_leave(struct program_ticket *t, bool ok, uint64_t now_ns);
/* One that waited and may go now; NULL = none. */
struct program_ticket *programs_next(struct programs *p);
/* To be called each interval_s while there are programs. Returns how many waited too long. */
size_t programs_tick(struct programs *p, uint64_t now_ns);

struct programs_stats {
    size_t active, paused; /* programs */
    size_t waiting;        /* requests */
};
struct programs_stats programs_stats(const struct programs *p); /* looks at each */
/* stats().waiting, at once. */
size_t programs_waiting(const struct programs *p);
