/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What remembering and measuring a decision adds to it, all told: record, ring, series, and with
 * shadow policies; 8 workers, in the steady state of the ring.
 */
#include "router/frontend/explain.h"

#include "lib/base/bench.h"
#include "router/frontend/router_metrics.h"
#include "router/sched/decision_sample.h"

enum { WORKERS = 8, RECORDS = 4096, ROUNDS = 4 * RECORDS };

static struct decision_sample sample;

static void bench(const char *name, uint64_t shadows)
{
    AUTO(metric_registry_free) struct metric_registry *registry = metric_registry_new();
    AUTO(router_metrics_free) struct router_metrics *router = router_metrics_new(registry, 1);
    AUTO(explain_free) struct explain *explain = NULL;
    const struct explain_conf conf = {.records = RECORDS, .shadows = shadows, .metrics = registry};
    const struct decision_context context = {STR("example"), "decode", 1, 1000, 0};
    struct router_series *series = router_metrics_target(
        router, &(struct router_target){"dynamo", "backend", "example", "decode"});
    uint64_t *took = xcalloc(ROUNDS, sizeof(*took));
    struct err e;

    if (explain_new(&explain, &conf, &e) < 0)
        abort();
    for (size_t i = 0; i < RECORDS + ROUNDS; i++) {
        uint64_t start = bench_thread_ns();

        router_series_routed(series, &sample.d, PHASE_AGGREGATED);
        (void)explain_decided(explain, &sample.q, &sample.d, 0, &context);
        if (i >= RECORDS)
            took[i - RECORDS] = bench_thread_ns() - start;
    }
    bench_report(name, (double)bench_percentile(took, ROUNDS, 0.5) / 1e3, "us", "lower");
    free(took);
}

int main(void)
{
    sample_decision(&sample, &POLICY_DYNAMO, WORKERS, 3);
    sample.d.n_rejections = 0;
    bench("decision.note_p50_us_8_workers", 0);
    bench("decision.note_p50_us_8_workers_7_shadows", 127);
    return 0;
}
