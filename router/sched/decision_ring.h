/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last decisions, in a ring of fixed size: the newest overwrites the oldest.
 *
 * Records are numbered from 1 without holes, so a reader that remembers the last number it saw goes
 * on from there and knows how many it missed. They are kept packed (decision_pack.h), one behind the
 * other in chunks that live until their last record is overwritten: a record takes 0.5 KB and up to
 * 0.15 KB for each candidate, so 1,024 of them some 1 MB with 4 workers and 5 MB with 32 and more.
 * Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/sched/decision_record.h"

struct decision_ring;

struct decision_ring *decision_ring_new(size_t size); /* @size >= 1 */
struct decision_ring *decision_ring_free(struct decision_ring *r);
DEFINE_CLEANUP(struct decision_ring *, decision_ring_free)
/*
 * The record to be filled next; its number is set. The ring has it when decision_ring_added() was
 * called, and what it overwrites is there until then. NULL is never returned.
 */
struct decision_record *decision_ring_add(struct decision_ring *r) __attribute__((returns_nonnull));
void decision_ring_added(struct decision_ring *r);
/*
 * A copy of the record, which the next call of this or of decision_ring_find() overwrites. NULL when
 * it was overwritten, or is none yet.
 */
const struct decision_record *decision_ring_at(struct decision_ring *r, uint64_t seq);
/* The newest of this request older than @before (UINT64_MAX = any), or NULL; a copy likewise. */
const struct decision_record *decision_ring_find(struct decision_ring *r, struct str request_id,
                                                 uint64_t before);
/* How the decision went, to be read or written; NULL as for decision_ring_at(). Until the next is
 * added. */
struct decision_outcome *decision_ring_outcome(struct decision_ring *r, uint64_t seq);
/* Numbers of the oldest record that is still there, and of the next one to come. */
uint64_t decision_ring_first(const struct decision_ring *r);
uint64_t decision_ring_next(const struct decision_ring *r);
/* Whether the next one overwrites the oldest. */
bool decision_ring_is_full(const struct decision_ring *r);
/* Memory that it holds. */
size_t decision_ring_bytes(const struct decision_ring *r);
