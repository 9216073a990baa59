/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered and measured of a request's way: its decisions, and how it ended.
 */
#include <math.h>

#include "router/frontend/decision_note.h"
#include "router/frontend/explain.h"
#include "router/frontend/request_state.h"

static enum router_phase phase_of(const struct request *rq)
{
    return rq->prefill ? PHASE_DECODE : PHASE_AGGREGATED;
}

void request_note_decision(struct request *rq, const struct route_request *q, int result)
{
    const struct decision_note n = {.serving = rq->s,
                                    .pool = rq->m->pool,
                                    .model = rq->m->label,
                                    .phase = phase_of(rq),
                                    .attempt = (uint32_t)rq->n_failed + 1};

    rq->times.matching = rq->decision.match_ns;
    rq->times.shared = rq->decision.shared_ns;
    rq->times.shared_asked = rq->decision.shared_asked;
    rq->times.scheduling = clock_now_ns() - q->now_ns;
    router_metrics_times(rq->s->router, &rq->times);
    rq->decision_seq = decision_note(&n, q, &rq->decision, result);
    if (result == 0)
        span_decided(&rq->s->tracer, &rq->trace, q, &rq->decision, &rq->times);
    if (result != 0)
        rq->decision_seq = 0; /* there is nothing to tell of how it went */
}

/* Mean of all tokens but the first; NAN when they came in one piece. */
static double mean_gap_s(const struct request *rq)
{
    if (rq->n_output < 2 || rq->t_last_ns <= rq->t_first_ns)
        return NAN;
    return (double)(rq->t_last_ns - rq->t_first_ns) / 1e9 / (double)(rq->n_output - 1);
}

static double ttft_s(const struct request *rq)
{
    return rq->t_first_ns ? (double)(rq->t_first_ns - rq->t_start_ns) / 1e9 : NAN;
}

static void measure_end(const struct request *rq)
{
    struct router_request_end end = {.worker = rq->decision.candidates[rq->decision.chosen].worker,
                                     .isl = rq->prompt.len,
                                     .output_tokens = rq->n_output,
                                     .ttft_s = ttft_s(rq),
                                     .itl_s = mean_gap_s(rq),
                                     .cached_tokens = rq->cached_tokens,
                                     .phase = phase_of(rq)};

    router_series_ended(rq->m->pool->series, &end);
}

void request_note_end(struct request *rq, enum decision_end how)
{
    struct decision_outcome o = {
        .ended = how,
        .cached_tokens = rq->cached_tokens,
        .output_tokens = rq->n_output,
        .ttft_ms = rq->t_first_ns ? (double)(rq->t_first_ns - rq->t_start_ns) / 1e6 : NAN,
        .duration_ms = (double)(clock_now_ns() - rq->t_start_ns) / 1e6};

    attempt_span_end(&rq->attempt, &rq->s->tracer,
                     &(struct attempt_end){.id = rq->id,
                                           .decision = &rq->decision,
                                           .phase = phase_of(rq),
                                           .tokens_before = rq->n_replayed,
                                           .how = how});
    if (!rq->decision_seq)
        return;
    explain_ended(rq->s->explain, rq->decision_seq, &o);
    if (how != DECISION_RETRIED)
        measure_end(rq);
    rq->decision_seq = 0;
}

void request_span_over(const struct request *rq, const char *outcome)
{
    struct http_span h = rq->span;

    if (rq->batch)
        return;
    h.id = rq->id;
    h.model = rq->m->label;
    h.outcome = outcome;
    h.input_tokens = rq->usage.prompt_tokens;
    h.output_tokens = rq->n_output;
    h.ttft_s = ttft_s(rq);
    h.itl_s = mean_gap_s(rq);
    h.routed = rq->attempt.n > 0 && !rq->answered_early;
    if (h.routed) {
        h.decode_worker = rq->decision.candidates[rq->decision.chosen].worker.worker_id;
        h.prefill_worker =
            rq->prefill ? prefill_chosen(rq->prefill)->worker.worker_id : h.decode_worker;
    }
    span_http(&rq->s->tracer, &rq->trace, &h);
}
