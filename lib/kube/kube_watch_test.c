/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that this test scripts request by request: what a real one does seldom, and all that must
 * not lose an event.
 */
#include "lib/kube/kube_watch.h"

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"
#include "lib/kube/kube_test.h"
#include "lib/net/http_server.h"

enum { DEADLINE_MS = 90000 };

struct world {
    struct loop *loop;
    struct http_server *server;
    struct kube_config *config;
    struct kube_watcher *watcher;
    struct kube_watch *watch;
    /* the server's side */
    const char *pages[4]; /* answers to list requests, in turn; the last one repeats */
    size_t n_pages, n_lists;
    int list_status, watch_status; /* once; 0 = 200 */
    struct http_exchange *stream;  /* the open watch */
    unsigned n_streams;
    struct buf queries; /* of the watch requests */
    struct buf list_queries;
    bool authorized;
    /* the client's side */
    struct buf told;
    unsigned n_synced, n_up, n_down;
    const char *stop_at;
};

static void on_stream_gone(void *arg)
{
    struct world *w = arg;

    w->stream = NULL;
}

static void answer_list(struct world *w, struct http_exchange *x)
{
    size_t i = MIN(w->n_lists, w->n_pages - 1);

    buf_printf(&w->list_queries, "%.*s\n", STR_ARG(http_request(x)->query));
    if (w->list_status) {
        http_respond(x, w->list_status, "application/json", STR("{\"message\":\"not now\"}"));
        w->list_status = 0;
        return;
    }
    w->n_lists++;
    http_respond(x, 200, "application/json", str_from(w->pages[i]));
}

static void answer_watch(struct world *w, struct http_exchange *x)
{
    buf_printf(&w->queries, "%.*s\n", STR_ARG(http_request(x)->query));
    if (w->watch_status) {
        http_respond(x, w->watch_status, "application/json", STR("{\"message\":\"too old\"}"));
        w->watch_status = 0;
        return;
    }
    w->stream = x;
    w->n_streams++;
    http_on_gone(x, on_stream_gone, w);
    http_stream_begin(x, 200, "application/json");
}

static void on_request(struct http_exchange *x, void *arg)
{
    struct world *w = arg;

    w->authorized = str_is(http1_header_get(http_request(x), "Authorization"), "Bearer sesame");
    if (str_has(http_request(x)->query, STR("watch=1")))
        answer_watch(w, x);
    else
        answer_list(w, x);
}

static void on_change(void *arg, enum kube_change what, const struct json *object, struct str raw)
{
    struct world *w = arg;
    const char *name = json_cstr(json_path(object, "metadata", "name", NULL));
    const char *version = json_cstr(json_path(object, "metadata", "resourceVersion", NULL));

    buf_printf(&w->told, "%c%s%s%s;", "+~-"[what], name, version, raw.len ? "" : "?");
    if (w->stop_at && strcmp(name, w->stop_at) == 0)
        w->watch = kube_watch_stop(w->watch);
}

static void on_synced(void *arg)
{
    ((struct world *)arg)->n_synced++;
}

static void on_state(void *arg, bool up, const char *why)
{
    struct world *w = arg;

    (void)why;
    if (up)
        w->n_up++;
    else
        w->n_down++;
}

/* Turns the loop until the condition holds; fails the test when it never does. */
#define WAIT_FOR(w, condition)                                                                     \
    do {                                                                                           \
        uint64_t deadline_ = clock_now_ns() / 1000000 + DEADLINE_MS;                               \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() / 1000000 > deadline_)                                              \
                fail_msg("waited in vain for %s; told: %s", #condition, buf_cstr(&(w)->told));     \
            loop_run_once((w)->loop, 20);                                                          \
        }                                                                                          \
    } while (0)

#define ITEM(name, version)                                                                        \
    "{\"metadata\":{\"name\":\"" name "\",\"namespace\":\"ns\",\"uid\":\"u" name                   \
    "\",\"resourceVersion\":\"" version "\"}}"
#define EVENT(type, object) "{\"type\":\"" type "\",\"object\":" object "}\n"
#define LIST(version, items)                                                                       \
    "{\"metadata\":{\"resourceVersion\":\"" version "\"},\"items\":[" items "]}"

static struct world *world_open(void)
{
    static const struct http_route routes[] = {
        {.method = "GET", .path = "/api/v1/namespaces/ns/configmaps", .handle = on_request}};
    struct world *w = xcalloc(1, sizeof(*w));
    struct err e;

    EXPECT_OK(loop_new(&w->loop, &e), &e);
    w->server = kube_test_server(w->loop, routes, ARRAY_LEN(routes), w);
    w->config = kube_test_config(http_server_port(w->server));
    EXPECT_OK(kube_watcher_new(&w->watcher, w->loop, w->config, &e), &e);
    w->pages[0] = LIST("10", ITEM("a", "1") "," ITEM("b", "2"));
    w->n_pages = 1;
    return w;
}

static void world_watch(struct world *w)
{
    w->watch = kube_watch_start(w->watcher, &(struct kube_watch_spec){.kind = &KIND_CONFIG_MAP,
                                                                      .ns = "ns",
                                                                      .label_selector = "x=y",
                                                                      .change = on_change,
                                                                      .synced = on_synced,
                                                                      .state = on_state,
                                                                      .arg = w});
}

static void world_close(struct world *w)
{
    (void)kube_watcher_free(w->watcher);
    (void)http_server_free(w->server);
    (void)loop_free(w->loop);
    (void)kube_config_free(w->config);
    buf_done(&w->told);
    buf_done(&w->queries);
    buf_done(&w->list_queries);
    free(w);
}

static void push(struct world *w, const char *text)
{
    assert_non_null(w->stream);
    http_stream_write(w->stream, str_from(text));
}

static void break_stream(struct world *w)
{
    struct http_exchange *x = TAKE(w->stream);

    http_stream_abort(x);
}

/* What has been told since the last call must be exactly this. */
static void expect_told(struct world *w, const char *want)
{
    WAIT_FOR(w, w->told.len >= strlen(want));
    assert_string_equal(buf_cstr(&w->told), want);
    buf_clear(&w->told);
}

static struct str last_line(const struct buf *b)
{
    struct str rest = buf_str(b), line, last = STR_NULL;

    while (str_cut(&rest, '\n', &line))
        last = line;
    return last;
}

static void test_list_watch_and_resume(void **state)
{
    struct world *w = world_open();

    (void)state;
    w->pages[0] =
        "{\"metadata\":{\"resourceVersion\":\"10\",\"continue\":\"t+1\"},\"items\":[" ITEM(
            "a", "1") "]}";
    w->pages[1] = LIST("10", ITEM("b", "2"));
    w->n_pages = 2;
    world_watch(w);
    WAIT_FOR(w, w->stream);
    expect_told(w, "+a1;+b2;");
    assert_int_equal(w->n_synced, 1);
    assert_true(kube_watch_synced(w->watch));
    assert_true(w->authorized);
    assert_true(str_has(buf_str(&w->list_queries), STR("limit=500&continue=t%2B1")));
    assert_true(str_has(last_line(&w->queries), STR("labelSelector=x%3Dy")));
    assert_true(
        str_has(last_line(&w->queries), STR("allowWatchBookmarks=true&resourceVersion=10&")));

    /* Cut in the middle of a line, as networks do. */
    push(w, EVENT("ADDED", ITEM("c", "11")) "{\"type\":\"MODIF");
    expect_told(w, "+c11;");
    push(w, "IED\",\"object\":" ITEM("a", "12") "}\n" EVENT("DELETED", ITEM("b", "13")));
    expect_told(w, "~a12;-b13;");
    push(w, EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"40\"}}")
                EVENT("ADDED", ITEM("d", "41"))
                    EVENT("BOOKMARK", "{\"metadata\":{\"resourceVersion\":\"50\"}}"));
    expect_told(w, "+d41;");
    break_stream(w);
    WAIT_FOR(w, w->stream);
    assert_true(str_has(last_line(&w->queries), STR("resourceVersion=50&")));
    /* What comes twice is told once. */
    push(w, EVENT("MODIFIED", ITEM("d", "41")) EVENT("MODIFIED", ITEM("d", "51")));
    expect_told(w, "~d51;");
    WAIT_FOR(w, w->n_up == 2);
    assert_int_equal(w->n_lists, 2);
    assert_int_equal(w->n_down, 1);
    assert_true(kube_watch_restarts(w->watch) >= 1);
    world_close(w);
}

/* After a gap the difference is told, whichever way the server says that the version is gone. */
static void test_gone(void **state)
{
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct world *w = world_open();

        world_watch(w);
        WAIT_FOR(w, w->stream);
        push(w, EVENT("ADDED", ITEM("c", "11")) EVENT("ADDED", ITEM("same", "12")));
        expect_told(w, "+a1;+b2;+c11;+same12;");
        /* a changed, b is gone, c was deleted and made again, d is new. */
        w->pages[0] = LIST(
            "90",
            ITEM("a", "70") ",{\"metadata\":{\"name\":\"c\",\"namespace\":\"ns\",\"uid\":\"new\","
                            "\"resourceVersion\":\"80\"}}," ITEM("d", "81") "," ITEM("same", "12"));
        if (way == 0)
            push(w, EVENT("ERROR", "{\"kind\":\"Status\",\"code\":410,\"message\":\"too old\"}"));
        if (way == 1)
            w->watch_status = 410;
        if (way == 2) {
            w->list_status = 500; /* and the first attempt to list fails */
            push(w, EVENT("ERROR", "{\"code\":410}"));
        }
        if (way == 1)
            break_stream(w);
        expect_told(w, "~a70;-c11?;+c80;+d81;-b2?;");
        WAIT_FOR(w, w->n_synced == 2 && w->stream);
        assert_true(str_has(last_line(&w->queries), STR("resourceVersion=90&")));
        world_close(w);
    }
}

static void test_a_version_of_another_life_is_given_up(void **state)
{
    struct world *w = world_open();
    unsigned refused = 0;

    (void)state;
    world_watch(w);
    WAIT_FOR(w, w->stream);
    expect_told(w, "+a1;+b2;");
    w->pages[0] = LIST("3", ITEM("a", "3"));
    break_stream(w);
    /* 504 "too large resource version", for ever. */
    while (w->n_synced < 2) {
        w->watch_status = 504;
        loop_run_once(w->loop, 20);
        refused += w->watch_status == 0;
        assert_true(refused < 10);
    }
    w->watch_status = 0;
    expect_told(w, "~a3;-b2?;");
    world_close(w);
}

static void test_bad_streams_are_left_and_resumed(void **state)
{
    static const char *const bad[] = {
        "{\"type\":\"ADDED\",\"object\":\n",
        EVENT("EXPLODED", "{}"),
        EVENT("ADDED", "{\"metadata\":{\"name\":\"x\",}}"),
        EVENT("ERROR", "{\"code\":500,\"message\":\"etcd is away\"}"),
        "<html>\n",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct world *w = world_open();

        world_watch(w);
        WAIT_FOR(w, w->stream);
        push(w, EVENT("ADDED", ITEM("c", "11")));
        expect_told(w, "+a1;+b2;+c11;");
        push(w, bad[i]);
        WAIT_FOR(w, w->n_streams == 2);
        assert_true(str_has(last_line(&w->queries), STR("resourceVersion=11&")));
        assert_int_equal(w->n_down, 1);
        assert_int_equal(w->told.len, 0);
        world_close(w);
    }
}

static void test_a_line_without_end_is_not_kept(void **state)
{
    struct world *w = world_open();
    AUTO(buf_done) struct buf megabyte = BUF_NULL;

    (void)state;
    for (size_t i = 0; i < 1 << 20; i++)
        buf_put_char(&megabyte, 'x');
    world_watch(w);
    WAIT_FOR(w, w->stream);
    for (int i = 0; i < 9 && w->n_streams == 1; i++) {
        if (w->stream)
            push(w, buf_cstr(&megabyte));
        loop_run_once(w->loop, 20);
    }
    WAIT_FOR(w, w->n_streams == 2);
    push(w, EVENT("ADDED", ITEM("c", "11")));
    expect_told(w, "+a1;+b2;+c11;");
    world_close(w);
}

static void test_ids_of_64_bits_reach_the_reader(void **state)
{
    struct world *w = world_open();

    (void)state;
    world_watch(w);
    WAIT_FOR(w, w->stream);
    /* A tree cannot hold the number; metadata and text are told all the same. */
    push(w,
         EVENT("ADDED", "{\"metadata\":{\"name\":\"big\",\"uid\":\"u\",\"resourceVersion\":\"11\"},"
                        "\"spec\":{\"id\":18446744073709551615}}"));
    expect_told(w, "+a1;+b2;+big11;");
    world_close(w);
}

static void test_stopping_in_a_callback(void **state)
{
    static const char *const at[] = {"a", "b", "c", "d"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        struct world *w = world_open();

        w->stop_at = at[i];
        world_watch(w);
        if (i >= 2) {
            WAIT_FOR(w, w->stream);
            push(w, EVENT("ADDED", ITEM("c", "11")) EVENT("DELETED", ITEM("a", "12"))
                        EVENT("ADDED", ITEM("d", "13")) EVENT("ADDED", ITEM("e", "14")));
        }
        WAIT_FOR(w, !w->watch);
        for (int turns = 0; turns < 3; turns++)
            loop_run_once(w->loop, 5);
        assert_null(strstr(buf_cstr(&w->told), "e14"));
        world_close(w);
    }
}

int main(void)
{
    return TEST_RUN(
        T(test_list_watch_and_resume), T(test_gone), T(test_a_version_of_another_life_is_given_up),
        T(test_bad_streams_are_left_and_resumed), T(test_a_line_without_end_is_not_kept),
        T(test_ids_of_64_bits_reach_the_reader), T(test_stopping_in_a_callback));
}
