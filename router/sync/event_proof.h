/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a rank's engine is the one that it was: what its last event said, kept in the index's file,
 * against what the worker tells of that event when it is asked again.
 *
 * An engine that has restarted under its old name counts its events anew; once it is past our
 * position its numbers alone do not show it. So a rank that comes from a file is resumed one event
 * early, and that event has to say again what it said then.
 *
 * Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/map64.h"
#include "router/kv/worker_table.h"
#include "router/wire/kv_event.h"

/* Embedded by value; zero-initialised is empty. */
struct event_proofs {
    struct map64 ranks; /* worker_rank_key() -> struct event_proof, of ranks seen */
};

void event_proofs_done(struct event_proofs *p);
/* The event is applied, live or told. */
void event_proofs_saw(struct event_proofs *p, const struct kv_event *ev);
/* What the rank's newest event @id said, as a number; 0 when that is not known. */
uint64_t event_proofs_of(const struct event_proofs *p, struct worker_rank w, uint64_t id);
/* The rank's event @id will be told again, and has to say the same. */
void event_proofs_expect(struct event_proofs *p, struct worker_rank w, uint64_t id, uint64_t proof);
/* The rank's blocks are replaced: nothing is expected any more. */
void event_proofs_reset(struct event_proofs *p, struct worker_rank w);
void event_proofs_forget(struct event_proofs *p, uint64_t worker_id);

enum event_expectation {
    EVENT_NOT_EXPECTED,  /* nothing is, or it was told as it should be */
    EVENT_NOT_TOLD,      /* not yet */
    EVENT_TOLD_OTHERWISE /* it is another engine */
};
enum event_expectation event_proofs_look(const struct event_proofs *p, struct worker_rank w);
/* One rank of which something is expected, or told otherwise; false at the end. @at begins at 0. */
bool event_proofs_next(const struct event_proofs *p, size_t *at, struct worker_rank *ret);
