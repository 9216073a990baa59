/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as a gateway registers it with the selection service (router.md §8.3): its members as
 * JSON, and what is missing before requests can be sent to it. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "lib/base/json_put.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "router/service/body.h"

enum { WORKER_RANKS_MAX = 1024 };

/* Members that are kept and told for others, but mean nothing here. */
enum worker_extra {
    WORKER_STABLE_ROUTING_ID,
    WORKER_IS_EAGLE,
    WORKER_TOPOLOGY_DOMAINS,
    WORKER_KV_TRANSFER_DOMAIN,
    WORKER_KV_TRANSFER_ENFORCEMENT,
    WORKER_KV_TRANSFER_PREFERRED_WEIGHT,
    WORKER_EXTRAS,
};

struct worker_spec {
    struct opt_u64 worker_id;
    struct str model_name, routing_group; /* "default" unless told */
    struct str endpoint, kv_events_endpoint, replay_endpoint;
    struct str kv_events_endpoints; /* {"rank":"tcp://…"} as JSON */
    struct opt_u64 block_size, dp_start, dp_size, max_num_batched_tokens, total_kv_blocks;
    struct str taints;                /* ["…"] as JSON; absent = none */
    struct str extras[WORKER_EXTRAS]; /* JSON */
};

/* A whole spec, for POST; members point into @a. As body_parse(). */
MUST_CHECK int worker_spec_parse(struct arena *a, struct str json, struct worker_spec *ret,
                                 struct err *e);
/* Lays @json's members over *spec, for PATCH. Its strings must live as long as @a. */
MUST_CHECK int worker_spec_patch(struct arena *a, struct str json, struct worker_spec *spec,
                                 struct err *e);
/* A copy that lives in @a alone. */
struct worker_spec worker_spec_copy(struct arena *a, const struct worker_spec *spec);

static inline uint32_t worker_spec_first_rank(const struct worker_spec *w)
{
    return (uint32_t)w->dp_start.v;
}
static inline uint32_t worker_spec_ranks(const struct worker_spec *w)
{
    return w->dp_size.set ? (uint32_t)w->dp_size.v : 1;
}
/* What requests may require or prefer of it; in @a. */
struct str_list worker_spec_taints(struct arena *a, const struct worker_spec *w);
/* Where the rank's KV events are to be had; in @a. STR_NULL when that is not known. */
struct str worker_spec_events(struct arena *a, const struct worker_spec *w, uint32_t rank);

/*
 * What keeps the worker from being chosen, each reason given to @tell. Returns how many there are.
 */
struct worker_needs {
    bool events;   /* its events are to be followed */
    bool capacity; /* requests wait while it is full */
};
size_t worker_spec_missing(const struct worker_spec *w, struct worker_needs needs,
                           void (*tell)(void *arg, const char *reason), void *arg);
/* Whether both mean the same targets with the same sources of events. */
bool worker_spec_same_targets(const struct worker_spec *a, const struct worker_spec *b);
/* The members, without braces, @lifecycle among them. */
void worker_spec_put(struct json_put *j, const struct worker_spec *w, const char *lifecycle);
