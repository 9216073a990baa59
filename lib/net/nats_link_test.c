/* SPDX-License-Identifier: Apache-2.0 */
/* Against a real nats-server: $NATS_SERVER_BIN, or one in the usual places. */
#include "lib/net/nats_link.h"

#include <errno.h>
#include <pthread.h>

#include "lib/net/loop_test.h"
#include "lib/net/nats_server_test.h"

struct bench {
    struct loop *loop;
    int port;
    char *url;
    pid_t server;
    bool up;
    unsigned n_up, n_down;
    unsigned n_messages;
    struct buf text;
};

static void start_server(struct bench *b)
{
    b->server = nats_test_start(b->port, NULL);
}

static void kill_server(struct bench *b)
{
    nats_test_kill(b->server);
    b->server = 0;
}

static struct bench *bench_open(void)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    (void)nats_test_program();
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    b->port = nats_test_port();
    b->url = xasprintf("nats://127.0.0.1:%d", b->port);
    return b;
}

static void bench_close(struct bench *b)
{
    kill_server(b);
    (void)loop_free(b->loop);
    buf_done(&b->text);
    free(b->url);
    free(b);
}

static void on_state(void *arg, bool up)
{
    struct bench *b = arg;

    b->up = up;
    if (up)
        b->n_up++;
    else
        b->n_down++;
}

static void on_message(void *arg, const struct nats_message *m)
{
    struct bench *b = arg;

    b->n_messages++;
    buf_printf(&b->text, "%.*s=%.*s;", STR_ARG(m->subject), STR_ARG(m->payload));
}

static struct nats_link *link_to(struct bench *b, size_t queue_max)
{
    struct nats_link_conf conf = {
        .servers = b->url, .queue_max = queue_max, .state = on_state, .arg = b};
    struct nats_link *n = NULL;
    struct err e;

    EXPECT_OK(nats_link_start(&n, b->loop, &conf, &e), &e);
    return n;
}

static uint64_t subscribe(struct nats_link *n, const char *subject, struct bench *b)
{
    uint64_t id = 0;
    struct err e;

    EXPECT_OK(nats_link_subscribe(n, subject, on_message, b, &id, &e), &e);
    return id;
}

static void test_messages_pass(void **state)
{
    struct bench *b = bench_open();
    struct nats_link *n;
    uint64_t id;

    (void)state;
    start_server(b);
    n = link_to(b, 0);
    id = subscribe(n, "a.*", b);
    LOOP_UNTIL(b->loop, b->up);
    assert_int_equal(nats_link_publish(n, "a.b", STR("one")), 0);
    assert_int_equal(nats_link_publish(n, "other", STR("not for us")), 0);
    assert_int_equal(nats_link_publish(n, "a.c", STR_NULL), 0);
    LOOP_UNTIL(b->loop, b->n_messages == 2);
    assert_string_equal(buf_cstr(&b->text), "a.b=one;a.c=;");
    nats_link_unsubscribe(n, id);
    (void)subscribe(n, "end", b);
    assert_int_equal(nats_link_publish(n, "a.b", STR("unheard")), 0);
    assert_int_equal(nats_link_publish(n, "end", STR("")), 0);
    LOOP_UNTIL(b->loop, b->n_messages == 3);
    assert_string_equal(buf_cstr(&b->text), "a.b=one;a.c=;end=;");
    LOOP_UNTIL(b->loop, nats_link_stats(n).published == 5);
    assert_null(nats_link_free(n));
    bench_close(b);
}

/* Whether both have heard one another: each knows then what the other one subscribed to before. */
static bool greeted(struct nats_link *a, struct nats_link *b, const struct bench *heard)
{
    assert_int_equal(nats_link_publish(a, "hello", STR_NULL), 0);
    assert_int_equal(nats_link_publish(b, "hello", STR_NULL), 0);
    return heard[0].n_messages && heard[1].n_messages;
}

/* The same link both ways: what it says itself would come before what the other one says. */
static void test_a_link_need_not_hear_itself(void **state)
{
    struct bench *b = bench_open(), other = {.loop = b->loop}, greetings[2] = {0};
    struct nats_link_conf conf = {.not_to_self = true, .each_at_once = true};
    struct nats_link *n = NULL, *peer = NULL;
    struct err e;

    (void)state;
    start_server(b);
    conf.servers = b->url;
    conf.state = on_state;
    conf.arg = b;
    EXPECT_OK(nats_link_start(&n, b->loop, &conf, &e), &e);
    conf.arg = &other;
    EXPECT_OK(nats_link_start(&peer, b->loop, &conf, &e), &e);
    (void)subscribe(n, "s", b);
    (void)subscribe(peer, "s", &other);
    (void)subscribe(n, "hello", &greetings[0]);
    (void)subscribe(peer, "hello", &greetings[1]);
    LOOP_UNTIL(b->loop, b->up && other.up && greeted(n, peer, greetings));
    assert_int_equal(nats_link_publish(n, "s", STR("one")), 0);
    assert_int_equal(nats_link_publish(n, "s", STR("two")), 0);
    LOOP_UNTIL(b->loop, other.n_messages == 2);
    assert_int_equal(nats_link_publish(peer, "s", STR("answer")), 0);
    LOOP_UNTIL(b->loop, b->n_messages == 1);
    assert_string_equal(buf_cstr(&other.text), "s=one;s=two;");
    assert_string_equal(buf_cstr(&b->text), "s=answer;");
    assert_null(nats_link_free(n));
    assert_null(nats_link_free(peer));
    buf_done(&other.text);
    buf_done(&greetings[0].text);
    buf_done(&greetings[1].text);
    bench_close(b);
}

static void test_what_is_no_subject_is_refused(void **state)
{
    static const char *const WRONG[] = {"", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nSUB b"};
    struct bench *b = bench_open();
    struct nats_link *n = link_to(b, 0);
    uint64_t id = 0;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(WRONG); i++)
        assert_int_equal(nats_link_subscribe(n, WRONG[i], on_message, b, &id, &e), -EINVAL);
    assert_int_equal(id, 0);
    (void)subscribe(n, "a.*.>", b);
    assert_null(nats_link_free(n));
    bench_close(b);
}

static void test_the_server_may_come_later(void **state)
{
    struct bench *b = bench_open();
    struct nats_link *n = link_to(b, 0);

    (void)state;
    (void)subscribe(n, "s", b);
    assert_int_equal(nats_link_publish(n, "s", STR("lost")), -ENOTCONN);
    assert_int_equal(nats_link_stats(n).dropped_out, 1);
    start_server(b);
    LOOP_UNTIL(b->loop, b->up);
    assert_int_equal(nats_link_publish(n, "s", STR("x")), 0);
    LOOP_UNTIL(b->loop, b->n_messages == 1);
    assert_string_equal(buf_cstr(&b->text), "s=x;");
    assert_null(nats_link_free(n));
    bench_close(b);
}

static void test_subscriptions_survive_the_death_of_the_server(void **state)
{
    struct bench *b = bench_open();
    struct nats_link *n;

    (void)state;
    start_server(b);
    n = link_to(b, 0);
    (void)subscribe(n, "s", b);
    LOOP_UNTIL(b->loop, b->up);
    for (unsigned round = 1; round <= 2; round++) {
        kill_server(b);
        LOOP_UNTIL(b->loop, !b->up);
        assert_int_equal(nats_link_publish(n, "s", STR("lost")), -ENOTCONN);
        start_server(b);
        LOOP_UNTIL(b->loop, b->up);
        assert_int_equal(nats_link_publish(n, "s", STR("back")), 0);
        LOOP_UNTIL(b->loop, b->n_messages == round);
    }
    assert_string_equal(buf_cstr(&b->text), "s=back;s=back;");
    assert_int_equal(nats_link_stats(n).reconnects, 2);
    assert_null(nats_link_free(n));
    bench_close(b);
}

static void test_refused_credentials_are_no_connection(void **state)
{
    struct bench *b = bench_open();
    struct nats_link_conf conf = {
        .servers = b->url, .user = "user", .password = "wrong", .state = on_state, .arg = b};
    struct nats_link *wrong = NULL, *right;
    struct err e;

    (void)state;
    start_server(b);
    right = link_to(b, 0);
    LOOP_UNTIL(b->loop, b->up);
    EXPECT_OK(nats_link_start(&wrong, b->loop, &conf, &e), &e);
    assert_false(nats_link_stats(wrong).up);
    assert_int_equal(nats_link_publish(wrong, "s", STR("x")), -ENOTCONN);
    assert_null(nats_link_free(wrong));
    assert_null(nats_link_free(right));
    bench_close(b);
}

static void test_the_queue_is_bounded(void **state)
{
    struct bench *b = bench_open(), *other = bench_open();
    struct nats_link *n, *sender;
    struct nats_link_stats stats;

    (void)state;
    start_server(b);
    n = link_to(b, 8);
    (void)subscribe(n, "s", b);
    LOOP_UNTIL(b->loop, b->up);
    /* Published from another loop, while the subscriber's stands still. */
    free(other->url);
    other->url = xstrdup(b->url);
    sender = link_to(other, 0);
    (void)subscribe(sender, "s", other);
    LOOP_UNTIL(other->loop, other->up);
    for (int i = 0; i < 100; i++)
        assert_int_equal(nats_link_publish(sender, "s", STR("x")), 0);
    LOOP_UNTIL(other->loop, other->n_messages == 100);
    LOOP_UNTIL(other->loop, nats_link_stats(n).received == 100);
    stats = nats_link_stats(n);
    assert_int_equal(stats.dropped_in, 92);
    LOOP_UNTIL(b->loop, b->n_messages == 8);
    assert_null(nats_link_free(sender));
    assert_null(nats_link_free(n));
    bench_close(other);
    bench_close(b);
}

static void test_freeing_with_messages_under_way(void **state)
{
    struct bench *b = bench_open();

    (void)state;
    start_server(b);
    for (int round = 0; round < 20; round++) {
        struct nats_link *n;
        unsigned before = b->n_messages;

        b->up = false;
        n = link_to(b, 0);
        (void)subscribe(n, "s", b);
        LOOP_UNTIL(b->loop, b->up);
        for (int i = 0; i < 200; i++)
            assert_int_equal(nats_link_publish(n, "s", STR("x")), 0);
        if (round % 2)
            LOOP_UNTIL(b->loop, b->n_messages > before);
        assert_null(nats_link_free(n));
        before = b->n_messages;
        loop_run_once(b->loop, 0);
        assert_int_equal(b->n_messages, before);
    }
    bench_close(b);
}

/* The keeper's connection is then on its way, or just there. */
static void test_freeing_before_the_loop_turned(void **state)
{
    struct bench *b = bench_open();

    (void)state;
    start_server(b);
    for (int round = 0; round < 20; round++) {
        struct nats_link *n = link_to(b, 0);

        (void)subscribe(n, "s", b);
        (void)nats_link_publish(n, "s", STR("x")); /* whichever came first */
        assert_null(nats_link_free(n));
        if (round % 2)
            loop_run_once(b->loop, 0);
    }
    assert_int_equal(b->n_up, 0);
    bench_close(b);
}

/* --- a server that stops reading --- */

static void expect_from(int fd, const char *what)
{
    AUTO(buf_done) struct buf got = BUF_NULL;
    char c;

    while (!str_ends(buf_str(&got), str_from(what))) {
        if (read(fd, &c, 1) != 1)
            return;
        buf_put_char(&got, c);
    }
}

static void say(int fd, const char *what)
{
    if (write(fd, what, strlen(what)) < 0)
        abort();
}

/* Greets, answers the ping of the connection and that of the first flush, and reads no more. */
static void *serve_without_reading(void *arg)
{
    int listener = *(int *)arg, fd = accept(listener, NULL, NULL);

    say(fd, "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"proto\":1,\"headers\":true,"
            "\"max_payload\":1048576}\r\n");
    for (int i = 0; i < 2; i++) {
        expect_from(fd, "PING\r\n");
        say(fd, "PONG\r\n");
    }
    return (void *)(intptr_t)fd;
}

static int listen_somewhere(struct bench *b)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)b->port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, size = 4096;

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

/* What waits is bounded and what is too much is refused while the link is up: nobody has waited for
 * the server, which the library gives up after a second. */
static void test_publishing_does_not_wait_for_a_server_that_does_not_read(void **state)
{
    struct bench *b = bench_open();
    AUTO(mem_free) char *bytes = xcalloc(1, 1 << 20);
    int listener = listen_somewhere(b), r = 0;
    struct nats_link *n;
    pthread_t server;
    void *fd;

    (void)state;
    assert_int_equal(pthread_create(&server, NULL, serve_without_reading, &listener), 0);
    n = link_to(b, 0);
    LOOP_UNTIL(b->loop, b->up);
    assert_int_equal(nats_link_publish(n, "s", str_slice(bytes, (1 << 20) + 1)), -EMSGSIZE);
    for (int i = 0; i < 1000 && r == 0; i++)
        r = nats_link_publish(n, "s", str_slice(bytes, 1 << 20));
    assert_int_equal(r, -ENOBUFS);
    assert_int_equal(nats_link_stats(n).dropped_out, 2);
    LOOP_UNTIL(b->loop, !b->up); /* the write deadline of the library */
    assert_int_equal(nats_link_publish(n, "s", STR("x")), -ENOTCONN);
    assert_int_equal(pthread_join(server, &fd), 0);
    assert_null(nats_link_free(n));
    (void)close((int)(intptr_t)fd);
    (void)close(listener);
    bench_close(b);
}

int main(void)
{
    return TEST_RUN(T(test_messages_pass), T(test_a_link_need_not_hear_itself),
                    T(test_what_is_no_subject_is_refused), T(test_the_server_may_come_later),
                    T(test_subscriptions_survive_the_death_of_the_server),
                    T(test_refused_credentials_are_no_connection), T(test_the_queue_is_bounded),
                    T(test_freeing_with_messages_under_way), T(test_freeing_before_the_loop_turned),
                    T(test_publishing_does_not_wait_for_a_server_that_does_not_read));
}
