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

struct replica_ledger;
struct scheduler;
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

/* @router_id: ours. */
struct replica_ledger *replica_ledger_new(struct scheduler *s, uint64_t router_id)
    __attribute__((returns_nonnull));
/* Ends every booking, and we are alone again. */
struct replica_ledger *replica_ledger_free(struct replica_ledger *l);
DEFINE_CLEANUP(struct replica_ledger *, replica_ledger_free)

enum replica_outcome replica_ledger_apply(struct replica_ledger *l, const struct sequence_event *ev,
                                          uint64_t now_ns);
/* A router announced itself. */
void replica_ledger_present(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns);
/* It left, or discovery says that it is gone. */
void replica_ledger_leave(struct replica_ledger *l, uint64_t router_id, uint64_t now_ns);
/* Silence and age; every second or so. */
void replica_ledger_tick(struct replica_ledger *l, uint64_t now_ns);

size_t replica_ledger_bookings(const struct replica_ledger *l);
/* Living routers beside us. */
size_t replica_ledger_routers(const struct replica_ledger *l);
/* Whether one of them speaks 1.x. */
bool replica_ledger_newer(const struct replica_ledger *l);
