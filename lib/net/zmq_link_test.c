/* SPDX-License-Identifier: Apache-2.0 */
/* Real sockets on loopback. A publisher that can see subscriptions (XPUB) makes waits exact. */
#include "lib/net/zmq_link.h"

#include <errno.h>

#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_server_test.h"

/* One end: what it received, as "frame|frame" lines. */
struct end {
    struct zmq_link *link;
    unsigned n, connects;
    struct buf got;
    unsigned free_at; /* frees its link within the n-th call */
};

struct bench {
    struct loop *loop;
    struct zmq_context *context;
};

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    *state = b;
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    EXPECT_OK(zmq_context_new(&b->context, b->loop, &e), &e);
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    zmq_context_free(b->context);
    loop_free(b->loop);
    free(b);
    return 0;
}

static void on_received(void *arg, const struct str *frames, size_t n)
{
    struct end *x = arg;

    x->n++;
    for (size_t i = 0; i < n; i++) {
        buf_put_str(&x->got, frames[i]);
        buf_put_char(&x->got, i + 1 < n ? '|' : '\n');
    }
    if (x->n == x->free_at)
        x->link = zmq_link_free(x->link);
}

static void on_connected(void *arg, struct str endpoint)
{
    assert_true(str_starts(endpoint, STR("tcp://")));
    ((struct end *)arg)->connects++;
}

static void open_end(struct bench *b, struct end *x, enum zmq_kind kind)
{
    struct zmq_link_conf conf = {
        .kind = kind, .received = on_received, .connected = on_connected, .arg = x};
    struct err e;

    EXPECT_OK(zmq_link_new(&x->link, b->context, &conf, &e), &e);
}

static void close_end(struct end *x)
{
    x->link = zmq_link_free(x->link);
    buf_done(&x->got);
}

static char *bind_end(struct end *x)
{
    /* One that nobody takes while its socket is closed. */
    AUTO(mem_free) char *endpoint = xasprintf("tcp://127.0.0.1:%d", nats_test_port());
    struct err e;

    EXPECT_OK(zmq_link_bind(x->link, endpoint, NULL, &e), &e);
    return TAKE(endpoint);
}

static void connect_end(struct end *x, const char *endpoint)
{
    struct err e;

    EXPECT_OK(zmq_link_connect(x->link, endpoint, &e), &e);
}

static void send_two(struct end *x, const char *a, const char *b)
{
    const struct str frames[] = {str_from(a), str_from(b)};

    assert_int_equal(zmq_link_send(x->link, frames, 2), 0);
}

/* A publisher, and a subscriber of @topic that connects to it; its endpoint is the caller's. */
static char *open_pair(struct bench *b, struct end *pub, struct end *sub, const char *topic)
{
    char *endpoint;
    struct err e;

    open_end(b, pub, ZMQ_KIND_XPUB);
    endpoint = bind_end(pub);
    open_end(b, sub, ZMQ_KIND_SUB);
    EXPECT_OK(zmq_link_subscribe(sub->link, str_from(topic), &e), &e);
    connect_end(sub, endpoint);
    LOOP_UNTIL(b->loop, pub->n == 1); /* the subscription is there */
    return endpoint;
}

static void a_subscriber_hears_its_topic(void **state)
{
    struct bench *b = *state;
    struct end pub = {0}, sub = {0};
    AUTO(mem_free) char *endpoint = open_pair(b, &pub, &sub, "news");
    assert_string_equal(buf_cstr(&pub.got), "\1news\n");
    LOOP_UNTIL(b->loop, sub.connects == 1);

    send_two(&pub, "other", "1");
    send_two(&pub, "news", "2");
    send_two(&pub, "news", "");
    LOOP_UNTIL(b->loop, sub.n == 2);
    assert_string_equal(buf_cstr(&sub.got), "news|2\nnews|\n");
    assert_int_equal(zmq_link_stats(sub.link).received, 2);
    assert_int_equal(zmq_link_stats(pub.link).sent, 3);
    close_end(&sub);
    LOOP_UNTIL(b->loop, pub.n == 2);
    close_end(&pub);
}

/* More than one batch in one turn: nothing is left behind when the descriptor stays silent. */
static void a_flood_arrives_whole(void **state)
{
    enum { MANY = 20000 };
    struct bench *b = *state;
    struct end pub = {0}, sub = {0};
    AUTO(mem_free) char *endpoint = open_pair(b, &pub, &sub, "");
    for (int i = 0; i < MANY; i++)
        send_two(&pub, "t", "payload");
    LOOP_UNTIL(b->loop, sub.n == MANY);
    close_end(&sub);
    close_end(&pub);
}

static void a_subscriber_finds_a_publisher_that_comes_back(void **state)
{
    struct bench *b = *state;
    struct end pub = {0}, sub = {0};
    struct err e;
    AUTO(mem_free) char *endpoint = open_pair(b, &pub, &sub, "");
    LOOP_UNTIL(b->loop, sub.connects == 1);
    close_end(&pub);
    pub = (struct end){0};
    open_end(b, &pub, ZMQ_KIND_XPUB);
    while (zmq_link_bind(pub.link, endpoint, NULL, &e) < 0) /* its socket closes in background */
        loop_run_once(b->loop, 10);
    LOOP_UNTIL(b->loop, pub.n == 1 && sub.connects == 2);
    send_two(&pub, "t", "again");
    LOOP_UNTIL(b->loop, sub.n == 1);
    close_end(&sub);
    close_end(&pub);
}

static void a_subscriber_leaves_one_of_two(void **state)
{
    struct bench *b = *state;
    struct end pubs[2] = {{0}, {0}}, sub = {0};
    char *endpoints[2];
    struct err e;

    open_end(b, &sub, ZMQ_KIND_SUB);
    EXPECT_OK(zmq_link_subscribe(sub.link, STR(""), &e), &e);
    for (int i = 0; i < 2; i++) {
        open_end(b, &pubs[i], ZMQ_KIND_XPUB);
        endpoints[i] = bind_end(&pubs[i]);
        connect_end(&sub, endpoints[i]);
    }
    LOOP_UNTIL(b->loop, pubs[0].n == 1 && pubs[1].n == 1);
    zmq_link_disconnect(sub.link, endpoints[0]);
    LOOP_UNTIL(b->loop, pubs[0].n == 2);
    send_two(&pubs[0], "t", "unheard");
    send_two(&pubs[1], "t", "heard");
    LOOP_UNTIL(b->loop, sub.n == 1);
    assert_string_equal(buf_cstr(&sub.got), "t|heard\n");
    for (int i = 0; i < 2; i++) {
        close_end(&pubs[i]);
        free(endpoints[i]);
    }
    close_end(&sub);
}

static void a_callback_may_free_its_link(void **state)
{
    struct bench *b = *state;
    struct end pub = {0}, sub = {.free_at = 2};
    AUTO(mem_free) char *endpoint = open_pair(b, &pub, &sub, "");
    for (int i = 0; i < 5; i++)
        send_two(&pub, "t", "x");
    LOOP_UNTIL(b->loop, pub.n == 2); /* the end of its subscription */
    assert_int_equal(sub.n, 2);
    assert_null(sub.link);
    close_end(&sub);
    close_end(&pub);
}

static void a_dealer_and_a_router_answer_each_other(void **state)
{
    struct bench *b = *state;
    struct end router = {0}, dealer = {0};

    open_end(b, &router, ZMQ_KIND_ROUTER);
    AUTO(mem_free) char *endpoint = bind_end(&router);
    open_end(b, &dealer, ZMQ_KIND_DEALER);
    connect_end(&dealer, endpoint);
    send_two(&dealer, "", "question");
    LOOP_UNTIL(b->loop, router.n == 1);
    struct str all = buf_str(&router.got), id = str_head(all, str_index(all, '|'));
    const struct str answer[] = {id, STR(""), STR("answer")};
    assert_int_equal(zmq_link_send(router.link, answer, 3), 0);
    LOOP_UNTIL(b->loop, dealer.n == 1);
    assert_string_equal(buf_cstr(&dealer.got), "|answer\n");
    close_end(&dealer);
    close_end(&router);
}

static void too_many_frames_are_dropped_and_counted(void **state)
{
    struct bench *b = *state;
    struct end pub = {0}, sub = {0};
    struct str frames[ZMQ_LINK_FRAMES_MAX + 1];
    AUTO(mem_free) char *endpoint = open_pair(b, &pub, &sub, "");
    for (size_t i = 0; i < ARRAY_LEN(frames); i++)
        frames[i] = STR("f");
    assert_int_equal(zmq_link_send(pub.link, frames, ARRAY_LEN(frames)), 0);
    assert_int_equal(zmq_link_send(pub.link, frames, ZMQ_LINK_FRAMES_MAX), 0);
    LOOP_UNTIL(b->loop, sub.n == 1);
    assert_int_equal(zmq_link_stats(sub.link).dropped_in, 1);
    close_end(&sub);
    close_end(&pub);
}

static void a_dealer_without_a_peer_drops_in_the_end(void **state)
{
    struct bench *b = *state;
    struct end dealer = {0};
    const struct str frame = STR("x");

    open_end(b, &dealer, ZMQ_KIND_DEALER);
    assert_int_equal(zmq_link_send(dealer.link, &frame, 1), -EAGAIN);
    assert_int_equal(zmq_link_stats(dealer.link).dropped_out, 1);
    close_end(&dealer);
}

static void bad_endpoints_are_refused(void **state)
{
    struct bench *b = *state;
    struct end sub = {0};
    struct err e;

    open_end(b, &sub, ZMQ_KIND_SUB);
    assert_true(zmq_link_connect(sub.link, "nonsense", &e) < 0);
    assert_non_null(strstr(e.text, "nonsense"));
    assert_true(zmq_link_bind(sub.link, "tcp://256.1.1.1:*", NULL, &e) < 0);
    close_end(&sub);
}

#define Z(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(Z(a_subscriber_hears_its_topic), Z(a_flood_arrives_whole),
                    Z(a_subscriber_finds_a_publisher_that_comes_back),
                    Z(a_subscriber_leaves_one_of_two), Z(a_callback_may_free_its_link),
                    Z(a_dealer_and_a_router_answer_each_other),
                    Z(too_many_frames_are_dropped_and_counted),
                    Z(a_dealer_without_a_peer_drops_in_the_end), Z(bad_endpoints_are_refused));
}
