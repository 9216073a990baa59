/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker tells routers: load on the event bus; KV events there too, or into JetStream when it
 * has no local indexer, as workers of 0.9.0 do (wire.md §7). Without a bus everything is dropped.
 * One loop.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/wire/kv_event.h"

struct event_publisher;
struct event_bus;
struct event_channel_info;
struct loop;
struct nats_link;

struct event_publisher_conf {
    struct event_bus *bus; /* borrowed; NULL = nowhere */
    const char *ns, *component;
    const char *endpoint; /* told to it, as 1.x does; NULL = KV events to the component, load to
                             the namespace */
    uint64_t worker_id;
    bool kv; /* KV events too, not load alone */
    struct loop *loop;
    struct nats_link
        *stream_nats; /* borrowed; KV events go into JetStream by it; NULL = on the bus */
    uint64_t stream_max_age_s;
    void (*ready)(void *arg); /* the stream is there (again): events get into it; may be NULL */
    void *arg;
};

MUST_CHECK int event_publisher_new(struct event_publisher **ret,
                                   const struct event_publisher_conf *conf, struct err *e);
struct event_publisher *event_publisher_free(struct event_publisher *p);
DEFINE_CLEANUP(struct event_publisher *, event_publisher_free)
/* The link is up (again): the stream is made if there is none. */
void event_publisher_link_up(struct event_publisher *p);
void event_publisher_kv(struct event_publisher *p, const struct kv_event *ev);
void event_publisher_load(struct event_publisher *p, const struct active_load *load);
/* Events that could not leave: no link, or it was down. */
uint64_t event_publisher_dropped(const struct event_publisher *p);
uint64_t event_publisher_sent(const struct event_publisher *p);
/* The i-th channel to be found in discovery; false when there is none. Views into the publisher. */
bool event_publisher_channel(const struct event_publisher *p, size_t i,
                             struct event_channel_info *ret);
