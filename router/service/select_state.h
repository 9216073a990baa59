/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the handlers of the selection service share. For select_*.c only; one loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "lib/base/metric.h"
#include "lib/base/strmap.h"
#include "lib/net/loop.h"
#include "router/frontend/admission.h"
#include "router/sched/affinity.h"
#include "router/service/kv_group.h"
#include "router/service/rest.h"
#include "router/service/worker_spec.h"

struct kv_listener;
struct explain;
struct http_options;
struct peer_recovery;
struct service_peers;
struct tracking_key;
struct selection_cache;
struct zmq_context;

enum { SELECT_WORKERS_MAX = 16384, SELECT_RESERVATIONS_MAX = 1 << 18 };

struct select_worker {
    struct arena *arena; /* of the spec */
    struct worker_spec spec;
    struct kv_group *group; /* NULL while it cannot be chosen */
    struct kv_listener **listeners;
    size_t n_listeners;
    char *failure; /* why it could not join its group; NULL = it could */
};

struct reservation {
    struct list link; /* by last sign of life */
    char *id;
    struct booking *booking;
    struct kv_group *group;
    struct worker_rank worker;
    uint64_t touched_ms;
    struct affinity_hold session;
    bool heard;            /* of a peer that placed it */
    uint64_t decision_seq; /* record of its choice, where it was made here */
    uint64_t t_start_ns, t_first_ns;
};

struct select_state {
    struct loop *loop;
    struct zmq_context *zmq;
    struct metric_registry *metrics;
    struct kv_groups groups;
    struct map64 workers;        /* id -> struct select_worker */
    struct strmap *reservations; /* id -> struct reservation */
    struct list oldest_first;    /* reservations */
    uint64_t expiry_ms;          /* of reservations without a sign of life, 0 = never */
    struct selection_cache *pending;
    struct peer_recovery *peers;    /* NULL: none */
    struct service_peers *replicas; /* NULL: none */
    struct explain *explain;        /* remembers decisions */
    struct admission_rules *rules;  /* who waits */
    struct admission_metrics queue_metrics;
    struct strmap *waiting;        /* ids that will be reserved, of requests that wait */
    struct tracking_key *tracking; /* names blocks of bookings; NULL = public identities */
    struct metric *gauge_workers, *gauge_schedulable, *gauge_reservations, *gauge_pending;
    struct metric *expired;
};

/* Whether requests may wait here. */
static inline bool select_queues(const struct select_state *s)
{
    return queue_profiles_wait(&s->rules->profiles);
}

static inline uint64_t select_now_ms(const struct select_state *s)
{
    return loop_now_ms(s->loop);
}

/* --- select_workers.c: POST, PATCH, DELETE and GET of workers, /ready --- */

int select_workers_post(void *state, struct rest_call *c);
int select_workers_patch(void *state, struct rest_call *c);
int select_workers_delete(void *state, struct rest_call *c);
int select_workers_get(void *state, struct rest_call *c);
int select_ready(void *state, struct rest_call *c);
/* NULL when there is none of that id, or it cannot be chosen. */
struct select_worker *select_worker_schedulable(const struct select_state *s, uint64_t id);
size_t select_workers_schedulable(const struct select_state *s);
void select_workers_free_all(struct select_state *s);

/* --- select_requests.c: choosing --- */

int select_select(void *state, struct rest_call *c);
int select_select_and_reserve(void *state, struct rest_call *c);
int select_reserve(void *state, struct rest_call *c);
int select_potential_loads(void *state, struct rest_call *c);
int select_overlap_scores(void *state, struct rest_call *c);

/* --- select_reservations.c: what is reserved --- */

struct reservation *select_reservation_find(const struct select_state *s, struct str id);
/* Takes the booking. The caller may say more of it. */
struct reservation *select_reservation_add(struct select_state *s, struct str id,
                                           struct kv_group *g, struct worker_rank worker,
                                           struct booking *take_booking);
/* Without a word to peers. */
void select_reservation_end(struct select_state *s, struct reservation *r, bool ok);
void select_reservation_prefilled(struct select_state *s, struct reservation *r);
void select_reservations_drop_worker(struct select_state *s, uint64_t worker_id);
void select_reservations_expire(struct select_state *s);
void select_reservations_free_all(struct select_state *s);
int select_prefill_complete(void *state, struct rest_call *c);
int select_output_block(void *state, struct rest_call *c);
int select_release(void *state, struct rest_call *c);
int select_loads(void *state, struct rest_call *c);

/* --- select_replicas.c: what peers tell, and are told --- */

MUST_CHECK int select_replicas_start(struct select_state *s, const struct http_options *o,
                                     struct err *e);
