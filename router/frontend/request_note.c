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
    rq->times.scheduling = clock_now_ns() - q->now_ns;
    router_metrics_times(rq->s->router, &rq->times);
    rq->decision_seq = decision_note(&n, q, &rq->decision, result);
    if (result != 0)
        rq->decision_seq = 0; /* there is nothing to tell of how it went */
}

static void measure_end(const struct request *rq)
{
    struct router_request_end end = {
        .worker = rq->decision.candidates[rq->decision.chosen].worker,
        .isl = rq->prompt.len,
        .output_tokens = rq->n_output,
        .ttft_s = rq->t_first_ns ? (double)(rq->t_first_ns - rq->t_start_ns) / 1e9 : NAN,
        .itl_s = NAN,
        .cached_tokens = rq->cached_tokens,
        .phase = phase_of(rq)};

    if (rq->n_output > 1 && rq->t_last_ns > rq->t_first_ns) /* else they came in one piece */
        end.itl_s = (double)(rq->t_last_ns - rq->t_first_ns) / 1e9 / (double)(rq->n_output - 1);
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

    if (!rq->decision_seq)
        return;
    explain_ended(rq->s->explain, rq->decision_seq, &o);
    if (how != DECISION_RETRIED)
        measure_end(rq);
    rq->decision_seq = 0;
}
