/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of other routers, in place of one of our own (--use-remote-indexer; indexer_query.h).
 *
 *     remote_lookup_start() ── an instance that serves the component ── matches ──▶ done
 *              └── nobody, silence, nonsense: at once or at the deadline ── told = false ──▶ done
 *
 * Whoever asks routes on either way: without matches by what it placed itself. Instances take turns;
 * where placements are written, all go to the one with the lowest id, as do the questions, since no
 * other knows of them. An instance that failed is left alone for REMOTE_PAUSE_MS, then one
 * question tries it, and the others do without until that is answered: a server that hangs delays one
 * request in that time and not all. In flight are at most REMOTE_LOOKUPS_MAX questions and
 * REMOTE_WRITES_MAX placements; what comes beyond fails at once. Each failure is counted in
 *
 *     dynamo_component_router_remote_indexer_{query,write}_failures_total
 *
 * with the reference's labels; the log tells when a component's index is lost and when it is back.
 * (1.6.1 fails such requests.) One loop thread; no prompt, hashes only, and none of them is logged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/kv/worker_table.h"
#include "router/sched/matches.h"

struct metric_registry;
struct plane_client;
struct remote_index;
struct remote_lookup;

enum { REMOTE_PAUSE_MS = 1000, REMOTE_LOOKUPS_MAX = 8192, REMOTE_WRITES_MAX = 1024 };

struct remote_index_conf {
    struct loop *loop;
    struct plane_client *plane; /* borrowed */
    struct metric_registry *metrics;
    uint64_t router_id;   /* of this process */
    uint64_t deadline_ms; /* of a question or a placement */
};

struct remote_index *remote_index_new(const struct remote_index_conf *conf)
    __attribute__((returns_nonnull));
/* Lookups must have been freed. */
struct remote_index *remote_index_free(struct remote_index *r);
DEFINE_CLEANUP(struct remote_index *, remote_index_free)

/* As an Endpoint record names it. */
struct remote_endpoint {
    const char *ns, *component, *endpoint;
    uint64_t instance_id;
    const char *address;
};
/* Discovery: an endpoint of indexer_query.h is there, or is not any more. */
void remote_index_put(struct remote_index *r, const struct remote_endpoint *ep);
void remote_index_gone(struct remote_index *r, const struct remote_endpoint *ep);

/* Borrowed during the call. */
struct remote_prompt {
    const char *ns, *component; /* of the workers */
    struct str model;
    const uint64_t *local, *sequence; /* the latter for placements */
    size_t n_blocks;
    bool by_writes; /* the index goes by what is placed */
};

/*
 * @done is called once, later, unless the lookup is freed before; it may free it. NULL: there is
 * nothing to wait for, *ret_matches says told = false already.
 * *ret_matches (owned by the caller, outlives the lookup) is filled before @done.
 */
struct remote_lookup *remote_lookup_start(struct remote_index *r, const struct remote_prompt *p,
                                          struct prompt_matches *ret_matches, loop_fn done,
                                          void *arg);
/* NULL in, NULL out. */
struct remote_lookup *remote_lookup_free(struct remote_lookup *l);
/* Tells that the prompt went to @w. */
void remote_index_write(struct remote_index *r, const struct remote_prompt *p,
                        struct worker_rank w);
