/* SPDX-License-Identifier: Apache-2.0 */
/* Against a collector that speaks HTTP; gRPC's own library is one in e2e/test_spans.py. */
#include "router/wire/span_export.h"

#include "lib/base/test.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"

enum { QUEUE = 6, BATCH = 2, SOON_MS = 20, NEVER_MS = 3600000 };

static struct loop *loop;
static struct http_server *server;
static struct metric_registry *metrics;
static struct span_export *export;

/* What the collector does and saw. */
static struct {
    int status;
    bool holds;
    struct http_exchange *held;
    size_t calls, spans;
    struct buf headers;
} collector;

/* Each span of these tests has this name. */
static size_t count_spans(struct str body)
{
    size_t n = 0;

    for (size_t i = 0; i + 5 <= body.len; i++)
        n += memcmp(body.ptr + i, "a-bit", 5) == 0;
    return n;
}

static void forget_held(void *arg)
{
    (void)arg;
    collector.held = NULL;
}

static void take(struct http_exchange *x, void *arg)
{
    const struct http1_request *rq = http_request(x);

    (void)arg;
    collector.calls++;
    if (collector.status < 300)
        collector.spans += count_spans(rq->body);
    buf_clear(&collector.headers);
    buf_printf(&collector.headers, "%.*s|%.*s|%.*s", STR_ARG(http1_header_get(rq, "content-type")),
               STR_ARG(http1_header_get(rq, "authorization")), STR_ARG(http1_header_get(rq, "b")));
    if (collector.holds) {
        collector.held = x;
        http_on_gone(x, forget_held, NULL);
        return;
    }
    http_respond(x, collector.status, NULL, STR_NULL);
}

static double counted(const char *outcome)
{
    return metric_value(
        metric_with(metric_family(metrics, &(struct metric_desc){.name = "commutator_spans_total",
                                                                 .type = METRIC_COUNTER,
                                                                 .labels = {"outcome"}}),
                    outcome));
}

static void setup(uint64_t delay_ms, const char *headers)
{
    static const struct http_route routes[] = {{"POST", "/v1/traces", take, 0}};
    const struct http_server_conf http = {
        .host = "127.0.0.1", .routes = routes, .n_routes = ARRAY_LEN(routes)};
    AUTO(mem_free) char *url = NULL;
    struct span_export_conf conf = {.headers = headers,
                                    .service = "dynamo",
                                    .queue_max = QUEUE,
                                    .batch_max = BATCH,
                                    .delay_ms = delay_ms,
                                    .timeout_ms = 10000};
    struct err e;

    memset(&collector, 0, sizeof(collector));
    collector.status = 200;
    EXPECT_OK(loop_new(&loop, &e), &e);
    EXPECT_OK(http_server_start(&server, loop, &http, &e), &e);
    metrics = metric_registry_new();
    url = xasprintf("http://127.0.0.1:%u/v1/traces", http_server_port(server));
    conf.loop = loop;
    conf.metrics = metrics;
    conf.url = url;
    EXPECT_OK(span_export_new(&export, &conf, &e), &e);
}

static void teardown(void)
{
    export = span_export_free(export);
    server = http_server_free(server);
    metrics = metric_registry_free(metrics);
    loop = loop_free(loop);
    buf_done(&collector.headers);
}

static void put(size_t n)
{
    const struct span s = {.name = "a-bit",
                           .kind = SPAN_INTERNAL,
                           .trace_id = "0af7651916cd43dd8448eb211c80319c",
                           .span_id = "00f067aa0ba902b7",
                           .parent_id = "",
                           .start_ns = 1,
                           .end_ns = 2};

    while (n-- > 0)
        span_export_put(export, &s);
}

static void set(void *arg)
{
    *(bool *)arg = true;
}

static void a_full_batch_leaves_at_once(void **state)
{
    (void)state;
    setup(NEVER_MS, "authorization=Basic%20a+b==,nonsense,b=c,bad=%0a");
    put(BATCH);
    LOOP_UNTIL(loop, counted("sent") == BATCH);
    assert_int_equal(collector.spans, BATCH);
    assert_string_equal(buf_cstr(&collector.headers), "application/x-protobuf|Basic a+b==|c");
    teardown();
}

static void a_span_waits_for_the_timer(void **state)
{
    (void)state;
    setup(SOON_MS, NULL);
    put(1);
    LOOP_UNTIL(loop, counted("sent") == 1);
    assert_int_equal(collector.calls, 1);
    teardown();
}

static void what_nobody_takes_is_bounded_and_counted(void **state)
{
    (void)state;
    setup(NEVER_MS, NULL);
    collector.holds = true;
    put(QUEUE + 5);
    assert_int_equal((int)counted("dropped"), 5);
    LOOP_UNTIL(loop, collector.held);
    collector.holds = false;
    http_respond(collector.held, 200, NULL, STR_NULL);
    LOOP_UNTIL(loop, counted("sent") == QUEUE);
    assert_int_equal(collector.calls, QUEUE / BATCH);
    put(BATCH); /* there is room again */
    LOOP_UNTIL(loop, counted("sent") == QUEUE + BATCH);
    teardown();
}

static void a_busy_collector_is_asked_again(void **state)
{
    (void)state;
    setup(SOON_MS, NULL);
    collector.status = 503;
    put(1);
    LOOP_UNTIL(loop, collector.calls == 1);
    collector.status = 200;
    LOOP_UNTIL(loop, counted("sent") == 1);
    assert_int_equal((int)counted("failed"), 0);
    teardown();
}

static void it_is_given_up_after_a_while(void **state)
{
    (void)state;
    setup(SOON_MS, NULL);
    collector.status = 503;
    put(1);
    LOOP_UNTIL(loop, counted("failed") == 1);
    assert_int_equal(collector.calls, SPAN_ATTEMPTS);
    teardown();
}

static void a_refusal_is_final(void **state)
{
    (void)state;
    setup(SOON_MS, NULL);
    collector.status = 400;
    put(BATCH);
    LOOP_UNTIL(loop, counted("failed") == BATCH);
    assert_int_equal(collector.calls, 1);
    teardown();
}

static void flushing_sends_all_that_waits(void **state)
{
    bool flushed = false;

    (void)state;
    setup(NEVER_MS, NULL);
    put(BATCH + 1);
    span_export_flush(export, set, &flushed);
    LOOP_UNTIL(loop, flushed);
    assert_int_equal((int)counted("sent"), BATCH + 1);
    flushed = false;
    span_export_flush(export, set, &flushed);
    assert_true(flushed);
    teardown();
}

static void flushing_ends_although_nobody_is_there(void **state)
{
    bool flushed = false;

    (void)state;
    setup(NEVER_MS, NULL);
    server = http_server_free(server);
    put(BATCH + 1);
    span_export_flush(export, set, &flushed);
    LOOP_UNTIL(loop, flushed);
    assert_int_equal((int)counted("failed"), BATCH + 1);
    flushed = false;
    span_export_flush(NULL, set, &flushed);
    assert_true(flushed);
    teardown();
}

int main(void)
{
    return TEST_RUN(T(a_full_batch_leaves_at_once), T(a_span_waits_for_the_timer),
                    T(what_nobody_takes_is_bounded_and_counted), T(a_busy_collector_is_asked_again),
                    T(it_is_given_up_after_a_while), T(a_refusal_is_final),
                    T(flushing_sends_all_that_waits), T(flushing_ends_although_nobody_is_there));
}
