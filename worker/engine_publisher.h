/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's KV events on the wire of engines (vLLM; router.md §2.7): a publisher, and, where a
 * port is given, the replay of the last ENGINE_STEPS_MAX batches. One loop.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/sim/block_cache.h"

enum { ENGINE_STEPS_MAX = 10000 };

struct engine_publisher;
struct zmq_context;

struct engine_publisher_conf {
    struct zmq_context *zmq;    /* borrowed */
    uint16_t port, replay_port; /* replay 0 = none */
    uint32_t block_size, dp_rank;
};

MUST_CHECK int engine_publisher_new(struct engine_publisher **ret,
                                    const struct engine_publisher_conf *conf, struct err *e);
struct engine_publisher *engine_publisher_free(struct engine_publisher *p);
DEFINE_CLEANUP(struct engine_publisher *, engine_publisher_free)
/* A batch of this one event, which has its tokens. */
void engine_publisher_send(struct engine_publisher *p, const struct cache_event *ev);
