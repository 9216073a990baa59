/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/worker_selection.h"
#include "lib/base/test.h"

#include <errno.h>

#include "lib/base/yaml.h"
#include "router/sched/sched_test.h"

#define INSTANCES                                                                                  \
    "instances:\n"                                                                                 \
    "- {name: tiers, type: dynamo-two-tier-cost-fn, parameters: {balance_abs_threshold: 3}}\n"     \
    "- {name: plain, type: dynamo-two-tier-cost-fn, parameters: }\n"                               \
    "- {name: costs, type: dynamo-default-cost-fn,\n"                                              \
    "   parameters: {prefill_load_scale: 2, router_temperature: 0.5}}\n"                           \
    "- {name: agents, type: thunderagent}\n"                                                       \
    "- {name: other, type: of-another-plugin}\n"

static struct route_conf conf;

static int read_text(const char *text, const char *prefill, const char *decode, struct err *e)
{
    AUTO(json_free) struct json *documents = NULL;

    conf = ROUTE_CONF_KV;
    EXPECT_OK(yaml_parse(&documents, str_from(text), e), e);
    return worker_selection_read(conf.selectors, json_at(documents, 0), prefill, decode, e);
}

static struct route_conf of_stage(enum route_stage stage)
{
    struct route_conf c = conf;

    worker_selection_apply(&c, stage);
    return c;
}

static void each_stage_has_its_own_policy(void **state)
{
    struct route_conf c;
    struct err e;

    (void)state;
    EXPECT_OK(
        read_text("aggregated: tiers\nprefill: costs\ndecode: agents\n" INSTANCES, NULL, NULL, &e),
        &e);
    c = of_stage(ROUTE_AGGREGATED);
    assert_int_equal(c.policy, ROUTE_POLICY_TWO_TIER);
    assert_true(c.two_tier.cache_threshold == 0.5 && c.two_tier.balance_rel_threshold == 1.1);
    assert_int_equal(c.two_tier.balance_abs_threshold, 3);
    c = of_stage(ROUTE_PREFILL);
    assert_int_equal(c.policy, ROUTE_POLICY_DYNAMO_1);
    assert_true(c.prefill_load_scale == 2 && c.temperature == 0.5);
    assert_true(c.overlap_credit == 1 && c.host_weight == 0.75); /* as the options say */
    assert_int_equal(of_stage(ROUTE_DECODE).policy, ROUTE_POLICY_THUNDERAGENT);
}

static void options_name_instances_before_the_file_does(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(read_text("prefill: tiers\ndecode: tiers\n" INSTANCES, "default", "costs", &e), &e);
    assert_int_equal(of_stage(ROUTE_PREFILL).policy, ROUTE_POLICY_DYNAMO);
    assert_int_equal(of_stage(ROUTE_DECODE).policy, ROUTE_POLICY_DYNAMO_1);
    assert_int_equal(read_text(INSTANCES, "nosuch", NULL, &e), -EINVAL);
    assert_true(str_has(str_from(e.text), STR("nosuch")));
    assert_int_equal(worker_selection_read(conf.selectors, NULL, "tiers", NULL, &e), -EINVAL);
    EXPECT_OK(worker_selection_read(conf.selectors, NULL, "default", "default", &e), &e);
    assert_int_equal(of_stage(ROUTE_PREFILL).policy, ROUTE_POLICY_DYNAMO);
}

/* What 1.6.1 refuses at its start, with a word of what we say. */
static void what_makes_no_sense_is_refused(void **state)
{
#define ONE(type, parameters)                                                                      \
    "aggregated: a\ninstances: [{name: a, type: " type ", parameters: {" parameters "}}]\n"
#define TWO_TIER "dynamo-two-tier-cost-fn"
    static const char *const bad[][2] = {
        {"{}\n", "expected a stage"},
        {"wrong: 1\n", "'wrong'"},
        {"aggregated: 3\n", "aggregated"},
        {"aggregated: b\n" INSTANCES, "'b'"},
        {"encode: b\n" INSTANCES, "'b'"},
        {"aggregated: other\n" INSTANCES, "of-another-plugin"},
        {"instances: [{name: default, type: x}]\n", "taken"},
        {"instances: [{name: a, type: x}, {name: a, type: x}]\n", "second"},
        {"instances: [{name: a}]\n", "type"},
        {"instances: [{type: a}]\n", "name"},
        {"instances: [1]\n", "mapping"},
        {"instances: 1\n", "list"},
        {"instances: [{name: a, type: x, parameters: 1}]\n", "parameters"},
        {ONE(TWO_TIER, "x: 1"), "'x'"},
        {ONE(TWO_TIER, "cache_threshold: 1.5"), "cache_threshold"},
        {ONE(TWO_TIER, "cache_threshold: -1"), "cache_threshold"},
        {ONE(TWO_TIER, "balance_abs_threshold: 1.5"), "balance_abs_threshold"},
        {ONE(TWO_TIER, "balance_rel_threshold: 0.9"), "balance_rel_threshold"},
        {ONE("dynamo-default-cost-fn", "overlap_score_credit: -2"), "overlap_score_credit"},
        {ONE("dynamo-default-cost-fn", "router_temperature: hot"), "router_temperature"},
        {ONE("thunderagent", "pause_threshold: 0.9"), "pause_threshold"},
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (read_text(bad[i][0], NULL, NULL, &e) != -EINVAL)
            fail_msg("taken: %s", bad[i][0]);
        if (!str_has(str_from(e.text), str_from(bad[i][1])))
            fail_msg("%s: %s", bad[i][0], e.text);
        assert_false(conf.selectors[ROUTE_AGGREGATED].given);
    }
}

/* As 1.6.1, which links only what some stage names. */
static void what_nobody_selects_may_be_anything(void **state)
{
    struct err e;

    (void)state;
    EXPECT_OK(read_text(INSTANCES, NULL, NULL, &e), &e);
    EXPECT_OK(read_text("encode: plain\naggregated: default\n" INSTANCES, NULL, NULL, &e), &e);
    assert_int_equal(of_stage(ROUTE_AGGREGATED).policy, ROUTE_POLICY_DYNAMO);
}

int main(void)
{
    return TEST_RUN(T(each_stage_has_its_own_policy),
                    T(options_name_instances_before_the_file_does),
                    T(what_makes_no_sense_is_refused), T(what_nobody_selects_may_be_anything));
}
