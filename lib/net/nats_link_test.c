/* SPDX-License-Identifier: Apache-2.0 */
/* Against a real nats-server: $NATS_SERVER_BIN, or one in the usual places. */
#include "lib/net/nats_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lib/base/test.h"

enum { DEADLINE_MS = 20000 };

/* What the cluster harness has built lies in its cache. */
static const char *built_server(void)
{
    static char path[512];
    AUTO(mem_free)
    char *pattern = xasprintf("%s/.cache/commutator/cluster/*/nats-server",
                              getenv("HOME") ? getenv("HOME") : "");
    glob_t found;

    path[0] = '\0';
    if (glob(pattern, 0, NULL, &found) == 0)
        (void)snprintf(path, sizeof(path), "%s", found.gl_pathv[0]);
    globfree(&found);
    return path[0] ? path : NULL;
}

static const char *server_program(void)
{
    static const char *const places[] = {"/usr/sbin/nats-server", "/usr/bin/nats-server",
                                         "/usr/local/bin/nats-server"};
    const char *path = getenv("NATS_SERVER_BIN") ? getenv("NATS_SERVER_BIN") : built_server();
    const char *ci = getenv("CI");

    if (path)
        return path;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (access(places[i], X_OK) == 0)
            return places[i];
    if (ci && strcmp(ci, "true") == 0)
        fail_msg("no nats-server (NATS_SERVER_BIN), and CI=true allows no skip");
    printf("skipped: no nats-server\n");
    skip();
    return NULL;
}

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

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
    (void)close(fd);
    return ntohs(a.sin_port);
}

static void start_server(struct bench *b)
{
    const char *program = server_program();
    char port[16];

    (void)snprintf(port, sizeof(port), "%d", b->port);
    b->server = fork();
    assert_true(b->server >= 0);
    if (b->server == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(null, 1);
        (void)dup2(null, 2);
        (void)execl(program, program, "-a", "127.0.0.1", "-p", port, "--user", "user", "--pass",
                    "user", (char *)NULL);
        _exit(127);
    }
}

static void kill_server(struct bench *b)
{
    if (b->server <= 0)
        return;
    (void)kill(b->server, SIGKILL);
    (void)waitpid(b->server, NULL, 0);
    b->server = 0;
}

static struct bench *bench_open(void)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    (void)server_program();
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    b->port = free_port();
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

static void on_message(void *arg, struct str subject, struct str payload)
{
    struct bench *b = arg;

    b->n_messages++;
    buf_printf(&b->text, "%.*s=%.*s;", STR_ARG(subject), STR_ARG(payload));
}

/* Turns the loop until the condition holds; fails the test when it never does. */
#define WAIT_FOR(b, condition)                                                                     \
    do {                                                                                           \
        uint64_t deadline_ = clock_now_ns() / 1000000 + DEADLINE_MS;                               \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() / 1000000 > deadline_)                                              \
                fail_msg("waited in vain for %s", #condition);                                     \
            loop_run_once((b)->loop, 20);                                                          \
        }                                                                                          \
    } while (0)

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
    WAIT_FOR(b, b->up);
    assert_int_equal(nats_link_publish(n, "a.b", STR("one")), 0);
    assert_int_equal(nats_link_publish(n, "other", STR("not for us")), 0);
    assert_int_equal(nats_link_publish(n, "a.c", STR_NULL), 0);
    WAIT_FOR(b, b->n_messages == 2);
    assert_string_equal(buf_cstr(&b->text), "a.b=one;a.c=;");
    nats_link_unsubscribe(n, id);
    (void)subscribe(n, "end", b);
    assert_int_equal(nats_link_publish(n, "a.b", STR("unheard")), 0);
    assert_int_equal(nats_link_publish(n, "end", STR("")), 0);
    WAIT_FOR(b, b->n_messages == 3);
    assert_string_equal(buf_cstr(&b->text), "a.b=one;a.c=;end=;");
    assert_int_equal(nats_link_stats(n).published, 5);
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
    WAIT_FOR(b, b->up);
    assert_int_equal(nats_link_publish(n, "s", STR("x")), 0);
    WAIT_FOR(b, b->n_messages == 1);
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
    WAIT_FOR(b, b->up);
    for (unsigned round = 1; round <= 2; round++) {
        kill_server(b);
        WAIT_FOR(b, !b->up);
        assert_int_equal(nats_link_publish(n, "s", STR("lost")), -ENOTCONN);
        start_server(b);
        WAIT_FOR(b, b->up);
        assert_int_equal(nats_link_publish(n, "s", STR("back")), 0);
        WAIT_FOR(b, b->n_messages == round);
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
    WAIT_FOR(b, b->up);
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
    WAIT_FOR(b, b->up);
    /* Published from another loop, while the subscriber's stands still. */
    free(other->url);
    other->url = xstrdup(b->url);
    sender = link_to(other, 0);
    (void)subscribe(sender, "s", other);
    WAIT_FOR(other, other->up);
    for (int i = 0; i < 100; i++)
        assert_int_equal(nats_link_publish(sender, "s", STR("x")), 0);
    WAIT_FOR(other, other->n_messages == 100);
    WAIT_FOR(other, nats_link_stats(n).received == 100);
    stats = nats_link_stats(n);
    assert_int_equal(stats.dropped_in, 92);
    WAIT_FOR(b, b->n_messages == 8);
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
        WAIT_FOR(b, b->up);
        for (int i = 0; i < 200; i++)
            assert_int_equal(nats_link_publish(n, "s", STR("x")), 0);
        if (round % 2)
            WAIT_FOR(b, b->n_messages > before);
        assert_null(nats_link_free(n));
        before = b->n_messages;
        loop_run_once(b->loop, 0);
        assert_int_equal(b->n_messages, before);
    }
    bench_close(b);
}

int main(void)
{
    return TEST_RUN(T(test_messages_pass), T(test_the_server_may_come_later),
                    T(test_subscriptions_survive_the_death_of_the_server),
                    T(test_refused_credentials_are_no_connection), T(test_the_queue_is_bounded),
                    T(test_freeing_with_messages_under_way));
}
