/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spans that a request leaves (router.md §7.3), with the names, parents and attributes of 1.6.1:
 *
 *     http-request                      from its arrival to the end of its answer
 *     ├─ kv_router.select_worker        mode kv: a decision, from hashing the prompt to the booking
 *     │  └─ kv_router.compute_block_hashes, .compute_seq_hashes, .find_matches, .schedule
 *     └─ kv_router.route_request        an attempt at a worker, until that is done with it;
 *                                       router.route_request in the other modes
 *
 * Workers are told of the span of their attempt. Prompts are hashed once: further decisions on a
 * request have no spans of that. Left out are spans and attributes that tell of the reference's code
 * (functions, files, lines, threads) and the log lines that it repeats as events.
 *
 * Nothing is done, but for a look at a pointer, while nothing is exported. One loop thread.
 */
#pragma once

#include "router/frontend/router_metrics.h"
#include "router/frontend/serving.h"
#include "router/sched/decision_record.h"
#include "router/wire/span_export.h"
#include "router/wire/trace_context.h"

/* Sets @s up: its sampler, and its export when @wanted. What @env says is looked at only then. */
MUST_CHECK int spans_start(struct serving *s, bool wanted, const char *(*env)(const char *name),
                           struct err *e);

/* A decision by @q was made just now. @times loses what it says of hashing, which is told once. */
void span_decided(const struct serving *s, const struct trace_context *t,
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

struct attempt_end {
    const char *id; /* of the request */
    const struct route_decision *decision;
    enum router_phase phase;
    uint64_t tokens_before; /* that earlier workers had said */
    enum decision_end how;
};

/* @t: the request's. */
void attempt_span_begin(struct attempt_span *a, const struct serving *s,
                        const struct trace_context *t);
/* Nothing when none is under way. */
void attempt_span_end(struct attempt_span *a, const struct serving *s,
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

/* The request of @t is over. */
void span_http(const struct serving *s, const struct trace_context *t, const struct http_span *h);
