/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica sync of every pool of this frontend, on or off as the configuration says: live, too.
 *
 * One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"

struct event_bus;
struct event_channel;
struct pool;
struct replicas;

/* Off at first. Borrows the first two. @router_id: of this process, among routers. */
struct replicas *replicas_new(struct loop *l, struct metric_registry *metrics, uint64_t router_id)
    __attribute__((returns_nonnull));
/* Before the bus and the pools. */
struct replicas *replicas_free(struct replicas *r);
/* @bus NULL = off. */
void replicas_switch(struct replicas *r, struct event_bus *bus);
/* Borrowed until it is removed. */
void replicas_add(struct replicas *r, struct pool *p);
void replicas_remove(struct replicas *r, const struct pool *p);
/* Discovery says that the channel is gone: with it the router that published there. */
void replicas_channel_gone(struct replicas *r, const struct event_channel *ch);
