/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which worker a session was last sent to (router.md §4.8).
 *
 * A binding lives while requests of it run, and for the TTL after its last use. At most @max are
 * kept: a new one then takes the place of the one that was not used for longest.
 *
 * Routers that share the workers may share the bindings (session_event.h). Each has a version, which
 * stays while the session stays with its worker; of two the later wins, and at the same time the
 * greater writer. That a binding is used is told as well: it then lives on elsewhere. How long
 * requests run elsewhere is not known, so there it ends a TTL after it was told of.
 *
 * Pure: times are arguments, ns of a monotonic clock. One thread.
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

struct affinity_version {
    uint64_t sequence, writer; /* of this writer; sequences begin at the time that it began */
};
struct affinity_binding {
    struct str session;
    struct worker_rank worker;
    struct affinity_version version;
};

/* A running request of a session; all zero = none. */
struct affinity_hold {
    char *session;
    struct affinity_version version;
};

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

/* A request of the session runs: its binding lives until that is given back. None where there is no
 * binding. */
struct affinity_hold affinity_hold(struct affinity *a, struct str session);
/* Counts as a use, if the session is still bound as it was. *h is none after it. */
void affinity_release(struct affinity *a, struct affinity_hold *h, uint64_t now_ns);

/* --- with other routers --- */

/* What is bound and used here is told from now on; @tell NULL ends that. @start: wall clock, ns. */
void affinity_share(struct affinity *a, uint64_t writer, uint64_t start,
                    void (*tell)(void *arg, const struct affinity_binding *b), void *arg);
/* Another router tells. False when we know better. */
bool affinity_hear(struct affinity *a, const struct affinity_binding *b, uint64_t ttl_ns,
                   uint64_t now_ns);
