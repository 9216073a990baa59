/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/queue_profile.h"
#include "lib/base/test.h"

#include <errno.h>
#include <math.h>

#define ROOT                                                                                       \
    "default_policy_family: standard\n"                                                            \
    "uncached_isl_buckets:\n"                                                                      \
    "  - min_tokens: 0\n"                                                                          \
    "    bucket: cached\n"                                                                         \
    "  - min_tokens: 3072\n"                                                                       \
    "    bucket: uncached\n"                                                                       \
    "policy_classes:\n"                                                                            \
    "  - {name: small, policy_family: standard, cache_bucket: cached, quantum: 2048,\n"            \
    "     queue_policy: wspt, prefill_busy_threshold_frac: 16.0,\n"                                \
    "     request_queue_limit_per_worker: 1024, cached_token_queue_limit_per_worker: 2097152}\n"   \
    "  - {name: large, policy_family: standard, cache_bucket: uncached, quantum: 512,\n"           \
    "     prefill_busy_threshold: 9000, busy_worker_ratio: 0.95,\n"                                \
    "     raw_isl_token_queue_limit_per_worker: 1048576}\n"

static const char FULL[] =
    ROOT "  - {name: lat_c, policy_family: latency, cache_bucket: cached, quantum: 4096}\n"
         "  - {name: lat_u, policy_family: latency, cache_bucket: uncached, quantum: 1024}\n"
         "  - {name: urgent, quantum: 4096}\n"
         "models:\n"
         "  org/other:\n"
         "    default_policy_family: batch\n"
         "    uncached_isl_buckets: [{min_tokens: 0, bucket: all}]\n"
         "    policy_classes: [{name: b, policy_family: batch, cache_bucket: all, quantum: 1}]\n";

static const char *class_name(const struct queue_profile *p, const char *wanted, uint64_t uncached)
{
    return p->classes[queue_profile_class(p, str_from(wanted), uncached)].name;
}

/* They are read elsewhere: router/frontend/policy_file.h. */
static void a_file_may_have_other_sections_alone(void **state)
{
    AUTO(queue_profiles_done) struct queue_profiles all = {0};
    struct err e;

    (void)state;
    queue_profiles_single(&all, ROUTE_QUEUE_FCFS, NAN, 0);
    EXPECT_OK(
        queue_profiles_parse(&all, STR("router: {use_kv_events: true}\n"), ROUTE_QUEUE_FCFS, &e),
        &e);
    EXPECT_OK(queue_profiles_parse(&all, STR("request_classifier: {type: thunderagent}\n"),
                                   ROUTE_QUEUE_FCFS, &e),
              &e);
    EXPECT_OK(queue_profiles_parse(&all, STR("worker_selection: {aggregated: default}\n"),
                                   ROUTE_QUEUE_FCFS, &e),
              &e);
    assert_string_equal(class_name(queue_profile_of(&all, "any"), "", 0), "default");
    assert_true(queue_profiles_parse(&all, STR("{}\n"), ROUTE_QUEUE_FCFS, &e) < 0);
}

static void a_file_becomes_classes(void **state)
{
    AUTO(queue_profiles_done) struct queue_profiles all = {0};
    const struct queue_profile *p;
    const struct queue_class *c;
    struct err e;

    (void)state;
    EXPECT_OK(queue_profiles_parse(&all, str_from(FULL), ROUTE_QUEUE_LCFS, &e), &e);
    p = queue_profile_of(&all, "any");
    assert_int_equal(p->n_classes, 5);
    assert_true(queue_profile_has_buckets(p));
    c = &p->classes[0];
    assert_int_equal(c->rule.order, ROUTE_QUEUE_WSPT);
    assert_int_equal(c->rule.quantum, 2048);
    assert_int_equal(c->rule.max_requests, 1024);
    assert_int_equal(c->rule.max_cached_tokens, 2097152);
    assert_true(c->limit.share == 16 && isnan(c->limit.tokens) && c->limit.ratio == 1);
    c = &p->classes[1];
    assert_int_equal(c->rule.order, ROUTE_QUEUE_LCFS);
    assert_int_equal(c->rule.max_isl_tokens, 1048576);
    assert_true(c->limit.tokens == 9000 && isnan(c->limit.share) && c->limit.ratio == 0.95);
    assert_true(queue_class_waits(c));
    assert_false(queue_class_waits(&p->classes[4]));
}

static void requests_find_their_class(void **state)
{
    static const struct {
        const char *wanted;
        uint64_t uncached;
        const char *want;
    } cases[] = {
        {"", 0, "small"},         {"", 3071, "small"},         {"", 3072, "large"},
        {"standard", 1, "small"}, {"latency", 1, "lat_c"},     {"latency", 99999, "lat_u"},
        {"urgent", 1, "urgent"},  {"urgent", 99999, "urgent"}, {"unknown", 1, "small"},
        {"lat_u", 1, "small"}, /* a class of the matrix is no name to ask for */
    };
    AUTO(queue_profiles_done) struct queue_profiles all = {0};
    struct err e;

    (void)state;
    EXPECT_OK(queue_profiles_parse(&all, str_from(FULL), ROUTE_QUEUE_FCFS, &e), &e);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(
            class_name(queue_profile_of(&all, "m"), cases[i].wanted, cases[i].uncached),
            cases[i].want);
    assert_string_equal(class_name(queue_profile_of(&all, "org/other"), "latency", 5), "b");
}

static void without_a_file_there_is_one_class(void **state)
{
    AUTO(queue_profiles_done) struct queue_profiles all = {0};
    const struct queue_profile *p;

    (void)state;
    queue_profiles_single(&all, ROUTE_QUEUE_WSPT, 4, 7);
    p = queue_profile_of(&all, "m");
    assert_string_equal(class_name(p, "latency", 5), "default");
    assert_int_equal(p->classes[0].rule.max_requests, 7);
    assert_true(queue_class_waits(&p->classes[0]));
    assert_false(queue_profile_has_buckets(p));
    queue_profiles_done(&all);
    queue_profiles_single(&all, ROUTE_QUEUE_FCFS, NAN, 0);
    assert_false(queue_class_waits(&queue_profile_of(&all, "m")->classes[0]));
}

static void a_file_of_models_only_leaves_the_others_alone(void **state)
{
    static const char text[] =
        "models: {a: {default_policy_family: f, uncached_isl_buckets: [{min_tokens: 0, bucket: x}],"
        " policy_classes: [{name: q, policy_family: f, cache_bucket: x, quantum: 1}]}}";
    AUTO(queue_profiles_done) struct queue_profiles all = {0};
    struct err e;

    (void)state;
    queue_profiles_single(&all, ROUTE_QUEUE_FCFS, 4, 0);
    EXPECT_OK(queue_profiles_parse(&all, str_from(text), ROUTE_QUEUE_FCFS, &e), &e);
    assert_string_equal(class_name(queue_profile_of(&all, "b"), "", 1), "default");
    assert_string_equal(class_name(queue_profile_of(&all, "a"), "", 1), "q");
}

static void mistakes_are_named(void **state)
{
#define BUCKET "uncached_isl_buckets: [{min_tokens: 0, bucket: x}]\n"
#define CLASS "{name: q, policy_family: f, cache_bucket: x, quantum: 1"
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"[]", "policy file: expected a mapping"},
        {"", "expected one YAML document"},
        {"a: {", "line"},
        {"defualt_policy_family: f", "unknown key 'defualt_policy_family'"},
        {"default_policy_family: f", "uncached_isl_buckets: expected a list"},
        {"default_policy_family: 'a b'", "policy file.default_policy_family: expected a name"},
        {"default_policy_family: f\nuncached_isl_buckets: [{min_tokens: 5, bucket: x}]",
         "uncached_isl_buckets[0].min_tokens: floors begin at 0"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS ", quantun: 2}]",
         "policy_classes[0]: unknown key 'quantun'"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [{name: q, quantum: 0}]",
         "policy_classes[0].quantum: expected a whole number from 1 on"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [{name: q}]", "quantum is missing"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [{name: q, quantum: 1, "
         "policy_family: f}]",
         "policy_family and cache_bucket go together"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS "}, " CLASS "}]",
         "policy_classes[1]: a second class 'q'"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS "}, {name: o, "
         "policy_family: f, cache_bucket: x, quantum: 1}]",
         "family 'f' has bucket 'x' twice"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [{name: q, policy_family: f, "
         "cache_bucket: z, quantum: 1}]",
         "family 'f' has no class for bucket 'x'"},
        {"default_policy_family: g\n" BUCKET "policy_classes: [" CLASS "}]",
         "no class has family 'g'"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS ", queue_policy: sjf}]",
         "queue_policy: expected fcfs, lcfs or wspt"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS ", busy_worker_ratio: 1}]",
         "busy_worker_ratio: needs prefill_busy_threshold"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS
         ", prefill_busy_threshold: 1, busy_worker_ratio: 1.5}]",
         "above 0, up to 1"},
        {"default_policy_family: f\n" BUCKET "policy_classes: [" CLASS
         ", prefill_busy_threshold: -1}]",
         "expected a number from 0 on"},
        {ROOT "models: {m: {default_policy_family: f}}",
         "models.m.uncached_isl_buckets: expected a list"},
        {ROOT "models: [1]", "models: expected a mapping"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct queue_profiles all = {0};
        struct err e;

        assert_int_equal(queue_profiles_parse(&all, str_from(cases[i].text), ROUTE_QUEUE_FCFS, &e),
                         -EINVAL);
        if (!str_has(str_from(e.text), str_from(cases[i].want)))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.text, cases[i].want);
    }
}

int main(void)
{
    return TEST_RUN(T(a_file_becomes_classes), T(a_file_may_have_other_sections_alone),
                    T(requests_find_their_class), T(without_a_file_there_is_one_class),
                    T(a_file_of_models_only_leaves_the_others_alone), T(mistakes_are_named));
}
