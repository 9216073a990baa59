/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers that serve one model to one routing group: their scheduler, which knows what they hold
 * and what they are busy with. One loop thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/mem.h"
#include "lib/base/metric.h"
#include "lib/base/str.h"
#include "lib/base/strmap.h"
#include "lib/net/loop.h"
#include "router/sched/affinity.h"
#include "router/sched/scheduler.h"
#include "router/sync/kv_apply.h"
#include "router/wire/kv_event.h"

enum { KV_GROUPS_MAX = 1024 };

struct admission;
struct admission_metrics;
struct admission_rules;

struct kv_group {
    char *key; /* "model:routing group" */
    char *model, *name;
    uint32_t block_size;
    struct scheduler *scheduler;
    struct affinity *affinity;
    struct scheduler_observer observer;
    struct admission *admission; /* NULL: nobody waits */
    size_t n_workers;            /* kept by the owner */
    struct worker_rank dumped;   /* likewise: of the last event of a dump */
    const struct kv_groups *all;
};

struct kv_groups {
    struct strmap *by_key;
    struct route_conf route;
    struct metric *applied[KV_CLEARED + 1][N_KV_APPLIED], *known;
    struct metric *tier_blocks[N_CACHE_TIERS];
    /* Told of what is placed here, in any group; NULL = nobody. Set before there are groups. */
    void (*booked)(void *arg, const struct kv_group *g, const struct route_booked *b);
    void *arg;
    uint64_t writer; /* of sessions that are told; 0 = nobody is told */
    void (*bound)(void *arg, const struct kv_group *g, const struct affinity_binding *b);
    size_t n_replicas; /* that place requests on these workers, this one included */
    /* Requests may wait by these rules; NULL = nobody waits. Set before there are groups; borrowed. */
    const struct admission_rules *rules;
    const struct admission_metrics *queue_metrics;
    struct loop *loop;
};

/* Sets the gauges; before they are read. */
void kv_groups_sample(const struct kv_groups *gs);
/* dynamo_kvrouter_kv_cache_events_applied, dynamo_kvrouter_kv_cache_event_warnings and
   commutator_router_tier_blocks go to @metrics. */
void kv_groups_init(struct kv_groups *gs, const struct route_conf *route,
                    struct metric_registry *metrics);
void kv_groups_done(struct kv_groups *gs); /* bookings must have been released */
/* NULL when there is none. */
struct kv_group *kv_groups_find(const struct kv_groups *gs, struct str model, struct str name);
/* As kv_groups_find(), made if missing, where there is no room for one in the place of one without workers for which nobody waits.
 * -EEXIST: it has another block size; -ENOSPC: no room. */
MUST_CHECK int kv_groups_need(struct kv_groups *gs, struct str model, struct str name,
                              uint32_t block_size, struct kv_group **ret, struct err *e);
/* Frees it. */
void kv_groups_drop(struct kv_groups *gs, struct kv_group *g);

/* Of every group, and those to come. */
void kv_groups_set_replicas(struct kv_groups *gs, size_t n);

/* Workers of it have changed: looks at those that wait, soon. */
void kv_group_wake(struct kv_group *g);
/* What an engine reports. */
void kv_group_apply(struct kv_group *g, const struct kv_event *ev);
/* The worker's blocks and bookings go. */
void kv_group_remove_worker(struct kv_group *g, uint64_t worker_id);
/* {"model:group":{"block_size":n,"events":[…]},…} */
void kv_groups_put_dump(const struct kv_groups *gs, struct json_put *j);
/* What is booked on each target of the group, in @a. */
const struct worker_load *kv_group_loads(const struct kv_group *g, struct arena *a, size_t *ret_n)
    __attribute__((returns_nonnull));
