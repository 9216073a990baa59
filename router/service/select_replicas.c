/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica sync of the selection service: what peers place is reserved here as well, under the same
 * id, so any of them completes or ends it.
 */
#include "router/sched/sequences.h"
#include "router/service/http_options.h"
#include "router/service/select_state.h"
#include "router/service/service_peers.h"

static void on_booked(void *arg, const struct kv_group *g, const struct route_booked *b)
{
    service_peers_tell_placed(((struct select_state *)arg)->replicas, g, b);
}

static enum replica_outcome reserve(struct select_state *s, struct kv_group *g,
                                    const struct sequence_event *ev)
{
    bool room = strmap_len(s->reservations) < SELECT_RESERVATIONS_MAX;
    const struct worker_rank worker = {ev->worker_id, ev->dp_rank};
    struct booking *booking;
    enum replica_outcome outcome = replica_book(g->scheduler, ev, room, clock_now_ns(), &booking);

    if (outcome == REPLICA_APPLIED)
        select_reservation_add(s, ev->request_id, g, worker, booking)->heard = true;
    return outcome;
}

static enum replica_outcome on_placed(void *arg, struct kv_group *g,
                                      const struct sequence_event *ev)
{
    struct select_state *s = arg;
    struct reservation *r = select_reservation_find(s, ev->request_id);

    if (ev->kind == SEQUENCE_ADD)
        return r ? REPLICA_TWICE : reserve(s, g, ev);
    if (!r || r->group != g)
        return REPLICA_UNKNOWN_REQUEST;
    if (ev->kind == SEQUENCE_PREFILL_DONE)
        select_reservation_prefilled(s, r);
    else
        select_reservation_end(s, r, true);
    return REPLICA_APPLIED;
}

static void on_bound(void *arg, const struct kv_group *g, const struct affinity_binding *b)
{
    const struct session_event s = replica_session_of(b);

    service_peers_tell_bound(((struct select_state *)arg)->replicas, g, &s);
}

static enum replica_outcome on_session(void *arg, struct kv_group *g, const struct session_event *s)
{
    (void)arg;
    return replica_bind(g->scheduler, g->affinity, s, clock_now_ns());
}

int select_replicas_start(struct select_state *s, const struct http_options *o, struct err *e)
{
    const struct service_peers_conf conf = {.loop = s->loop,
                                            .zmq = s->zmq,
                                            .metrics = s->metrics,
                                            .prefix = "commutator_select",
                                            .host = o->host,
                                            .port = (uint16_t)o->replica_port,
                                            .peers = o->replica_peers,
                                            .groups = &s->groups,
                                            .placed = on_placed,
                                            .bound = on_session,
                                            .arg = s};
    int r;

    s->groups.booked = on_booked;
    s->groups.bound = on_bound;
    s->groups.arg = s;
    r = service_peers_new(&s->replicas, &conf, e);
    s->groups.writer = service_peers_id(s->replicas);
    return r;
}
