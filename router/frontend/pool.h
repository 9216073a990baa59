/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers of one endpoint, and the scheduler that chooses among them.
 *
 * A model has a pool of workers that answer. Beside it there may be one of workers that only compute
 * prompts, under the same model name, with an index and bookings of its own (router.md §5.1).
 * Whoever holds a booking in a pool's scheduler holds a reference: a pool that discovery drops lives
 * until its last booking is released. One loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/map64.h"
#include "lib/base/str.h"
#include "lib/net/loop.h"
#include "router/discovery/instances.h"
#include "router/engine/stock_engine.h"
#include "router/sched/affinity.h"
#include "router/sched/scheduler.h"
#include "router/wire/trace_context.h"

struct admission;
struct admission_metrics;
struct admission_rules;
struct metric_family;
struct program_gate;

enum pool_role { POOL_DECODE, POOL_PREFILL, POOL_ROLES };

/* "decode", "prefill": the label worker_type of metrics and log lines. */
extern const char *const POOL_ROLE_WORDS[POOL_ROLES];

struct pool_worker {
    char *address;        /* on the request plane */
    char *bootstrap_host; /* where decode workers fetch KV blocks; NULL = they are told otherwise */
    uint16_t bootstrap_port;
    uint32_t dp_size;
    uint64_t max_num_batched_tokens; /* 0 = unknown */
    char *engine_model; /* NULL: a worker of Dynamo; else the address is the URL of an OpenAI server
                           that calls the model so */
    bool tokenizes;     /* such a server answers /tokenize */
    char *api_key;      /* what it wants to be shown; NULL = what the client sent */
    unsigned lacks;     /* APIs that it has turned out not to serve: struct own_api */
};

struct load_report;
struct remote_index;
struct remote_prompt;
struct router_series;
struct shared_cache;

struct pool {
    unsigned refs;
    enum pool_role role;
    char *model, *ns, *component, *endpoint;
    char *set; /* names it among all of its role: model and endpoint */
    struct loop *loop;
    struct scheduler *scheduler;
    struct affinity *affinity;          /* where sessions were sent */
    bool is_stock;                      /* its workers are plain OpenAI servers */
    uint32_t sample[ENGINE_SAMPLE_MAX]; /* what one of those makes of ENGINE_SAMPLE */
    size_t n_sample;
    bool
        salts_first; /* a salt tells the first block of a prompt apart, as in vLLM; else every block */
    bool eagle;      /* how its engines cut prompts into blocks, beside the block size */
    uint64_t seed; /* of their local hashes: an adapter's blocks are not the base model's */
    struct admission *admission;   /* NULL: everybody is routed at once */
    struct program_gate *programs; /* before it; NULL: nobody waits there */
    struct shared_cache *shared;   /* NULL: no cache is shared */
    struct load_report *report;    /* what others are told of it; NULL = nothing */
    struct remote_index *remote;   /* where its index is kept; NULL = here */
    struct router_series *series;  /* what is measured of it, NULL until its first request */
    struct map64 workers;          /* worker id -> struct pool_worker */
    uint64_t inhibit_ms;           /* [POOL_INHIBIT_MS] */
    struct map64 inhibited;        /* worker id -> until when (loop ms) it is passed over */
    size_t min_workers;            /* it takes no request before so many have been there at once */
    enum route_stage stage;        /* what is selected for it in a policy file */
    bool opened;                   /* they have; it stays so when some of them leave */
};

/* @block_size 0 = what the card says. */
struct pool *pool_new(struct loop *l, const struct served_model *found, uint32_t block_size,
                      const struct route_conf *route);
/* Gives it a queue; @metrics and @rules are borrowed. */
void pool_admit(struct pool *p, const struct admission_metrics *metrics,
                const struct admission_rules *rules);
/* Gives it a gate for programs; the family is program_gate_metric(). Not for those that only prefill.
 * Before its workers come. */
void pool_gate(struct pool *p, struct metric_family *programs);
/* Makes the cache that its workers may share known to it, where the configuration wants that;
 * @endpoint (may be NULL) goes before what their cards say. Before its workers come. */
void pool_share_cache(struct pool *p, const char *endpoint);
struct pool *pool_ref(struct pool *p);
struct pool *pool_unref(struct pool *p); /* NULL in, NULL out */
/* A new configuration. Prefill workers hold no blocks for long: theirs are never counted. */
void pool_configure(struct pool *p, const struct route_conf *route);

/* block_hash_local() as the engines of @p do it for prompts with this salt, if not empty; at most
 * n_tokens / block size. */
size_t pool_hash_local(const struct pool *p, struct str salt, const uint32_t *tokens,
                       size_t n_tokens, uint64_t *ret_local);
/* The same, and block_hash_sequence() of it. */
size_t pool_hash(const struct pool *p, struct str salt, const uint32_t *tokens, size_t n_tokens,
                 uint64_t *ret_local, uint64_t *ret_sequence);
/* Whether hashes of one serve the other. */
bool pool_cuts_as(const struct pool *p, const struct pool *other);

void pool_put_worker(struct pool *p, const struct worker *w);
void pool_remove_worker(struct pool *p, uint64_t worker_id);
/* Whether enough workers have come for it to begin. */
static inline bool pool_is_open(const struct pool *p)
{
    return p->opened || p->min_workers == 0;
}
/* NULL when the worker is not there (any more). Borrowed until it changes. */
const struct pool_worker *pool_worker(const struct pool *p, uint64_t worker_id);
/* Empty when the worker is not there. */
struct str pool_worker_address(const struct pool *p, uint64_t worker_id);

/* The server does not serve that API: it is not asked again while it is known. */
void pool_note_lack(struct pool *p, uint64_t worker_id, unsigned lack);
/* One that answers /tokenize; NULL when there is none. Borrowed likewise. */
const struct pool_worker *pool_tokenizer(struct pool *p);

/* A worker that just failed is passed over for p->inhibit_ms, until discovery tells of it again, or
 * while there is no other. */
enum { POOL_INHIBIT_MS = 5000 };
void pool_inhibit(struct pool *p, uint64_t worker_id);

/* Workers that a request must not be sent to again. */
struct pool_avoid {
    const uint64_t *ids;
    size_t n;
};
/*
 * scheduler_route() around @avoid and, while there are others, around those that failed somebody
 * else just now. Same outcomes. Where the index is kept elsewhere and goes by placements, it is told.
 */
MUST_CHECK int pool_route(struct pool *p, struct route_request *q, struct pool_avoid avoid,
                          struct route_decision *ret_decision, struct booking **ret_booking);
/* What is asked of p->remote about @q, or told it. Borrows from both. */
struct remote_prompt pool_remote_prompt(const struct pool *p, const struct route_request *q);
/* The reference's trace lines, with the request and the side they belong to as fields. */
void pool_trace(const struct pool *p, const struct route_decision *d, const char *request_id,
                const struct trace_context *context);
