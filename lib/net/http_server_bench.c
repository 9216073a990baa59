/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server under load: requests per second on kept connections, and CPU per chunk of a
 * stream. The server has the main thread, its clients another one.
 */
#include "lib/net/http_server.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "lib/base/buf.h"
#include "lib/net/tcp.h"

enum {
    BODY_BYTES = 200,
    GET_CONNECTIONS = 32,
    GET_MS = 2000,
    STREAMS = 1000,
    CHUNKS_PER_MS = 50, /* 50,000 a second, each stream one per 20 ms */
    CHUNKS = 100000,
};

static struct http_exchange *streams[STREAMS];
static size_t n_streams, chunks_sent;
static uint64_t stream_start_ms, cpu_start_ns, cpu_spent_ns;

/* --- the clients' thread --------------------------------------------------------------------- */

struct clients {
    pthread_t thread;
    struct loop *loop;
    uint16_t port;
    size_t n;
    struct str request;
    size_t answer_bytes; /* of one answer, head included; 0 = only read */
    uint64_t answers;
    struct client *all;
};

struct client {
    struct clients *of;
    struct tcp *tcp;
    size_t got;
};

static void client_connected(void *arg)
{
    struct client *c = arg;

    tcp_write(c->tcp, c->of->request);
}

static void client_received(void *arg, struct str data)
{
    struct client *c = arg;

    c->got += data.len;
    if (!c->of->answer_bytes || c->got < c->of->answer_bytes)
        return;
    c->got = 0;
    c->of->answers++;
    tcp_write(c->tcp, c->of->request);
}

static void client_closed(void *arg, int error)
{
    struct client *c = arg;

    (void)error;
    c->tcp = tcp_close(c->tcp);
}

static void *clients_run(void *arg)
{
    static const struct tcp_handlers h = {
        .connected = client_connected, .received = client_received, .closed = client_closed};
    struct clients *cs = arg;

    for (size_t i = 0; i < cs->n; i++) {
        struct client *c = &cs->all[i];

        c->of = cs;
        if (tcp_connect(&c->tcp, cs->loop, "127.0.0.1", cs->port, &h, c, NULL) < 0)
            abort();
    }
    loop_run(cs->loop);
    for (size_t i = 0; i < cs->n; i++)
        tcp_abort(cs->all[i].tcp);
    return NULL;
}

static void clients_start(struct clients *cs)
{
    if (loop_new(&cs->loop, NULL) < 0)
        abort();
    cs->all = xcalloc(cs->n, sizeof(*cs->all));
    if (pthread_create(&cs->thread, NULL, clients_run, cs) != 0)
        abort();
}

static void clients_stop(struct clients *cs)
{
    loop_stop(cs->loop);
    (void)pthread_join(cs->thread, NULL);
    loop_free(cs->loop);
    free(cs->all);
}

/* --- the server's thread --------------------------------------------------------------------- */

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void handle_get(struct http_exchange *x, void *arg)
{
    static const char body[BODY_BYTES];

    (void)arg;
    http_respond(x, 200, "application/json", str_slice(body, BODY_BYTES));
}

static void handle_stream(struct http_exchange *x, void *arg)
{
    (void)arg;
    http_stream_begin(x, 200, "text/event-stream");
    streams[n_streams++] = x;
    if (n_streams == STREAMS) {
        stream_start_ms = loop_now_ms(http_exchange_loop(x));
        cpu_start_ns = thread_cpu_ns();
    }
}

/* Keeps to the rate by the clock, also when a tick was late. */
static void on_tick(void *arg)
{
    static const char chunk[BODY_BYTES];
    struct loop *l = arg;
    size_t due;

    if (n_streams < STREAMS)
        return;
    due = MIN((size_t)(loop_now_ms(l) - stream_start_ms) * CHUNKS_PER_MS, (size_t)CHUNKS);
    for (; chunks_sent < due; chunks_sent++)
        http_stream_write(streams[chunks_sent % STREAMS], str_slice(chunk, BODY_BYTES));
    if (chunks_sent == CHUNKS) {
        cpu_spent_ns = thread_cpu_ns() - cpu_start_ns;
        loop_stop(l);
    }
}

static void stop_loop(void *arg)
{
    loop_stop(arg);
}

static void print_case(const char *name, double value, const char *unit, const char *better)
{
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"%s\",\"better\":\"%s\"}\n", name, value,
           unit, better);
}

static void run(struct loop *l, struct http_server *s)
{
    struct clients get = {.n = GET_CONNECTIONS,
                          .port = http_server_port(s),
                          .request = STR("GET /get HTTP/1.1\r\nHost: bench\r\n\r\n"),
                          .answer_bytes = sizeof("HTTP/1.1 200 OK\r\n"
                                                 "content-type: application/json\r\n"
                                                 "content-length: 200\r\n\r\n") -
                                          1 + BODY_BYTES};
    struct clients sse = {.n = STREAMS,
                          .port = http_server_port(s),
                          .request = STR("GET /stream HTTP/1.1\r\nHost: bench\r\n\r\n")};
    AUTO(timer_free) struct timer *limit = timer_new(l, stop_loop, l);
    AUTO(timer_free) struct timer *tick = timer_new(l, on_tick, l);
    uint64_t start_ns = clock_now_ns();
    uint64_t cpu_ns = thread_cpu_ns();
    double seconds;

    timer_start(limit, GET_MS);
    clients_start(&get);
    loop_run(l);
    seconds = (double)(clock_now_ns() - start_ns) / 1e9;
    cpu_ns = thread_cpu_ns() - cpu_ns;
    clients_stop(&get);
    print_case("http.get_32", (double)get.answers / seconds, "req/s", "higher");
    print_case("http.server_us_per_get", (double)cpu_ns / 1e3 / (double)get.answers, "us", "lower");

    timer_start_repeat(tick, 1);
    clients_start(&sse);
    loop_run(l);
    clients_stop(&sse);
    print_case("sse.server_us_per_chunk", (double)cpu_spent_ns / 1e3 / CHUNKS, "us", "lower");
}

int main(void)
{
    static const struct http_route routes[] = {{"GET", "/get", handle_get, 0},
                                               {"GET", "/stream", handle_stream, 0}};
    struct http_server_conf conf = {.host = "127.0.0.1", .routes = routes, .n_routes = 2};
    struct rlimit files;
    struct http_server *s;
    struct loop *l;
    struct err e;

    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (loop_new(&l, &e) < 0 || http_server_start(&s, l, &conf, &e) < 0) {
        (void)fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    run(l, s);
    http_server_free(s);
    loop_free(l);
    return 0;
}
