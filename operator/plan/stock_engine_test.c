/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/plan/stock_engine.h"
#include "lib/base/test.h"

static bool detect(const char *type, const char *annotations, const char *container,
                   struct stock_engine *ret)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"componentType\":\"%s\",\"annotations\":%s,\"extraPodSpec\":{"
                           "\"mainContainer\":%s}}",
                           type, annotations, container);
    AUTO(json_free) struct json *spec = NULL;
    struct err e;

    EXPECT_OK(json_parse(&spec, str_from(text), &e), &e);
    return stock_engine_detect(ret, spec);
}

static void commands(void **state)
{
    static const struct {
        const char *container, *kind; /* NULL: a worker of Dynamo */
        int port;
        const char *events, *replay, *block_size;
    } cases[] = {
        {"{\"command\":[\"vllm\",\"serve\",\"m\"]}", "vllm", 8000, "", "", ""},
        {"{\"command\":[\"vllm\"],\"args\":[\"serve\",\"m\",\"--port\",\"8001\",\"--block-size="
         "32\","
         "\"--kv-events-config\",\"{\\\"publisher\\\":\\\"zmq\\\",\\\"endpoint\\\":\\\"tcp://"
         "*:5600\\\","
         "\\\"replay_endpoint\\\":\\\"tcp://*:5601\\\"}\"]}",
         "vllm", 8001, "5600", "5601", "32"},
        {"{\"command\":[\"/bin/sh\",\"-c\"],\"args\":[\"exec /opt/bin/vllm serve m \\\\\\n --port "
         "8002 "
         "--kv-events-config '{\\\"enable_kv_cache_events\\\": true, \\\"publisher\\\": "
         "\\\"zmq\\\"}'\"]}",
         "vllm", 8002, "5557", "", ""},
        {"{\"args\":[\"python3 -u -m vllm.entrypoints.openai.api_server --model m\"]}", "vllm",
         8000, "", "", ""},
        {"{\"command\":[\"python3\",\"-m\",\"sglang.launch_server\",\"--page-size\",\"64\"]}",
         "sglang", 30000, "", "", "64"},
        {"{\"command\":[\"dynamo-mocker\",\"--openai-port\",\"8003\",\"--zmq-kv-events-ports\","
         "\"5557\",\"--zmq-replay-ports=5558\"]}",
         "vllm", 8003, "5557", "5558", ""},
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.mocker\",\"--openai-port=8000\"]}", "vllm",
         8000, "", "", ""},
        {"{\"command\":[\"vllm\",\"serve\",\"--port\",\"x\",\"--block-size\",\"a b\"]}", "vllm",
         8000, "", "", ""},
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.vllm\",\"vllm\",\"serve\"]}", NULL, 0, NULL,
         NULL, NULL},
        {"{\"command\":[\"python3\",\"-m\",\"dynamo.mocker\"]}", NULL, 0, NULL, NULL, NULL},
        {"{\"command\":[\"echo\",\"vllm serve\"]}", NULL, 0, NULL, NULL, NULL},
        {"{}", NULL, 0, NULL, NULL, NULL},
        {"{\"command\":[],\"args\":[\"\"]}", NULL, 0, NULL, NULL, NULL},
        {"{\"args\":[\"vllm serve 'm --port \\\\\"]}", "vllm", 8000, "", "", ""},
        {"{\"command\":7,\"args\":[null,\"a\"]}", NULL, 0, NULL, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct stock_engine s;

        if (detect("worker", "{}", cases[i].container, &s) != (cases[i].kind != NULL))
            fail_msg("wrong: %s", cases[i].container);
        if (!cases[i].kind)
            continue;
        assert_string_equal(s.kind, cases[i].kind);
        assert_int_equal(s.port, cases[i].port);
        assert_string_equal(s.events_port, cases[i].events);
        assert_string_equal(s.replay_port, cases[i].replay);
        assert_string_equal(s.block_size, cases[i].block_size);
        assert_false(detect("frontend", "{}", cases[i].container, &s));
    }
}

static void annotations(void **state)
{
    static const char vllm[] = "{\"command\":[\"vllm\",\"serve\",\"m\"]}";
    struct stock_engine s;

    (void)state;
    assert_true(detect("worker",
                       "{\"commutator.dev/engine\":\"any\",\"commutator.dev/engine-port\":\"9000\","
                       "\"commutator.dev/engine-kv-events-port\":\"none\"}",
                       "{\"command\":[\"llamafile\"]}", &s));
    assert_string_equal(s.kind, "openai");
    assert_int_equal(s.port, 9000);
    assert_string_equal(s.events_port, "none");
    assert_true(detect("worker", "{\"commutator.dev/engine-block-size\":\"8\"}", vllm, &s));
    assert_string_equal(s.block_size, "8");
    assert_false(detect("worker", "{\"commutator.dev/engine\":\"none\"}", vllm, &s));
}

int main(void)
{
    return TEST_RUN(T(commands), T(annotations));
}
