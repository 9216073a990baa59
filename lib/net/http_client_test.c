/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/http_client.h"

#include <errno.h>
#include <pthread.h>

#include "lib/base/test.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"

enum { GIVE_UP_MS = 90000, LARGE = 3 << 20 };

static struct loop *loop;
static struct http_server *server;
static struct http_client *client;

/* --- the server's side ----------------------------------------------------------------------- */

static struct http_exchange *pending;
static int gone;

static void on_gone(void *arg)
{
    (void)arg;
    pending = NULL;
    gone++;
}

/* Answers with what it was sent. */
static void handle_echo(struct http_exchange *x, void *arg)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    const struct http1_request *q = http_request(x);
    struct str type = http1_header_get(q, "content-type");

    (void)arg;
    buf_printf(&body, "%.*s %.*s x=%.*s type=%s%.*s expect=%d ", STR_ARG(q->method),
               STR_ARG(q->path), STR_ARG(http1_header_get(q, "x-test")), type.ptr ? "" : "none",
               STR_ARG(type), q->expects_continue);
    buf_put_str(&body, q->body);
    http_respond(x, 200, "text/plain", buf_str(&body));
}

static void handle_status(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_respond(x, 503, "text/plain", STR("busy"));
}

static void handle_later(struct http_exchange *x, void *arg)
{
    (void)arg;
    assert_null(pending);
    pending = x;
    http_on_gone(x, on_gone, NULL);
}

static void handle_large(struct http_exchange *x, void *arg)
{
    AUTO(mem_free) char *bytes = xcalloc(1, LARGE);

    (void)arg;
    http_respond(x, 200, NULL, str_slice(bytes, LARGE));
}

/* Answers when TOGETHER requests are there. */
enum { TOGETHER = 5 };

static void handle_together(struct http_exchange *x, void *arg)
{
    static struct http_exchange *waiting[TOGETHER];
    static size_t n;

    (void)arg;
    waiting[n++] = x;
    if (n < TOGETHER)
        return;
    while (n > 0)
        http_respond(waiting[--n], 200, NULL, STR("together"));
}

static const struct http_route routes[] = {
    {NULL, "/echo*", handle_echo, 0},         {"GET", "/status", handle_status, 0},
    {"GET", "/later", handle_later, 0},       {"GET", "/large", handle_large, 0},
    {"GET", "/together", handle_together, 0},
};

static struct http_server *start_server(struct loop *l)
{
    struct http_server_conf conf = {
        .host = "127.0.0.1",
        .body_bytes = 8 << 20,
        .routes = routes,
        .n_routes = ARRAY_LEN(routes),
    };
    struct http_server *s = NULL;
    struct err e;

    EXPECT_OK(http_server_start(&s, l, &conf, &e), &e);
    return s;
}

static void setup(void)
{
    struct http_client_conf conf = {0};
    struct err e;

    pending = NULL;
    gone = 0;
    EXPECT_OK(loop_new(&loop, &e), &e);
    server = start_server(loop);
    EXPECT_OK(http_client_new(&client, loop, &conf, &e), &e);
}

static void teardown(void)
{
    client = http_client_free(client);
    server = http_server_free(server);
    loop = loop_free(loop);
}

/* --- the client's side ----------------------------------------------------------------------- */

enum act { DO_NOTHING, DO_CANCEL, DO_CANCEL_OTHER, DO_FREE_CLIENT, DO_START, DO_PAUSE };

/* One call, what became of it, and what its callbacks are to do. */
struct probe {
    struct http_call *call;
    struct probe *other;
    enum act in_head, in_data, in_done;
    int heads, head_status, datas, dones, status, error;
    char why[256];
    struct buf body;
};

static void probe_start(struct probe *p, const char *method, const char *path);

static void act(struct probe *p, enum act what)
{
    switch (what) {
    case DO_NOTHING:
        break;
    case DO_CANCEL:
        p->call = http_call_cancel(p->call);
        break;
    case DO_CANCEL_OTHER:
        p->other->call = http_call_cancel(p->other->call);
        break;
    case DO_FREE_CLIENT:
        client = http_client_free(client);
        break;
    case DO_START:
        probe_start(p->other, "GET", "/status");
        break;
    case DO_PAUSE:
        http_call_pause(p->call);
        break;
    }
}

static void on_head(void *arg, int status)
{
    struct probe *p = arg;

    p->heads++;
    p->head_status = status;
    act(p, p->in_head);
}

static void on_data(void *arg, struct str bytes)
{
    struct probe *p = arg;

    p->datas++;
    buf_put_str(&p->body, bytes);
    act(p, p->in_data);
}

static void on_done(void *arg, int status, int error, const char *why)
{
    struct probe *p = arg;

    p->dones++;
    p->status = status;
    p->error = error;
    (void)snprintf(p->why, sizeof(p->why), "%s", why);
    act(p, p->in_done);
}

static struct http_call_spec spec_for(struct probe *p, const char *method, const char *url)
{
    return (struct http_call_spec){
        .method = method, .url = url, .head = on_head, .data = on_data, .done = on_done, .arg = p};
}

static void probe_start(struct probe *p, const char *method, const char *path)
{
    AUTO(mem_free) char *url = xasprintf("http://127.0.0.1:%u%s", http_server_port(server), path);
    struct http_call_spec spec = spec_for(p, method, url);

    p->call = http_client_start(client, &spec);
}

static void test_methods_headers_and_bodies(void **state)
{
    static const char *const headers[] = {"X-Test: yes", "Content-Type: application/x", NULL};
    static const char *const no_type[] = {"X-Test: yes", NULL};
    static const struct {
        const char *method;
        const char *const *headers;
        const char *body, *want;
    } cases[] = {
        {"GET", NULL, "", "GET /echo x= type=none expect=0 "},
        {"GET", headers, "", "GET /echo x=yes type=application/x expect=0 "},
        {"POST", headers, "hello", "POST /echo x=yes type=application/x expect=0 hello"},
        {"POST", no_type, "hello", "POST /echo x=yes type=none expect=0 hello"},
        {"POST", NULL, "", "POST /echo x= type=none expect=0 "},
        {"PUT", NULL, "a", "PUT /echo x= type=none expect=0 a"},
        {"PATCH", headers, "{}", "PATCH /echo x=yes type=application/x expect=0 {}"},
        {"DELETE", NULL, "", "DELETE /echo x= type=none expect=0 "},
        {"DELETE", NULL, "b", "DELETE /echo x= type=none expect=0 b"},
        {"GET", NULL, "b", "GET /echo x= type=none expect=0 b"},
        {"HEAD", NULL, "", ""},
    };
    AUTO(mem_free) char *url = NULL;

    (void)state;
    setup();
    url = xasprintf("http://127.0.0.1:%u/echo?q", http_server_port(server));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct probe p = {0};
        struct http_call_spec spec = spec_for(&p, cases[i].method, url);

        spec.headers = cases[i].headers;
        spec.body = str_from(cases[i].body);
        (void)http_client_start(client, &spec);
        LOOP_UNTIL(loop, p.dones);
        assert_int_equal(p.error, 0);
        assert_int_equal(p.status, 200);
        assert_int_equal(p.heads, 1);
        assert_string_equal(buf_cstr(&p.body), cases[i].want);
        buf_done(&p.body);
    }
    assert_int_equal(http_server_connections(server), 1); /* all on one kept connection */
    teardown();
}

static void keep_field(void *arg, struct str name, struct str value)
{
    struct probe *p = arg;

    if (str_starts(name, STR("x-")))
        buf_printf(&p->body, "%.*s=%.*s;", STR_ARG(name), STR_ARG(value));
}

/* With the server; the answer waits for the test. */
static struct http_call_spec setup_later(struct probe *p)
{
    static char url[64];

    setup();
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/later", http_server_port(server));
    return spec_for(p, "GET", url);
}

static void test_headers_of_the_answer(void **state)
{
    struct probe p = {0};
    struct http_call_spec spec;

    (void)state;
    spec = setup_later(&p);
    spec.field = keep_field;
    (void)http_client_start(client, &spec);
    LOOP_UNTIL(loop, pending);
    http_add_header(pending, "x-a", STR("b: c"));
    http_add_header(pending, "x-b", STR(""));
    http_respond(pending, 200, NULL, STR("body"));
    LOOP_UNTIL(loop, p.dones);
    assert_string_equal(buf_cstr(&p.body), "x-a=b: c;x-b=;body");
    buf_done(&p.body);
    teardown();
}

static void test_large_bodies(void **state)
{
    AUTO(mem_free) char *bytes = xmalloc(LARGE);
    AUTO(mem_free) char *url = NULL;
    struct probe p = {0};
    struct http_call_spec spec;

    (void)state;
    setup();
    memset(bytes, 'x', LARGE);
    url = xasprintf("http://localhost:%u/echo", http_server_port(server));
    spec = spec_for(&p, "POST", url); /* a name: goes through the resolver's thread */
    spec.body = str_slice(bytes, LARGE);
    (void)http_client_start(client, &spec);
    memset(bytes, 'y', LARGE); /* it has a copy */
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, 0);
    assert_int_equal(buf_data(&p.body)[p.body.len - 1], 'x');
    assert_true(p.body.len > LARGE);
    buf_done(&p.body);
    teardown();
}

static void test_streams_arrive_as_they_come(void **state)
{
    struct probe p = {0};

    (void)state;
    setup();
    probe_start(&p, "GET", "/later");
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, "text/event-stream");
    http_stream_write(pending, STR("one"));
    LOOP_UNTIL(loop, p.datas == 1);
    assert_string_equal(buf_cstr(&p.body), "one");
    assert_int_equal(p.head_status, 200);
    http_stream_write(pending, STR("two"));
    LOOP_UNTIL(loop, p.datas == 2);
    assert_int_equal(p.dones, 0);
    http_stream_end(pending);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, 0);
    assert_string_equal(buf_cstr(&p.body), "onetwo");
    buf_done(&p.body);
    teardown();
}

/* What a paused call leaves unread stays with the server, however much there is. */
static void test_a_paused_call_reads_nothing(void **state)
{
    AUTO(mem_free) char *bytes = xcalloc(1, LARGE);
    struct probe p = {.in_data = DO_PAUSE};
    int before;

    (void)state;
    setup();
    probe_start(&p, "GET", "/later");
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    for (int i = 0; i < 8; i++)
        http_stream_write(pending, str_slice(bytes, LARGE));
    LOOP_UNTIL(loop, p.datas == 1);
    before = p.datas;
    for (int i = 0; i < 20; i++)
        loop_run_once(loop, 1);
    assert_int_equal(p.datas, before);
    assert_true(http_stream_backlog(pending) > LARGE);
    http_stream_end(pending);
    p.in_data = DO_NOTHING;
    http_call_resume(p.call);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, 0);
    assert_int_equal(p.body.len, 8 * LARGE);
    buf_done(&p.body);
    teardown();
}

static void test_a_broken_stream_is_an_error(void **state)
{
    struct probe p = {0};

    (void)state;
    setup();
    probe_start(&p, "GET", "/later");
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    http_stream_write(pending, STR("part"));
    http_stream_abort(pending);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, -ECONNRESET);
    assert_int_equal(p.status, 200);
    assert_true(p.why[0]);
    buf_done(&p.body);
    teardown();
}

static void test_error_statuses_are_answers(void **state)
{
    struct probe p = {0};

    (void)state;
    setup();
    probe_start(&p, "GET", "/status");
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, 0);
    assert_int_equal(p.status, 503);
    assert_string_equal(buf_cstr(&p.body), "busy");
    buf_done(&p.body);
    teardown();
}

static void test_failures(void **state)
{
    static const struct {
        const char *url;
        int error;
    } cases[] = {
        {"http://127.0.0.1:1/", -ECONNREFUSED},
        {"http://", -EINVAL},
        {"file:///etc/passwd", -EINVAL},
        {"http://no-such-name.invalid/", -EHOSTUNREACH},
    };

    (void)state;
    setup();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct probe p = {0};
        struct http_call_spec spec = spec_for(&p, "GET", cases[i].url);

        (void)http_client_start(client, &spec);
        assert_int_equal(p.dones, 0); /* never inside the call */
        LOOP_UNTIL(loop, p.dones);
        if (p.error == -ETIMEDOUT && cases[i].error == -EHOSTUNREACH)
            continue; /* a resolver that never answers */
        if (p.error != cases[i].error)
            fail_msg("%s: %d %s", cases[i].url, p.error, p.why);
        assert_true(p.why[0]);
    }
    teardown();
}

static void test_time_limits(void **state)
{
    struct probe p = {0};
    struct http_call_spec spec;

    (void)state;
    spec = setup_later(&p);
    spec.idle_ms = 1000; /* the server is to have the call by then */
    (void)http_client_start(client, &spec);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, -ETIMEDOUT);
    LOOP_UNTIL(loop, gone == 1); /* the server sees us leave */

    p = (struct probe){0};
    spec.idle_ms = 0;
    spec.total_ms = 1000;
    (void)http_client_start(client, &spec);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, -ETIMEDOUT);
    LOOP_UNTIL(loop, gone == 2);
    teardown();
}

static void test_bytes_restart_the_idle_limit(void **state)
{
    struct probe p = {0};
    struct http_call_spec spec;
    uint64_t until_ns;

    (void)state;
    spec = setup_later(&p);
    spec.idle_ms = 1500; /* longer than a busy machine forgets us for */
    (void)http_client_start(client, &spec);
    LOOP_UNTIL(loop, pending);
    http_stream_begin(pending, 200, NULL);
    for (until_ns = clock_now_ns() + 2000000000; clock_now_ns() < until_ns;) {
        http_stream_write(pending, STR("x"));
        loop_run_once(loop, 10);
    }
    assert_int_equal(p.dones, 0);
    http_stream_end(pending);
    LOOP_UNTIL(loop, p.dones);
    assert_int_equal(p.error, 0);
    buf_done(&p.body);
    teardown();
}

/* Whatever a callback does, the call has at most one end and the other calls go on. */
static void test_callbacks_may_do_anything(void **state)
{
    static const struct {
        struct probe p;
        int dones, other_dones;
    } cases[] = {
        {{.in_head = DO_CANCEL}, 0, 1},       {{.in_data = DO_CANCEL}, 0, 1},
        {{.in_done = DO_CANCEL}, 1, 1},       {{.in_head = DO_CANCEL_OTHER}, 1, 0},
        {{.in_data = DO_CANCEL_OTHER}, 1, 0}, {{.in_done = DO_CANCEL_OTHER}, 1, 0},
        {{.in_head = DO_FREE_CLIENT}, 0, 0},  {{.in_data = DO_FREE_CLIENT}, 0, 0},
        {{.in_done = DO_FREE_CLIENT}, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct probe p = cases[i].p, other = {0};

        setup();
        p.other = &other;
        probe_start(&other, "GET", "/later");
        LOOP_UNTIL(loop, pending);
        probe_start(&p, "GET", "/status");
        LOOP_UNTIL(loop, p.dones || (p.heads && !client) || (p.heads && !p.call));
        if (pending) {
            if (cases[i].other_dones == 0)
                LOOP_UNTIL(loop, gone);
            else
                http_respond(TAKE(pending), 200, NULL, STR("late"));
        }
        if (cases[i].other_dones)
            LOOP_UNTIL(loop, other.dones);
        loop_run_once(loop, 5);
        assert_int_equal(p.dones, cases[i].dones);
        assert_int_equal(other.dones, cases[i].other_dones);
        buf_done(&p.body);
        buf_done(&other.body);
        teardown();
    }
}

static void test_calls_may_start_calls(void **state)
{
    static const struct probe where[] = {
        {.in_head = DO_START}, {.in_data = DO_START}, {.in_done = DO_START}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(where); i++) {
        struct probe p = where[i], other = {0};

        setup();
        p.other = &other;
        probe_start(&p, "GET", "/status");
        LOOP_UNTIL(loop, p.dones && other.dones);
        assert_int_equal(other.status, 503);
        buf_done(&p.body);
        buf_done(&other.body);
        teardown();
    }
}

static void test_cancel_before_the_loop_turns(void **state)
{
    struct probe p = {0};

    (void)state;
    setup();
    probe_start(&p, "GET", "/echo");
    p.call = http_call_cancel(p.call);
    assert_null(http_call_cancel(NULL));
    for (int i = 0; i < 5; i++)
        loop_run_once(loop, 1);
    assert_int_equal(p.heads + p.datas + p.dones, 0);
    teardown();
}

static void test_many_at_once(void **state)
{
    enum { MANY = 300 };
    static struct probe probes[MANY];
    int dones;

    (void)state;
    setup();
    memset(probes, 0, sizeof(probes));
    for (size_t i = 0; i < MANY; i++)
        probe_start(&probes[i], "GET", "/status");
    do {
        loop_run_once(loop, 100);
        dones = 0;
        for (size_t i = 0; i < MANY; i++)
            dones += probes[i].dones;
    } while (dones < MANY);
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(probes[i].status, 503);
        buf_done(&probes[i].body);
    }
    assert_in_range(http_server_connections(server), 1, 64); /* the default bound per host */
    teardown();
}

static void test_bad_configuration(void **state)
{
    struct http_client_conf conf = {.ca_file = "/nonexistent/ca.pem"};
    struct http_client *c = NULL;
    struct http_sync *s = NULL;
    struct loop *l = NULL;
    struct err e;

    (void)state;
    EXPECT_OK(loop_new(&l, &e), &e);
    assert_int_equal(http_client_new(&c, l, &conf, &e), -ENOENT);
    assert_true(str_has(str_from(e.text), STR("/nonexistent/ca.pem")));
    assert_int_equal(http_sync_new(&s, &conf, &e), -ENOENT);
    assert_null(c);
    assert_null(s);
    loop_free(l);
}

/* --- the blocking form, against a server on another thread -------------------------------------
 */

struct remote {
    pthread_t thread;
    struct loop *loop;
    struct http_server *server;
};

static void *remote_run(void *arg)
{
    loop_run(((struct remote *)arg)->loop);
    return NULL;
}

static void remote_start(struct remote *r)
{
    struct err e;

    pending = NULL;
    EXPECT_OK(loop_new(&r->loop, &e), &e);
    r->server = start_server(r->loop);
    assert_int_equal(pthread_create(&r->thread, NULL, remote_run, r), 0);
}

static void remote_stop(struct remote *r)
{
    loop_stop(r->loop);
    (void)pthread_join(r->thread, NULL);
    http_server_free(r->server);
    loop_free(r->loop);
}

static void test_sync_calls(void **state)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    AUTO(http_sync_free) struct http_sync *s = NULL;
    char url[64];
    struct http_client_conf conf = {0};
    struct http_call_spec spec = {.method = "POST", .url = url, .body = STR("hello")};
    struct remote r;
    int status = 0;
    struct err e;

    (void)state;
    remote_start(&r);
    EXPECT_OK(http_sync_new(&s, &conf, &e), &e);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/echo", http_server_port(r.server));
    buf_put_cstr(&body, "kept:");
    EXPECT_OK(http_sync_call(s, &spec, 1000, &status, &body, &e), &e);
    assert_int_equal(status, 200);
    assert_string_equal(buf_cstr(&body), "kept:POST /echo x= type=none expect=0 hello");

    /* An option of one call does not leak into the next. */
    spec = (struct http_call_spec){.method = "GET", .url = url};
    buf_clear(&body);
    EXPECT_OK(http_sync_call(s, &spec, 1000, &status, &body, &e), &e);
    assert_string_equal(buf_cstr(&body), "GET /echo x= type=none expect=0 ");

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/large", http_server_port(r.server));
    assert_int_equal(http_sync_call(s, &spec, LARGE - 1, &status, &body, &e), -EMSGSIZE);
    assert_string_equal(buf_cstr(&body), "GET /echo x= type=none expect=0 ");
    buf_clear(&body);
    EXPECT_OK(http_sync_call(s, &spec, LARGE, &status, &body, &e), &e);
    assert_int_equal(body.len, LARGE);

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/later", http_server_port(r.server));
    spec.total_ms = 40;
    assert_int_equal(http_sync_call(s, &spec, 10, &status, &body, &e), -ETIMEDOUT);
    assert_true(str_starts(str_from(e.text), STR("GET http://127.0.0.1:")));

    (void)snprintf(url, sizeof(url), "http://127.0.0.1:1/");
    spec.total_ms = 0;
    status = 7;
    assert_int_equal(http_sync_call(s, &spec, 10, &status, &body, &e), -ECONNREFUSED);
    assert_int_equal(status, 7);
    remote_stop(&r);
}

static void test_sync_calls_together(void **state)
{
    enum { MANY = HTTP_SYNC_JOBS_MAX * 2 + 3, REFUSED = 3 };
    AUTO(http_sync_free) struct http_sync *s = NULL;
    struct buf bodies[MANY] = {0};
    struct http_sync_job jobs[MANY] = {0};
    char together[64], echo[64];
    struct http_client_conf conf = {0};
    struct remote r;
    struct err e;

    (void)state;
    remote_start(&r);
    EXPECT_OK(http_sync_new(&s, &conf, &e), &e);
    (void)snprintf(together, sizeof(together), "http://127.0.0.1:%u/together",
                   http_server_port(r.server));
    for (size_t i = 0; i < TOGETHER; i++)
        jobs[i] = (struct http_sync_job){
            .spec = {.method = "GET", .url = together, .total_ms = GIVE_UP_MS},
            .max_body = 100,
            .body = &bodies[i]};
    http_sync_run(s, jobs, TOGETHER);
    for (size_t i = 0; i < TOGETHER; i++) {
        EXPECT_OK(jobs[i].r, &jobs[i].err);
        assert_string_equal(buf_cstr(&bodies[i]), "together");
    }

    /* More than run at once, and one that fails: each gets its own answer. */
    (void)snprintf(echo, sizeof(echo), "http://127.0.0.1:%u/echo", http_server_port(r.server));
    for (size_t i = 0; i < MANY; i++) {
        buf_clear(&bodies[i]);
        jobs[i] = (struct http_sync_job){
            .spec = {.method = "POST", .url = echo, .body = str_slice("abcdefghij", i % 10)},
            .max_body = 100,
            .body = &bodies[i]};
    }
    jobs[REFUSED].spec.url = "http://127.0.0.1:1/";
    http_sync_run(s, jobs, MANY);
    for (size_t i = 0; i < MANY; i++) {
        char want[100];

        (void)snprintf(want, sizeof(want), "POST /echo x= type=none expect=0 %.*s", (int)(i % 10),
                       "abcdefghij");
        assert_int_equal(jobs[i].r, i == REFUSED ? -ECONNREFUSED : 0);
        assert_string_equal(buf_cstr(&bodies[i]), i == REFUSED ? "" : want);
        buf_done(&bodies[i]);
    }
    remote_stop(&r);
}

int main(void)
{
    return TEST_RUN(T(test_methods_headers_and_bodies), T(test_headers_of_the_answer),
                    T(test_large_bodies), T(test_streams_arrive_as_they_come),
                    T(test_a_paused_call_reads_nothing), T(test_a_broken_stream_is_an_error),
                    T(test_error_statuses_are_answers), T(test_failures), T(test_time_limits),
                    T(test_bytes_restart_the_idle_limit), T(test_callbacks_may_do_anything),
                    T(test_calls_may_start_calls), T(test_cancel_before_the_loop_turns),
                    T(test_many_at_once), T(test_bad_configuration), T(test_sync_calls),
                    T(test_sync_calls_together));
}
