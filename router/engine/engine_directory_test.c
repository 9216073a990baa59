/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that are HTTP servers of the test: found, asked, changed, lost.
 */
#include "router/engine/engine_directory.h"
#include "lib/base/test.h"

#include "lib/net/http_client.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"
#include "router/engine/stock_engine.h"

enum { PERIOD_MS = 10 };

/* An engine, as a few fixed texts. */
struct fake {
    struct http_server *server;
    const char *models, *metrics, *sources;
    const char *wants; /* in the header authorization; NULL = nothing */
    bool tokenizes;
};

struct rig {
    struct loop *loop;
    struct http_client *http;
    struct engine_directory *directory;
    struct fake one, other;
    char log[1024];           /* what was told: "+m" a model, "+w" a worker of it, "-w", "-m" */
    struct stock_engine last; /* of the last worker; its strings as below */
    char last_model[64], last_events[64], last_replay[64], last_key[64], last_lora[64];
    uint32_t last_dp_size;
    const char *api_key;
    uint32_t last_block_size, last_context;
    uint64_t last_blocks, n_loads, running;
};

static void on_models(struct http_exchange *x, void *arg)
{
    const struct fake *f = arg;
    struct str shown = http1_header_get(http_request(x), "authorization");

    if (f->wants && !str_is(shown, f->wants))
        http_respond(x, 401, "application/json", STR("{\"error\":\"Unauthorized\"}"));
    else
        http_respond(x, f->models ? 200 : 500, "application/json", str_from(f->models));
}

static void on_metrics(struct http_exchange *x, void *arg)
{
    const struct fake *f = arg;

    http_respond(x, f->metrics ? 200 : 404, "text/plain", str_from(f->metrics));
}

static void on_sources(struct http_exchange *x, void *arg)
{
    const struct fake *f = arg;

    http_respond(x, f->sources ? 200 : 404, "application/json", str_from(f->sources));
}

static void on_tokenize(struct http_exchange *x, void *arg)
{
    const struct fake *f = arg;

    http_respond(x, f->tokenizes ? 200 : 404, "application/json",
                 STR("{\"count\":1,\"tokens\":[7]}"));
}

static void fake_start(struct rig *rig, struct fake *f, uint16_t port)
{
    static const struct http_route routes[] = {{"GET", "/v1/models", on_models, 0},
                                               {"GET", "/metrics", on_metrics, 0},
                                               {"GET", "/kv_event_sources", on_sources, 0},
                                               {"POST", "/tokenize", on_tokenize, 0}};
    const struct http_server_conf conf = {.host = "127.0.0.1",
                                          .port = port,
                                          .routes = routes,
                                          .n_routes = ARRAY_LEN(routes),
                                          .arg = f};
    struct err e;

    EXPECT_OK(http_server_start(&f->server, rig->loop, &conf, &e), &e);
}

static void on_event(void *arg, const struct instances_event *ev)
{
    static const char *const words[] = {[MODEL_ADDED] = "+m",
                                        [MODEL_REMOVED] = "-m",
                                        [WORKER_ADDED] = "+w",
                                        [WORKER_REMOVED] = "-w"};
    struct rig *rig = arg;
    size_t len = strlen(rig->log);

    (void)snprintf(rig->log + len, sizeof(rig->log) - len, "%s:%s ", words[ev->change],
                   ev->model->name);
    assert_true(ev->model->is_stock);
    if (ev->change != WORKER_ADDED)
        return;
    rig->last = *ev->worker->engine;
    (void)snprintf(rig->last_model, sizeof(rig->last_model), "%s", ev->worker->engine->model);
    (void)snprintf(rig->last_events, sizeof(rig->last_events), "%s",
                   rig->last.events ? rig->last.events : "none");
    (void)snprintf(rig->last_replay, sizeof(rig->last_replay), "%s",
                   rig->last.replay ? rig->last.replay : "none");
    (void)snprintf(rig->last_key, sizeof(rig->last_key), "%s",
                   rig->last.api_key ? rig->last.api_key : "none");
    (void)snprintf(rig->last_lora, sizeof(rig->last_lora), "%s",
                   ev->worker->card->lora_name ? ev->worker->card->lora_name : "none");
    rig->last_dp_size = ev->worker->card->dp_size;
    rig->last_block_size = ev->worker->card->kv_cache_block_size;
    rig->last_context = ev->worker->card->context_length;
    rig->last_blocks = ev->worker->card->total_kv_blocks;
}

static void on_load(void *arg, const struct served_model *m, const struct worker *w, uint32_t rank,
                    const struct engine_rank_load *load)
{
    struct rig *rig = arg;

    (void)m;
    (void)w;
    assert_true(rank < rig->last_dp_size);
    rig->n_loads++;
    rig->running = load->running;
}

static void open_rig(struct rig *rig)
{
    struct err e;

    *rig = (struct rig){.n_loads = 0};
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    EXPECT_OK(http_client_new(&rig->http, rig->loop, &(struct http_client_conf){0}, &e), &e);
    fake_start(rig, &rig->one, 0);
    fake_start(rig, &rig->other, 0);
}

static void start(struct rig *rig, const char *options, bool both)
{
    AUTO(mem_free)
    char *urls =
        xasprintf("http://127.0.0.1:%u%s  http://127.0.0.1:%u%s", http_server_port(rig->one.server),
                  options, http_server_port(both ? rig->other.server : rig->one.server), options);
    const struct engine_directory_conf conf = {.loop = rig->loop,
                                               .http = rig->http,
                                               .urls = urls,
                                               .api_key = rig->api_key,
                                               .period_ms = PERIOD_MS,
                                               .event = on_event,
                                               .load = on_load,
                                               .arg = rig};
    struct err e;

    EXPECT_OK(engine_directory_start(&rig->directory, &conf, &e), &e);
}

static void close_rig(struct rig *rig)
{
    engine_directory_free(rig->directory);
    http_client_free(rig->http);
    http_server_free(rig->one.server);
    http_server_free(rig->other.server);
    loop_free(rig->loop);
}

static bool told(const struct rig *rig, const char *what)
{
    return strcmp(rig->log, what) == 0;
}

static void test_found_and_asked(void **state)
{
    struct rig rig;
    size_t all, up;

    (void)state;
    open_rig(&rig);
    rig.one = (struct fake){.server = rig.one.server,
                            .models = "{\"data\":[{\"id\":\"a\",\"max_model_len\":4096}]}",
                            .metrics =
                                "vllm:cache_config_info{block_size=\"32\",num_gpu_blocks=\"9\"} 1\n"
                                "vllm:num_requests_running 3\n",
                            .tokenizes = true};
    start(&rig, "", false); /* named twice, there once */
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_string_equal(rig.last_model, "a");
    assert_int_equal(rig.last_block_size, 32);
    assert_int_equal(rig.last_context, 4096);
    assert_int_equal(rig.last_blocks, 9);
    assert_true(rig.last.tokenizes);
    assert_null(rig.last.events);
    LOOP_UNTIL(rig.loop, rig.n_loads >= 2);
    assert_int_equal(rig.running, 3);
    engine_directory_count(rig.directory, &all, &up);
    assert_int_equal(all, 1);
    assert_int_equal(up, 1);
    close_rig(&rig);
}

static void test_lost_and_back_and_another(void **state)
{
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = rig.other.models = "{\"data\":[{\"id\":\"a\"}]}";
    start(&rig, "", true);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a +w:a "));
    assert_int_equal(rig.last_block_size, 16); /* nobody says */
    rig.one.models = NULL;
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a +w:a -w:a "));
    rig.other.models = "{\"data\":[{\"id\":\"b\"},{\"id\":\"c\",\"parent\":\"b\"}]}";
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a +w:a -w:a -w:a -m:a +m:b +w:b +m:c +w:c "));
    rig.log[0] = '\0';
    rig.one.models = "{\"data\":[{\"id\":\"b\"}]}";
    LOOP_UNTIL(rig.loop, told(&rig, "+w:b "));
    close_rig(&rig);
}

static void test_options_come_first(void **state)
{
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = "{\"data\":[{\"id\":\"a\"}]}";
    rig.one.metrics = "vllm:cache_config_info{block_size=\"32\"} 1\n";
    start(&rig, ",block-size=8,model=mine,kv-events=tcp://h:1,model-path=/nowhere", false);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:mine +w:mine "));
    assert_string_equal(rig.last_model, "a");
    assert_int_equal(rig.last_block_size, 8);
    assert_string_equal(rig.last.events, "tcp://h:1");
    close_rig(&rig);
}

/* On a host that other engines share, too. */
static void test_engines_say_where_their_events_are(void **state)
{
    static const char metrics[] = "vllm:cache_config_info{block_size=\"32\"} 1\n";
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = "{\"data\":[{\"id\":\"a\"}]}";
    rig.one.metrics = rig.other.metrics = metrics;
    rig.one.sources = "{\"0\":{\"enable_kv_cache_events\":true,\"publisher\":\"zmq\","
                      "\"endpoint\":\"tcp://*:7\",\"replay_endpoint\":\"tcp://*:8\"}}";
    start(&rig, "", true);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_string_equal(rig.last_events, "tcp://127.0.0.1:7");
    assert_string_equal(rig.last_replay, "tcp://127.0.0.1:8");
    rig.other.sources = "{}";
    rig.other.models = "{\"data\":[{\"id\":\"b\"}]}";
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a +m:b +w:b "));
    assert_string_equal(rig.last_events, "none");
    close_rig(&rig);
}

/* All hear the events: of adapters they say whose they are. */
static void test_adapters_hear_events(void **state)
{
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = "{\"data\":[{\"id\":\"a\",\"max_model_len\":4096}]}";
    start(&rig, ",kv-events=tcp://h:1,kv-replay=tcp://h:2", false);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_string_equal(rig.last_lora, "none");
    rig.log[0] = '\0';
    rig.one.models = "{\"data\":[{\"id\":\"a\",\"max_model_len\":4096},"
                     "{\"id\":\"sql\",\"parent\":\"a\",\"max_model_len\":null}]}";
    LOOP_UNTIL(rig.loop, told(&rig, "-w:a -m:a +m:a +w:a +m:sql +w:sql "));
    assert_string_equal(rig.last_model, "sql");
    assert_string_equal(rig.last_lora, "sql");
    assert_string_equal(rig.last_events, "tcp://h:1");
    assert_string_equal(rig.last_replay, "tcp://h:2");
    assert_int_equal(rig.last_context, 4096);
    close_rig(&rig);
}

static void test_ranks_that_show_later(void **state)
{
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = "{\"data\":[{\"id\":\"a\"}]}";
    rig.one.metrics = "vllm:cache_config_info{block_size=\"32\",engine=\"0\"} 1\n";
    start(&rig, ",kv-events=none", false);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_int_equal(rig.last_dp_size, 1);
    rig.log[0] = '\0';
    rig.one.metrics = "vllm:cache_config_info{block_size=\"32\",engine=\"0\"} 1\n"
                      "vllm:num_requests_running{engine=\"1\"} 1\n";
    LOOP_UNTIL(rig.loop, told(&rig, "-w:a -m:a +m:a +w:a "));
    assert_int_equal(rig.last_dp_size, 2);
    /* What one process of it does not know yet is no news. */
    rig.one.metrics = "vllm:cache_config_info{block_size=\"32\",engine=\"0\"} 1\n";
    rig.n_loads = 0;
    LOOP_UNTIL(rig.loop, rig.n_loads >= 4);
    assert_string_equal(rig.log, "-w:a -m:a +m:a +w:a ");
    close_rig(&rig);
}

static void test_keys(void **state)
{
    struct rig rig;

    (void)state;
    open_rig(&rig);
    rig.one.models = "{\"data\":[{\"id\":\"a\"}]}";
    rig.one.wants = "Bearer sesame";
    rig.api_key = "sesame";
    start(&rig, "", false);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_string_equal(rig.last_key, "sesame");
    engine_directory_free(rig.directory);
    rig.log[0] = '\0';
    rig.one.wants = "Bearer other";
    assert_int_equal(setenv("ENGINE_DIRECTORY_TEST_KEY", "other", 1), 0);
    start(&rig, ",api-key-env=ENGINE_DIRECTORY_TEST_KEY", false);
    LOOP_UNTIL(rig.loop, told(&rig, "+m:a +w:a "));
    assert_string_equal(rig.last_key, "other");
    close_rig(&rig);
}

static void test_refuses_what_is_no_url(void **state)
{
    struct engine_directory *d;
    struct rig rig;
    struct err e;

    (void)state;
    open_rig(&rig);
    assert_true(engine_directory_start(
                    &d,
                    &(struct engine_directory_conf){
                        .loop = rig.loop, .http = rig.http, .urls = "h:8000", .event = on_event},
                    &e) < 0);
    close_rig(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_found_and_asked), T(test_lost_and_back_and_another),
                    T(test_options_come_first), T(test_engines_say_where_their_events_are),
                    T(test_adapters_hear_events), T(test_ranks_that_show_later), T(test_keys),
                    T(test_refuses_what_is_no_url));
}
