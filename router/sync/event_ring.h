/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last KV events of one rank, for routers that missed some (wire.md §7.7; router.md §2.6).
 *
 * Pure; one thread. Bounded: EVENT_RING_LENGTH events.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/kv_event.h"
#include "router/wire/optional.h"

struct err;
struct event_ring;

enum { EVENT_RING_LENGTH = 1024 };

struct event_ring *event_ring_new(void);
struct event_ring *event_ring_free(struct event_ring *r);
DEFINE_CLEANUP(struct event_ring *, event_ring_free)
/* Copies. Ids count up by one. */
void event_ring_push(struct event_ring *r, const struct kv_event *ev);

/* The newest, a view until the next push; NULL when there was none. */
const struct kv_event *event_ring_newest(const struct event_ring *r);

/* Body of a worker_kv_indexer_query. */
struct kv_query {
    uint64_t worker_id;
    struct opt_u64 start, end; /* event ids, both included */
    struct opt_u64 dp_rank;    /* later releases than 0.9.0 */
};
MUST_CHECK int kv_query_parse(struct str json, struct kv_query *ret, struct err *e);

enum { EVENT_RING_DUMP = 1 }; /* outcome: only a dump of the tree can answer; nothing was written */

/*
 * Writes the answer: {"Events":…}, {"TooNew":…} or {"InvalidRange":…}. 0 or EVENT_RING_DUMP.
 * @newer: as of 1.x, which tells all up to the newest, whatever the end.
 */
MUST_CHECK int event_ring_answer(const struct event_ring *r, const struct kv_query *q, bool newer,
                                 struct buf *out);

/*
 * Around the events of an answer, @name "Events" or "TreeDump"; commas between them are the caller's:
 * {name: [e,…]}, @newer {name: {"events":[e,…],"last_event_id":n}}.
 */
void kv_events_begin_put(const char *name, struct buf *out, bool newer);
void kv_events_end_put(const struct event_ring *r, struct buf *out, bool newer);
