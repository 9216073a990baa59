/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica sync of one pool's scheduler (--router-replica-sync, router.md §2.10): tells other routers
 * what this one places, and books what they tell.
 *
 * Every booking made by scheduler_route() becomes AddRequest, its first token MarkPrefillCompleted,
 * its end Free, published under the workers' component in the form of 0.9.0; once a router of 1.x is
 * heard, under their endpoint in its form as well. Best effort: no answers, no snapshot; a router
 * that starts knows nothing of what runs. So that others can tell silence from death, and how many
 * routers there are, each announces itself under a topic of ours (REPLICA_PRESENCE_MS) and says when
 * it leaves. What is done with the words of others is in replica_ledger.h.
 *
 * Over ZMQ without brokers a publisher is found by its EventChannel record, which the bus announces:
 * one for each topic and scope here. With such a record goes the router that published there.
 *
 * Sessions are shared as well, where requests of a session stay with a worker: in the form of 1.x
 * (session_event.h), the only one that knows them.
 *
 * One loop thread, that of the scheduler.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"

struct affinity;
struct event_bus;
struct replica;
struct scheduler;

struct replica_conf {
    struct loop *loop;
    struct event_bus *bus;       /* borrowed */
    struct scheduler *scheduler; /* borrowed */
    struct affinity *affinity;   /* borrowed; NULL = there are no sessions */
    struct metric_registry *metrics;
    const char *ns, *component, *endpoint;
    uint64_t router_id; /* of this process */
};

MUST_CHECK int replica_start(struct replica **ret, const struct replica_conf *conf, struct err *e);
/* Says that it leaves; what others placed counts no more. */
struct replica *replica_free(struct replica *r);
DEFINE_CLEANUP(struct replica *, replica_free)
/* Discovery says that a channel of TOPIC_ACTIVE_SEQUENCES is gone: with it who told there. */
void replica_publisher_gone(struct replica *r, uint64_t publisher_id);
