/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of a request through the stand-alone router, for the files route_*.c only.
 */
#pragma once

#include "router/frontend/admission.h"
#include "router/frontend/spans.h"
#include "router/sched/scheduler.h"
#include "router/service/route_measure.h"
#include "router/service/route_stream.h"
#include "router/service/routed_request.h"
#include "router/service/routing_told.h"
#include "router/sync/remote_index.h"
#include "router/wire/engine_output.h"

struct arena;
struct plane_request;
struct plane_stream;
struct shared_hits;

enum { ROUTE_ATTEMPTS = 4 };

struct route_stream {
    struct list link;
    struct route_pool *pool;
    struct plane_request *request; /* NULL once it is over */
    struct plane_stream *stream;
    struct booking *booking;
    struct route_decision decision;
    struct arena *arena;
    struct routed_request in;
    struct trace_context trace; /* the caller's */
    const char *id;
    enum route_endpoint endpoint; /* that was called */
    struct attempt_span attempt;
    struct router_times times; /* of hashing */
    uint64_t *local, *sequence;
    uint64_t *tracked; /* NULL = as sequence */
    size_t n_blocks;
    struct remote_lookup *lookup; /* of another router's index, and what it said if it was asked */
    struct prompt_matches matches;
    bool asked;
    void (*next)(struct route_stream *s); /* once it has answered */
    struct admission_ticket ticket;
    uint64_t failed[ROUTE_ATTEMPTS];
    size_t n_failed, n_items;
    bool started;                       /* the caller has our prologue */
    uint64_t n_output, n_output_blocks; /* of the worker of now */
    struct route_measure measure;
    struct {
        uint32_t *ids;
        size_t len, cap;
    } said; /* by the worker of now, kept as long as another may go on */
    uint64_t n_migrations;
    uint64_t decision_seq; /* record of the decision under way, 0 = none */
    struct routing_times at;
    bool told_worker; /* the caller knows who answers */
    struct engine_output_reader reader;
};

/* route_stream.c */
struct route_stream *route_stream_new(struct route_pool *p, struct plane_request *rq,
                                      enum route_endpoint endpoint)
    __attribute__((returns_nonnull));
void route_stream_free(struct route_stream *s);
/* Tells the caller, in words, and frees @s. */
void route_fail(struct route_stream *s, const char *why);
void route_send_item(const struct route_stream *s, struct str item);
/* Goes on with @next, which may free @s: now, or once the router that keeps the index has answered. */
void route_look_up(struct route_stream *s, void (*next)(struct route_stream *s));

/* route_decide.c */
void route_hash_prompt(struct route_stream *s);
/* What is asked of the scheduler; borrows from @s. */
struct route_request route_query(const struct route_stream *s);
/* What a cache that the workers share holds of the prompt, in *@ret; NULL where there is none. */
const struct shared_hits *route_ask_shared(const struct route_stream *s, struct shared_hits *ret);
struct remote_prompt route_remote_prompt(const struct route_stream *s);
/* An outcome of scheduler_route(): 0 = s->decision holds, and s->booking unless @query_only. */
int route_decide(struct route_stream *s, bool query_only);
struct worker_rank route_chosen(const struct route_stream *s);
struct str route_request_id(const struct route_stream *s);
/* The attempt has ended; of a decision that is told already, nothing more is. */
void route_note_end(struct route_stream *s, enum decision_end how);
