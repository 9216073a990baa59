/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A KV event into a scheduler, and what became of it in the words of the reference's counter
 * kv_cache_events_applied. One thread, that of the scheduler.
 */
#pragma once

#include "router/wire/kv_event.h"

struct scheduler;

enum kv_applied {
    KV_APPLIED_OK,
    KV_APPLIED_NO_PARENT,
    KV_APPLIED_NO_BLOCK,
    KV_APPLIED_INVALID,
    N_KV_APPLIED
};
extern const char *const KV_APPLIED_WORDS[N_KV_APPLIED];
extern const char *const KV_KIND_WORDS[KV_CLEARED + 1];

/*
 * Blocks on the device go into the index, others into that of their tier, where none can fail. When
 * a device is cleared all tiers are. @ev->tier is known. *ret_known: it stores on a device nothing that
 * its worker was not known to hold.
 */
enum kv_applied kv_apply(struct scheduler *s, const struct kv_event *ev, bool *ret_known);
/* What the reference calls that in metrics, where it is a warning. */
#define KV_WARNING_KNOWN "duplicate_store"
