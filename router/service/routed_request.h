/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stand-alone router reads of a request that it forwards, and the request as it forwards it
 * (wire.md §5.1, router.md §6.2).
 *
 * Only what routing needs is looked at. All other members travel on byte for byte, those that this
 * release does not know included. A request whose worker was lost goes on with what was said as part
 * of its prompt (routed_request_extend). Pure, thread safe.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/service/body.h"
#include "router/wire/optional.h"

struct arena;
struct err;
struct routing_told;

struct routed_request {
    bool bare;              /* it was the array alone: not to be forwarded */
    const uint32_t *tokens; /* in the arena */
    size_t n_tokens;
    struct u32_list routed;  /* what it is routed by: the same, or as long as its images will be */
    struct media_list media; /* of its blocks, which are not in that */
    uint64_t hash_seed;      /* of its blocks: an adapter's, or that of a cache of its own */
    struct opt_u64 backend_instance_id, dp_rank, expected_output_tokens; /* of `routing` */
    bool salted; /* a cache of its own: what all workers share is of no use to it */
    struct opt_bool enable_local_updates;
    struct opt_bool include_shared;             /* of a question; unset = yes */
    struct opt_f64 overlap_weight, temperature; /* of `router_config_override` */
    struct opt_f64 overlap_credit;              /* of 1.x, as the next two */
    struct opt_bool assume_kv_reuse, track_prefill_tokens;
    struct str routing;                    /* the object's text; empty when absent or null */
    struct str stop_conditions;            /* likewise */
    struct opt_u64 max_tokens, min_tokens; /* of them */
    /* Bound to one worker: by a grammar, whose state is in the engine, or by a prompt that was computed
     * elsewhere for it. */
    bool immovable;
    size_t n_said; /* of the tokens, those that lost workers said */
};

/*
 * @json is the request of `generate`, an object with token_ids, or that of get_overlap_scores, which
 * names adapter and cache beside them and not in `routing`, or that of best_worker_id, which may be
 * the bare array of them too. -EINVAL when it is none of these. A question may be about no tokens.
 */
MUST_CHECK int routed_request_parse(struct arena *a, struct str json, struct routed_request *ret,
                                    struct err *e);
/*
 * Appends @json with routing.dp_rank = @dp_rank. Members that workers insist on and a caller may
 * leave out (model, stop_conditions …) are added with their defaults. @json was parsed, and is not bare.
 * With n_said, tokens and limits are those that are left to do.
 */
void routed_request_put(struct buf *out, struct str json, const struct routed_request *rq,
                        uint32_t dp_rank);
/* A worker has said @said and was lost: it is part of the prompt now, copied into @a. */
void routed_request_extend(struct arena *a, struct routed_request *rq, const uint32_t *said,
                           size_t n);
/* Tokens that may still be said; UINT64_MAX without a limit. */
uint64_t routed_request_left(const struct routed_request *rq, size_t n_said_since);

/*
 * Appends the engine output @data of the worker that goes on with @rq, its usage counted as if one
 * worker had done it all. What @told says stands in the place of what others have said.
 */
void routed_output_put(struct buf *out, struct str data, const struct routed_request *rq,
                       const struct routing_told *told);
