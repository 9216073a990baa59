/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KV events of a process: the links that they come by, and a feed of them for each pool.
 *
 *     event bus (NATS or ZeroMQ) ───┐
 *     JetStream, where it is needed ┴─▶ kv_intake of the pool ─▶ its scheduler
 *
 * Every pool hears the bus. JetStream is joined as soon as one of its workers has no local indexer
 * (router.md §2.4): such workers of 0.9.0 publish there and nowhere else, those that have one never
 * do, so that a mixed pool is heard whole and nothing twice. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "lib/net/nats_link.h"

struct event_bus;
struct event_channel_info;
struct kv_events;
struct kv_feed;
struct kv_intake_worker;
struct plane_client;
struct scheduler;

/* All borrowed, strings for as long as it lives. */
struct kv_events_conf {
    struct loop *loop;
    struct plane_client *plane;
    struct metric_registry *metrics;
    uint64_t router_id;         /* of this process, among routers; 0 = a random one */
    struct nats_link_conf nats; /* its state callback is ours */
    bool zmq;                   /* the bus is ZeroMQ's */
    const char *brokers;        /* as event_bus_conf has it */
    bool find_brokers;
    /* As event_bus_conf has it. */
    void (*announce)(void *arg, const struct event_channel_info *ch, bool there);
    void *arg;
    uint64_t stream_max_age_s;
    uint64_t snapshot_threshold;
    bool reset_states;
    const char *index_folder; /* NULL: indexes are not kept; see index_keeper.h */
    uint64_t index_period_ms;
};

MUST_CHECK int kv_events_start(struct kv_events **ret, const struct kv_events_conf *conf,
                               struct err *e);
/* After its feeds. */
struct kv_events *kv_events_free(struct kv_events *v);
DEFINE_CLEANUP(struct kv_events *, kv_events_free)
struct event_bus *kv_events_bus(const struct kv_events *v);
/* NULL while NATS is not needed. */
struct nats_link *kv_events_nats(const struct kv_events *v);

struct kv_feed_conf {
    struct scheduler *scheduler;
    const char *ns, *component, *endpoint;
};

MUST_CHECK int kv_feed_start(struct kv_feed **ret, struct kv_events *v,
                             const struct kv_feed_conf *conf, struct err *e);
struct kv_feed *kv_feed_free(struct kv_feed *fd);
DEFINE_CLEANUP(struct kv_feed *, kv_feed_free)
void kv_feed_put_worker(struct kv_feed *fd, const struct kv_intake_worker *w);
void kv_feed_remove_worker(struct kv_feed *fd, uint64_t worker_id);
