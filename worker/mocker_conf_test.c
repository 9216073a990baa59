/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mocker_conf.h"
#include "lib/base/test.h"

#include <errno.h>

static const char *const *vars; /* name, value, …, NULL */

static const char *fake_env(const char *name)
{
    for (size_t i = 0; vars && vars[i]; i += 2)
        if (strcmp(vars[i], name) == 0)
            return vars[i + 1];
    return NULL;
}

static int load(struct mocker_conf *c, struct err *e, char **argv)
{
    int argc = 0;

    while (argv[argc])
        argc++;
    return mocker_conf_load(c, argc, argv, fake_env, e);
}
#define A(text) ((char[]){text})
#define ARGS(...) ((char *[]){A("dynamo-mocker"), ##__VA_ARGS__, NULL})
#define ENV(...) (vars = (const char *const[]){__VA_ARGS__, NULL})
#define MODEL A("--model-path"), A("/models/m")

static void defaults_are_those_of_the_reference(void **state)
{
    AUTO(mocker_conf_done) struct mocker_conf c;
    struct err e;

    (void)state;
    vars = NULL;
    EXPECT_OK(load(&c, &e, ARGS(MODEL)), &e);
    assert_int_equal(c.n_blocks, 16384);
    assert_int_equal(c.block_size, 64);
    assert_int_equal(c.max_num_seqs, 256);
    assert_int_equal(c.max_num_batched_tokens, 8192);
    assert_true(c.prefix_caching && c.chunked_prefill && c.local_indexer && c.has_events);
    assert_float_equal(c.watermark, 0.01, 1e-9);
    assert_float_equal(c.speedup_ratio, 1, 1e-9);
    assert_string_equal(c.ns, "dynamo");
    assert_string_equal(c.component, "backend");
    assert_string_equal(c.endpoint, "generate");
    assert_int_equal(c.discovery, MOCKER_ETCD); /* as the reference */
    assert_string_equal(c.etcd.endpoints, "http://localhost:2379");
    assert_int_equal(c.system.port, -1);
    assert_int_equal(c.grace_ms, 30000);
    assert_int_equal(c.plane_running_max, 7500);
    assert_int_equal(c.plane_waiting_max, 6001);
    assert_string_equal(c.nats_server, "nats://localhost:4222");
}

/* e2e/test_worker_variables.py measures the same at 1.6.1. */
static void the_limit_of_the_engine_goes_before_that_of_the_pool(void **state)
{
    static const struct {
        const char *limit, *queue;
        size_t running, waiting;
    } cases[] = {{"", "5", 7, 4}, {"2", "5", 2, 5}, {"2", "1", 2, 2}, {"2", "0", 2, 2}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mocker_conf_done) struct mocker_conf c;
        struct err e;

        ENV("DYN_TCP_WORKER_POOL_SIZE", "7", "DYN_TCP_WORK_QUEUE_SIZE", "3",
            "DYN_ENGINE_REQUEST_LIMIT", cases[i].limit, "DYN_DYNAMO_REQUEST_QUEUE_LIMIT",
            cases[i].queue);
        EXPECT_OK(load(&c, &e, ARGS(MODEL)), &e);
        assert_int_equal(c.plane_running_max, cases[i].running);
        assert_int_equal(c.plane_waiting_max, cases[i].waiting);
    }
    vars = NULL;
}

static void a_pod_of_the_operator_is_understood(void **state)
{
    AUTO(mocker_conf_done) struct mocker_conf c;
    struct err e;

    (void)state;
    ENV("DYN_NAMESPACE", "default-vllm-agg", "DYN_DISCOVERY_BACKEND", "kubernetes", "DYN_STORE_KV",
        "mem", "POD_NAME", "p-0", "POD_UID", "u", "POD_NAMESPACE", "default", "DYN_SYSTEM_PORT",
        "9090", "NATS_SERVER", "nats://n:4222", "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT", "12");
    EXPECT_OK(load(&c, &e,
                   ARGS(MODEL, A("--no-enable-prefix-caching"), A("--startup-time"), A("1.5"),
                        A("--no-enable-local-indexer"))),
              &e);
    assert_int_equal(c.discovery, MOCKER_KUBERNETES);
    assert_string_equal(c.ns, "default-vllm-agg");
    assert_int_equal(c.system.port, 9090);
    assert_int_equal(c.startup_ms, 1500);
    assert_int_equal(c.grace_ms, 12000);
    assert_false(c.prefix_caching || c.local_indexer || c.has_events);
}

static void a_container_that_publishes_for_itself_has_a_name(void **state)
{
    AUTO(mocker_conf_done) struct mocker_conf c;
    struct err e;

    (void)state;
    ENV("DYN_DISCOVERY_BACKEND", "kubernetes", "POD_NAME", "p-0", "POD_UID", "u",
        "DYN_KUBE_DISCOVERY_MODE", "container");
    assert_int_equal(load(&c, &e, ARGS(MODEL)), -EINVAL);
    assert_non_null(strstr(e.text, "CONTAINER_NAME"));
}

static void an_endpoint_names_namespace_component_and_endpoint(void **state)
{
    AUTO(mocker_conf_done) struct mocker_conf c;
    struct err e;

    (void)state;
    vars = NULL;
    EXPECT_OK(load(&c, &e, ARGS(MODEL, A("--endpoint"), A("dyn://a.b-c.worker_1.gen"))), &e);
    assert_string_equal(c.ns, "a.b-c");
    assert_string_equal(c.component, "worker_1");
    assert_string_equal(c.endpoint, "gen");
}

static void what_is_wrong_or_not_ours_is_refused_by_name(void **state)
{
    static const struct {
        const char *flag, *value, *env, *env_value, *says;
    } cases[] = {
        {"--endpoint", "dyn://b.generate", NULL, NULL, "endpoint"},
        {"--endpoint", "dyn://A.b.c", NULL, NULL, "endpoint"},
        {"--disaggregation-mode", "both", NULL, NULL, "disaggregation-mode"},
        {"--bootstrap-ports", "1,2", NULL, NULL, "2 ports for 1 worker"},
        {"--bootstrap-ports", "65536", NULL, NULL, "65536"},
        {"--bootstrap-ports", ",", NULL, NULL, "not a port"},
        {"--planner-profile-data", "x.npz", NULL, NULL, "planner-profile-data"},
        {"--zmq-kv-events-ports", "5557,5558", NULL, NULL, "2 ports for 1 workers"},
        {"--zmq-replay-ports", "5557", NULL, NULL, "zmq-kv-events-ports"},
        {"--publish-as", "stream", NULL, NULL, "publish-as"},
        {"--publish-as", "endpoint", "DYN_LOCAL_INDEXER", "false", "local indexer"},
        {"--store-kv", "mem", NULL, NULL, "mem"},
        {"--request-plane", "pigeon", NULL, NULL, "request-plane"},
        {"--response-plane", "quic", NULL, NULL, "response plane quic"},
        {NULL, NULL, "DYN_TCP_TLS_KEY_PATH", "x", "--tcp-tls-cert-path"},
        {"--watermark", "1.5", NULL, NULL, "watermark"},
        {"--block-size", "0", NULL, NULL, "block-size"},
        {"--extra-engine-args", "/nonexistent.json", NULL, NULL, "nonexistent"},
        {NULL, NULL, "DYN_SYSTEM_PORT", "32768", "DYN_SYSTEM_PORT"},
        {NULL, NULL, "DYN_ENGINE_REQUEST_LIMIT", "0", "DYN_ENGINE_REQUEST_LIMIT"},
        {NULL, NULL, "DYN_TCP_WORK_QUEUE_SIZE", "0", "DYN_TCP_WORK_QUEUE_SIZE"},
        {NULL, NULL, "DYN_SYSTEM_STARTING_HEALTH_STATUS", "bogus", "STARTING_HEALTH_STATUS"},
        {NULL, NULL, "DYN_SYSTEM_HEALTH_PATH", "health", "is no path"},
        {NULL, NULL, "DYN_SYSTEM_LIVE_PATH", "/*", "is no path"},
        {NULL, NULL, "DYN_SYSTEM_LIVE_PATH", "/metrics", "is taken"},
        {NULL, NULL, "DYN_SYSTEM_LIVE_PATH", "/explain/x", "is taken"},
        {NULL, NULL, "DYN_SYSTEM_HEALTH_PATH", "/live", "are both '/live'"},
        {NULL, NULL, "DYN_EVENT_PLANE", "pigeon", "event plane"},
        {NULL, NULL, "DYN_DISCOVERY_BACKEND", "kubernetes", "POD_NAME"},
        {NULL, NULL, "DYN_KUBE_DISCOVERY_MODE", "node", "DYN_KUBE_DISCOVERY_MODE"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mocker_conf_done) struct mocker_conf c;
        const char *env[] = {cases[i].env, cases[i].env_value, NULL};
        char flag[64] = "", value[64] = "";
        struct err e;

        vars = cases[i].env ? env : NULL;
        if (cases[i].flag)
            (void)snprintf(flag, sizeof(flag), "%s", cases[i].flag);
        if (cases[i].value)
            (void)snprintf(value, sizeof(value), "%s", cases[i].value);
        assert_true(
            load(&c, &e, ARGS(MODEL, cases[i].flag ? flag : NULL, cases[i].value ? value : NULL)) <
            0);
        if (!strstr(e.text, cases[i].says))
            fail_msg("'%s' does not speak of %s", e.text, cases[i].says);
    }
    vars = NULL;
    {
        AUTO(mocker_conf_done) struct mocker_conf c;
        struct err e;

        assert_int_equal(load(&c, &e, ARGS(A("--block-size"), A("16"))), -EINVAL);
        assert_non_null(strstr(e.text, "--model-path"));
    }
    ENV("DYN_DISCOVERY_BACKEND", "kubernetes", "POD_NAME", "p", "POD_UID", "u");
    {
        AUTO(mocker_conf_done) struct mocker_conf c;
        struct err e;

        assert_int_equal(load(&c, &e, ARGS(MODEL, A("--num-workers"), A("2"))), -EINVAL);
        assert_non_null(strstr(e.text, "--num-workers"));
    }
}

static void prefill_and_decode_workers_are_told_in_either_generations_words(void **state)
{
    AUTO(mocker_conf_done) struct mocker_conf prefill, decode, older, torn;
    struct err e;

    (void)state;
    vars = NULL;
    EXPECT_OK(load(&prefill, &e,
                   ARGS(MODEL, A("--disaggregation-mode"), A("prefill"), A("--num-workers"), A("2"),
                        A("--bootstrap-ports"), A("18501, 0"))),
              &e);
    assert_int_equal(prefill.role, MOCKER_PREFILL);
    assert_string_equal(prefill.component, "prefill");
    assert_int_equal(prefill.n_bootstrap_ports, 2);
    assert_int_equal(prefill.bootstrap_ports[0], 18501);
    assert_int_equal(prefill.bootstrap_ports[1], 0);
    EXPECT_OK(load(&decode, &e, ARGS(MODEL, A("--disaggregation-mode"), A("decode"))), &e);
    assert_int_equal(decode.role, MOCKER_DECODE);
    assert_string_equal(decode.component, "backend");
    EXPECT_OK(load(&older, &e, ARGS(MODEL, A("--is-prefill-worker"))), &e);
    assert_int_equal(older.role, MOCKER_PREFILL);
    assert_int_equal(
        load(&torn, &e, ARGS(MODEL, A("--is-prefill-worker"), A("--is-decode-worker"))), -EINVAL);
}

static char *temp_file(const char *text)
{
    char *path = xstrdup("/tmp/mocker-conf-XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
    return path;
}

static void engine_args_come_from_a_file_too(void **state)
{
    static const struct {
        const char *text;
        const char *says; /* NULL = fine */
    } cases[] = {
        {"{\"num_gpu_blocks\":512,\"block_size\":32,\"speedup_ratio\":10.5,"
         "\"enable_prefix_caching\":false,\"dp_size\":2,\"startup_time\":null,"
         "\"is_prefill\":false}",
         NULL},
        {"{\"no_such_key\":1}", "no_such_key"},
        {"{\"block_size\":\"many\"}", "block-size"},
        {"{\"block_size\":32", "extra-engine-args"},
        {"[]", "extra-engine-args"},
    };

    (void)state;
    vars = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free) char *path = temp_file(cases[i].text);
        AUTO(mocker_conf_done) struct mocker_conf c;
        struct err e;
        int r =
            load(&c, &e, ARGS(MODEL, A("--extra-engine-args"), path, A("--block-size"), A("16")));

        (void)unlink(path);
        if (cases[i].says) {
            assert_true(r < 0);
            assert_non_null(strstr(e.text, cases[i].says));
            continue;
        }
        EXPECT_OK(r, &e);
        assert_int_equal(c.n_blocks, 512);
        assert_int_equal(c.block_size, 32);
        assert_int_equal(c.dp_size, 2);
        assert_float_equal(c.speedup_ratio, 10.5, 1e-9);
        assert_false(c.prefix_caching);
    }
}

int main(void)
{
    return TEST_RUN(T(defaults_are_those_of_the_reference),
                    T(the_limit_of_the_engine_goes_before_that_of_the_pool),
                    T(a_pod_of_the_operator_is_understood),
                    T(a_container_that_publishes_for_itself_has_a_name),
                    T(an_endpoint_names_namespace_component_and_endpoint),
                    T(what_is_wrong_or_not_ours_is_refused_by_name),
                    T(prefill_and_decode_workers_are_told_in_either_generations_words),
                    T(engine_args_come_from_a_file_too));
}
