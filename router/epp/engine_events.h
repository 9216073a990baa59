/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events of an engine in this process, told to routers of either generation (wire.md §7, 15.7).
 *
 *     any thread ── task ──▶ loop of its own: discovery, link, event_publisher ──▶ NATS or ZeroMQ
 *
 * Events go where the variables of a frontend say (DYN_EVENT_PLANE, NATS_SERVER, …): with NATS into
 * JetStream, as workers of 0.9.0 without an index of their own tell them; with ZeroMQ to the component;
 * and where an endpoint is named to that, with an EventSource record, as 1.x does. The worker is that of
 * the pod POD_NAME, else COMMUTATOR_WORKER_ID, else a random one.
 *
 * engine_events_new(), _wait() and _free() are for one thread, _cancel() for any; telling for any, several
 * at a time, once it is up. Who tells waits until the event has left: there is no queue.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/kv_event.h"

struct engine_events;

struct engine_events_conf {
    const char *ns, *component; /* copied */
    const char *endpoint;       /* copied; NULL = events of the component */
    uint32_t block_size;
    const char *(*env)(const char *name);
};

MUST_CHECK int engine_events_new(struct engine_events **ret, const struct engine_events_conf *conf,
                                 struct err *e);
/* Until discovery knows of a model and what carries events takes them. */
MUST_CHECK int engine_events_wait(struct engine_events *v, struct err *e);
void engine_events_cancel(struct engine_events *v); /* who waits: -ECANCELED */
struct engine_events *engine_events_free(struct engine_events *v);
DEFINE_CLEANUP(struct engine_events *, engine_events_free)
bool engine_events_is_of(const struct engine_events *v, const struct engine_events_conf *conf);
uint64_t engine_events_worker(const struct engine_events *v); /* once it is up */

struct engine_stored {
    uint64_t event_id;
    const uint32_t *tokens;     /* of all blocks, one after the other */
    const size_t *block_tokens; /* of each */
    const uint64_t *block_hashes;
    size_t n_blocks;
    struct opt_u64 parent_hash;
    struct str lora_name; /* empty = none */
};

/* -EMSGSIZE: more blocks than an event may have. -EIO: it could not leave. -ETIMEDOUT: it has not yet. */
MUST_CHECK int engine_events_stored(struct engine_events *v, const struct engine_stored *s,
                                    struct err *e);
MUST_CHECK int engine_events_removed(struct engine_events *v, uint64_t event_id,
                                     const uint64_t *block_hashes, size_t n_blocks, struct err *e);
