/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/pools.h"

#include <errno.h>

#include "lib/base/test.h"

#define PREFILL                                                                                    \
    "\"num_prefill_pools\":2,\"prefill_pool_dynamo_namespaces\":[\"p0\",\"p1\"],"                  \
    "\"prefill_pool_selection_strategy\":{\"ttft_min_ms\":10,\"ttft_max_ms\":3000,"                \
    "\"ttft_resolution\":2,\"isl_min\":0,\"isl_max\":32000,\"isl_resolution\":2,"                  \
    "\"prefill_pool_mapping\":[[0,1],[0,0]],\"priority_overrides\":["                              \
    "{\"min_priority\":5,\"max_priority\":9,\"target_pool\":1}]}"
#define DECODE                                                                                     \
    "\"num_decode_pools\":1,\"decode_pool_dynamo_namespaces\":[\"d0\"],"                           \
    "\"decode_pool_selection_strategy\":{\"itl_min\":10,\"itl_max\":500,\"itl_resolution\":1,"     \
    "\"context_length_min\":0,\"context_length_max\":32000,\"context_length_resolution\":1,"       \
    "\"decode_pool_mapping\":[[0]]}"
#define AGG(mapping, more)                                                                         \
    "{\"mode\":\"agg\",\"enable_priority_retry\":true,\"num_agg_pools\":4,"                        \
    "\"agg_pool_dynamo_namespaces\":[\"a\",\"b\",\"c\",\"d\"],"                                    \
    "\"agg_pool_priorities\":[1,0,1,2],\"agg_pool_selection_strategy\":{"                          \
    "\"ttft_min_ms\":0,\"ttft_max_ms\":100,\"ttft_resolution\":2,\"itl_min_ms\":0,"                \
    "\"itl_max_ms\":10,\"itl_resolution\":2,\"agg_pool_mapping\":" mapping more "}}"

static struct pools *pools_of(const char *json)
{
    struct pools *p = NULL;
    struct err e;

    EXPECT_OK(pools_parse(&p, str_from(json), &e), &e);
    return p;
}

static void test_the_grid_and_what_beats_it(void **state)
{
    AUTO(pools_free) struct pools *p = pools_of("{" PREFILL "," DECODE "}");
    const struct pool_set *s = &p->sets[POOL_PREFILL];
    static const struct {
        struct pool_question q;
        size_t pool;
    } cases[] = {
        {{.n_tokens = 15999, .ttft_ms = {true, 1504}}, 0}, /* below the middle */
        {{.n_tokens = 15999, .ttft_ms = {true, 1505}}, 1},
        {{.n_tokens = 15999}, 1}, /* the middle */
        {{.n_tokens = 16000}, 0},
        {{.n_tokens = 99999, .ttft_ms = {true, 1e300}}, 0},
        {{.ttft_ms = {true, -1e300}}, 0},
        {{.ttft_ms = {true, 1e300}}, 1},
        {{.n_tokens = 99999, .priority = {true, 5}}, 1},
        {{.n_tokens = 99999, .priority = {true, 10}}, 0},
    };

    (void)state;
    assert_false(pools_are_agg(p));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_int_equal(pool_set_choose(s, &cases[i].q), cases[i].pool);
    assert_string_equal(p->sets[POOL_DECODE].namespaces[0], "d0");
    assert_int_equal(pool_set_choose(&p->sets[POOL_DECODE], &cases[0].q), 0);
}

static void test_two_targets_and_perhaps_tokens(void **state)
{
    AUTO(pools_free) struct pools *flat = pools_of(AGG("[[0,1],[2,3]]", ""));
    AUTO(pools_free)
    struct pools *deep = pools_of(
        AGG("[[[0,0],[0,0]],[[3,2],[1,0]]]", ",\"isl_min\":0,\"isl_max\":10,\"isl_resolution\":2"));
    const struct pool_question q = {.n_tokens = 7, .ttft_ms = {true, 60}, .itl_ms = {true, 4}};
    size_t order[4];

    (void)state;
    assert_true(pools_are_agg(flat));
    assert_int_equal(pool_set_choose(&flat->sets[POOL_AGG], &q), 2);
    assert_int_equal(pool_set_choose(&deep->sets[POOL_AGG], &q), 1);
    assert_int_equal(pool_set_order(&flat->sets[POOL_AGG], 3, true, order), 4);
    assert_int_equal(order[0], 3);
    assert_int_equal(order[1], 0);
    assert_int_equal(order[2], 2);
    assert_int_equal(order[3], 1);
    assert_int_equal(pool_set_order(&flat->sets[POOL_AGG], 3, false, order), 1);
    assert_int_equal(pool_set_order(&flat->sets[POOL_AGG], 1, true, order), 1);
}

static void test_what_is_wrong_is_named(void **state)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"[]", "object"},
        {"{", "ends early"},
        {"{\"mode\":\"x\"}", "mode"},
        {"{\"mode\":null}", "mode"},
        {"{\"enable_priority_retry\":1," PREFILL "," DECODE "}", "enable_priority_retry"},
        {"{" PREFILL "}", "num_decode_pools"},
        {"{" DECODE "}", "num_prefill_pools"},
        {AGG("[[0,1],[2,4]]", ""), "between 0 and 3"},
        {AGG("[[0,1],[2]]", ""), "agg_pool_mapping"},
        {AGG("[[0,1]]", ""), "agg_pool_mapping"},
        {AGG("[0,1]", ""), "agg_pool_mapping"},
        {AGG("[[0,1],[2,3]]", ",\"isl_min\":0"), "together"},
        {AGG("[[0,1],[2,3]]", ",\"isl_min\":5,\"isl_max\":5,\"isl_resolution\":1"), "less than"},
        {AGG("[[0,1],[2,3]]", ",\"isl_min\":0,\"isl_max\":5,\"isl_resolution\":0"),
         "isl_resolution"},
        {AGG("[[0,1],[2,3]]", ",\"priority_overrides\":{}"), "priority_overrides"},
        {AGG("[[0,1],[2,3]]", ",\"priority_overrides\":[{\"min_priority\":2,\"max_priority\":1,"
                              "\"target_pool\":0}]"),
         "above"},
        {AGG("[[0,1],[2,3]]", ",\"priority_overrides\":[{\"min_priority\":1,\"max_priority\":1,"
                              "\"target_pool\":4}]"),
         "target_pool"},
        {AGG("[[0,1],[2,3]]", ",\"priority_overrides\":[{\"min_priority\":1,\"target_pool\":4}]"),
         "max_priority"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct pools *p = NULL;
        struct err e;

        assert_int_equal(pools_parse(&p, str_from(cases[i].json), &e), -EINVAL);
        if (!strstr(e.text, cases[i].why))
            fail_msg("case %zu: '%s' does not say '%s'", i, e.text, cases[i].why);
    }
}

static void test_what_a_request_asks(void **state)
{
    struct pool_question q;
    struct err e;

    (void)state;
    EXPECT_OK(pool_question_parse(STR("{\"token_ids\":[1,2,3],\"router\":{\"ttft_target\":0,"
                                      "\"itl_target\":null},\"routing\":{\"priority\":-2}}"),
                                  &q, &e),
              &e);
    assert_int_equal(q.n_tokens, 3);
    assert_true(q.ttft_ms.set && q.ttft_ms.v == 0 && !q.itl_ms.set);
    assert_true(q.priority.set && q.priority.v == -2);
    EXPECT_OK(pool_question_parse(STR("{\"router\":null,\"routing\":null}"), &q, &e), &e);
    assert_false(q.ttft_ms.set || q.priority.set || q.n_tokens);
    assert_int_equal(pool_question_parse(STR("[1]"), &q, &e), -EINVAL);
    assert_int_equal(pool_question_parse(STR("{\"token_ids\":[\"a\"]}"), &q, &e), -EINVAL);
    assert_int_equal(pool_question_parse(STR("{\"token_ids\":[1]"), &q, &e), -EINVAL);
}

int main(void)
{
    return TEST_RUN(T(test_the_grid_and_what_beats_it), T(test_two_targets_and_perhaps_tokens),
                    T(test_what_is_wrong_is_named), T(test_what_a_request_asks));
}
