/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/metric.h"
#include "lib/base/test.h"

static void prints_prometheus_text(void **state)
{
    static const double bounds[] = {0.5, 1};
    AUTO(metric_registry_free) struct metric_registry *r = metric_registry_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct metric_family *requests = metric_family(
        r, &(struct metric_desc){
               "requests_total", "Requests", METRIC_COUNTER, {"model", "status"}, NULL, 0});
    struct metric_family *seconds = metric_family(
        r, &(struct metric_desc){"seconds", "Time", METRIC_HISTOGRAM, {"model"}, bounds, 2});
    struct metric_family *up =
        metric_family(r, &(struct metric_desc){.name = "up", .help = "Up", .type = METRIC_GAUGE});

    (void)state;
    metric_add(metric_with(requests, "m\"1\\\n", "ok"), 2);
    metric_add(metric_with(requests, "m\"1\\\n", "ok"), 1);
    metric_observe(metric_with(seconds, "m"), 0.5);
    metric_observe(metric_with(seconds, "m"), 0.75);
    metric_observe(metric_with(seconds, "m"), 7);
    metric_set(metric_plain(up), 0.1);
    metric_print(r, &out);
    assert_true(str_ends(buf_str(&out),
                         STR("# HELP requests_total Requests\n# TYPE requests_total counter\n"
                             "requests_total{model=\"m\\\"1\\\\\\n\",status=\"ok\"} 3\n"
                             "# HELP seconds Time\n# TYPE seconds histogram\n"
                             "seconds_bucket{model=\"m\",le=\"0.5\"} 1\n"
                             "seconds_bucket{model=\"m\",le=\"1\"} 2\n"
                             "seconds_bucket{model=\"m\",le=\"+Inf\"} 3\n"
                             "seconds_sum{model=\"m\"} 8.25\n"
                             "seconds_count{model=\"m\"} 3\n"
                             "# HELP up Up\n# TYPE up gauge\nup 0.1\n")));
}

/* wire.md §10 */
static void bucket_rule_gives_the_published_bounds(void **state)
{
    static const double ttft[] = {0, .0022, .0047, .01, .022, .047, .1,  .22, .47,
                                  1, 2.2,   4.7,   10,  22,   48,   100, 220, 480};
    static const double input[] = {0,    100,  210,   430,   870,   1800,
                                   3600, 7400, 15000, 31000, 63000, 130000};
    static const double itl[] = {0,    .0019, .0035, .0067, .013, .024, .045,
                                 .084, .16,   .3,    .56,   1.1,  2};
    double got[18];

    (void)state;
    assert_int_equal(metric_log_buckets(0.001, 480, 18, got), ARRAY_LEN(ttft));
    assert_memory_equal(got, ttft, sizeof(ttft));
    assert_int_equal(metric_log_buckets(50, 128000, 12, got), ARRAY_LEN(input));
    assert_memory_equal(got, input, sizeof(input));
    assert_int_equal(metric_log_buckets(0.001, 2, 13, got), ARRAY_LEN(itl));
    assert_memory_equal(got, itl, sizeof(itl));
    assert_int_equal(metric_log_buckets(0.001, 2, 1, got), 1);
    assert_true(got[0] == 0);
}

static void a_full_family_counts_what_it_drops(void **state)
{
    AUTO(metric_registry_free) struct metric_registry *r = metric_registry_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct metric_family *f = metric_family(
        r, &(struct metric_desc){
               .name = "by_peer", .help = "h", .type = METRIC_COUNTER, .labels = {"peer"}});

    (void)state;
    for (int i = 0; i < METRIC_SERIES_MAX + 2; i++) {
        char peer[16];

        (void)snprintf(peer, sizeof(peer), "%d", i);
        metric_add(metric_with(f, peer), 1);
    }
    metric_print(r, &out);
    assert_true(str_has(buf_str(&out), STR("by_peer{peer=\"other\"} 2\n")));
    assert_true(str_has(buf_str(&out), STR("metric_series_dropped_total 2\n")));
}

static void a_dropped_series_is_gone(void **state)
{
    AUTO(metric_registry_free) struct metric_registry *r = metric_registry_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct metric_family *f = metric_family(
        r, &(struct metric_desc){
               .name = "load", .help = "h", .type = METRIC_GAUGE, .labels = {"worker"}});

    (void)state;
    metric_set(metric_with(f, "1"), 5);
    metric_drop(f, metric_with(f, "1"));
    metric_print(r, &out);
    assert_false(str_has(buf_str(&out), STR("load")));
}

static void a_forgotten_family_starts_anew(void **state)
{
    AUTO(metric_registry_free) struct metric_registry *r = metric_registry_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct metric_family *f = metric_family(
        r, &(struct metric_desc){
               .name = "load", .help = "h", .type = METRIC_GAUGE, .labels = {"worker"}});

    (void)state;
    metric_forget(r, "unknown");
    metric_set(metric_with(f, "1"), 5);
    metric_set(metric_with(f, "2"), 6);
    metric_forget(r, "load");
    metric_set(metric_with(f, "2"), 7);
    metric_print(r, &out);
    assert_false(str_has(buf_str(&out), STR("worker=\"1\"")));
    assert_true(str_has(buf_str(&out), STR("load{worker=\"2\"} 7\n")));
}

int main(void)
{
    return TEST_RUN(T(prints_prometheus_text), T(bucket_rule_gives_the_published_bounds),
                    T(a_full_family_counts_what_it_drops), T(a_dropped_series_is_gone),
                    T(a_forgotten_family_starts_anew));
}
