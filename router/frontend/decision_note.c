/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/decision_note.h"

#include "router/frontend/explain.h"
#include "router/sched/signals.h"

uint64_t decision_note(const struct decision_note *n, const struct route_request *q,
                       const struct route_decision *d, int result)
{
    struct serving *s = n->serving;
    struct decision_context context = {.model = str_from(n->model),
                                       .worker_type = POOL_ROLE_WORDS[n->pool->role],
                                       .attempt = n->attempt,
                                       .time_ms = clock_wall_ms(),
                                       .index_age_ms = DECISION_UNKNOWN};

    if (result == 0)
        context.index_age_ms = scheduler_index_age_ms(
            n->pool->scheduler, d->candidates[d->chosen].slot, loop_now_ms(s->loop));

    if (!n->pool->series)
        n->pool->series = router_metrics_target(
            s->router, &(struct router_target){n->pool->ns, n->pool->component, n->pool->model,
                                               POOL_ROLE_WORDS[n->pool->role]});
    if (result == 0 && !q->query_only)
        router_series_routed(n->pool->series, d, n->phase);
    return explain_decided(s->explain, q, d, result, &context);
}
