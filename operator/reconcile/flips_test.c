/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/flips.h"

#include "lib/base/test.h"

static struct json *tree(const char *text)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static void test_the_deployment_of_a_pod(void **state)
{
    static const struct {
        const char *pod, *want;
    } cases[] = {
        {"g-frontend-5d4f8b7c9-abcde", "g-frontend"},
        {"a-b-c-d-e", "a-b-c"},
        {"a-b-c", "a"},
        {"a-b", NULL},
        {"plain", NULL},
        {"-b-c", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str got = STR("untouched");

        assert_int_equal(flips_deployment_of(cases[i].pod, &got), cases[i].want != NULL);
        assert_true(str_is(got, cases[i].want ? cases[i].want : "untouched"));
    }
}

static void refuse(struct cache *cache, const char *pod, int generation, const char *why)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"metadata\":{\"name\":\"%s\",\"namespace\":\"ns\",\"annotations\":{"
                           "\"" PLAN_ROUTING_GENERATION "\":\"%d\"%s%s%s}}}",
                           pod, generation, why ? ",\"" FLIP_ERROR "\":\"" : "", why ? why : "",
                           why ? "\"" : "");
    AUTO(json_free) struct json *v = tree(text);

    (void)cache_observe(cache, &KIND_DWM, v);
}

static void say(struct cache *cache, const char *pod, int generation)
{
    refuse(cache, pod, generation, NULL);
}

static struct object_set *planned(const char *mode, int generation, int replicas)
{
    struct object_set *set = object_set_new();
    AUTO(mem_free)
    char *map = xasprintf(
        "{\"metadata\":{\"name\":\"g-frontend-routing\",\"namespace\":\"ns\","
        "\"annotations\":{\"" PLAN_ROUTING_GENERATION "\":\"%d\"}},\"data\":{%s%s%s}}",
        generation, mode ? "\"DYN_ROUTER_MODE\":\"" : "", mode ? mode : "", mode ? "\"" : "");
    AUTO(mem_free)
    char *component = xasprintf(
        "{\"metadata\":{\"name\":\"g-frontend\",\"namespace\":\"ns\"},\"spec\":{\"replicas\":%d}}",
        replicas);

    (void)object_set_add(set, &KIND_CONFIG_MAP, tree(map));
    (void)object_set_add(set, &KIND_DCD, tree(component));
    return set;
}

static void expect_view(struct cache *cache, const char *mode, int generation, int replicas,
                        size_t n_applied)
{
    AUTO(object_set_free) struct object_set *set = planned(mode, generation, replicas);
    struct routing_view view = flips_view(cache, set);

    assert_string_equal(view.mode, mode ? mode : "round-robin");
    assert_int_equal(view.generation, generation);
    assert_int_equal(view.n_pods, replicas);
    assert_int_equal(view.n_applied, n_applied);
}

static void test_who_runs_what(void **state)
{
    AUTO(cache_free) struct cache *cache = cache_new(NULL, 0);
    AUTO(object_set_free) struct object_set *none = object_set_new();

    (void)state;
    assert_null(flips_view(cache, none).mode);
    expect_view(cache, "kv", 1, 2, 0);
    say(cache, "g-frontend-7c9-aaaaa", 1);
    say(cache, "g-other-7c9-aaaaa", 9);
    say(cache, "g-frontend-two-7c9-aaaaa", 9);
    expect_view(cache, "kv", 1, 2, 1);
    say(cache, "g-frontend-7c9-bbbbb", 3);
    expect_view(cache, "kv", 1, 2, 2);
    expect_view(cache, NULL, 3, 2, 1);
    /* The record of a pod that has just gone does not make more than all. */
    expect_view(cache, "kv", 1, 1, 1);
}

static void test_a_refused_configuration_is_not_applied(void **state)
{
    AUTO(cache_free) struct cache *cache = cache_new(NULL, 0);
    AUTO(object_set_free) struct object_set *set = planned("roulette", 2, 2);
    AUTO(object_set_free) struct object_set *next = planned("kv", 3, 2);

    (void)state;
    say(cache, "g-frontend-7c9-aaaaa", 2);
    refuse(cache, "g-frontend-7c9-bbbbb", 2, "no such mode");
    expect_view(cache, "roulette", 2, 2, 1);
    assert_string_equal(flips_view(cache, set).refused, "no such mode");
    assert_string_equal(flips_view(cache, next).refused, "");
}

static void test_times(void **state)
{
    AUTO(flips_free) struct flips *f = flips_new();
    uint64_t since = 7;

    (void)state;
    assert_false(flips_end(f, "u", &since));
    flips_begin(f, "u", 100);
    flips_begin(f, "v", 200);
    flips_begin(f, "u", 300);
    assert_true(flips_end(f, "u", &since));
    assert_int_equal(since, 300);
    assert_false(flips_end(f, "u", &since));
    assert_true(flips_end(f, "v", &since));
    assert_int_equal(since, 200);
}

int main(void)
{
    return TEST_RUN(T(test_the_deployment_of_a_pod), T(test_who_runs_what),
                    T(test_a_refused_configuration_is_not_applied), T(test_times));
}
