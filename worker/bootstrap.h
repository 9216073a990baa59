/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a decode worker waits for the KV blocks of a prompt that a prefill worker computes
 * (wire.md §6.6). It stands for the transfer itself: no blocks move.
 *
 *     decode ── room, u64 little endian ──▶ prefill        one connection per prompt
 *            ◀── 0x01 once the prompt is computed ──
 *
 * Either side may be first. Who waits longer than 30 s is sent away: the connection closes without
 * the byte. Bounded: connections and finished rooms that nobody has asked for; beyond, the
 * connection is refused or the room forgotten, and counted. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/net/loop.h"

enum { BOOTSTRAP_WAIT_MS = 30000 };

/* --- prefill side --- */

struct bootstrap_server;

MUST_CHECK int bootstrap_server_start(struct bootstrap_server **ret, struct loop *l,
                                      const char *host, uint16_t port, struct err *e);
struct bootstrap_server *bootstrap_server_free(struct bootstrap_server *s);
DEFINE_CLEANUP(struct bootstrap_server *, bootstrap_server_free)
uint16_t bootstrap_server_port(const struct bootstrap_server *s);
/* The prompt of @room is computed: whoever asks for it now or within 30 s gets the byte. */
void bootstrap_server_ready(struct bootstrap_server *s, uint64_t room);

struct bootstrap_stats {
    uint64_t served, timed_out, refused, forgotten;
    size_t waiting, ready; /* now */
};
struct bootstrap_stats bootstrap_server_stats(const struct bootstrap_server *s);

/* --- decode side --- */

struct bootstrap_fetch;

/* Calls @done once, @error 0 or -errno, never from within; the handle is dead then. */
MUST_CHECK int bootstrap_fetch_start(struct bootstrap_fetch **ret, struct loop *l, const char *ip,
                                     uint16_t port, uint64_t room,
                                     void (*done)(void *arg, int error), void *arg, struct err *e);
struct bootstrap_fetch *bootstrap_fetch_cancel(struct bootstrap_fetch *f); /* NULL in, NULL out */
