/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a request asks of the router that keeps the index. A part of struct request.
 */
#pragma once

#include "router/frontend/pool.h"
#include "router/sched/matches.h"

struct remote_lookup;
struct request;

/* By the role of the pool that is asked about. */
struct request_lookup {
    struct remote_lookup *calls[POOL_ROLES];
    struct prompt_matches matches[POOL_ROLES];
    bool asked[POOL_ROLES];
    unsigned n_open;
};

/* Asks. True: the request goes on, at the step behind, once that is answered; false: at once. */
bool request_lookup_start(struct request *rq);
void request_lookup_done(struct request *rq);
/* request_query() for @pool, with what was answered about it. */
struct route_request request_query_of(const struct request *rq, const struct pool *pool);
