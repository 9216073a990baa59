/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/route_measure.h"

#include <math.h>

#include "lib/base/json_pull.h"
#include "router/frontend/router_metrics.h"
#include "router/service/route_stream.h"
#include "router/service/routing_told.h"
#include "router/wire/engine_output.h"

/* What the model is called is known with its first worker. */
static struct router_series *series_of(const struct route_pool *p)
{
    return router_metrics_target(
        p->measures,
        &(struct router_target){p->ns, p->model, p->served ? p->served : "unknown", "decode"});
}

void route_measure_decision(const struct route_pool *p, const struct router_times *took,
                            const struct route_decision *d)
{
    router_metrics_times(p->measures, took);
    router_series_routed(series_of(p), d, PHASE_AGGREGATED);
}

void route_measure_output(struct route_measure *m, struct routing_times *at,
                          const struct engine_output *o)
{
    struct str details = json_pull_member(o->completion_usage_json, "prompt_tokens_details");
    struct json_pull cached;

    m->n_tokens += o->n_token_ids;
    if (o->n_token_ids) {
        m->last_ns = clock_now_ns();
        if (!at->first_ns)
            at->first_ns = m->last_ns;
    }
    json_pull_init(&cached, json_pull_member(details, "cached_tokens"));
    (void)json_pull_u64(&cached, &m->cached_tokens);
}

void route_measure_end(const struct route_pool *p, const struct route_measure *m,
                       const struct routing_times *at, const struct route_decision *d, size_t isl)
{
    struct router_request_end end = {.worker = d->candidates[d->chosen].worker,
                                     .isl = isl,
                                     .output_tokens = m->n_tokens,
                                     .ttft_s = NAN,
                                     .itl_s = NAN,
                                     .cached_tokens = m->cached_tokens,
                                     .phase = PHASE_AGGREGATED};

    if (at->first_ns)
        end.ttft_s = (double)(at->first_ns - at->start_ns) / 1e9;
    if (m->n_tokens > 1 && m->last_ns > at->first_ns)
        end.itl_s = (double)(m->last_ns - at->first_ns) / 1e9 / (double)(m->n_tokens - 1);
    router_series_ended(series_of(p), &end);
}
