/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of the scheduler: a prompt and what it must, may and must not be routed by. Views,
 * all borrowed while it is being routed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/str.h"
#include "router/kv/shared_pages.h"
#include "router/kv/worker_table.h"
#include "router/sched/matches.h"
#include "router/sched/route_conf.h"

struct route_request {
    struct str id;            /* request id, for the trace */
    const uint64_t *local;    /* block_hash_local() of the prompt */
    const uint64_t *sequence; /* block_hash_sequence() of it */
    const uint64_t *tracked;  /* what bookings call its blocks (tracking_hash.h); NULL = sequence */
    size_t n_blocks;
    const struct prompt_matches *matches; /* what another index said, or NULL: not asked */
    const struct shared_hits *shared;     /* in the cache that all share; NULL = there is none */
    /* The prompt, for who looks it up there; NULL = it is not to be looked up. */
    const uint32_t *tokens;
    size_t n_tokens;
    uint32_t isl; /* prompt tokens, >= 1 */
    bool pinned;  /* route to pin.worker_id, rank pin.dp_rank */
    struct worker_rank pin;
    bool bound; /* its session was sent to binding before: there again, if that is eligible */
    struct worker_rank binding;
    bool yields;             /* it leaves that while it is busy, whatever the affinity mode is */
    const uint64_t *exclude; /* workers that just failed this request */
    size_t n_exclude;
    const struct str *required; /* taints without which a worker is not eligible */
    size_t n_required;
    const struct route_taint *preferred;
    size_t n_preferred;
    double overlap_weight, temperature; /* per-request overrides, NAN = none */
    const double *overlap_credit;       /* in place of the conf's; NULL = none */
    const uint32_t *to_compute;         /* tokens of isl, if the caller knows */
    bool no_prefill_tokens;             /* its prompt is computed elsewhere (disaggregation) */
    bool no_kv_reuse;                   /* its blocks are its own */
    bool query_only;                    /* decide without booking */
    uint64_t now_ns;                    /* monotonic */
    uint64_t (*clock)(void);            /* in ns, for match_ns; NULL = not measured */
    uint64_t random;                    /* 64 fresh random bits */
};
