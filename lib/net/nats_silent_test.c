/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that takes a connection and falls silent, as one does that is paused: subscribing does not
 * wait for it, and the link ends all the same. The server lets go of the connection only when the link
 * is gone, or (then the test fails) when that took too long.
 */
#include "lib/net/nats_link.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include "lib/base/test.h"

enum { DEADLINE_S = 60 };

static const char INFO[] = "INFO {\"server_id\":\"x\",\"version\":\"2.10.0\",\"proto\":1,"
                           "\"headers\":true,\"max_payload\":1048576}\r\n";

/* What the server does to its connections. */
enum manner {
    SAYS_NOTHING,
    GREETS,
    SERVES_ONE_AND_GREETS_THE_NEXT,
};

struct rig {
    enum manner manner;
    struct loop *loop;
    struct nats_link *link;
    pthread_t server;
    int listener;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool silent; /* now, and the library waits for it */
    bool freed;
    bool in_time;
    bool up, was_up; /* of the loop */
    uint64_t id;
};

/* With the lock held. */
static bool wait_for(struct rig *r, const bool *what)
{
    struct timespec until;
    int failed = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DEADLINE_S;
    while (!*what && failed == 0)
        failed = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    return *what;
}

static void set(struct rig *r, bool *what)
{
    (void)pthread_mutex_lock(&r->lock);
    *what = true;
    (void)pthread_cond_broadcast(&r->changed);
    (void)pthread_mutex_unlock(&r->lock);
}

/* --- server ------------------------------------------------------------------------------------------ */

static void say(int fd, const char *what)
{
    if (write(fd, what, strlen(what)) < 0)
        abort();
}

static void expect_ping(int fd)
{
    AUTO(buf_done) struct buf got = BUF_NULL;
    char c;

    while (!str_ends(buf_str(&got), STR("PING\r\n"))) {
        if (read(fd, &c, 1) != 1)
            return;
        buf_put_char(&got, c);
    }
}

static int take_connection(struct rig *r)
{
    return accept(r->listener, NULL, NULL);
}

/* Until the link is up: the ping of the handshake and that of the keeper are answered. */
static void serve_one(struct rig *r)
{
    int fd = take_connection(r);

    say(fd, INFO);
    for (int i = 0; i < 2; i++) {
        expect_ping(fd);
        say(fd, "PONG\r\n");
    }
    (void)pthread_mutex_lock(&r->lock);
    (void)wait_for(r, &r->was_up);
    (void)pthread_mutex_unlock(&r->lock);
    (void)close(fd);
}

static void *serve(void *arg)
{
    struct rig *r = arg;
    int fd;

    if (r->manner == SERVES_ONE_AND_GREETS_THE_NEXT)
        serve_one(r);
    fd = take_connection(r);
    if (r->manner != SAYS_NOTHING) {
        say(fd, INFO);
        expect_ping(fd);
    }
    set(r, &r->silent);
    (void)pthread_mutex_lock(&r->lock);
    r->in_time = wait_for(r, &r->freed);
    (void)pthread_mutex_unlock(&r->lock);
    (void)close(r->listener);
    (void)close(fd);
    return NULL;
}

/* --- tests ------------------------------------------------------------------------------------------- */

static void on_state(void *arg, bool up)
{
    struct rig *r = arg;

    r->up = up;
    if (up)
        set(r, &r->was_up);
}

static void on_message(void *arg, const struct nats_message *m)
{
    (void)arg;
    (void)m;
}

static int listen_somewhere(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static int port_of(int fd)
{
    struct sockaddr_in a;
    socklen_t len = sizeof(a);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    return ntohs(a.sin_port);
}

static void rig_open(struct rig *r)
{
    AUTO(mem_free) char *url = NULL;
    struct nats_link_conf conf = {.state = on_state, .arg = r};
    struct err e;

    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->changed, NULL);
    r->listener = listen_somewhere();
    conf.servers = url = xasprintf("nats://127.0.0.1:%d", port_of(r->listener));
    EXPECT_OK(loop_new(&r->loop, &e), &e);
    assert_int_equal(pthread_create(&r->server, NULL, serve, r), 0);
    EXPECT_OK(nats_link_start(&r->link, r->loop, &conf, &e), &e);
    EXPECT_OK(nats_link_subscribe(r->link, "s", on_message, r, &r->id, &e), &e);
}

static void turn_until_silent(struct rig *r)
{
    uint64_t deadline_ns = clock_now_ns() + DEADLINE_S * 1000000000ULL;
    bool silent = false;

    while (!silent) {
        if (clock_now_ns() > deadline_ns)
            fail_msg("the server was not asked");
        loop_run_once(r->loop, 20);
        (void)pthread_mutex_lock(&r->lock);
        silent = r->silent;
        (void)pthread_mutex_unlock(&r->lock);
    }
}

static void ends_with_a_server_that(enum manner manner)
{
    struct rig r = {.manner = manner};
    uint64_t other;
    struct err e;

    rig_open(&r);
    turn_until_silent(&r);
    assert_false(r.up);
    EXPECT_OK(nats_link_subscribe(r.link, "t", on_message, &r, &other, &e), &e);
    nats_link_unsubscribe(r.link, r.id);
    nats_link_unsubscribe(r.link, other);
    assert_null(nats_link_free(r.link));
    set(&r, &r.freed);
    assert_int_equal(pthread_join(r.server, NULL), 0);
    assert_true(r.in_time);
    (void)loop_free(r.loop);
    (void)pthread_cond_destroy(&r.changed);
    (void)pthread_mutex_destroy(&r.lock);
}

static void test_ends_though_nothing_is_said(void **state)
{
    (void)state;
    ends_with_a_server_that(SAYS_NOTHING);
}

static void test_ends_though_the_ping_is_not_answered(void **state)
{
    (void)state;
    ends_with_a_server_that(GREETS);
}

static void test_ends_though_the_ping_of_a_reconnect_is_not_answered(void **state)
{
    (void)state;
    ends_with_a_server_that(SERVES_ONE_AND_GREETS_THE_NEXT);
}

int main(void)
{
    return TEST_RUN(T(test_ends_though_nothing_is_said),
                    T(test_ends_though_the_ping_is_not_answered),
                    T(test_ends_though_the_ping_of_a_reconnect_is_not_answered));
}
