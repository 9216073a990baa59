/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request through the router of several pools: taken from a frontend on the request plane, its pool
 * chosen (pools.h), handed byte for byte to the router of that pool, and the items handed back.
 *
 *     frontend ── plane server ──▶ choose a pool ─▶ plane client ──▶ router of the pool ──▶ worker
 *         ◀────────── items, at the pace of the frontend ──────────────────┘
 *
 * Until the first item another router of the pool may take over, and faster pools after it where the file
 * says so. After it the frontend sees a broken stream, as from a worker. One loop thread.
 */
#pragma once

#include <stddef.h>

#include "lib/base/list.h"
#include "lib/base/metric.h"
#include "router/service/call_metrics.h"
#include "router/service/pools.h"

struct plane_client;
struct plane_request;
struct pool_routers;

/* What the requests of one router share. */
struct global_pools {
    struct plane_client *plane;
    const struct pools *pools;
    struct pool_routers *routers;
    struct opt_f64 ttft_ms, itl_ms; /* targets of who names none */
    struct list streams;
    size_t n_streams;
    struct call_metrics calls[POOL_KINDS]; /* of the kinds that are served */
    struct metric *refused;
    struct metric_family *sent, *failed; /* by kind and namespace of the pool */
    void (*ended)(void *arg);            /* a request has ended */
    void *arg;
};

/* Takes over @rq. */
void global_stream_serve(struct global_pools *g, enum pool_kind kind, struct plane_request *rq);
/* Cuts what runs; frontends see broken streams. */
void global_streams_abort(struct global_pools *g);
