/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last decisions, in a ring of fixed size: the newest overwrites the oldest.
 *
 * Records are numbered from 1 without holes, so a reader that remembers the last number it saw goes
 * on from there and knows how many it missed. Memory: size × (sizeof(struct decision_record) + 8),
 * some 7 KB each, 7 MB with 1,024 records; pages of a ring that is not full yet are not touched.
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
 * The record to be filled next; its number is set. It is found by decision_ring_find() once
 * decision_ring_added() was called. NULL is never returned; what was there is gone.
 */
struct decision_record *decision_ring_add(struct decision_ring *r) __attribute__((returns_nonnull));
void decision_ring_added(struct decision_ring *r, const struct decision_record *rec);
/* NULL when it was overwritten, or is none yet. */
struct decision_record *decision_ring_at(const struct decision_ring *r, uint64_t seq);
/* The newest of this request older than @before (UINT64_MAX = any), or NULL. */
struct decision_record *decision_ring_find(const struct decision_ring *r, struct str request_id,
                                           uint64_t before);
/* Numbers of the oldest record that is still there, and of the next one to come. */
uint64_t decision_ring_first(const struct decision_ring *r);
uint64_t decision_ring_next(const struct decision_ring *r);
/* Whether the next one overwrites the oldest. */
bool decision_ring_is_full(const struct decision_ring *r);
