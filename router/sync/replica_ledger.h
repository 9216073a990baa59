/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other routers have placed on our workers, booked in our scheduler as they tell it (router.md
 * §2.10): the rules, without the transport.
 *
 * A router is alive while it was heard in the last REPLICA_SILENCE_MS. The number of living routers
 * goes to scheduler_set_replicas(). One that announces itself (ours do, every REPLICA_PRESENCE_MS)
 * and then is silent for that long, or says that it leaves, loses its bookings. A router of the
 * reference does not announce itself, and may be silent for the length of a request: its bookings end
 * with their "Free", when discovery says that it is gone, or at the age at which the scheduler
 * expires bookings. Bookings and routers are bounded; what is beyond is dropped.
 *
 * Pure: times are arguments. One thread, that of the scheduler.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/sched/scheduler.h"
#include "router/wire/session_event.h"

struct affinity;
struct affinity_binding;
struct replica_ledger;
struct sequence_event;

enum {
    REPLICA_SILENCE_MS = 10000,
    REPLICA_PRESENCE_MS = 3000,
    REPLICA_BOOKINGS_MAX = 1 << 17,
    REPLICA_ROUTERS_MAX = 256,
};

enum replica_outcome {
    REPLICA_APPLIED,
    REPLICA_OWN,             /* what we said ourselves */
    REPLICA_TWICE,           /* known already */
    REPLICA_UNKNOWN_WORKER,  /* discovery has not told us of it */
    REPLICA_UNKNOWN_REQUEST, /* placed before we listened, or dropped */
    REPLICA_FULL,            /* a bound is reached */
    N_REPLICA_OUTCOMES
};
extern const char *const REPLICA_OUTCOME_WORDS[N_REPLICA_OUTCOMES];

/* --- what every kind of router does with the words of others --- */

/*
 * Books what a SEQUENCE_ADD says: 0.9 what the prompt has and what is cached of it, 1.x what is left
 * to compute. REPLICA_APPLIED with *ret, which the caller ends; REPLICA_FULL without @room for it;
 * REPLICA_UNKNOWN_WORKER.
 */
enum replica_outcome replica_book(struct scheduler *s, const struct sequence_event *ev, bool room,
                                  uint64_t now_ns, struct booking **ret);
/* A binding of @s's sessions into @a. REPLICA_TWICE: we know as much or more. */
enum replica_outcome replica_bind(const struct scheduler *s, struct affinity *a,
                                  const struct session_event *ev, uint64_t now_ns);
/* What is told of a binding of ours. A view. */
struct session_event replica_session_of(const struct affinity_binding *b);

/* --- one pool's --- */

/* @router_id: ours. */
struct replica_ledger *replica_ledger_new(struct scheduler *s, uint64_t router_id)
    __attribute__((returns_nonnull));
/* Ends every booking, and we are alone again. */
struct replica_ledger *replica_ledger_free(struct replica_ledger *l);
DEFINE_CLEANUP(struct replica_ledger *, replica_ledger_free)

/* @publisher_id: of the envelope, which is not the router's id. */
enum replica_outcome replica_ledger_apply(struct replica_ledger *l, uint64_t publisher_id,
                                          const struct sequence_event *ev, uint64_t now_ns);
/* A router announced itself. */
void replica_ledger_present(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns);
/* It left. */
void replica_ledger_leave(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns);
/* Discovery says that this publisher is gone: with it the routers that were heard from it last. */
void replica_ledger_publisher_gone(struct replica_ledger *l, uint64_t publisher_id,
                                   uint64_t now_ns);
/* Silence and age; every second or so. */
void replica_ledger_tick(struct replica_ledger *l, uint64_t now_ns);

size_t replica_ledger_bookings(const struct replica_ledger *l);
/* Living routers beside us. */
size_t replica_ledger_routers(const struct replica_ledger *l);
/* Whether one of them speaks 1.x. */
bool replica_ledger_newer(const struct replica_ledger *l);
