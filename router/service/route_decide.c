/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a request goes: what is asked of the scheduler, and what is told of its decisions.
 */
#include <math.h>

#include "lib/base/arena.h"
#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "router/frontend/explain.h"
#include "router/frontend/shared_cache.h"
#include "router/kv/block_hash.h"
#include "router/kv/tracking_hash.h"
#include "router/sched/signals.h"
#include "router/service/route_state.h"
#include "router/wire/plane_server.h"

/* Where users of the reference look for the cost function (router.md §4.2). */
static const struct log_target LG_SCHEDULER = {"dynamo_llm::kv_router::scheduler"};

/* Routers with the same key agree; what an adapter or a cache of its own is called is in the seed. */
static void hash_for_tracker(struct route_stream *s, uint32_t block_size)
{
    const struct tracking_scope scope = {.model = str_from(s->pool->model),
                                         .routing_group = str_from(s->pool->ns),
                                         .block_size = block_size,
                                         .cache_namespace =
                                             str_slice(&s->in.hash_seed, sizeof(s->in.hash_seed))};

    if (!s->pool->tracking)
        return;
    s->tracked = arena_alloc(s->arena, (s->n_blocks + 1) * sizeof(*s->tracked));
    (void)tracking_hash_sequence(s->pool->tracking, &scope, s->in.routed.ptr, s->in.routed.len,
                                 s->tracked);
}

void route_hash_prompt(struct route_stream *s)
{
    uint32_t block_size = scheduler_block_size(s->pool->scheduler);
    const struct block_naming nm = {s->in.hash_seed, block_size, false, s->in.media.ptr,
                                    s->in.media.len};
    size_t n = s->in.routed.len / block_size;
    uint64_t hashed;

    s->times.hashing_at_ns = clock_now_ns();
    s->local = arena_alloc(s->arena, (n + 1) * sizeof(*s->local));
    s->sequence = arena_alloc(s->arena, (n + 1) * sizeof(*s->sequence));
    s->n_blocks =
        block_hash_prompt_named(&nm, s->in.routed.ptr, s->in.routed.len, s->local, s->sequence);
    hashed = clock_now_ns();
    hash_for_tracker(s, block_size);
    s->times.block_hashing = hashed - s->times.hashing_at_ns;
    s->times.sequence_hashing = clock_now_ns() - hashed;
}

static double or_nan(struct opt_f64 o)
{
    return o.set ? o.v : NAN;
}

struct str route_request_id(const struct route_stream *s)
{
    return plane_request_id(s->request);
}

static void trace_line(void *arg, struct str text)
{
    const struct route_stream *s = arg;

    log_emitf(&LG_SCHEDULER, LOG_INFO, &LOG_VIEW("request_id", route_request_id(s)), 1, "%.*s",
              STR_ARG(text));
}

struct route_request route_query(const struct route_stream *s)
{
    const struct routed_request *in = &s->in;
    bool no_credit = in->overlap_credit.set && in->overlap_credit.v == 0;
    bool weighs = scheduler_conf(s->pool->scheduler)->policy == ROUTE_POLICY_DYNAMO; /* no credit */

    return (struct route_request){
        .id = route_request_id(s),
        .local = s->local,
        .sequence = s->sequence,
        .tracked = s->tracked,
        .n_blocks = s->n_blocks,
        .isl = (uint32_t)MAX(in->routed.len, (size_t)1), /* a question may be about none */
        .pinned = in->backend_instance_id.set,
        .pin = {in->backend_instance_id.v, (uint32_t)in->dp_rank.v},
        .exclude = s->failed,
        .n_exclude = s->n_failed,
        .matches = s->asked ? &s->matches : NULL,
        .overlap_weight = weighs && no_credit ? 0 : or_nan(in->overlap_weight),
        .overlap_credit = in->overlap_credit.set ? &in->overlap_credit.v : NULL,
        .no_kv_reuse = in->assume_kv_reuse.set && !in->assume_kv_reuse.v,
        .no_prefill_tokens = !weighs && in->track_prefill_tokens.set && !in->track_prefill_tokens.v,
        .temperature = or_nan(in->temperature),
        .now_ns = clock_now_ns(),
        .clock = clock_now_ns,
        .random = random_u64()};
}

const struct shared_hits *route_ask_shared(const struct route_stream *s, struct shared_hits *ret)
{
    const struct route_pool *p = s->pool;

    return shared_cache_ask(p->shared, scheduler_conf(p->scheduler),
                            s->in.salted ? NULL : s->in.routed.ptr, s->in.routed.len, ret);
}

static void note_decision(struct route_stream *s, const struct route_request *q, int result)
{
    const struct route_pool *p = s->pool;
    const struct route_decision *d = &s->decision;
    struct decision_context context = {.model = str_from(p->model),
                                       .worker_type = "decode",
                                       .attempt = (uint32_t)s->n_failed + 1,
                                       .time_ms = clock_wall_ms(),
                                       .index_age_ms = DECISION_UNKNOWN};
    uint64_t seq;

    if (result == 0)
        context.index_age_ms = scheduler_index_age_ms(p->scheduler, d->candidates[d->chosen].slot,
                                                      loop_now_ms(p->loop));
    seq = explain_decided(p->explain, q, d, result, &context);
    s->decision_seq = result == 0 && !q->query_only ? seq : 0;
}

void route_note_end(struct route_stream *s, enum decision_end how)
{
    uint64_t now_ns = clock_now_ns();
    const struct decision_outcome o = {
        .ended = how,
        .cached_tokens = DECISION_UNKNOWN,
        .output_tokens = s->n_output,
        .ttft_ms = s->at.first_ns ? (double)(s->at.first_ns - s->at.start_ns) / 1e6 : NAN,
        .duration_ms = (double)(now_ns - s->at.start_ns) / 1e6};

    attempt_span_end(
        &s->attempt, s->pool->tracer,
        &(struct attempt_end){.id = s->id,
                              .decision = &s->decision,
                              .phase = PHASE_AGGREGATED,
                              .tokens_before = s->n_migrations ? s->in.n_said : ATTEMPT_UNKNOWN,
                              .how = how});
    if (s->decision_seq)
        explain_ended(s->pool->explain, s->decision_seq, &o);
    if (s->decision_seq && how != DECISION_RETRIED)
        route_measure_end(s->pool, &s->measure, &s->at, &s->decision, s->in.n_tokens);
    s->decision_seq = 0;
}

struct remote_prompt route_remote_prompt(const struct route_stream *s)
{
    const struct route_pool *p = s->pool;

    return (struct remote_prompt){.ns = p->ns,
                                  .component = p->model,
                                  .model = str_from(p->served),
                                  .local = s->local,
                                  .sequence = s->sequence,
                                  .n_blocks = s->n_blocks,
                                  .by_writes =
                                      scheduler_conf(p->scheduler)->remote == ROUTE_REMOTE_WRITES};
}

/* Where the index goes by placements it is told of ours. */
static void write_placement(const struct route_stream *s)
{
    const struct remote_prompt p = route_remote_prompt(s);

    if (s->booking && s->pool->remote && s->pool->served && p.by_writes && p.n_blocks)
        remote_index_write(s->pool->remote, &p, s->decision.candidates[s->decision.chosen].worker);
}

int route_decide(struct route_stream *s, bool query_only)
{
    struct route_request q = route_query(s);
    struct shared_hits hits;
    int r;

    q.query_only = query_only;
    q.shared = route_ask_shared(s, &hits);
    r = scheduler_route(s->pool->scheduler, &q, &s->decision, &s->booking);
    note_decision(s, &q, r);
    if (r == 0)
        (query_only ? span_asked : span_decided)(s->pool->tracer, &s->trace, &q, &s->decision,
                                                 &s->times);
    if (r == 0)
        write_placement(s);
    if (r == 0 && !query_only)
        route_measure_decision(s->pool, &s->times, &s->decision);
    if (r == 0 && log_enabled(&LG_SCHEDULER, LOG_INFO)) {
        log_hold();
        route_decision_trace(&s->decision, trace_line, s);
        log_release();
    }
    return r;
}

struct worker_rank route_chosen(const struct route_stream *s)
{
    return s->decision.candidates[s->decision.chosen].worker;
}
