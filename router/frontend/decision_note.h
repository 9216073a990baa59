/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that hears of every decision, whoever asked for it: it is remembered (explain.h)
 * and measured (router_metrics.h).
 */
#pragma once

#include "router/frontend/router_metrics.h"
#include "router/frontend/serving.h"

struct decision_note {
    struct serving *serving;
    struct pool *pool;
    const char *model; /* as in labels */
    enum router_phase phase;
    uint32_t attempt; /* from 1 */
};

/* @result as pool_route() gave it. Returns the record's number, for explain_ended(). */
uint64_t decision_note(const struct decision_note *n, const struct route_request *q,
                       const struct route_decision *d, int result);
