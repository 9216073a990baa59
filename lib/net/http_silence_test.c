/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers that want to know when their client has not heard of them for a while.
 */
#include "lib/net/http_server.h"

#include "lib/net/http_client.h"
#include "lib/net/loop_test.h"

struct rig {
    struct loop *loop;
    struct http_server *server;
    struct http_client *client;
    struct http_exchange *pending;
    struct buf got;
    int silences;
    bool done;
};

static void on_request(struct http_exchange *x, void *arg)
{
    ((struct rig *)arg)->pending = x;
}

static void on_data(void *arg, struct str bytes)
{
    buf_put_str(&((struct rig *)arg)->got, bytes);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    (void)why;
    assert_int_equal(status, 200);
    assert_int_equal(error, 0);
    ((struct rig *)arg)->done = true;
}

static void on_silent(void *arg)
{
    struct rig *rig = arg;

    if (!http_stream_has_begun(rig->pending))
        http_stream_begin(rig->pending, 200, NULL);
    http_stream_write(rig->pending, STR("?"));
    rig->silences++;
}

/* Told of before the head and in the stream, until its end; the connection's next answer has its own. */
static void test_silence(void **state)
{
    static const struct http_route route = {"GET", "/", on_request, 0};
    struct rig rig = {0};
    const struct http_server_conf conf = {
        .host = "127.0.0.1", .routes = &route, .n_routes = 1, .arg = &rig};
    AUTO(mem_free) char *url = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&rig.loop, &e), &e);
    EXPECT_OK(http_server_start(&rig.server, rig.loop, &conf, &e), &e);
    EXPECT_OK(http_client_new(&rig.client, rig.loop, &(struct http_client_conf){0}, &e), &e);
    url = xasprintf("http://127.0.0.1:%u/", http_server_port(rig.server));
    for (int i = 0; i < 2; i++) {
        const struct http_call_spec spec = {
            .method = "GET", .url = url, .data = on_data, .done = on_done, .arg = &rig};
        int silences;

        rig.silences = 0;
        rig.done = false;
        buf_clear(&rig.got);
        (void)http_client_start(rig.client, &spec);
        LOOP_UNTIL(rig.loop, rig.pending);
        http_on_silence(rig.pending, 1, on_silent, &rig);
        LOOP_UNTIL(rig.loop, rig.silences >= 3);
        silences = rig.silences;
        http_stream_end(TAKE(rig.pending));
        LOOP_UNTIL(rig.loop, rig.done);
        for (int k = 0; k < 3; k++)
            loop_run_once(rig.loop, 2);
        assert_int_equal(rig.silences, silences);
        assert_int_equal(rig.got.len, silences);
    }
    http_client_free(rig.client);
    http_server_free(rig.server);
    buf_done(&rig.got);
    loop_free(rig.loop);
}

int main(void)
{
    return TEST_RUN(T(test_silence));
}
