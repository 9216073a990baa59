/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader election by a Lease of coordination.k8s.io: at most one operator writes.
 *
 * The holder renews every ELECTOR_RETRY_MS, by one write over what it wrote last. Another one takes
 * over when it has not seen the Lease change for its duration, by its own clock: the clocks of two
 * machines are never compared. A holder that could not renew for ELECTOR_RENEW_MS says so through
 * `lost` and must write nothing any more; no call outlasts that time. A server that is slow, though,
 * is waited for: ELECTOR_CALL_MS.
 * elector_stop() gives the Lease back, so that a successor need not wait.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/kube/kube_config.h"

enum {
    ELECTOR_LEASE_MS = 15000,
    ELECTOR_RENEW_MS = 13000,
    ELECTOR_CALL_MS = 5000,
    ELECTOR_RETRY_MS = 2000,
};

struct elector;

struct elector_conf {
    const char *ns, *name;
    const char *identity;                     /* unique among the candidates */
    unsigned retry_ms;                        /* 0: ELECTOR_RETRY_MS */
    void (*leading)(void *arg);               /* once; on the elector's thread */
    void (*lost)(void *arg, const char *why); /* once, afterwards; on the elector's thread */
    void *arg;
};

MUST_CHECK int elector_start(struct elector **ret, const struct kube_config *config,
                             const struct elector_conf *conf, struct err *e);
struct elector *elector_stop(struct elector *el); /* NULL in, NULL out */

/* --- the decision, pure ------------------------------------------------------------------------------ */

/* What was last seen of the Lease, and when by our clock. */
struct elector_view {
    char holder[256];
    char renewed[40];
    uint64_t seen_ms;
};

enum elector_action {
    ELECTOR_WAIT,  /* somebody else holds it */
    ELECTOR_TAKE,  /* free or expired */
    ELECTOR_RENEW, /* ours */
};

/* @now_ms: monotonic. Updates @view. */
enum elector_action elector_decide(const struct json *lease, const char *identity, uint64_t now_ms,
                                   struct elector_view *view);
/* How long a call may take at @now_ms, for who renewed the Lease last at @renewed_ms; 0: too late. */
uint64_t elector_call_ms(uint64_t renewed_ms, uint64_t now_ms);
/* The Lease to write: @lease (NULL: a new one) as held by @identity; @wall_ms since the epoch. Owned. */
struct json *elector_held(const struct json *lease, const struct elector_conf *conf,
                          uint64_t wall_ms) __attribute__((returns_nonnull));
/* The Lease as given back. Owned. */
struct json *elector_released(const struct json *lease, uint64_t wall_ms)
    __attribute__((returns_nonnull));
