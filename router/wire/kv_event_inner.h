/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the MessagePack and the JSON reader of KV events share. For kv_event*.c only.
 */
#pragma once

#include "router/wire/kv_event.h"

extern const char KV_EVENT_TOO_MANY[]; /* error text */

/* Append to the arrays of @r; false at the limit or without memory. */
bool kv_event_add_block(struct kv_event_reader *r, struct kv_event *ev, struct kv_block block);
bool kv_event_add_removed(struct kv_event_reader *r, struct kv_event *ev, uint64_t hash);

/* What an event must have been seen to hold. */
enum { SAW_WORKER = 1, SAW_ID = 2, SAW_DATA = 4, SAW_ALL = 7 };
/* And that it is of another residency domain than "worker": a cache that several workers use, whose
 * events 1.x leaves out as well. */
enum { SAW_ELSEWHERE = 8 };

/* Why the event is incomplete, or NULL after it was handed to @fn. */
const char *kv_event_report(struct kv_event_reader *r, struct kv_event *ev, unsigned seen,
                            kv_event_fn fn, void *arg);
