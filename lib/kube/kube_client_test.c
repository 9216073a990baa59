/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Against a server on another thread that answers as it is told and remembers the last request.
 */
#include "lib/kube/kube_client.h"

#include <errno.h>
#include <pthread.h>

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"
#include "lib/kube/kube_test.h"
#include "lib/net/http_server.h"

struct world {
    struct loop *loop;
    struct http_server *server;
    struct kube_config *config;
    struct kube_client *client;
    pthread_t thread;
    /* Written before a call, read by the server's thread during it, and the other way round. */
    int status;
    const char *answer;
    char *request; /* "METHOD target|content type|body" */
};

static void on_request(struct http_exchange *x, void *arg)
{
    struct world *w = arg;
    const struct http1_request *r = http_request(x);

    free(w->request);
    w->request = xasprintf("%.*s %.*s%s%.*s|%.*s|%.*s", STR_ARG(r->method), STR_ARG(r->path),
                           r->query.len ? "?" : "", STR_ARG(r->query),
                           STR_ARG(http1_header_get(r, "Content-Type")), STR_ARG(r->body));
    http_respond(x, w->status, "application/json", str_from(w->answer));
}

static void *serve(void *arg)
{
    loop_run(arg);
    return NULL;
}

static struct world *world_open(void)
{
    static const struct http_route routes[] = {
        {.method = "GET", .path = "/*", .handle = on_request},
        {.method = "POST", .path = "/*", .handle = on_request},
        {.method = "PUT", .path = "/*", .handle = on_request},
        {.method = "PATCH", .path = "/*", .handle = on_request},
        {.method = "DELETE", .path = "/*", .handle = on_request},
    };
    struct world *w = xcalloc(1, sizeof(*w));
    struct err e;

    EXPECT_OK(loop_new(&w->loop, &e), &e);
    w->server = kube_test_server(w->loop, routes, ARRAY_LEN(routes), w);
    w->config = kube_test_config(http_server_port(w->server));
    EXPECT_OK(kube_client_new(&w->client, w->config, &e), &e);
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w->loop), 0);
    return w;
}

static void world_close(struct world *w)
{
    (void)kube_client_free(w->client);
    loop_stop(w->loop);
    assert_int_equal(pthread_join(w->thread, NULL), 0);
    (void)http_server_free(w->server);
    (void)loop_free(w->loop);
    (void)kube_config_free(w->config);
    free(w->request);
    free(w);
}

static struct json *object(void)
{
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(
        json_parse(
            &v, STR("{\"metadata\":{\"name\":\"n\",\"namespace\":\"ns\"},\"data\":{\"a\":\"b\"}}"),
            &e),
        &e);
    return v;
}

#define BODY "{\"metadata\":{\"name\":\"n\",\"namespace\":\"ns\"},\"data\":{\"a\":\"b\"}}"
#define MAPS "/api/v1/namespaces/ns/configmaps"

static void test_requests(void **state)
{
    struct world *w = world_open();
    AUTO(json_free) struct json *v = object();
    AUTO(json_free) struct json *got = NULL;
    struct err e;

    (void)state;
    w->status = 200;
    w->answer = "{\"kind\":\"ConfigMap\"}";
    EXPECT_OK(kube_get(w->client, &KIND_CONFIG_MAP, "ns", "n", &got, &e), &e);
    assert_string_equal(w->request, "GET " MAPS "/n||");
    assert_string_equal(json_get_cstr(got, "kind"), "ConfigMap");
    EXPECT_OK(kube_create(w->client, &KIND_CONFIG_MAP, v, NULL, &e), &e);
    assert_string_equal(w->request, "POST " MAPS "|application/json|" BODY);
    EXPECT_OK(kube_update(w->client, &KIND_CONFIG_MAP, v, NULL, &e), &e);
    assert_string_equal(w->request, "PUT " MAPS "/n|application/json|" BODY);
    EXPECT_OK(kube_apply(w->client, &KIND_CONFIG_MAP, v, "me", NULL, &e), &e);
    assert_string_equal(w->request,
                        "PATCH " MAPS
                        "/n?force=true&fieldManager=me|application/apply-patch+yaml|" BODY);
    EXPECT_OK(kube_patch(w->client, &KIND_DGD, "ns", "g", "status", v, NULL, &e), &e);
    assert_string_equal(
        w->request, "PATCH /apis/nvidia.com/v1alpha1/namespaces/ns/dynamographdeployments/g/status"
                    "|application/merge-patch+json|" BODY);
    EXPECT_OK(kube_delete(w->client, &KIND_CONFIG_MAP, "ns", "n", "u-1", &e), &e);
    assert_string_equal(w->request,
                        "DELETE " MAPS "/n|application/json|{\"propagationPolicy\":\"Background\","
                        "\"preconditions\":{\"uid\":\"u-1\"}}");
    world_close(w);
}

static void test_outcomes(void **state)
{
    static const struct {
        int status, on_create, on_update;
    } cases[] = {
        {404, KUBE_NOT_FOUND, KUBE_NOT_FOUND},
        {409, KUBE_EXISTS, KUBE_CONFLICT},
        {400, KUBE_REFUSED, KUBE_REFUSED},
        {403, KUBE_REFUSED, KUBE_REFUSED},
        {422, KUBE_REFUSED, KUBE_REFUSED},
        {401, -EACCES, -EACCES},
        {429, -EAGAIN, -EAGAIN},
        {503, -EAGAIN, -EAGAIN},
        {500, -EIO, -EIO},
        {302, -EIO, -EIO},
    };
    struct world *w = world_open();
    AUTO(json_free) struct json *v = object();

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err e = {""};

        w->status = cases[i].status;
        w->answer = "{\"kind\":\"Status\",\"message\":\"because\"}";
        assert_int_equal(kube_create(w->client, &KIND_CONFIG_MAP, v, NULL, &e), cases[i].on_create);
        assert_non_null(strstr(e.text, "because"));
        w->answer = "<html>a proxy's page</html>";
        assert_int_equal(kube_update(w->client, &KIND_CONFIG_MAP, v, NULL, &e), cases[i].on_update);
    }
    world_close(w);
}

static void test_several_at_once(void **state)
{
    struct world *w = world_open();
    AUTO(json_free) struct json *v = object();
    struct kube_creation at[3] = {
        {.kind = &KIND_CONFIG_MAP, .object = v},
        {.kind = &KIND_SERVICE, .object = v},
        {.kind = &KIND_SERVICE_ACCOUNT, .object = v},
    };

    (void)state;
    w->status = 201;
    w->answer = "{\"kind\":\"Stored\"}";
    kube_create_all(w->client, at, ARRAY_LEN(at));
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        EXPECT_OK(at[i].r, &at[i].err);
        assert_string_equal(json_get_cstr(at[i].stored, "kind"), "Stored");
        at[i].stored = json_free(at[i].stored);
    }
    w->status = 409;
    w->answer = "{\"kind\":\"Status\",\"message\":\"is there\"}";
    kube_create_all(w->client, at, ARRAY_LEN(at));
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        assert_int_equal(at[i].r, KUBE_EXISTS);
        assert_null(at[i].stored);
        assert_non_null(strstr(at[i].err.text, "is there"));
    }
    world_close(w);
}

static void count_call(void *arg, const char *method, int status)
{
    buf_printf(arg, "%s %d;", method, status);
}

static void test_calls_are_told(void **state)
{
    struct world *w = world_open();
    AUTO(kube_config_free) struct kube_config *nobody = kube_test_config(1);
    AUTO(kube_client_free) struct kube_client *alone = NULL;
    AUTO(buf_done) struct buf told = BUF_NULL;
    struct json *got = NULL;
    struct err e;

    (void)state;
    kube_client_observe(w->client, count_call, &told);
    w->status = 404;
    w->answer = "{}";
    assert_int_equal(kube_get(w->client, &KIND_CONFIG_MAP, "ns", "n", &got, &e), KUBE_NOT_FOUND);
    EXPECT_OK(kube_client_new(&alone, nobody, &e), &e);
    kube_client_observe(alone, count_call, &told);
    assert_true(kube_delete(alone, &KIND_CONFIG_MAP, "ns", "n", NULL, &e) < 0);
    assert_string_equal(buf_cstr(&told), "GET 404;DELETE 0;");
    world_close(w);
}

static void test_a_cut_answer(void **state)
{
    struct world *w = world_open();
    struct json *got = NULL;
    struct err e = {""};

    (void)state;
    w->status = 200;
    w->answer = "{\"cut\":";
    assert_true(kube_get(w->client, &KIND_CONFIG_MAP, "ns", "n", &got, &e) < 0);
    assert_null(got);
    world_close(w);
}

static void test_nobody_there(void **state)
{
    AUTO(kube_config_free) struct kube_config *config = kube_test_config(1);
    AUTO(kube_client_free) struct kube_client *client = NULL;
    struct json *got = NULL;
    struct err e = {""};

    (void)state;
    EXPECT_OK(kube_client_new(&client, config, &e), &e);
    assert_int_equal(kube_get(client, &KIND_CONFIG_MAP, "ns", "n", &got, &e), -ECONNREFUSED);
    assert_non_null(strstr(e.text, "127.0.0.1"));
}

int main(void)
{
    return TEST_RUN(T(test_requests), T(test_outcomes), T(test_several_at_once),
                    T(test_a_cut_answer), T(test_calls_are_told), T(test_nobody_there));
}
