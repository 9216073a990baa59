/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_facts.h"
#include "lib/base/test.h"

static void test_models(void **state)
{
    static const char json[] =
        "{\"object\":\"list\",\"data\":[{\"id\":\"a\",\"root\":\"/models/a\",\"parent\":null,"
        "\"max_model_len\":4096},{\"id\":\"a\"},{\"id\":7},{\"id\":\"lo\\u0072a\",\"parent\":\"a\"}"
        "]}";
    static const char *const bad[] = {"",          "[]", "{}", "{\"data\":{}}", "{\"data\":[]}",
                                      "{\"data\":"};
    AUTO(engine_models_done) struct engine_models m = {.n = 0};
    struct err e;

    (void)state;
    EXPECT_OK(engine_models_read(STR(json), &m, &e), &e);
    assert_int_equal(m.n, 2);
    assert_string_equal(m.at[0].id, "a");
    assert_string_equal(m.at[0].root, "/models/a");
    assert_int_equal(m.at[0].max_len, 4096);
    assert_false(m.at[0].is_lora);
    assert_string_equal(m.at[1].id, "lora");
    assert_true(m.at[1].is_lora);
    assert_true(engine_models_equal(&m, &m));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct engine_models none;

        if (engine_models_read(str_from(bad[i]), &none, &e) == 0)
            fail_msg("taken: %s", bad[i]);
    }
}

static void test_load_of_vllm(void **state)
{
    struct engine_load_report r;

    (void)state;
    engine_load_read(
        STR("# HELP vllm:num_requests_running Number\n"
            "vllm:num_requests_running{engine=\"0\",model_name=\"a\\\"},b\"} 3.0\n"
            "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 1\n"
            "vllm:num_requests_waiting{model_name=\"m\",engine=\"1\"} 2.0\n"
            "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
            "vllm:gpu_cache_usage_perc{engine=\"1\"} NaN\n"
            "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",engine=\"0\"} 1.0\n"
            "other 5\n"),
        &r);
    assert_int_equal(r.block_size, 16);
    assert_int_equal(r.total_blocks, 1000);
    assert_int_equal(r.n_ranks, 2);
    assert_int_equal(r.ranks[0].running, 3);
    assert_true(r.ranks[0].has_usage && r.ranks[0].usage == 0.25);
    assert_int_equal(r.ranks[1].running, 1);
    assert_int_equal(r.ranks[1].waiting, 2);
    assert_false(r.ranks[1].has_usage);
}

/* Gauges of the other come with its first request. */
static void test_ranks_before_their_first_request(void **state)
{
    struct engine_load_report r;

    (void)state;
    engine_load_read(STR("vllm:num_requests_running{engine=\"0\"} 0\n"
                         "vllm:cache_config_info{block_size=\"32\",engine=\"0\"} 1.0\n"
                         "vllm:cache_config_info{block_size=\"32\",engine=\"1\"} 1.0\n"),
                     &r);
    assert_int_equal(r.n_ranks, 2);
}

static void test_load_of_sglang(void **state)
{
    struct engine_load_report r;

    (void)state;
    engine_load_read(STR("sglang:num_running_reqs{model_name=\"m\"} 4\n"
                         "sglang:num_queue_reqs{model_name=\"m\"} 1\n"
                         "sglang:token_usage{model_name=\"m\"} 0.5\n"
                         "sglang:token_usage 2 1700000000"),
                     &r);
    assert_int_equal(r.n_ranks, 1);
    assert_int_equal(r.ranks[0].running, 4);
    assert_int_equal(r.ranks[0].waiting, 1);
    assert_true(r.ranks[0].usage == 0.5);
    assert_int_equal(r.block_size, 0);
    engine_load_read(STR_NULL, &r);
    assert_int_equal(r.n_ranks, 0);
}

static void test_events_config(void **state)
{
    static const struct {
        const char *json;
        bool has;
        uint16_t events, replay;
    } cases[] = {
        {"{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5600\","
         "\"replay_endpoint\":\"tcp://*:5601\"}",
         true, 5600, 5601},
        {"{\"publisher\":\"zmq\"}", true, 5557, 0},
        {"{\"publisher\":\"zmq\",\"topic\":\"kv-events\",\"endpoint\":\"tcp://*:5557\"}", true,
         5557, 0},
        {"{\"publisher\":\"null\"}", false, 0, 0},
        {"{\"enable_kv_cache_events\":false,\"publisher\":\"zmq\"}", false, 0, 0},
        {"{\"publisher\":\"zmq\",\"endpoint\":\"ipc:///x\"}", false, 0, 0},
        {"{}", false, 0, 0},
        {"null", false, 0, 0},
        {"", false, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint16_t events = 0, replay = 0;

        if (engine_events_config_read(str_from(cases[i].json), &events, &replay) != cases[i].has)
            fail_msg("wrong: %s", cases[i].json);
        if (!cases[i].has)
            continue;
        assert_int_equal(events, cases[i].events);
        assert_int_equal(replay, cases[i].replay);
    }
}

/* The first is what vLLM 0.32.0 said. */
static void test_event_sources(void **state)
{
    static const char vllm[] =
        "{\"0\":{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\",\"endpoint\":"
        "\"tcp://*:15557\",\"replay_endpoint\":\"tcp://*:15558\",\"buffer_steps\":10000,"
        "\"hwm\":100000,\"max_queue_size\":100000,\"topic\":\"\"}}";
    static const struct {
        const char *json;
        bool has;
        uint16_t events, replay;
        uint32_t ranks;
    } cases[] = {
        {vllm, true, 15557, 15558, 1},
        {"{\"1\":{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:6\",\"replay_endpoint\":null},"
         "\"0\":{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5\",\"replay_endpoint\":null}}",
         true, 5, 0, 2},
        {"{\"3\":{\"publisher\":\"zmq\",\"endpoint\":\"tcp://10.0.0.7:5560\","
         "\"replay_endpoint\":\"tcp://10.0.0.7:5570\"}}",
         true, 5557, 5567, 4},
        {"{\"0\":{\"enable_kv_cache_events\":false,\"publisher\":\"null\"}}", false, 0, 0, 1},
        {"{}", false, 0, 0, 0},
    };
    static const char *const bad[] = {"",
                                      "null",
                                      "[]",
                                      "{\"x\":{}}",
                                      "{\"64\":{}}",
                                      "{\"0\":{}",
                                      "{\"0\":{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:5\"},"
                                      "\"1\":{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:9\"}}"};
    struct engine_event_sources s;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        EXPECT_OK(engine_event_sources_read(str_from(cases[i].json), &s, &e), &e);
        assert_int_equal(s.has_events, cases[i].has);
        assert_int_equal(s.events_port, cases[i].events);
        assert_int_equal(s.replay_port, cases[i].replay);
        assert_int_equal(s.n_ranks, cases[i].ranks);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (engine_event_sources_read(str_from(bad[i]), &s, &e) == 0)
            fail_msg("taken: %s", bad[i]);
}

static void test_tokens(void **state)
{
    uint32_t ids[2];

    (void)state;
    assert_int_equal(engine_tokens_read(STR("{\"count\":2,\"tokens\":[1,263]}"), ids, 2), 2);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 263);
    assert_int_equal(engine_tokens_read(STR("{\"tokens\":[1,2,3]}"), ids, 2), 0);
    assert_int_equal(engine_tokens_read(STR("{\"tokens\":[4294967296]}"), ids, 2), 0);
    assert_int_equal(engine_tokens_read(STR("{\"tokens\":[-1]}"), ids, 2), 0);
    assert_int_equal(engine_tokens_read(STR("{\"tokens\":7}"), ids, 2), 0);
    assert_int_equal(engine_tokens_read(STR("[]"), ids, 2), 0);
}

static void test_server_info(void **state)
{
    struct engine_server_info in;
    struct err e;

    (void)state;
    EXPECT_OK(
        engine_server_info_read(STR("{\"page_size\":64,\"dp_size\":2,\"max_total_num_tokens\":6400,"
                                    "\"kv_events_config\":\"{\\\"publisher\\\":\\\"zmq\\\"}\"}"),
                                &in, &e),
        &e);
    assert_int_equal(in.page_size, 64);
    assert_int_equal(in.dp_size, 2);
    assert_int_equal(in.max_tokens, 6400);
    assert_true(in.has_events);
    assert_int_equal(in.events_port, 5557);
    EXPECT_OK(engine_server_info_read(STR("{\"kv_events_config\":null}"), &in, &e), &e);
    assert_false(in.has_events);
    assert_true(engine_server_info_read(STR("[]"), &in, &e) < 0);
}

int main(void)
{
    return TEST_RUN(T(test_models), T(test_load_of_vllm), T(test_ranks_before_their_first_request),
                    T(test_load_of_sglang), T(test_events_config), T(test_event_sources),
                    T(test_tokens), T(test_server_info));
}
