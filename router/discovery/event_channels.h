/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels between discovery and the event bus. On the loop of both.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"

struct event_bus;
struct event_channel;
struct event_channel_info;
struct store;

/* @there: it was found, else it is gone. @bus may be NULL. */
void event_channel_follow(struct event_bus *bus, const struct event_channel *ch, bool there);
/* The other way: a channel of ours is published, or withdrawn. */
MUST_CHECK int event_channel_announce(struct store *s, const struct event_channel_info *ch,
                                      bool there, struct err *e);
