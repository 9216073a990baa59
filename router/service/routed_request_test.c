/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/routed_request.h"

#include <math.h>

#include "lib/base/arena.h"
#include "lib/base/test.h"
#include "router/kv/block_hash.h"
#include "router/service/routing_told.h"

static int parse(struct arena *a, const char *json, struct routed_request *ret)
{
    struct err e;

    return routed_request_parse(a, str_from(json), ret, &e);
}

#define MEDIUM(hash) "{\"mm_objects\":[{\"mm_hash\":" hash ",\"offsets\":[[0,1]]}]}"

/* What it is routed by is told apart from what is computed. */
static void test_images_are_routed_by(void **state)
{
    static const uint32_t said[] = {8, 9};
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    assert_int_equal(
        parse(a,
              "{\"block_mm_infos\":[" MEDIUM(
                  "1") "],\"token_ids\":[1],"
                       "\"mm_routing_info\":{\"routing_token_ids\":[5,6,7],\"block_mm_infos\":"
                       "[null," MEDIUM("3") "],\"expanded_prompt_len\":2}}",
              &rq),
        0);
    assert_int_equal(rq.n_tokens, 1);
    assert_int_equal(rq.routed.len, 3);
    assert_int_equal(rq.media.len, 1);
    assert_true(rq.media.ptr[0].block == 1 && rq.media.ptr[0].mm_hash == 3);
    routed_request_extend(a, &rq, said, 2);
    assert_int_equal(rq.n_tokens, 3);
    assert_int_equal(rq.routed.len, 5);
    assert_true(rq.tokens[0] == 1 && rq.tokens[2] == 9 && rq.routed.ptr[2] == 7 &&
                rq.routed.ptr[4] == 9);

    assert_int_equal(parse(a,
                           "{\"token_ids\":[1],\"mm_routing_info\":{\"routing_token_ids\":[]},"
                           "\"block_mm_infos\":[" MEDIUM("2") "," MEDIUM("1") "]}",
                           &rq),
                     0);
    assert_true(rq.routed.ptr == rq.tokens && rq.routed.len == 1 && rq.media.len == 2);
    routed_request_extend(a, &rq, said, 2);
    assert_true(rq.routed.ptr == rq.tokens && rq.routed.len == 3);
    assert_true(parse(a, "{\"token_ids\":[1],\"mm_routing_info\":{}}", &rq) < 0);
    assert_true(parse(a, "{\"token_ids\":[1],\"block_mm_infos\":[{}]}", &rq) < 0);
    assert_int_equal(parse(a, "{\"token_ids\":[1],\"mm_routing_info\":null}", &rq), 0);
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

    assert_int_equal(parse(a, "{\"token_ids\":[1],\"include_shared\":false}", &rq), 0);
    assert_true(rq.include_shared.set && !rq.include_shared.v);
    assert_true(parse(a, "{\"token_ids\":[1],\"include_shared\":0}", &rq) < 0);

    assert_int_equal(
        parse(a,
              "{\"token_ids\":[1],\"router_config_override\":{\"overlap_score_credit\":0.0,"
              "\"prefill_load_scale\":null,\"assume_kv_reuse\":false,"
              "\"track_prefill_tokens\":false}}",
              &rq),
        0);
    assert_true(rq.overlap_credit.set && rq.overlap_credit.v == 0);
    assert_true(rq.assume_kv_reuse.set && !rq.assume_kv_reuse.v);
    assert_true(rq.track_prefill_tokens.set && !rq.track_prefill_tokens.v);

    assert_int_equal(parse(a, "[1,2,3]", &rq), 0);
    assert_int_equal(rq.n_tokens, 3);
    assert_false(rq.include_shared.set);
    assert_int_equal(rq.routing.len, 0);
}

static void test_what_names_the_blocks(void **state)
{
    static const struct {
        const char *json, *lora, *cache;
    } cases[] = {
        {"[1]", "", ""},
        {"{\"token_ids\":[1],\"routing\":{\"lora_name\":null}}", "", ""},
        {"{\"token_ids\":[1],\"routing\":{\"lora_name\":\"a\",\"dp_rank\":1}}", "a", ""},
        {"{\"token_ids\":[1],\"routing\":{\"cache_salt\":\"\\u0063\"}}", "", "c"},
        {"{\"lora_name\":\"a\",\"cache_namespace\":\"c\",\"token_ids\":[1]}", "a", "c"},
    };
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(a, cases[i].json, &rq), 0);
        assert_true(rq.hash_seed ==
                    block_hash_seed(str_from(cases[i].lora), str_from(cases[i].cache)));
        assert_int_equal(rq.salted, *cases[i].cache != 0);
    }
}

static void test_a_question_may_be_about_nothing(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    assert_int_equal(parse(a, "[]", &rq), 0);
    assert_true(rq.bare && rq.n_tokens == 0);
    assert_int_equal(parse(a, "{\"token_ids\":[]}", &rq), 0);
    assert_int_equal(rq.n_tokens, 0);
}

static void test_refuses_what_cannot_be_routed(void **state)
{
    static const char *const bad[] = {
        "",
        "7",
        "{}",
        "null",
        "{\"token_ids\":\"1\"}",
        "{\"token_ids\":[4294967296]}",
        "{\"token_ids\":[-1]}",
        "{\"token_ids\":[1],\"routing\":5}",
        "{\"token_ids\":[1],\"routing\":{\"dp_rank\":\"a\"}}",
        "{\"token_ids\":[1],\"routing\":{\"lora_name\":7}}",
        "{\"token_ids\":[1],\"cache_namespace\":[]}",
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

static void test_says_what_must_not_move(void **state)
{
    static const struct {
        const char *json;
        bool immovable;
    } cases[] = {
        {"{\"token_ids\":[1],\"sampling_options\":{\"guided_decoding\":null},"
         "\"prefill_result\":null,\"bootstrap_info\":null}",
         false},
        {"{\"token_ids\":[1],\"sampling_options\":null}", false},
        {"{\"token_ids\":[1],\"sampling_options\":{\"n\":1,\"guided_decoding\":{\"json\":{}}}}",
         true},
        {"{\"token_ids\":[1],\"prefill_result\":{}}", true},
        {"{\"token_ids\":[1],\"bootstrap_info\":{\"bootstrap_room\":1}}", true},
    };
    AUTO(arena_free) struct arena *a = arena_new();
    struct routed_request rq;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(parse(a, cases[i].json, &rq), 0);
        assert_int_equal(rq.immovable, cases[i].immovable);
    }
}

static void test_what_is_left_when_a_worker_is_lost(void **state)
{
    static const char json[] =
        "{\"token_ids\":[1,2],\"stop_conditions\":{\"min_tokens\":1,\"stop\":[\"x\"],"
        "\"max_tokens\":5},\"sampling_options\":{},\"output_options\":{},\"eos_token_ids\":[],"
        "\"annotations\":[],\"model\":\"m\"}";
    static const uint32_t said[] = {7, 8};
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf counted = BUF_NULL;
    struct routed_request rq;

    (void)state;
    assert_int_equal(parse(a, json, &rq), 0);
    assert_int_equal(routed_request_left(&rq, 4), 1);
    routed_request_extend(a, &rq, said, ARRAY_LEN(said));
    assert_int_equal(routed_request_left(&rq, 1), 2);
    assert_int_equal(routed_request_left(&rq, 9), 0);
    routed_request_put(&out, STR(json), &rq, 0);
    assert_string_equal(buf_cstr(&out),
                        "{\"sampling_options\":{},\"output_options\":{},\"eos_token_ids\":[],"
                        "\"annotations\":[],\"model\":\"m\",\"token_ids\":[1,2,7,8],"
                        "\"stop_conditions\":{\"stop\":[\"x\"],\"max_tokens\":3,"
                        "\"min_tokens\":0},\"routing\":{\"dp_rank\":0}}");
    routed_output_put(&counted,
                      STR("{\"token_ids\":[],\"completion_usage\":{\"prompt_tokens\":4,"
                          "\"completion_tokens\":3,\"total_tokens\":7},\"index\":0}"),
                      &rq, &(struct routing_told){.has_worker = false});
    assert_string_equal(buf_cstr(&counted),
                        "{\"token_ids\":[],\"index\":0,\"completion_usage\":{\"prompt_tokens\":2,"
                        "\"completion_tokens\":5,\"total_tokens\":7}}");
}

static void test_tells_of_itself_in_outputs(void **state)
{
    static const struct routing_told timing = {.has_timing = true,
                                               .received_ms = 1795454344060,
                                               .sent_ms = 0.5,
                                               .first_token_ms = 8.25,
                                               .total_ms = 9,
                                               .kv_hit_rate = NAN,
                                               .queue_depth = 2};
    static const struct routing_told worker = {.has_worker = true,
                                               .worker = {18446744073709551615U, 3}};
    static const struct routed_request plain = {.n_said = 0};
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    routed_output_put(&out, STR("{\"token_ids\":[1],\"x\\u0041\":[{}]}"), &plain, &worker);
    assert_string_equal(buf_cstr(&out),
                        "{\"token_ids\":[1],\"x\\u0041\":[{}],\"routing_data\":{\"worker_id\":{"
                        "\"prefill_worker_id\":18446744073709551615,\"prefill_dp_rank\":3,"
                        "\"decode_worker_id\":18446744073709551615,\"decode_dp_rank\":3}}}");
    buf_clear(&out);
    routed_output_put(&out, STR("{\"routing_data\":{\"of\":\"a pool\"}}"), &plain, &timing);
    assert_string_equal(buf_cstr(&out),
                        "{\"routing_data\":{\"timing\":{\"request_received_ms\":1795454344060,"
                        "\"prefill_wait_time_ms\":0.5,\"prefill_time_ms\":7.75,\"ttft_ms\":8.25,"
                        "\"total_time_ms\":9,\"router_queue_depth\":2}}}");
    buf_clear(&out);
    routed_output_put(&out, STR("{\"routing_data\":{}}"), &plain,
                      &(struct routing_told){.total_ms = 1});
    assert_string_equal(buf_cstr(&out), "{\"routing_data\":{}}");
}

int main(void)
{
    return TEST_RUN(T(test_images_are_routed_by), T(test_reads_what_routing_needs),
                    T(test_what_names_the_blocks), T(test_a_question_may_be_about_nothing),
                    T(test_refuses_what_cannot_be_routed), T(test_changes_nothing_but_the_rank),
                    T(test_says_what_must_not_move), T(test_what_is_left_when_a_worker_is_lost),
                    T(test_tells_of_itself_in_outputs), T(test_fills_in_what_workers_insist_on));
}
