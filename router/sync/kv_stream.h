/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events of one component out of JetStream (router.md §2.5, wire.md §7.6): the mode of 0.9.0
 * when a worker has no local indexer.
 *
 *     stream there? ── no ──▶ made ──▶ snapshot read ──▶ durable consumer ──▶ pulls ─▶ events
 *          ▲                                                                     │
 *          └────── a second later, when anything fails or the server is silent ──┘
 *
 * Each router is a consumer of its own, named by its id, and hears all that the stream holds; a
 * message is acknowledged when it was handed on. Once a second the stream's length is looked at:
 * above the threshold what every consumer has acknowledged is purged, and the index goes into the
 * object store, for routers that start later. The consumer is deleted at the end.
 *
 * One loop thread; nothing blocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

struct kv_stream;
struct nats_link;

struct kv_stream_conf {
    struct loop *loop;
    struct nats_link *nats; /* borrowed */
    const char *ns, *component;
    uint64_t router_id;
    uint64_t max_age_s;                        /* of a stream that we make */
    uint64_t snapshot_threshold;               /* messages; 0 = never */
    bool reset;                                /* purge stream and snapshot first */
    void (*event)(void *arg, struct str json); /* one RouterEvent */
    /* The events of a snapshot, as kv_snapshot.h has them; before the first event. */
    void (*restore)(void *arg, struct str snapshot);
    /* Puts all that is indexed for workers that discovery knows. NULL = no snapshots. */
    void (*dump)(void *arg, struct buf *out);
    void *arg;
};

struct kv_stream_stats {
    uint64_t events;
    uint64_t restarts; /* the way to the consumer began anew */
    uint64_t snapshots_read, snapshots_written;
    bool consuming;
};

MUST_CHECK int kv_stream_start(struct kv_stream **ret, const struct kv_stream_conf *conf,
                               struct err *e);
struct kv_stream *kv_stream_free(struct kv_stream *s);
DEFINE_CLEANUP(struct kv_stream *, kv_stream_free)
/* The link is up again. */
void kv_stream_link_up(struct kv_stream *s);
struct kv_stream_stats kv_stream_stats(const struct kv_stream *s);
