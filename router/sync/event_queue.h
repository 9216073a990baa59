/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events of one rank that wait for others before them, sorted by id.
 *
 * Copies what it is given. Events of one id keep the order in which they came. The caller bounds
 * it by what event_queue_weight() says. Pure; one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "router/wire/kv_event.h"

/* Embedded by value; zero-initialised is empty. */
struct event_queue {
    struct kv_event **events; /* from first on, n of them */
    size_t first, n, cap;
    size_t hashes; /* block hashes that they carry */
};

void event_queue_done(struct event_queue *q);
DEFINE_CLEANUP_EMBEDDED(struct event_queue, event_queue_done)
void event_queue_put(struct event_queue *q, const struct kv_event *ev);
/* The one with the lowest id, borrowed; NULL when empty. */
const struct kv_event *event_queue_head(const struct event_queue *q);
void event_queue_drop_head(struct event_queue *q);
/* Bytes, about. */
size_t event_queue_weight(const struct event_queue *q);
/* Weight of one event. */
size_t event_weight(const struct kv_event *ev);
