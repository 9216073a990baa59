/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker tells the event plane: KV events and load, in envelopes, over core NATS
 * (wire.md §7.2, 7.3). Without a link everything is dropped. One loop.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "router/wire/kv_event.h"

struct event_publisher;
struct nats_link;

/* @link (may be NULL) is borrowed. Names are copied. Never NULL. */
struct event_publisher *event_publisher_new(struct nats_link *link, const char *ns,
                                            const char *component, uint64_t worker_id);
struct event_publisher *event_publisher_free(struct event_publisher *p);
DEFINE_CLEANUP(struct event_publisher *, event_publisher_free)
void event_publisher_kv(struct event_publisher *p, const struct kv_event *ev);
void event_publisher_load(struct event_publisher *p, const struct active_load *load);
/* Events that could not leave: no link, or it was down. */
uint64_t event_publisher_dropped(const struct event_publisher *p);
uint64_t event_publisher_sent(const struct event_publisher *p);
