/* SPDX-License-Identifier: Apache-2.0 */
/* Two services and a scripted one, on loopback. */
#include "router/service/service_peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/base/test.h"
#include "lib/net/zmq_link.h"
#include "router/sched/sched_test.h"

enum { DEADLINE_MS = 90000, BS = 4 };

struct bench {
    struct loop *loop;
    struct zmq_context *zmq;
};

/* One service: what it heard, as lines. */
struct service {
    struct metric_registry *metrics;
    struct kv_groups groups;
    struct kv_group *group;
    struct service_peers *peers;
    struct buf heard;
    char *endpoint;
};

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    *state = b;
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    EXPECT_OK(zmq_context_new(&b->zmq, b->loop, &e), &e);
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    zmq_context_free(b->zmq);
    loop_free(b->loop);
    free(b);
    return 0;
}

static enum replica_outcome on_placed(void *arg, struct kv_group *g,
                                      const struct sequence_event *ev)
{
    struct service *s = arg;

    assert_ptr_equal(g, s->group);
    buf_printf(&s->heard, "%.*s %d worker %llu blocks %zu prefill %llu\n", STR_ARG(ev->request_id),
               ev->kind, (unsigned long long)ev->worker_id, ev->n_sequence,
               (unsigned long long)ev->prefill_tokens.v);
    return REPLICA_APPLIED;
}

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t len = sizeof(a);

    assert_return_code(bind(fd, (struct sockaddr *)&a, len), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&a, &len), errno);
    (void)close(fd);
    return ntohs(a.sin_port);
}

static int start(struct bench *b, struct service *s, uint16_t port, const char *peers,
                 struct err *e)
{
    const struct service_peers_conf conf = {.loop = b->loop,
                                            .zmq = b->zmq,
                                            .metrics = s->metrics,
                                            .prefix = "test",
                                            .host = "127.0.0.1",
                                            .port = port,
                                            .peers = peers,
                                            .groups = &s->groups,
                                            .placed = on_placed,
                                            .arg = s};

    return service_peers_new(&s->peers, &conf, e);
}

static void prepare(struct service *s)
{
    struct err e;

    s->metrics = metric_registry_new();
    kv_groups_init(&s->groups, &ROUTE_CONF_KV, s->metrics);
    EXPECT_OK(kv_groups_need(&s->groups, STR("m"), STR("default"), BS, &s->group, &e), &e);
}

static void open_service(struct bench *b, struct service *s, const char *peers)
{
    struct err e;
    uint16_t port;
    int r;

    prepare(s);
    do { /* somebody else may have taken it */
        port = free_port();
        r = start(b, s, port, peers, &e);
    } while (r == -EADDRINUSE);
    EXPECT_OK(r, &e);
    s->endpoint = xasprintf("tcp://127.0.0.1:%u", port);
}

static void close_service(struct service *s)
{
    service_peers_free(s->peers);
    kv_groups_done(&s->groups);
    metric_registry_free(s->metrics);
    buf_done(&s->heard);
    free(s->endpoint);
}

/* Calls a route with a body; the status. */
static int call(int (*route)(struct service_peers *, struct rest_call *), struct service_peers *p,
                const char *body, const char *want)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct rest_call c = {.is_json = true, .body = str_from(body), .arena = a};
    int status;

    c.json = json_put_on(&c.out);
    status = route(p, &c);
    if (want && !str_eq(buf_str(&c.out), str_from(want)))
        fail_msg("%.*s", STR_ARG(buf_str(&c.out)));
    buf_done(&c.out);
    return status;
}

static void run_until_heard(struct bench *b, const struct service *s, const char *line)
{
    uint64_t end = clock_now_ns() / 1000000 + DEADLINE_MS;

    while (!str_has(buf_str(&s->heard), str_from(line))) {
        loop_run_once(b->loop, 50);
        if (clock_now_ns() / 1000000 > end)
            fail_msg("not within %d ms: %s, but %.*s", DEADLINE_MS, line,
                     STR_ARG(buf_str(&s->heard)));
    }
}

static void what_one_tells_the_other_hears(void **state)
{
    static const uint64_t blocks[] = {1, UINT64_MAX, 3};
    struct route_booked booked = {
        .id = STR("a"), .worker = {7, 0}, .sequence = blocks, .n_blocks = 3, .prefill_tokens = 9};
    struct service one = {0}, two = {0};
    struct bench *b = *state;
    char *body;

    open_service(b, &one, NULL);
    open_service(b, &two, NULL);
    body = xasprintf("{\"endpoint\":\"%s\"}", one.endpoint);
    assert_int_equal(call(service_peers_register, two.peers, body, NULL), 201);
    assert_int_equal(call(service_peers_register, two.peers, body, NULL), 200);
    assert_int_equal(call(service_peers_register, one.peers, body, NULL), 201); /* itself */
    while (two.heard.len == 0) { /* until then it is not there yet */
        service_peers_tell_placed(one.peers, one.group, &booked);
        loop_run_once(b->loop, 10);
    }
    run_until_heard(b, &two, "a 0 worker 7 blocks 3 prefill 9\n");
    service_peers_tell(one.peers, one.group, STR("a"), booked.worker, SEQUENCE_FREE);
    run_until_heard(b, &two, "a 2 worker 7 blocks 0 prefill 0\n");
    assert_int_equal(one.heard.len, 0); /* its own words are no news */
    free(body);
    close_service(&one);
    close_service(&two);
}

static void peers_are_listed_in_order_and_once(void **state)
{
    struct service s = {0};
    struct bench *b = *state;

    open_service(b, &s, "tcp://127.0.0.1:9, tcp://127.0.0.1:8,tcp://127.0.0.1:9");
    call(service_peers_list, s.peers, "", "[\"tcp://127.0.0.1:8\",\"tcp://127.0.0.1:9\"]");
    for (int i = 0; i < 2; i++)
        assert_int_equal(call(service_peers_deregister, s.peers,
                              "{\"endpoint\":\"tcp://127.0.0.1:8\"}", "{\"status\":\"ok\"}"),
                         200);
    call(service_peers_list, s.peers, "", "[\"tcp://127.0.0.1:9\"]");
    close_service(&s);
}

static void what_is_no_endpoint_is_refused(void **state)
{
    static const struct {
        const char *endpoint, *why;
    } bad[] = {
        {"bogus", "invalid ZMQ endpoint `bogus`: missing scheme"},
        {"", "invalid ZMQ endpoint ``: missing scheme"},
        {"http://h:7", "invalid ZMQ endpoint `http://h:7`: unsupported scheme `http`"},
        {"tcp://host", "invalid ZMQ endpoint `tcp://host`: missing TCP port"},
        {" tcp://h:7", "invalid ZMQ endpoint ` tcp://h:7`: unsupported scheme ` tcp`"},
    };
    struct service s = {0};
    struct bench *b = *state;
    struct err e;

    open_service(b, &s, NULL);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        AUTO(mem_free) char *body = xasprintf("{\"endpoint\":\"%s\"}", bad[i].endpoint);
        AUTO(mem_free) char *want = xasprintf("{\"error\":\"%s\"}", bad[i].why);

        assert_int_equal(call(service_peers_register, s.peers, body, want), 400);
        assert_int_equal(call(service_peers_deregister, s.peers, body, want), 400);
    }
    assert_int_equal(call(service_peers_register, s.peers, "{\"url\":1}", NULL), 422);
    s.peers = service_peers_free(s.peers);
    assert_int_equal(start(b, &s, free_port(), "tcp://127.0.0.1:9,,", &e), -EINVAL);
    assert_int_equal(start(b, &s, 0, "tcp://127.0.0.1:9", &e), -EINVAL);
    EXPECT_OK(start(b, &s, 0, NULL, &e), &e);
    assert_null(s.peers);
    /* Without it the routes are there all the same, and telling is free. */
    call(service_peers_list, NULL, "", "[]");
    assert_int_equal(call(service_peers_register, NULL, "{\"endpoint\":\"bogus\"}",
                          "{\"error\":\"replica sync is disabled\"}"),
                     409);
    service_peers_tell(NULL, s.group, STR("a"), (struct worker_rank){1, 0}, SEQUENCE_FREE);
    close_service(&s);
}

static void peers_are_bounded(void **state)
{
    struct service s = {0};
    struct bench *b = *state;

    open_service(b, &s, NULL);
    for (int i = 0; i <= SERVICE_PEERS_MAX; i++) {
        AUTO(mem_free) char *body = xasprintf("{\"endpoint\":\"ipc:///nowhere/%d\"}", i);

        assert_int_equal(call(service_peers_register, s.peers, body, NULL),
                         i < SERVICE_PEERS_MAX ? 201 : 503);
    }
    close_service(&s);
}

#define BENCH(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(BENCH(what_one_tells_the_other_hears),
                    BENCH(peers_are_listed_in_order_and_once),
                    BENCH(what_is_no_endpoint_is_refused), BENCH(peers_are_bounded));
}
