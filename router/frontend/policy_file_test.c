/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/policy_file.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/err.h"
#include "router/frontend/frontend_conf.h"
#include "router/sched/worker_selection.h"

static const char *environment(const char *name)
{
    return strcmp(name, "DYN_ROUTER_MODE") == 0 ? "kv"
           : strcmp(name, "DYN_KV_EVENTS") == 0 ? "true"
                                                : NULL;
}

static int apply(struct frontend_conf *c, const char *text, struct err *e)
{
    static char *const argv[] = {NULL};

    *c = (struct frontend_conf){0};
    EXPECT_OK(conf_load(&FRONTEND_CONF_SPEC, c, 0, argv, environment, e), e);
    return policy_file_apply_text(c, str_from(text), e);
}

static void settings_win_over_options(void **state)
{
    struct frontend_conf c;
    struct err e;

    (void)state;
    EXPECT_OK(apply(&c,
                    "router:\n"
                    "  use_kv_events: false\n"
                    "  router_ttl_secs: 7.5\n"
                    "  router_approximate_cache_policy: lru\n"
                    "  host_cache_hit_weight: 1\n"
                    "  router_predicted_ttl_secs: null\n"
                    "  router_event_threads: 4\n"
                    "  router_prefill_load_model: none\n",
                    &e),
              &e);
    assert_false(c.route.use_kv_events);
    assert_int_equal(c.route.ttl_ms, 7500);
    assert_int_equal(c.route.approx_policy, APPROX_LRU);
    assert_true(c.route.host_weight == 1);
    assert_int_equal(c.route.predicted_ttl_ms, 0);
    conf_done(&FRONTEND_CONF_SPEC, &c);
}

static void every_setting_of_the_reference_is_known(void **state)
{
    struct frontend_conf c;
    struct err e;

    (void)state;
    EXPECT_OK(apply(&c,
                    "router: {host_cache_hit_weight: 0.5, disk_cache_hit_weight: 0.5,\n"
                    "  use_kv_events: true, router_replica_sync: true,\n"
                    "  router_track_active_blocks: true, router_track_output_blocks: true,\n"
                    "  router_assume_kv_reuse: true, router_track_prefill_tokens: true,\n"
                    "  router_tracking_hash: public-xxh3-v1, router_tracking_key_file: null,\n"
                    "  router_tracking_key_id: null, router_prefill_load_model: none,\n"
                    "  router_ttl_secs: 120, router_approximate_cache_policy: ttl,\n"
                    "  router_event_threads: 4, use_remote_indexer: false, serve_indexer: false,\n"
                    "  enable_session_prefix_index: false, shared_cache_type: none,\n"
                    "  router_predicted_ttl_secs: 3}\n",
                    &e),
              &e);
    assert_true(c.replica_sync && c.route.track_output_blocks);
    assert_int_equal(c.route.predicted_ttl_ms, 3000);
    conf_done(&FRONTEND_CONF_SPEC, &c);
}

static void selection_is_read_with_the_settings(void **state)
{
    struct frontend_conf c;
    struct err e;

    (void)state;
    EXPECT_OK(apply(&c,
                    "worker_selection:\n"
                    "  decode: a\n"
                    "  instances: [{name: a, type: dynamo-two-tier-cost-fn}]\n",
                    &e),
              &e);
    assert_true(c.route.selectors[ROUTE_DECODE].given);
    assert_false(c.route.selectors[ROUTE_AGGREGATED].given);
    conf_done(&FRONTEND_CONF_SPEC, &c);
}

static void wrong_settings_are_named(void **state)
{
    static const char *const bad[][2] = {
        {"router: {overlap_score_credit: 1}\n", "overlap_score_credit"},
        {"router: {router_event_threads: false}\n", "router_event_threads"},
        {"router: {use_kv_events: \"false\"}\n", "use_kv_events"},
        {"router: {router_ttl_secs: null}\n", "router_ttl_secs"},
        {"router: {router_ttl_secs: -1}\n", "router_ttl_secs"},
        {"router: {shared_cache_type: nosuch}\n", "shared_cache_type"},
        {"router: {router_prefill_load_model: aic}\n", "router_prefill_load_model"},
        {"router: [1]\n", "router"},
        {"- router\n", "mapping"},
        {"worker_selection: {decode: b}\n", "'b'"},
    };
    struct frontend_conf c;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (apply(&c, bad[i][0], &e) != -EINVAL || !str_has(str_from(e.text), str_from(bad[i][1])))
            fail_msg("%s: %s", bad[i][0], e.text);
        conf_done(&FRONTEND_CONF_SPEC, &c);
    }
}

static void load_aware_is_a_preset_that_a_file_wins_over(void **state)
{
    char *argv[] = {(char[]){"x"}, (char[]){"--load-aware"}, (char[]){"--no-track-active-blocks"},
                    (char[]){"--serve-indexer"}};
    struct frontend_conf c = {0};
    struct route_conf route;
    struct err e;

    (void)state;
    EXPECT_OK(conf_load(&FRONTEND_CONF_SPEC, &c, ARRAY_LEN(argv), argv, environment, &e), &e);
    EXPECT_OK(policy_file_apply(&c, &e), &e);
    assert_true(c.route.overlap_credit == 0 && c.route.track_active_blocks);
    assert_false(c.route.assume_kv_reuse || c.serve_indexer || c.route.caches_anyway);

    EXPECT_OK(policy_file_apply_text(
                  &c,
                  STR("router: {router_assume_kv_reuse: true, router_track_active_blocks: false}\n"
                      "worker_selection:\n  aggregated: a\n  instances:\n"
                      "  - {name: a, type: dynamo-default-cost-fn, "
                      "parameters: {overlap_score_credit: 0.5}}\n"),
                  &e),
              &e);
    assert_true(c.route.assume_kv_reuse && !c.route.track_active_blocks && !c.route.caches_anyway);
    route = c.route;
    worker_selection_apply(&route, ROUTE_AGGREGATED);
    assert_true(route.overlap_credit == 0.5 && route.caches_anyway && !route.use_kv_events);

    EXPECT_OK(policy_file_apply_text(&c, STR("router: {use_kv_events: true}\n"), &e), &e);
    assert_true(c.route.caches_anyway && c.route.use_kv_events);
    conf_done(&FRONTEND_CONF_SPEC, &c);
}

int main(void)
{
    return TEST_RUN(T(settings_win_over_options), T(every_setting_of_the_reference_is_known),
                    T(selection_is_read_with_the_settings), T(wrong_settings_are_named),
                    T(load_aware_is_a_preset_that_a_file_wins_over));
}
