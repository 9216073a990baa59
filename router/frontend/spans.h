/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spans that a request leaves (router.md §7.3), with the names, parents and attributes of 1.6.1:
 *
 *     http-request                      from its arrival to the end of its answer
 *     ├─ kv_router.select_worker        mode kv: a decision, from hashing the prompt to the booking
 *     │  └─ kv_router.compute_block_hashes, .compute_seq_hashes, .queue, .find_matches, .schedule
 *     └─ kv_router.route_request        an attempt at a worker, until that is done with it;
 *                                       router.route_request in the other modes
 *
 * kv_router.queue is ours: the time for which a request waited for room, which is part of .schedule in 1.6.1.
 * The stand-alone router has handle_payload in the place of http-request; in 1.6.1 the others are in traces
 * of their own there.
 *
 * Workers are told of the span of their attempt. Prompts are hashed once: further decisions on a
 * request have no spans of that. Left out are spans and attributes that tell of the reference's code
 * (functions, files, lines, threads) and the log lines that it repeats as events.
 *
 * Nothing is done, but for a look at a pointer, while nothing is exported. One loop thread.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/mem.h"
#include "router/frontend/router_metrics.h"
#include "router/sched/decision_record.h"
#include "router/wire/span_export.h"
#include "router/wire/trace_context.h"

struct loop;
struct metric_registry;

/* What the requests of a process share. */
struct tracer {
    bool records;                 /* requests are spans of their traces */
    struct trace_sampler sampler; /* which of these are exported… */
    struct span_export *export;   /* …to here, owned; NULL = none */
};

/* Sets up its sampler, and its export when @wanted, which makes it record. What @env says is looked at only
 * then. */
MUST_CHECK int tracer_start(struct tracer *t, struct loop *l, struct metric_registry *metrics,
                            bool wanted, const char *(*env)(const char *name), struct err *e);
/* The sampler for trace_context_init(): NULL while nothing is recorded. */
static inline const struct trace_sampler *tracer_sampler(const struct tracer *t)
{
    return t->records ? &t->sampler : NULL;
}

/* A decision by @q was made just now. @times loses what it says of hashing, which is told once. */
void span_decided(const struct tracer *s, const struct trace_context *t,
                  const struct route_request *q, const struct route_decision *d,
                  struct router_times *times);
/* The same of best_worker_id, which has no kv_router.select_worker around the parts. */
void span_asked(const struct tracer *s, const struct trace_context *t,
                const struct route_request *q, const struct route_decision *d,
                struct router_times *times);

/* The attempts of a request or of its prefill, one after the other. Starts zeroed. */
struct attempt_span {
    struct trace_context trace; /* what the worker of the last one is told */
    uint64_t start_ns;          /* 0 = none is under way */
    uint64_t n;                 /* begun */
    const char *failure; /* a word for what goes wrong with it; NULL = nothing, or nothing known */
    const char *trouble; /* …of the one before */
    uint64_t lost;       /* the worker of that one */
};

#define ATTEMPT_UNKNOWN UINT64_MAX
struct attempt_end {
    const char *id; /* of the request */
    const struct route_decision *decision;
    enum router_phase phase;
    uint64_t tokens_before; /* that earlier workers had said; ATTEMPT_UNKNOWN = not to be told */
    enum decision_end how;
};

/* @t: the request's. */
void attempt_span_begin(struct attempt_span *a, const struct tracer *s,
                        const struct trace_context *t);
/* Nothing when none is under way. */
void attempt_span_end(struct attempt_span *a, const struct tracer *s,
                      const struct attempt_end *end);

struct http_span {
    struct str uri; /* its path */
    uint8_t minor;  /* of HTTP/1 */
    uint64_t start_ns;
    const char *id, *model;               /* NULL = not known */
    const char *outcome;                  /* "success", "error", "cancelled" */
    uint64_t input_tokens, output_tokens; /* 0 = not known */
    double ttft_s, itl_s;                 /* NAN = none */
    bool routed;                          /* workers are known */
    uint64_t prefill_worker, decode_worker;
};

/* A request that came over the request plane: in 1.6.1 its own span, in the caller's trace. */
struct payload_span {
    const char *component, *endpoint, *ns; /* that it was for */
    uint64_t instance_id;
    uint64_t start_ns;
};
void span_payload(const struct tracer *s, const struct trace_context *t,
                  const struct payload_span *h);

/* The request of @t is over. */
void span_http(const struct tracer *s, const struct trace_context *t, const struct http_span *h);
