/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request through the stand-alone router: taken from a caller on the request plane, routed,
 * sent on to a worker, and the worker's items handed back as they come.
 *
 *     caller ── plane server ──▶ parse ─▶ route and book ─▶ plane client ──▶ worker
 *        ◀──────────── items, at the pace of the caller ────────────────────────┘
 *
 * A request holds at most one booking and one stream and gives both back on every way out. Until
 * its first item another worker may take over, and later too where the limit of migrations allows it:
 * what the lost one said is part of the prompt then, and the caller sees one stream. Without a limit,
 * as in the reference, the caller sees a broken stream, and may migrate itself. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "lib/base/metric.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"

#include "router/service/call_metrics.h"

struct admission;
struct explain;
struct json_put;
struct plane_client;
struct plane_request;
struct remote_index;
struct router_metrics;
struct scheduler;
struct shared_cache;
struct tracer;
struct tracking_key;

/* What callers find of it. */
enum route_endpoint {
    ROUTE_GENERATE,
    ROUTE_BEST_WORKER,
    ROUTE_OVERLAP_SCORES,
    ROUTE_ENDPOINTS,
};
extern const char *const ROUTE_ENDPOINT_WORDS[ROUTE_ENDPOINTS];

/* What the requests of one router share. */
struct route_pool {
    struct loop *loop;
    struct plane_client *plane;
    struct scheduler *scheduler;
    struct admission *admission;   /* who has to wait */
    struct explain *explain;       /* remembers decisions */
    const char *model;             /* what they are of, in its words */
    const char *ns;                /* of the workers */
    char *served;                  /* the model's name in discovery; NULL = not known yet */
    struct remote_index *remote;   /* where the index is kept; NULL = here */
    struct shared_cache *shared;   /* that the workers may have in common; NULL = none */
    const struct tracer *tracer;   /* where spans go */
    const char *own_ns;            /* of this router */
    uint64_t instance_id;          /* likewise */
    struct tracking_key *tracking; /* names blocks of bookings; NULL = public identities */
    struct map64 addresses;        /* worker id -> text owned by the pool */
    struct list streams;
    size_t n_streams;
    bool track_output_blocks;
    uint64_t migration_limit, card_migration_limit; /* the higher one counts */
    uint64_t migration_tokens_max;                  /* prompt and output, 0 = no limit */
    struct call_metrics calls[ROUTE_ENDPOINTS];
    struct router_metrics *measures; /* of decisions, and of what came of them */
    struct metric *retries, *refused, *migrations;
    void (*ended)(void *arg); /* a request has ended */
    void *arg;
};

/* Routes and streams. Takes over @rq. */
void route_stream_serve(struct route_pool *p, struct plane_request *rq);
/* Answers with the id of the worker that would be chosen now. Takes over @rq. */
void route_best_worker_serve(struct route_pool *p, struct plane_request *rq);
/* Answers with what each target holds of the prompt (overlap_scores.h). Takes over @rq. */
void route_overlap_scores_serve(struct route_pool *p, struct plane_request *rq);
/* Cuts what runs; callers see broken streams. */
void route_streams_abort(struct route_pool *p);
