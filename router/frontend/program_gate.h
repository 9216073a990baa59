/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gate before a pool of workers that lets programs of agents in as there is room for what they
 * have cached: programs.h with timers, metrics and a log. Requests pass it before they queue for room
 * (admission.h). It stands open unless the policy file has a `request_classifier` and the mode is kv.
 *
 * A waiter is embedded in the request, which takes it back with program_gate_leave() on every way out.
 * One loop thread.
 */
#pragma once

#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/sched/programs.h"

struct program_gate;

/* All borrowed. */
struct program_gate_conf {
    struct loop *loop;
    struct metric_family *programs; /* labels model, state */
    const char *model;
    /* Around the calls of those that waited, of which the last may free what owns the gate. */
    void (*hold)(void *owner);
    void (*let_go)(void *owner);
    void *owner;
};

/* The family: programs and the requests of them that wait. */
struct metric_family *program_gate_metric(struct metric_registry *r);

struct program_gate *program_gate_new(const struct program_gate_conf *conf,
                                      const struct programs_conf *programs)
    __attribute__((returns_nonnull));
struct program_gate *program_gate_free(struct program_gate *g); /* waiters must have left */
void program_gate_configure(struct program_gate *g, const struct programs_conf *programs);
/* All ranks of a worker; @tokens each has room for, 0 = not known. */
void program_gate_put_worker(struct program_gate *g, uint64_t worker_id, uint32_t dp_start,
                             uint32_t dp_size, uint64_t tokens);
void program_gate_remove_worker(struct program_gate *g, uint64_t worker_id);

struct program_waiter {
    struct program_ticket ticket; /* the owner's part of it */
    void (*go)(void *arg);        /* after a wait; may free the waiter's owner */
    void *arg;
    struct program_gate *at; /* of the gate: NULL = it is not tracked */
};

/* As programs_enter(). */
MUST_CHECK int program_gate_enter(struct program_gate *g, struct program_waiter *w,
                                  struct str session);
/* Harmless for one that did not enter, and again. @ok: it was answered. */
void program_gate_leave(struct program_waiter *w, bool ok);
