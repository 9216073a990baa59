/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the handlers of the index service share. For index_*.c only; one loop thread.
 */
#pragma once

#include <stdint.h>

#include "lib/base/list.h"
#include "lib/base/metric.h"
#include "lib/net/loop.h"
#include "router/service/kv_group.h"
#include "router/service/kv_listener.h"
#include "router/service/rest.h"

struct peer_recovery;
struct access_log;
struct zmq_context;

enum { INDEX_SOURCES_MAX = 16384 };

/* One engine rank that is followed. */
struct index_source {
    struct list link;
    struct kv_group *group;
    struct index_state *state;
    struct kv_listener *listener;
    char *endpoint;
    uint64_t worker_id;
    uint32_t dp_rank, other_rank; /* the second: last one of its batches that was not the first */
};

struct index_state {
    struct loop *loop;
    struct zmq_context *zmq;
    struct access_log *access; /* NULL: none */
    struct metric_registry *metrics;
    struct kv_groups groups; /* n_workers of a group counts its sources */
    struct list sources;
    size_t n_sources;
    struct peer_recovery *peers;
    struct metric *gauge_models, *gauge_workers, *gauge_listeners[KV_LISTENER_STATUSES];
};

struct index_registration {
    struct opt_u64 instance_id, block_size, dp_rank;
    struct str endpoint, model_name, routing_group, replay_endpoint;
    struct str additional_salt; /* has no effect in the reference either */
};

/* --- index_sources.c --- */

/* 0, -EEXIST, -EINVAL or -ENOSPC. */
MUST_CHECK int index_register(struct index_state *s, const struct index_registration *rg,
                              struct err *e);
void index_sources_free_all(struct index_state *s);
/* One event of a peer's dump, for a group. */
void index_take_dumped(struct kv_group *g, const struct kv_event *ev);
/* By group, worker and rank; in @a. */
size_t index_sources_sorted(struct index_state *s, struct arena *a, struct index_source ***ret);
int index_on_register(void *state, struct rest_call *c);
int index_on_unregister(void *state, struct rest_call *c);
int index_on_workers(void *state, struct rest_call *c);
/* For tests of who asks this service. */
int index_on_pause(void *state, struct rest_call *c);
int index_on_resume(void *state, struct rest_call *c);

/* --- index_query.c --- */

int index_on_query(void *state, struct rest_call *c);
int index_on_query_by_hash(void *state, struct rest_call *c);
