/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was told of one rank: its last events and the blocks that it holds by all of them, for
 * routers that missed some or come late (wire.md §7.7).
 *
 * Who has an engine of its own answers from that; this is for who only hears events. One thread.
 * Bounded: EVENT_RING_LENGTH events, and an index within EVENT_MEMORY_BYTES, which forgets blocks
 * when it is full.
 */
#pragma once

#include "router/sync/event_ring.h"

struct event_memory;

enum { EVENT_MEMORY_BYTES = 256 << 20 };

struct event_memory *event_memory_new(void) __attribute__((returns_nonnull));
struct event_memory *event_memory_free(struct event_memory *m);
DEFINE_CLEANUP(struct event_memory *, event_memory_free)
/* Copies. Ids count up by one; the tier is known. */
void event_memory_push(struct event_memory *m, const struct kv_event *ev);
/* As event_ring_newest(). */
const struct kv_event *event_memory_newest(const struct event_memory *m);
/* Writes the whole answer, {"TreeDump":…} included; @newer as in event_ring_answer(). */
void event_memory_answer(struct event_memory *m, const struct kv_query *q, bool newer,
                         struct buf *out);
/* All that a worker's ranks hold, as 0.9.0 reads it: its questions name no rank, and event ids count
 * per rank. */
void event_memory_dump(struct event_memory *const *ranks, size_t n, struct buf *out);
