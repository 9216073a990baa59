/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client and server over each request plane: TCP, plain and in TLS that both sides must prove
 * themselves in, NATS (a real server) and HTTP. What the worker sees is what is judged: requests,
 * and the word that ends them.
 */
#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_server_test.h"
#include "lib/net/tls_identity_test.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"

enum { SILENT = 0, N_ITEMS = 3 };

/* What every caller says of its trace. */
static const struct plane_header TRACE[TRACE_HEADERS_MAX] = {
    {"traceparent", STR("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")},
    {"tracestate", STR("a=1,b=2")},
    {"x-request-id", STR("mine \"of\" it")},
    {"x-dynamo-request-id", STR("7b1a7d4e-4a57-4a5e-9d2a-111111111111")}};
static const struct plane_endpoint EP = {"ns", "backend", "generate", 0xa1, false};

/* What both sides speak TLS with, of the test at hand; NULL = plain. */
static const struct plane_tls_conf *tls;

struct rig {
    struct loop *loop;
    struct nats_link *nats;
    struct plane_client *client;
    struct plane_server *server;
    pid_t nats_server;
    size_t n_items; /* that the worker says; SILENT: it takes the request and waits */
    struct plane_request *held;
    size_t served, cancels;
};

struct call {
    struct plane_stream *stream;
    char seen[64];
    enum plane_failure kind;
    char text[256];
    bool over;
    size_t pause_at, n_items;
};

/* --- the caller ------------------------------------------------------------------------------- */

static void note(struct call *c, char what)
{
    size_t n = strlen(c->seen);

    assert_false(c->over);
    if (n < sizeof(c->seen) - 1)
        c->seen[n] = what;
}

static void on_accepted(void *arg)
{
    note(arg, 'A');
}

static void on_started(void *arg)
{
    note(arg, 'S');
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct call *c = arg;

    (void)item;
    note(c, 'i');
    if (++c->n_items == c->pause_at)
        plane_stream_pause(c->stream);
}

static void on_finished(void *arg)
{
    struct call *c = arg;

    note(c, 'F');
    c->over = true;
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct call *c = arg;

    note(c, 'X');
    c->over = true;
    c->kind = kind;
    (void)snprintf(c->text, sizeof(c->text), "%s", text);
}

static void call_address(struct rig *rig, struct call *c, struct str address, struct str body)
{
    static const struct plane_handlers handlers = {.accepted = on_accepted,
                                                   .started = on_started,
                                                   .item = on_item,
                                                   .finished = on_finished,
                                                   .failed = on_failed};
    char id[UUID_TEXT_SIZE];
    struct plane_call call = {
        .address = address, .body = body, .headers = TRACE, .n_headers = ARRAY_LEN(TRACE)};

    random_uuid(id);
    call.id = str_from(id);
    c->stream = plane_client_send(rig->client, &call, &handlers, c);
}

static void call_endpoint(struct rig *rig, struct call *c, const struct plane_endpoint *ep,
                          struct str body)
{
    AUTO(buf_done) struct buf told = BUF_NULL;
    AUTO(buf_done) struct buf address = BUF_NULL;

    plane_server_put_address(rig->server, ep, &told);
    plane_address_put(&address, plane_server_kind(rig->server), buf_str(&told), str_from(ep->name));
    call_address(rig, c, buf_str(&address), body);
}

static void call_worker(struct rig *rig, struct call *c)
{
    call_endpoint(rig, c, &EP, STR("{\"token_ids\":[1]}"));
}

/* --- the worker ------------------------------------------------------------------------------- */

static void serve_cancelled(void *arg)
{
    struct rig *rig = arg;

    rig->cancels++;
    plane_request_abort(TAKE(rig->held));
}

static void serve(void *arg, struct plane_request *rq)
{
    static const struct plane_request_handlers on = {.cancelled = serve_cancelled};
    struct rig *rig = arg;
    struct trace_headers trace = plane_request_trace(rq);

    assert_true(str_eq(trace.parent, TRACE[0].value) && str_eq(trace.state, TRACE[1].value));
    assert_true(str_eq(trace.client_id, TRACE[2].value) && str_eq(trace.dynamo_id, TRACE[3].value));
    rig->served++;
    assert_int_equal(plane_request_id(rq).len, 36);
    assert_true(str_starts(plane_request_body(rq), STR("{\"token_ids\":[1")));
    plane_request_start(rq);
    if (rig->n_items == SILENT) {
        rig->held = rq;
        plane_request_set_handlers(rq, &on, rig);
        return;
    }
    for (size_t i = 0; i < rig->n_items; i++)
        plane_request_item(rq, STR("{\"token_ids\":[5]}"));
    plane_request_finish(rq);
}

/* --- set-up ----------------------------------------------------------------------------------- */

static void rig_init(struct rig *rig, enum plane_kind kind, const struct plane_client_conf *more)
{
    struct plane_client_conf conf = more ? *more : (struct plane_client_conf){0};
    struct plane_server_conf server = {.kind = kind, .host = "127.0.0.1", .tls = tls};
    AUTO(mem_free) char *url = NULL;
    struct err e;

    *rig = (struct rig){.n_items = N_ITEMS};
    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    conf.advertise_ip = conf.listen_host = "127.0.0.1";
    conf.tls = tls;
    if (kind == PLANE_NATS) {
        int port = nats_test_port();

        url = xasprintf("nats://127.0.0.1:%d", port);
        conf.nats.servers = url;
        rig->nats_server = nats_test_start(port, NULL);
        EXPECT_OK(nats_link_start(&rig->nats, rig->loop, &conf.nats, &e), &e);
        server.nats = rig->nats;
    }
    EXPECT_OK(plane_server_new(&rig->server, rig->loop, &server, &e), &e);
    plane_server_register(rig->server, &EP, serve, rig);
    if (kind == PLANE_NATS)
        LOOP_UNTIL(rig->loop, nats_link_stats(rig->nats).up);
    EXPECT_OK(plane_client_new(&rig->client, rig->loop, &conf, &e), &e);
    if (kind == PLANE_NATS) { /* the address of the server is borrowed: use it up */
        struct call c = {0};

        call_worker(rig, &c);
        LOOP_UNTIL(rig->loop, c.over);
        rig->served = 0;
    }
}

static void on_echo(void *arg, const struct nats_message *m)
{
    (void)m;
    *(bool *)arg = true;
}

/* What was subscribed and unsubscribed so far, NATS knows. */
static void settle(struct rig *rig)
{
    bool echoed = false;
    uint64_t id;
    struct err e;

    if (!rig->nats)
        return;
    EXPECT_OK(nats_link_subscribe(rig->nats, "echo", on_echo, &echoed, &id, &e), &e);
    EXPECT_OK(nats_link_publish(rig->nats, "echo", STR("x")), &e);
    LOOP_UNTIL(rig->loop, echoed);
    nats_link_unsubscribe(rig->nats, id);
}

static void rig_done(struct rig *rig)
{
    if (rig->held)
        plane_request_abort(rig->held);
    rig->client = plane_client_free(rig->client);
    rig->server = plane_server_free(rig->server);
    rig->nats = nats_link_free(rig->nats);
    nats_test_kill(rig->nats_server);
    loop_run_once(rig->loop, 0);
    rig->loop = loop_free(rig->loop);
}

/* --- tests, each on every plane --------------------------------------------------------------- */

static void check_normal(enum plane_kind kind)
{
    struct call c[3] = {{0}};
    struct rig rig;

    rig_init(&rig, kind, NULL);
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        call_worker(&rig, &c[i]);
        assert_string_equal(c[i].seen, ""); /* nothing from within the call */
    }
    for (size_t i = 0; i < ARRAY_LEN(c); i++) {
        LOOP_UNTIL(rig.loop, c[i].over);
        assert_string_equal(c[i].seen, "ASiiiF");
    }
    assert_int_equal(rig.served, ARRAY_LEN(c));
    assert_int_equal(plane_client_stats(rig.client).streams, 0);
    LOOP_UNTIL(rig.loop, plane_server_running(rig.server) == 0);
    rig_done(&rig);
}

/* Gone before the worker has called home, after, and in the middle: it is told each time. */
static void check_cancel(enum plane_kind kind)
{
    struct call early = {0}, late = {0}, never = {0};
    struct rig rig;

    rig_init(&rig, kind, NULL);
    rig.n_items = SILENT;
    call_worker(&rig, &late);
    LOOP_UNTIL(rig.loop, strcmp(late.seen, "AS") == 0);
    late.stream = plane_stream_cancel(late.stream);
    LOOP_UNTIL(rig.loop, rig.cancels == 1);

    call_worker(&rig, &early);
    LOOP_UNTIL(rig.loop, plane_server_stats(rig.server).requests == rig.served + 1);
    early.stream = plane_stream_cancel(early.stream);
    LOOP_UNTIL(rig.loop, rig.cancels == 2 && plane_server_running(rig.server) == 0);
    assert_false(early.over);

    call_worker(&rig, &never);
    never.stream = plane_stream_cancel(never.stream);
    LOOP_UNTIL(rig.loop, plane_server_running(rig.server) == 0);
    assert_string_equal(never.seen, "");
    assert_int_equal(plane_client_stats(rig.client).streams, 0);
    rig_done(&rig);
}

static void check_unknown(enum plane_kind kind)
{
    static const struct {
        enum plane_failure kind;
        const char *text;
    } want[] = {
        [PLANE_TCP] = {PLANE_REFUSED, "Unknown endpoint: a1/nope"},
        [PLANE_NATS] = {PLANE_UNREACHABLE, "no responders"},
        [PLANE_HTTP] = {PLANE_REFUSED, "HTTP 404: Endpoint not found"},
    };
    struct plane_endpoint nope = EP;
    struct call c = {0}, gone = {0};
    struct rig rig;

    rig_init(&rig, kind, NULL);
    nope.name = "nope";
    call_endpoint(&rig, &c, &nope, STR("{}"));
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, want[kind].kind);
    assert_non_null(strstr(c.text, want[kind].text));
    plane_server_unregister(rig.server, &EP); /* a worker that leaves */
    settle(&rig);
    call_worker(&rig, &gone);
    LOOP_UNTIL(rig.loop, gone.over);
    assert_int_equal(gone.kind, want[kind].kind);
    rig_done(&rig);
}

/* A server that runs one request, and the request. */
static void rig_init_busy(struct rig *rig, enum plane_kind kind, size_t waiting_max, struct call *c)
{
    struct plane_server_conf conf = {.kind = kind,
                                     .host = "127.0.0.1",
                                     .running_max = 1,
                                     .waiting_max = waiting_max,
                                     .tls = tls};
    struct err e;

    rig_init(rig, kind, NULL);
    rig->server = plane_server_free(rig->server);
    loop_run_once(rig->loop, 0);
    conf.nats = rig->nats;
    EXPECT_OK(plane_server_new(&rig->server, rig->loop, &conf, &e), &e);
    plane_server_register(rig->server, &EP, serve, rig);
    settle(rig);
    rig->n_items = SILENT;
    call_worker(rig, c);
    LOOP_UNTIL(rig->loop, rig->served == 1);
}

static void call_overloaded(struct rig *rig)
{
    struct call c = {0};

    call_worker(rig, &c);
    LOOP_UNTIL(rig->loop, c.over);
    assert_int_equal(c.kind, PLANE_REFUSED);
    assert_non_null(strstr(c.text, "Server overloaded: worker at capacity"));
}

static void check_overloaded(enum plane_kind kind)
{
    struct call c = {0};
    struct rig rig;

    rig_init_busy(&rig, kind, 0, &c);
    call_overloaded(&rig);
    c.stream = plane_stream_cancel(c.stream);
    LOOP_UNTIL(rig.loop, rig.cancels == 1);
    rig_done(&rig);
}

/* Those beyond what runs are acknowledged, and called home for in their order. */
static void check_waiting(enum plane_kind kind)
{
    struct call c = {0}, d[3] = {{0}};
    struct rig rig;

    rig_init_busy(&rig, kind, ARRAY_LEN(d), &c);
    for (size_t i = 0; i < ARRAY_LEN(d); i++) {
        call_worker(&rig, &d[i]);
        LOOP_UNTIL(rig.loop, strcmp(d[i].seen, "A") == 0);
    }
    assert_int_equal(plane_server_waiting(rig.server), ARRAY_LEN(d));
    call_overloaded(&rig);
    c.stream = plane_stream_cancel(c.stream);
    LOOP_UNTIL(rig.loop, strcmp(d[0].seen, "AS") == 0);
    assert_int_equal(rig.served, 2);
    rig.n_items = 1; /* those behind it end by themselves */
    d[0].stream = plane_stream_cancel(d[0].stream);
    LOOP_UNTIL(rig.loop, d[2].over);
    assert_string_equal(d[1].seen, "ASiF");
    assert_string_equal(d[2].seen, "ASiF");
    assert_int_equal(plane_server_stats(rig.server).overloaded, 1);
    assert_int_equal(plane_server_waiting(rig.server), 0);
    rig_done(&rig);
}

/* A server that ends takes those who wait with it. */
static void check_end_of_waiting(enum plane_kind kind)
{
    struct call c = {0}, d = {0};
    struct rig rig;

    rig_init_busy(&rig, kind, 1, &c);
    call_worker(&rig, &d);
    LOOP_UNTIL(rig.loop, plane_server_waiting(rig.server) == 1);
    c.stream = plane_stream_cancel(c.stream);
    d.stream = plane_stream_cancel(d.stream);
    rig_done(&rig);
    assert_int_equal(rig.served, 1);
}

static void check_large(enum plane_kind kind)
{
    const struct plane_client_conf patient = {.ack_ms = LOOP_UNTIL_MS,
                                              .http_ack_ms = LOOP_UNTIL_MS};
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct call c = {0};
    struct rig rig;

    rig_init(&rig, kind, &patient);
    buf_put_cstr(&body, "{\"token_ids\":[1");
    while (body.len < 3 << 20)
        buf_put_cstr(&body, ",1234567890");
    buf_put_cstr(&body, "]}");
    call_endpoint(&rig, &c, &EP, buf_str(&body));
    LOOP_UNTIL(rig.loop, c.over);
    if (kind == PLANE_NATS) { /* its server takes 1 MiB: said so, and nobody is to blame */
        assert_int_equal(c.kind, PLANE_TOO_LARGE);
        assert_non_null(strstr(c.text, "max_payload"));
        assert_false(plane_failure_is_workers(c.kind));
    } else {
        assert_string_equal(c.seen, "ASiiiF");
    }
    rig_done(&rig);
}

/* Whatever phase it is in, a request whose first item is late ends, and the worker is told. */
static void check_first_item(enum plane_kind kind)
{
    struct plane_client_conf conf = {.first_item_ms = 1000}; /* the worker is to have it by then */
    struct call c = {0};
    struct rig rig;

    rig_init(&rig, kind, &conf);
    rig.n_items = SILENT;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_NO_FIRST_ITEM);
    assert_true(plane_failure_is_retryable(c.kind));
    LOOP_UNTIL(rig.loop, rig.cancels == 1);
    rig_done(&rig);
}

static void check_gap(enum plane_kind kind)
{
    struct plane_client_conf conf = {.gap_ms = 50};
    struct call c = {0}, slow = {.pause_at = 1};
    struct rig rig;

    rig_init(&rig, kind, &conf);
    rig.n_items = SILENT;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, rig.held);
    for (int i = 0; i < 3; i++)
        loop_run_once(rig.loop, 30); /* the first item is another limit's matter */
    assert_false(c.over);
    plane_request_item(rig.held, STR("{\"token_ids\":[5]}"));
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.kind, PLANE_STALLED);
    assert_true(plane_failure_is_migratable(c.kind) && !plane_failure_is_retryable(c.kind));
    LOOP_UNTIL(rig.loop, rig.cancels == 1);

    call_worker(&rig, &slow); /* a client that takes nothing is not the worker's fault */
    LOOP_UNTIL(rig.loop, rig.held);
    plane_request_item(rig.held, STR("{\"token_ids\":[5]}"));
    LOOP_UNTIL(rig.loop, slow.n_items == 1);
    for (int i = 0; i < 6; i++)
        loop_run_once(rig.loop, 30);
    assert_false(slow.over);
    plane_stream_resume(slow.stream);
    LOOP_UNTIL(rig.loop, slow.over);
    assert_int_equal(slow.kind, PLANE_STALLED);
    rig_done(&rig);
}

static void check_free_in_flight(enum plane_kind kind)
{
    struct call c = {0}, d = {0};
    struct rig rig;

    rig_init(&rig, kind, NULL);
    rig.n_items = SILENT;
    call_worker(&rig, &c);
    LOOP_UNTIL(rig.loop, rig.served == 1);
    call_worker(&rig, &d);
    rig.client = plane_client_free(rig.client);
    LOOP_UNTIL(rig.loop, rig.cancels >= 1);
    assert_false(c.over || d.over);
    rig_done(&rig);
}

static void in_tls(void (*check)(enum plane_kind))
{
    char dir[] = "/tmp/plane_ways_test.XXXXXX";
    struct identity id;
    struct plane_tls_conf conf = {0};

    assert_non_null(mkdtemp(dir));
    identity_init(&id, "everyone");
    conf.cert = conf.ca = conf.client_ca = conf.client_cert =
        identity_put(dir, "cert", buf_str(&id.cert_pem));
    conf.key = conf.client_key = identity_put(dir, "key", buf_str(&id.key_pem));
    tls = &conf;
    check(PLANE_TCP);
    tls = NULL;
    assert_int_equal(unlink(conf.cert) | unlink(conf.key), 0);
    assert_int_equal(rmdir(dir), 0);
    free(conf.cert);
    free(conf.key);
    identity_done(&id);
}

#define ON_EACH_PLANE(name)                                                                        \
    static void test_##name##_tcp(void **state)                                                    \
    {                                                                                              \
        (void)state;                                                                               \
        check_##name(PLANE_TCP);                                                                   \
    }                                                                                              \
    static void test_##name##_nats(void **state)                                                   \
    {                                                                                              \
        (void)state;                                                                               \
        check_##name(PLANE_NATS);                                                                  \
    }                                                                                              \
    static void test_##name##_http(void **state)                                                   \
    {                                                                                              \
        (void)state;                                                                               \
        check_##name(PLANE_HTTP);                                                                  \
    }                                                                                              \
    static void test_##name##_tls(void **state)                                                    \
    {                                                                                              \
        (void)state;                                                                               \
        in_tls(check_##name);                                                                      \
    }
#define T4(name)                                                                                   \
    T(test_##name##_tcp), T(test_##name##_nats), T(test_##name##_http), T(test_##name##_tls)

ON_EACH_PLANE(normal)
ON_EACH_PLANE(cancel)
ON_EACH_PLANE(unknown)
ON_EACH_PLANE(overloaded)
ON_EACH_PLANE(waiting)
ON_EACH_PLANE(end_of_waiting)
ON_EACH_PLANE(large)
ON_EACH_PLANE(first_item)
ON_EACH_PLANE(gap)
ON_EACH_PLANE(free_in_flight)

/* --- sides that do not trust each other -------------------------------------------------------- */

static void test_half_a_configuration(void **state)
{
    static char some_file[] = "a";
    const struct plane_tls_conf halves[] = {{.cert = some_file},
                                            {.key = some_file},
                                            {.client_ca = some_file},
                                            {.client_cert = some_file, .insecure = true},
                                            {.client_key = some_file, .insecure = true},
                                            {.client_cert = some_file, .client_key = some_file}};
    struct plane_tls_conf whole = {.insecure = true};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
        assert_int_equal(plane_tls_check(&halves[i], &e), -EINVAL);
        assert_non_null(strstr(e.text, "--tcp-tls-"));
    }
    EXPECT_OK(plane_tls_check(&whole, &e), &e);
}

/* A caller that trusts nobody whom it finds, and one that speaks no TLS to who does. */
static void check_untrusting(enum plane_kind kind)
{
    const struct plane_tls_conf *both = tls;
    static char other[] = "worker.example";
    struct plane_tls_conf named = *both;
    struct call c = {0}, plain = {0};
    struct rig rig;

    rig_init(&rig, kind, NULL);
    rig.client = plane_client_free(rig.client);
    named.name = other;
    for (size_t i = 0; i < 2; i++) {
        const struct plane_client_conf conf = {
            .advertise_ip = "127.0.0.1", .listen_host = "127.0.0.1", .tls = i ? NULL : &named};
        struct call *call = i ? &plain : &c;
        struct err e;

        EXPECT_OK(plane_client_new(&rig.client, rig.loop, &conf, &e), &e);
        call_worker(&rig, call);
        LOOP_UNTIL(rig.loop, call->over);
        rig.client = plane_client_free(rig.client);
        assert_true(plane_failure_is_retryable(call->kind));
    }
    assert_int_equal(c.kind, PLANE_UNREACHABLE);
    assert_non_null(strstr(c.text, "hostname mismatch"));
    assert_int_equal(rig.served, 0);
    rig_done(&rig);
}

static void test_untrusting(void **state)
{
    (void)state;
    in_tls(check_untrusting);
}

/* --- planes that are away --------------------------------------------------------------------- */

static void test_nobody_there(void **state)
{
    struct plane_client_conf conf = {.connect_ms = 100, .nats.servers = "nats://127.0.0.1:1"};
    struct call nats = {0}, http = {0}, unset = {0};
    struct rig rig;

    (void)state;
    rig_init(&rig, PLANE_TCP, &conf);
    call_address(&rig, &nats, STR("nats:a_b.c-1/c"), STR("{}"));
    call_address(&rig, &http, STR("http://127.0.0.1:1/v1/rpc/c"), STR("{}"));
    LOOP_UNTIL(rig.loop, nats.over && http.over);
    assert_int_equal(nats.kind, PLANE_UNREACHABLE);
    assert_int_equal(http.kind, PLANE_UNREACHABLE);
    rig_done(&rig);

    rig_init(&rig, PLANE_TCP, NULL);
    call_address(&rig, &unset, STR("nats:a_b.c-1/c"), STR("{}"));
    LOOP_UNTIL(rig.loop, unset.over);
    assert_non_null(strstr(unset.text, "NATS_SERVER"));
    rig_done(&rig);
}

int main(void)
{
    return TEST_RUN(T4(normal), T4(cancel), T4(unknown), T4(overloaded), T4(waiting),
                    T4(end_of_waiting), T4(large), T4(first_item), T4(gap), T4(free_in_flight),
                    T(test_half_a_configuration), T(test_untrusting), T(test_nobody_there));
}
