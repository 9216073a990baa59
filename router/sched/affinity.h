/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker a session was last sent to (router.md §4.8).
 *
 * A binding lives for the TTL after its last use. At most @max are kept: a new one then takes the
 * place of the one that was not used for longest. Pure: times are arguments, ns of a monotonic
 * clock. One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/kv/worker_table.h"

enum { AFFINITY_SESSIONS_MAX = 65536, AFFINITY_ID_MAX = 256 };

struct affinity;

struct affinity *affinity_new(size_t max);
struct affinity *affinity_free(struct affinity *a);
DEFINE_CLEANUP(struct affinity *, affinity_free)
/* False when the session has no live binding. */
bool affinity_find(const struct affinity *a, struct str session, uint64_t ttl_ns, uint64_t now_ns,
                   struct worker_rank *ret);
/* The session was sent to @w now. True when another session's binding had to go for it. Ids that
 * are empty or longer than AFFINITY_ID_MAX are not bound. */
bool affinity_bind(struct affinity *a, struct str session, struct worker_rank w, uint64_t now_ns);
size_t affinity_sessions(const struct affinity *a);
