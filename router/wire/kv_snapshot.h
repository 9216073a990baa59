/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The snapshot that routers of JetStream mode leave in the object store (router.md §2.5): a list of
 * RouterEvents as the bincode library of 0.9.0 writes them. Little endian, fixed widths; a list is
 * its length (u64) and its elements, an option one byte and its value, a variant its number (u32).
 *
 *     event  = worker u64 · id u64 · 0 stored · parent ?u64 · [block] · rank u32
 *                                  · 1 removed · [u64] · rank u32
 *                                  · 2 cleared · rank u32
 *     block  = hash u64 · tokens hash u64 · ?[mm hash u64 · [begin u64 · end u64]]
 *
 * One thread per reader.
 */
#pragma once

#include "router/wire/kv_event.h"

/*
 * Calls @fn for each event in order. -EBADMSG / -EMSGSIZE: those before the bad one have been
 * reported.
 */
MUST_CHECK int kv_snapshot_decode(struct kv_event_reader *r, struct str bytes, kv_event_fn fn,
                                  void *arg, struct err *e);
/* A snapshot is its number of events, followed by them. */
void kv_snapshot_begin_put(struct buf *out, uint64_t n_events);
void kv_snapshot_event_put(struct buf *out, const struct kv_event *ev);
