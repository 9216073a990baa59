/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of the objects in a Mooncake store, as its master's publisher tells them:
 *
 *     master PUB ── ["", sequence (8 bytes, big-endian), batch] ──▶ SUB ──▶ names
 *
 * The publisher has no memory: what was stored before is not known, and when a sequence number is
 * missing all names are forgotten, as it could be any of them that is gone. A number that came
 * already is passed over, but for a publisher that was away: then it is another one. Objects of
 * other tenants than "default" and "" are left out, as ai-dynamo 1.6.1 does. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/kv/shared_pages.h"

struct mooncake_source;
struct zmq_context;

struct mooncake_source_stats {
    uint64_t batches;
    uint64_t bad;     /* messages that could not be read */
    uint64_t gaps;    /* in sequence numbers */
    uint64_t refused; /* objects that there was no room for */
};

/* @endpoint "tcp://host:port"; @zmq, @pages and @stats are borrowed; both of the latter are changed
 * from the loop. */
MUST_CHECK int mooncake_source_start(struct mooncake_source **ret, struct zmq_context *zmq,
                                     const char *endpoint, struct shared_pages *pages,
                                     struct mooncake_source_stats *stats, struct err *e);
struct mooncake_source *mooncake_source_free(struct mooncake_source *s);
DEFINE_CLEANUP(struct mooncake_source *, mooncake_source_free)
