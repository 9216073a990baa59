/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker as a plain OpenAI server, asked by the real HTTP client.
 */
#include "worker/openai_server.h"
#include "lib/base/test.h"

#include "lib/base/json_tree.h"
#include "lib/base/metric.h"
#include "lib/net/http_answer_test.h"
#include "lib/net/loop_test.h"
#include "router/discovery/store.h"
#include "worker/mock_worker.h"

enum { BLOCK = 4 };

struct rig {
    struct loop *loop;
    struct store_hub *hub;
    struct metric_registry *metrics;
    struct model_card *card;
    struct mock_worker *worker;
    struct openai_server *server;
    struct http_client *http;
};

static const uint32_t WORDS[] = {500, 501, 502, 503};

static void open_rig(struct rig *rig, double speedup)
{
    const struct model_card_spec card = {
        .dir = "examples/model", .name = "m", .kv_cache_block_size = BLOCK, .context_length = 2000};
    struct mock_worker_conf conf = {.ns = "ns",
                                    .component = "backend",
                                    .endpoint = "generate",
                                    .engine = {.block_size = BLOCK,
                                               .n_blocks = 1000,
                                               .max_num_seqs = 8,
                                               .max_num_batched_tokens = 1000,
                                               .waiting_max = 4,
                                               .prefix_caching = true,
                                               .chunked_prefill = true,
                                               .speedup_ratio = speedup,
                                               .vocab = WORDS,
                                               .n_vocab = ARRAY_LEN(WORDS)},
                                    .dp_size = 1,
                                    .seed = 1};
    struct openai_server_conf server = {.host = "127.0.0.1",
                                        .root = "examples/model",
                                        .block_size = BLOCK,
                                        .n_blocks = 1000,
                                        .dp_size = 1,
                                        .prefix_caching = true};
    struct err e;

    *rig = (struct rig){.hub = store_hub_new(), .metrics = metric_registry_new()};
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(model_card_build(&rig->card, &card, &e), &e);
    conf.loop = server.loop = rig->loop;
    conf.take_store = store_mem_new(rig->hub, rig->loop);
    conf.metrics = rig->metrics;
    conf.card = server.card = rig->card;
    EXPECT_OK(mock_worker_new(&rig->worker, &conf, &e), &e);
    server.worker = rig->worker;
    EXPECT_OK(openai_server_start(&rig->server, &server, &e), &e);
    EXPECT_OK(http_client_new(&rig->http, rig->loop, &(struct http_client_conf){0}, &e), &e);
}

static void close_rig(struct rig *rig)
{
    http_client_free(rig->http);
    mock_worker_free(rig->worker);
    openai_server_free(rig->server);
    model_card_unref(rig->card);
    store_hub_free(rig->hub);
    metric_registry_free(rig->metrics);
    loop_free(rig->loop);
}

/* Begins a call; GET where there is no @body. */
static struct http_call *call(struct rig *rig, const char *path, const char *body,
                              struct http_answer *rp)
{
    AUTO(mem_free)
    char *url = xasprintf("http://127.0.0.1:%u%s", openai_server_port(rig->server), path);
    const struct http_call_spec spec = {.method = body ? "POST" : "GET",
                                        .url = url,
                                        .body = str_from(body),
                                        .data = http_answer_data,
                                        .done = http_answer_done,
                                        .arg = rp};

    *rp = (struct http_answer){.status = 0};
    return http_client_start(rig->http, &spec);
}

static int ask(struct rig *rig, const char *path, const char *body, struct json **ret)
{
    struct http_answer rp;
    struct err e;

    (void)call(rig, path, body, &rp);
    LOOP_UNTIL(rig->loop, rp.dones);
    EXPECT_OK(json_parse(ret, buf_str(&rp.body), &e), &e);
    buf_done(&rp.body);
    return rp.status;
}

static bool tells(struct rig *rig, const char *line)
{
    struct http_answer rp;
    bool found;

    (void)call(rig, "/metrics", NULL, &rp);
    LOOP_UNTIL(rig->loop, rp.dones);
    found = str_has(buf_str(&rp.body), str_from(line));
    buf_done(&rp.body);
    return found;
}

static void test_answers_and_counts(void **state)
{
    AUTO(json_free) struct json *models = NULL, *first = NULL, *again = NULL;
    struct rig rig;
    int64_t n;

    (void)state;
    open_rig(&rig, 0);
    assert_int_equal(ask(&rig, "/v1/models", NULL, &models), 200);
    models = json_free(TAKE(models));
    assert_int_equal(ask(&rig, "/v1/completions",
                         "{\"model\":\"m\",\"prompt\":[1,2,3,4,5,6,7,8,9],\"max_tokens\":3}",
                         &first),
                     200);
    assert_true(json_get_i64(json_get(first, "usage"), "completion_tokens", &n));
    assert_int_equal(n, 3);
    assert_int_equal(ask(&rig, "/v1/completions",
                         "{\"model\":\"m\",\"prompt\":[1,2,3,4,5,6,7,8,9],\"max_tokens\":3}",
                         &again),
                     200);
    assert_true(json_get_i64(json_path(again, "usage", "prompt_tokens_details", NULL),
                             "cached_tokens", &n));
    assert_int_equal(n, 8);
    assert_true(tells(&rig, "vllm:prefix_cache_hits_total{model_name=\"m\",engine=\"0\"} 8"));
    assert_true(tells(&rig, "finished_reason=\"length\"} 2"));
    assert_true(tells(&rig, "vllm:cache_config_info{block_size=\"4\""));
    close_rig(&rig);
}

static void test_tokenizes_what_it_computes(void **state)
{
    static const char chat[] = "{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{\"role\":\"user\","
                               "\"content\":\"hello\"}]}";
    AUTO(json_free) struct json *tokens = NULL, *answer = NULL;
    struct rig rig;
    int64_t told, computed;

    (void)state;
    open_rig(&rig, 0);
    assert_int_equal(ask(&rig, "/tokenize", chat, &tokens), 200);
    assert_int_equal(ask(&rig, "/v1/chat/completions", chat, &answer), 200);
    assert_true(json_get_i64(tokens, "count", &told));
    assert_int_equal(json_len(json_get(tokens, "tokens")), told);
    assert_true(json_get_i64(json_get(answer, "usage"), "prompt_tokens", &computed));
    assert_int_equal(told, computed);
    close_rig(&rig);
}

static void test_stops_and_refuses(void **state)
{
    AUTO(json_free) struct json *all = NULL, *cut = NULL, *unknown = NULL, *none = NULL;
    AUTO(mem_free) char *body = NULL;
    const char *text;
    struct rig rig;

    (void)state;
    open_rig(&rig, 0);
    assert_int_equal(ask(&rig, "/v1/completions",
                         "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":1,\"seed\":1}", &all),
                     200);
    text = json_get_cstr(json_at(json_get(all, "choices"), 0), "text");
    body =
        xasprintf("{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":400,\"stop\":[\"%s\"]}", text);
    assert_int_equal(ask(&rig, "/v1/completions", body, &cut), 200);
    assert_string_equal(json_get_cstr(json_at(json_get(cut, "choices"), 0), "finish_reason"),
                        "stop");
    assert_int_equal(
        ask(&rig, "/v1/completions", "{\"model\":\"other\",\"prompt\":\"a\"}", &unknown), 404);
    assert_int_equal(ask(&rig, "/tokenize", "{}", &none), 400);
    close_rig(&rig);
}

static void test_aborts_for_who_has_gone(void **state)
{
    static const char *const reasons[] = {"stop", "length", "abort", "error", "repetition"};
    struct rig rig;
    struct http_answer rp;
    struct http_call *running;

    (void)state;
    open_rig(&rig, 1);
    running = call(&rig, "/v1/completions",
                   "{\"model\":\"m\",\"prompt\":\"a\",\"max_tokens\":1900,\"stream\":true}", &rp);
    LOOP_UNTIL(rig.loop, rp.body.len > 0);
    assert_int_equal(mock_worker_running(rig.worker), 1);
    (void)http_call_cancel(running);
    LOOP_UNTIL(rig.loop, mock_worker_running(rig.worker) == 0);
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++) {
        AUTO(mem_free) char *none = xasprintf("finished_reason=\"%s\"} 0\n", reasons[i]);

        assert_true(tells(&rig, none)); /* as vLLM 0.32 */
    }
    buf_done(&rp.body);
    close_rig(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_answers_and_counts), T(test_tokenizes_what_it_computes),
                    T(test_stops_and_refuses), T(test_aborts_for_who_has_gone));
}
