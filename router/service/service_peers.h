/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica sync of services (router.md §8.3): other services of the same workers, ours or of 1.6.1,
 * are told what this one places, and heard.
 *
 *     our PUB socket (--replica-sync-port) ◀── connects each peer
 *     our SUB socket ──▶ connects to each peer's port: --replica-sync-peers, and those that
 *     POST /replica_sync/register_peer names
 *
 * Best effort: no answers, no snapshot. Who begins knows nothing of what runs elsewhere. Requests are
 * common property: whoever is asked completes or ends one and tells the rest. A peer that was heard
 * in the last REPLICA_SILENCE_MS counts as alive: what it may have placed meanwhile is reckoned with
 * (sched/unheard.h). One loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/service/kv_group.h"
#include "router/service/rest.h"
#include "router/sync/replica_ledger.h"
#include "router/wire/service_event.h"
#include "router/wire/session_event.h"

struct service_peers;
struct zmq_context;

enum { SERVICE_PEERS_MAX = 256 };

struct service_peers_conf {
    struct loop *loop;
    struct zmq_context *zmq; /* borrowed */
    struct metric_registry *metrics;
    const char *prefix; /* of metrics */
    const char *host;   /* to listen on */
    uint16_t port;      /* 0 = replica sync is off */
    const char *peers;  /* comma list of endpoints; NULL = none */
    struct kv_groups *groups;
    /* What to do with what others tell; answers what was done. The second may be NULL. */
    enum replica_outcome (*placed)(void *arg, struct kv_group *g, const struct sequence_event *ev);
    enum replica_outcome (*bound)(void *arg, struct kv_group *g, const struct session_event *s);
    void *arg;
};

/* *ret is NULL where it is off. -EINVAL: peers without a port, or no endpoint. */
MUST_CHECK int service_peers_new(struct service_peers **ret, const struct service_peers_conf *conf,
                                 struct err *e);
struct service_peers *service_peers_free(struct service_peers *p);
DEFINE_CLEANUP(struct service_peers *, service_peers_free)

/* --- telling; nothing happens where @p is NULL --- */

/* A booking of ours, as the scheduler told of it. */
void service_peers_tell_placed(struct service_peers *p, const struct kv_group *g,
                               const struct route_booked *b);
/* SEQUENCE_PREFILL_DONE or SEQUENCE_FREE of a request, whoever placed it. */
void service_peers_tell(struct service_peers *p, const struct kv_group *g, struct str request_id,
                        struct worker_rank worker, enum sequence_event_kind kind);
/* The place is filled in. */
void service_peers_tell_bound(struct service_peers *p, const struct kv_group *g,
                              const struct session_event *s);
/* Names us among routers; 0 where it is off. */
uint64_t service_peers_id(const struct service_peers *p);

/* --- routes; @p may be NULL --- */

int service_peers_list(struct service_peers *p, struct rest_call *c);
int service_peers_register(struct service_peers *p, struct rest_call *c);
int service_peers_deregister(struct service_peers *p, struct rest_call *c);
