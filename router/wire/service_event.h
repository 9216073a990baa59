/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What selection services and slot trackers tell each other over ZeroMQ (router.md §8.3; captured
 * from ai-dynamo 1.6.1): messages of two parts, a topic and MessagePack.
 *
 *     dynamo.slot-tracker.v1      what was placed: {model_name, routing_group, block_size, event},
 *                                 the event as in sequence_event.h in the form of 1.x
 *     dynamo.session-affinity.v1  where a session is bound: session_event.h, with its place
 *
 * Readers hand out views. Pure.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/wire/sequence_event.h"

struct err;

#define SERVICE_TOPIC_SEQUENCE "dynamo.slot-tracker.v1"
#define SERVICE_TOPIC_SESSION "dynamo.session-affinity.v1"

struct service_sequence {
    struct str model, group;
    uint32_t block_size;
    struct sequence_event event;
};
/* Its hashes are the reader's, until the next call. -EBADMSG, -EMSGSIZE. */
MUST_CHECK int service_sequence_decode(struct sequence_event_reader *r, struct str payload,
                                       struct service_sequence *ret, struct err *e);
void service_sequence_put(struct buf *out, const struct service_sequence *s);
