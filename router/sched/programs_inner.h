/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs.c (requests come and go) and programs_tick.c (who is resumed and paused) share. Of
 * programs alone.
 */
#pragma once

#include "router/sched/programs.h"

struct program {
    struct list link; /* in programs.all, in the order they came */
    char *session;
    struct program_state state;
    struct list waiting;            /* tickets, in order */
    struct program_ticket *current; /* runs; NULL = none does */
    struct program_ticket *counted; /* the one whose context it has now; NULL = state.tokens */
};

struct program_worker {
    struct worker_rank worker;
    uint64_t tokens;        /* 0 = not known */
    uint64_t used, decayed; /* as of the last programs_measure() */
    uint64_t free;          /* of a tick */
};

struct programs {
    struct programs_conf conf;
    struct strmap *sessions; /* -> struct program */
    struct list all;
    size_t n_tickets, n_waiting;
    struct program_worker *workers; /* by worker and rank */
    size_t n_workers, cap_workers;
    struct list ready; /* tickets to be told */
};

struct program_worker *programs_worker(const struct programs *p, struct worker_rank w);
/* What counts for the program's context now. */
uint64_t program_tokens(const struct program *g);
/* The same by how much of it counts while it acts; @decayed: the less the longer it does. */
uint64_t program_weight(const struct programs *p, const struct program *g, bool decayed,
                        uint64_t now_ns);
/* What is used of each worker. */
void programs_measure(struct programs *p, uint64_t now_ns);
/* tokens × share, rounded down. */
uint64_t programs_share(uint64_t tokens, double share);
static inline uint64_t programs_add(uint64_t a, uint64_t b)
{
    return a + b < a ? UINT64_MAX : a + b;
}
/* It goes on at @w (NULL = anywhere), with its request if that waits. */
void program_resume(struct programs *p, struct program *g, const struct worker_rank *w);
/* It has no worker any more, and waits to be resumed. */
void program_pause(struct program *g);
/* Nothing is known of its past; it is freed if no request of it is left. */
void programs_forget(struct programs *p, struct program *g);
static inline bool program_is_idle(const struct program *g)
{
    return !g->current && list_empty(&g->waiting);
}
