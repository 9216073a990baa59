/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a Mooncake master publishes of the objects in its store: MessagePack of a batch,
 *
 *     [milliseconds since the epoch, [event, …], rank]
 *
 * and of its events, maps of which these members matter (or arrays of them, in this order):
 *
 *     event_type   "stored", "removed", "cleared"; others are left out
 *     object_key   the object's name; may be missing or nil
 *     tenant_id    whose it is; missing = ""
 *     group_id
 *
 * Sources: what mooncake_master of mooncake-transfer-engine-cuda13 0.3.14 sends
 * (--enable_kv_events), and what ai-dynamo 1.6.1 reads and refuses. Pure, thread safe.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/str.h"

struct err;

enum mooncake_change { MOONCAKE_STORED, MOONCAKE_REMOVED, MOONCAKE_CLEARED };

struct mooncake_event {
    enum mooncake_change change;
    struct str object; /* STR_NULL = none is named */
    struct str tenant;
};

typedef void (*mooncake_event_fn)(void *arg, const struct mooncake_event *ev); /* borrowed */

/* Calls @fn for each event in order. -EBADMSG: those before the bad one have been reported; without
 * @fn it only tells whether all is well. */
MUST_CHECK int mooncake_batch_decode(struct str payload, mooncake_event_fn fn, void *arg,
                                     struct err *e);

/* Writes a batch of @n_events, followed by them. */
void mooncake_batch_begin_put(struct buf *out, int64_t ms, uint32_t n_events);
void mooncake_event_put(struct buf *out, const struct mooncake_event *ev);
void mooncake_batch_end_put(struct buf *out);
