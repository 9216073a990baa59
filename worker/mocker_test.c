/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole process but its main(): file discovery, two workers, the system server, the way out.
 */
#include "worker/mocker.h"
#include "lib/base/test.h"

#include <dirent.h>
#include <ftw.h>

#include "lib/base/log.h"
#include "lib/net/http_answer_test.h"
#include "lib/net/loop_test.h"
#include "worker/mocker_conf.h"

static char root[64];
static const char *const *own_vars; /* of one test: names and values, NULL at the end */

static const char *fake_env(const char *name)
{
    static const char *const vars[][2] = {
        {"DYN_FILE_KV", root},       {"DYN_TCP_RPC_HOST", "127.0.0.1"},
        {"DYN_SYSTEM_PORT", "0"},    {"DYN_SYSTEM_HOST", "127.0.0.1"},
        {"DYN_EVENT_PLANE", "none"}, {"DYN_STORE_KV", "file"},
    };

    for (const char *const *own = own_vars; own && *own; own += 2)
        if (strcmp(own[0], name) == 0)
            return own[1];

    for (size_t i = 0; i < ARRAY_LEN(vars); i++)
        if (strcmp(vars[i][0], name) == 0)
            return vars[i][1];
    return NULL;
}

static int get(struct loop *loop, const struct mocker *m, const char *path, struct buf *ret_body)
{
    AUTO(http_client_free) struct http_client *http = NULL;
    AUTO(mem_free) char *url = xasprintf("http://127.0.0.1:%d%s", mocker_system_port(m), path);
    struct http_answer rp = {.status = 0};
    struct http_call_spec spec = {.method = "GET",
                                  .url = url,
                                  .data = http_answer_data,
                                  .done = http_answer_done,
                                  .arg = &rp};
    struct err e;

    EXPECT_OK(http_client_new(&http, loop, &(struct http_client_conf){0}, &e), &e);
    (void)http_client_start(http, &spec);
    LOOP_UNTIL(loop, rp.dones);
    *ret_body = rp.body;
    return rp.status;
}

static size_t count_files(const char *bucket)
{
    AUTO(mem_free) char *path = xasprintf("%s/v1/%s", root, bucket);
    DIR *d = opendir(path);
    size_t n = 0;

    if (!d)
        return 0;
    for (const struct dirent *it; (it = readdir(d)) != NULL;)
        n += it->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

static struct mocker *start(char **args, int n_args, struct mocker_conf *ret_conf,
                            struct loop **ret_loop)
{
    struct mocker *m = NULL;
    struct err e;

    EXPECT_OK(mocker_conf_load(ret_conf, n_args, args, fake_env, &e), &e);
    EXPECT_OK(loop_new(ret_loop, &e), &e);
    EXPECT_OK(mocker_start(&m, *ret_loop, ret_conf, &e), &e);
    return m;
}

static void it_registers_reports_and_withdraws(void **state)
{
    char *args[] = {(char[]){"dynamo-mocker"},
                    (char[]){"--model-path"},
                    (char[]){"examples/model"},
                    (char[]){"--num-workers"},
                    (char[]){"2"},
                    (char[]){"--block-size"},
                    (char[]){"16"},
                    NULL};
    AUTO(mocker_conf_done) struct mocker_conf conf;
    struct buf body = BUF_NULL;
    struct mocker *m;
    struct loop *loop = NULL;
    bool stopped = false;

    (void)state;
    m = start(args, 7, &conf, &loop);
    LOOP_UNTIL(loop, count_files("mdc") == 2 && count_files("instances") == 2);
    assert_int_equal(count_files("event_channels"), 0);

    assert_int_equal(get(loop, m, "/health", &body), 200);
    assert_non_null(strstr(buf_cstr(&body), "{\"generate\":\"ready\"}"));
    buf_done(&body);
    assert_int_equal(get(loop, m, "/metrics", &body), 200);
    assert_non_null(strstr(buf_cstr(&body), "dynamo_component_uptime_seconds{"));
    assert_non_null(strstr(buf_cstr(&body), "dynamo_component_kvstats_total_blocks{"));
    buf_done(&body);
    assert_int_equal(get(loop, m, "/metadata", &body), 404);
    buf_done(&body);
    assert_int_equal(get(loop, m, "/nowhere", &body), 404);
    assert_string_equal(buf_cstr(&body), "Route not found");
    buf_done(&body);

    mocker_stop(m, on_stopped, &stopped);
    assert_int_equal(get(loop, m, "/health", &body), 503);
    buf_done(&body);
    assert_int_equal(get(loop, m, "/live", &body), 200);
    buf_done(&body);
    LOOP_UNTIL(loop, stopped);
    mocker_free(m);
    assert_int_equal(count_files("mdc") + count_files("instances"), 0);
    loop_free(loop);
}

/* A worker that has not registered yet: who says so trusts it from the start, until it stops. */
static void it_is_healthy_from_the_start_where_that_is_asked_for(void **state)
{
    static const char *const vars[] = {"DYN_SYSTEM_STARTING_HEALTH_STATUS",
                                       "ready",
                                       "DYN_SYSTEM_HEALTH_PATH",
                                       "/my/health",
                                       "DYN_SYSTEM_LIVE_PATH",
                                       "/my/live",
                                       NULL};
    char *args[] = {(char[]){"dynamo-mocker"},  (char[]){"--model-path"},
                    (char[]){"examples/model"}, (char[]){"--startup-time"},
                    (char[]){"3600"},           NULL};
    AUTO(mocker_conf_done) struct mocker_conf conf;
    struct buf body = BUF_NULL;
    struct mocker *m;
    struct loop *loop = NULL;
    bool stopped = false;

    (void)state;
    own_vars = vars;
    m = start(args, 5, &conf, &loop);
    own_vars = NULL;
    assert_int_equal(get(loop, m, "/my/health", &body), 200);
    assert_non_null(strstr(buf_cstr(&body), "{\"status\":\"ready\""));
    assert_non_null(strstr(buf_cstr(&body), "{\"generate\":\"notready\"}"));
    buf_done(&body);
    assert_int_equal(get(loop, m, "/my/live", &body), 200);
    buf_done(&body);
    assert_int_equal(get(loop, m, "/health", &body), 404);
    buf_done(&body);
    assert_int_equal(get(loop, m, "/live", &body), 404);
    buf_done(&body);

    mocker_stop(m, on_stopped, &stopped);
    assert_int_equal(get(loop, m, "/my/health", &body), 503);
    buf_done(&body);
    LOOP_UNTIL(loop, stopped);
    mocker_free(m);
    loop_free(loop);
}

static void a_model_that_is_not_there_is_an_error(void **state)
{
    char *args[] = {(char[]){"dynamo-mocker"}, (char[]){"--model-path"}, (char[]){"/nonexistent"},
                    NULL};
    AUTO(mocker_conf_done) struct mocker_conf conf;
    AUTO(loop_free) struct loop *loop = NULL;
    struct mocker *m = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(mocker_conf_load(&conf, 3, args, fake_env, &e), &e);
    EXPECT_OK(loop_new(&loop, &e), &e);
    assert_true(mocker_start(&m, loop, &conf, &e) < 0);
    assert_null(m);
    assert_non_null(strstr(e.text, "/nonexistent"));
}

static void drop_line(struct str line, void *arg)
{
    (void)line;
    (void)arg;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

int main(void)
{
    int r;

    (void)snprintf(root, sizeof(root), "/tmp/mocker-test-XXXXXX");
    if (!mkdtemp(root))
        return 1;
    log_set_sink(drop_line, NULL);
    r = TEST_RUN(T(it_registers_reports_and_withdraws),
                 T(it_is_healthy_from_the_start_where_that_is_asked_for),
                 T(a_model_that_is_not_there_is_an_error));
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0 ? r : 1;
}
