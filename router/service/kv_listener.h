/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine rank whose KV events a service follows: an engine_source and how it stands.
 *
 * One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/wire/kv_event.h"

struct kv_listener;
struct zmq_context;

enum kv_listener_status {
    KV_LISTENER_FAILED, /* in the order of what a worker of several ranks tells of itself */
    KV_LISTENER_PENDING,
    KV_LISTENER_ACTIVE,
    KV_LISTENER_PAUSED,
    KV_LISTENER_STATUSES,
};
const char *kv_listener_status_word(enum kv_listener_status s);

struct kv_listener_conf {
    struct loop *loop;
    struct zmq_context *zmq;              /* borrowed */
    struct str endpoint, replay_endpoint; /* the second may be empty */
    uint64_t worker_id;
    uint32_t dp_rank, block_size;
    kv_event_fn event;
    void *arg;
};

/* -EINVAL: an endpoint is no ZeroMQ endpoint. */
MUST_CHECK int kv_listener_start(struct kv_listener **ret, const struct kv_listener_conf *conf,
                                 struct err *e);
struct kv_listener *kv_listener_free(struct kv_listener *l);
DEFINE_CLEANUP(struct kv_listener *, kv_listener_free)
/* Hears nothing meanwhile; engine_source_pause(). */
void kv_listener_pause(struct kv_listener *l);
void kv_listener_resume(struct kv_listener *l);
enum kv_listener_status kv_listener_status(const struct kv_listener *l);
