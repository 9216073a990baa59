/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stand-alone router says of itself in the first and the last output of an answer: the
 * member `routing_data`, as 1.6.1's router has it. Pure but for the clocks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json_put.h"
#include "router/kv/worker_table.h"

struct route_decision;

struct routing_told {
    bool has_worker, has_timing; /* what there is to say */
    struct worker_rank worker;   /* that computes the prompt, and answers */
    uint64_t received_ms;        /* wall clock */
    /* Since then; NAN = it did not come to that, and is left out. */
    double sent_ms, first_token_ms, total_ms;
    double kv_hit_rate; /* NAN = not known */
    uint64_t queue_depth;
};

/* When what happened to a request, monotonic; 0 = not yet. */
struct routing_times {
    uint64_t start_ns, sent_ns, first_ns;
    uint64_t queue_depth; /* requests that waited when it came */
};

/* @d has chosen. Now is the end. */
struct routing_told routing_told_of(const struct route_decision *d, const struct routing_times *at,
                                    bool worker, bool timing);
void routing_told_put(struct json_put *j, const struct routing_told *told);
/* Why nobody is chosen, of an outcome of scheduler_route(). */
const char *routing_refusal(int outcome);
