/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a session is bound, as routers of 1.x tell each other (captured from ai-dynamo 1.6.1):
 *
 *     frontends, on the event plane under the workers' endpoint, topic session_affinity_events
 *         {session_id, worker_id, dp_rank, sequence, writer_id}
 *     selection services, over ZeroMQ (service_event.h): model_name and routing_group before these
 *
 * A binding is told when it is made, used, and given back; sequence and writer_id say which one it
 * is, and stay while the session stays with its worker. Readers hand out views. Pure.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

#define TOPIC_SESSION_AFFINITY "session_affinity_events"

enum { SESSION_EVENT_NAME_MAX = 1024 /* bytes of a model, group or session */ };

struct session_event {
    struct str model, group; /* STR_NULL where it is told by place */
    struct str session;
    uint64_t worker_id;
    uint32_t dp_rank;
    uint64_t sequence, writer_id;
};

/* -EBADMSG. */
MUST_CHECK int session_event_decode(struct str payload, struct session_event *ret, struct err *e);
/* Without model and group when there is no model. */
void session_event_put(struct buf *out, const struct session_event *s);
