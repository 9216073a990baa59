/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/routed_request.h"

#include "lib/base/arena.h"
#include "lib/base/test.h"

static int parse(struct arena *a, const char *json, struct routed_request *ret)
{
    struct err e;

    return routed_request_parse(a, str_from(json), ret, &e);
}

static void test_reads_what_routing_needs(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    assert_int_equal(parse(a,
                           "{\"token_ids\":[5,4294967295],\"new\":{\"x\":[1]},\"routing\":{"
                           "\"backend_instance_id\":18446744073709551615,\"dp_rank\":3,\"lora\":"
                           "\"a\",\"enable_local_updates\":false},\"router_config_override\":"
                           "{\"router_temperature\":0.5,\"overlap_score_weight\":null}}",
                           &rq),
                     0);
    assert_int_equal(rq.n_tokens, 2);
    assert_int_equal(rq.tokens[0], 5);
    assert_int_equal(rq.tokens[1], UINT32_MAX);
    assert_true(rq.backend_instance_id.set && rq.backend_instance_id.v == UINT64_MAX);
    assert_true(rq.dp_rank.set && rq.dp_rank.v == 3);
    assert_true(rq.enable_local_updates.set && !rq.enable_local_updates.v);
    assert_true(rq.temperature.set && rq.temperature.v == 0.5);
    assert_false(rq.overlap_weight.set);

    assert_int_equal(parse(a, "[1,2,3]", &rq), 0);
    assert_int_equal(rq.n_tokens, 3);
    assert_int_equal(rq.routing.len, 0);
}

static void test_refuses_what_cannot_be_routed(void **state)
{
    static const char *const bad[] = {
        "",
        "7",
        "{}",
        "[]",
        "{\"token_ids\":[]}",
        "{\"token_ids\":\"1\"}",
        "{\"token_ids\":[4294967296]}",
        "{\"token_ids\":[-1]}",
        "{\"token_ids\":[1],\"routing\":5}",
        "{\"token_ids\":[1],\"routing\":{\"dp_rank\":\"a\"}}",
        "{\"token_ids\":[1]",
    };
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (parse(a, bad[i], &rq) >= 0)
            fail_msg("accepted: %s", bad[i]);
}

static void check_forwarded(const char *json, const char *expected)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct routed_request rq;

    assert_int_equal(parse(a, json, &rq), 0);
    routed_request_put(&out, str_from(json), &rq, 2);
    assert_string_equal(buf_cstr(&out), expected);
}

static void test_changes_nothing_but_the_rank(void **state)
{
    (void)state;
    check_forwarded("{\"model\":\"m\",\"token_ids\":[1],\"stop_conditions\":{\"max_tokens\":1},"
                    "\"sampling_options\":{},\"output_options\":{},\"eos_token_ids\":[2],"
                    "\"annotations\":[],\"a\\u0062\":1e400,\"routing\":{\"dp_rank\":9,\"x\":[]}}",
                    "{\"model\":\"m\",\"token_ids\":[1],\"stop_conditions\":{\"max_tokens\":1},"
                    "\"sampling_options\":{},\"output_options\":{},\"eos_token_ids\":[2],"
                    "\"annotations\":[],\"a\\u0062\":1e400,\"routing\":{\"x\":[],\"dp_rank\":2}}");
}

static void test_fills_in_what_workers_insist_on(void **state)
{
    (void)state;
    check_forwarded("{\"token_ids\":[1],\"routing\":null}",
                    "{\"token_ids\":[1],\"model\":\"unknown\",\"stop_conditions\":{},"
                    "\"sampling_options\":{},\"output_options\":{},\"eos_token_ids\":[],"
                    "\"annotations\":[],\"routing\":{\"dp_rank\":2}}");
}

int main(void)
{
    return TEST_RUN(T(test_reads_what_routing_needs), T(test_refuses_what_cannot_be_routed),
                    T(test_changes_nothing_but_the_rank), T(test_fills_in_what_workers_insist_on));
}
