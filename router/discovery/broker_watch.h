/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells an event bus that finds its brokers (wire.md §7.4, DYN_ZMQ_BROKER_ENABLED) of those that discovery
 * knows: for a publisher, which looks for nothing else there. On the loop of both.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"

struct broker_watch;
struct event_bus;
struct store;

/* Both are borrowed and outlive it; nobody else watches @store. Negative as of store_watch(). */
MUST_CHECK int broker_watch_start(struct broker_watch **ret, struct store *store,
                                  struct event_bus *bus, struct err *e);
struct broker_watch *broker_watch_free(struct broker_watch *w); /* NULL in, NULL out */
DEFINE_CLEANUP(struct broker_watch *, broker_watch_free)
