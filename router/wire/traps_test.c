/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The traps of wire.md §12 that no other test steps into; README.md lists where each one is tested.
 */
#include <inttypes.h>

#include "lib/base/arena.h"
#include "lib/base/log.h"
#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/tcp.h"
#include "router/wire/engine_request.h"
#include "router/wire/plane_client.h"
#include "router/wire/plane_server.h"
#include "router/wire/tcp_frame.h"
#include "router/wire/two_part.h"

static struct loop *loop_of_test(void)
{
    struct loop *l = NULL;
    struct err e;

    EXPECT_OK(log_setup("off", false, &e), &e);
    EXPECT_OK(loop_new(&l, &e), &e);
    return l;
}

/* 6: what workers are told to call is an address that others can route to, in a form they can read. */
static void advertised_address(void **state)
{
    static const struct {
        const char *given, *begins;
    } cases[] = {{"192.0.2.7", "192.0.2.7:"}, {"2001:db8::7", "[2001:db8::7]:"}};
    struct loop *l = loop_of_test();
    char local[64];
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plane_client_conf conf = {.advertise_ip = cases[i].given,
                                         .listen_host = "127.0.0.1"};
        struct plane_client *c = NULL;
        struct plane_address a;

        EXPECT_OK(plane_client_new(&c, l, &conf, &e), &e);
        assert_true(str_starts(str_from(plane_client_address(c)), str_from(cases[i].begins)));
        EXPECT_OK(plane_address_parse(str_from(plane_client_address(c)), &a, &e), &e);
        assert_string_equal(a.ip, cases[i].given);
        c = plane_client_free(c);
    }
    /* And unless told otherwise, the one that the route to others begins with. */
    struct plane_client *c = NULL;
    AUTO(mem_free) char *begins = NULL;

    tcp_local_ip(local, sizeof(local));
    begins = xasprintf(strchr(local, ':') ? "[%s]:" : "%s:", local);
    EXPECT_OK(plane_client_new(&c, l, NULL, &e), &e);
    assert_true(str_starts(str_from(plane_client_address(c)), str_from(begins)));
    c = plane_client_free(c);
    loop_run_once(l, 0);
    l = loop_free(l);
}

/* 7: a bare request names what 0.9.0 requires, and leaves out what must not be null. 8: ids are whole. */
static void keys_of_a_request(void **state)
{
    static const uint32_t token = 7;
    struct engine_request rq = {.model = STR("m"), .token_ids = &token, .n_token_ids = 1};
    AUTO(arena_free) struct arena *arena = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_request again;
    struct err e;

    (void)state;
    engine_request_put(&out, &rq);
    assert_true(str_has(buf_str(&out), STR("\"eos_token_ids\":[]")));
    assert_true(str_has(buf_str(&out), STR("\"annotations\":[]")));
    assert_false(str_has(buf_str(&out), STR("\"routing\"")));

    rq.has_routing = true;
    rq.routing.backend_instance_id = OPT_U64(UINT64_MAX);
    buf_clear(&out);
    engine_request_put(&out, &rq);
    EXPECT_OK(engine_request_parse(arena, buf_str(&out), &again, &e), &e);
    assert_true(again.routing.backend_instance_id.v == UINT64_MAX);
}

/* --- two streams of one request --------------------------------------------------------------- */

struct call {
    size_t n_items;
    bool over;
};

static void on_item(void *arg, const struct wire_item *item)
{
    (void)item;
    ((struct call *)arg)->n_items++;
}

static void on_finished(void *arg)
{
    ((struct call *)arg)->over = true;
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    (void)arg;
    fail_msg("%s: %s", plane_failure_name(kind), text);
}

/* Says as many items as the body's number, and keeps the first request until the second is there. */
static void serve(void *arg, struct plane_request *rq)
{
    struct plane_request **first = arg;
    struct plane_request *both[2] = {*first, rq};

    plane_request_start(rq);
    if (!*first) {
        *first = rq;
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(both); i++) {
        uint64_t n = 0;

        assert_true(str_parse_u64(plane_request_body(both[i]), &n));
        while (n-- > 0)
            plane_request_item(both[i], STR("{\"token_ids\":[1]}"));
        plane_request_finish(both[i]);
    }
}

/* 9: prefill and decode share their id; each stream gets its own items. */
static void streams_of_one_id(void **state)
{
    static const struct plane_handlers on = {
        .item = on_item, .finished = on_finished, .failed = on_failed};
    const struct plane_endpoint ep = {.name = "generate", .instance_id = 1};
    const struct plane_client_conf conf = {.advertise_ip = "127.0.0.1", .listen_host = "127.0.0.1"};
    const struct plane_server_conf server_conf = {.host = "127.0.0.1"};
    struct plane_client *client = NULL;
    struct plane_server *server = NULL;
    struct plane_request *first = NULL;
    struct loop *l = loop_of_test();
    struct call calls[2] = {{0}};
    struct err e;

    (void)state;
    EXPECT_OK(plane_client_new(&client, l, &conf, &e), &e);
    EXPECT_OK(plane_server_new(&server, l, &server_conf, &e), &e);
    plane_server_register(server, &ep, serve, &first);
    AUTO(buf_done) struct buf address = BUF_NULL;

    plane_server_put_address(server, &ep, &address);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        const struct plane_call call = {.address = buf_str(&address),
                                        .id = STR("00000000-0000-4000-8000-000000000001"),
                                        .body = i ? STR("5") : STR("2")};

        (void)plane_client_send(client, &call, &on, &calls[i]);
    }
    LOOP_UNTIL(l, calls[0].over && calls[1].over);
    assert_int_equal(calls[0].n_items, 2);
    assert_int_equal(calls[1].n_items, 5);
    client = plane_client_free(client);
    server = plane_server_free(server);
    loop_run_once(l, 0);
    l = loop_free(l);
}

/* --- the end of a stream ---------------------------------------------------------------------- */

static void heard(void *arg, struct str data)
{
    buf_put_str(arg, data);
}

static void ignored(void *arg, int error)
{
    (void)arg;
    (void)error;
}

static void accepted(void *arg, struct tcp *take_conn)
{
    *(struct tcp **)arg = take_conn;
}

static void serve_one(void *arg, struct plane_request *rq)
{
    (void)arg;
    plane_request_start(rq);
    plane_request_item(rq, STR("{\"token_ids\":[1]}"));
    plane_request_finish(rq);
}

static void ask(struct tcp *to, const struct tcp_listener *home)
{
    AUTO(mem_free) char *address = xasprintf("127.0.0.1:%u", tcp_listener_port(home));
    const struct control c = {.id = STR("r"), .address = str_from(address), .subject = STR("s")};
    AUTO(buf_done) struct buf control = BUF_NULL;
    AUTO(buf_done) struct buf frame = BUF_NULL;
    struct err e;

    control_put(&control, &c);
    EXPECT_OK(tcp_frame_put(&frame, STR("1/g"), STR("{}"), buf_str(&control), STR("{}"), &e), &e);
    tcp_write(to, buf_str(&frame));
}

/* 21: the acknowledgement comes first. 22: a stream ends in the final item and then the sentinel. */
static void order_of_a_worker(void **state)
{
    static const struct tcp_handlers on = {.received = heard, .closed = ignored};
    static const char *const headers[] = {"{\"subject\":\"s\",\"stream_type\":\"response\"}",
                                          "{\"error\":null}", "", "", "\"sentinel\""};
    static const char *const bodies[] = {
        "", "", "{\"data\":{\"data\":{\"token_ids\":[1]}},\"complete_final\":false}",
        "{\"complete_final\":true}", ""};
    const struct plane_endpoint ep = {.name = "g", .instance_id = 1};
    const struct plane_server_conf conf = {.host = "127.0.0.1"};
    AUTO(buf_done) struct buf acks = BUF_NULL, stream = BUF_NULL;
    struct plane_server *server = NULL;
    struct tcp_listener *listener = NULL;
    struct tcp *out = NULL, *home = NULL;
    struct loop *l = loop_of_test();
    struct plane_address a;
    struct err e;

    (void)state;
    EXPECT_OK(plane_server_new(&server, l, &conf, &e), &e);
    plane_server_register(server, &ep, serve_one, NULL);
    EXPECT_OK(tcp_listen(&listener, l, "127.0.0.1", 0, accepted, &home, &e), &e);
    EXPECT_OK(plane_address_parse(str_from(plane_server_address(server)), &a, &e), &e);
    EXPECT_OK(tcp_connect(&out, l, a.ip, a.port, &on, &acks, &e), &e);
    ask(out, listener);
    LOOP_UNTIL(l, home);
    LOOP_UNTIL(l, acks.len == 4); /* nothing has been heard of the request yet */
    tcp_set_handlers(home, &on, &stream);
    LOOP_UNTIL(l, str_has(buf_str(&stream), STR("sentinel")));
    for (size_t i = 0; i < ARRAY_LEN(headers); i++) {
        struct two_part m;
        size_t used;

        EXPECT_OK(two_part_decode(buf_str(&stream), 1 << 16, &m, &used, &e), &e);
        assert_true(str_is(m.header, headers[i]) && str_is(m.body, bodies[i]));
        buf_consume(&stream, used);
    }
    assert_int_equal(stream.len, 0);
    out = tcp_close(out);
    home = tcp_close(home);
    listener = tcp_listener_close(listener);
    server = plane_server_free(server);
    loop_run_once(l, 0);
    l = loop_free(l);
}

int main(void)
{
    return TEST_RUN(T(advertised_address), T(keys_of_a_request), T(streams_of_one_id),
                    T(order_of_a_worker));
}
