/* SPDX-License-Identifier: Apache-2.0 */
/* Against a real nats-server with JetStream. */
#include "router/sync/kv_stream.h"

#include "lib/net/loop_test.h"
#include "lib/net/nats_link.h"
#include "lib/net/nats_server_test.h"
#include "router/wire/kv_event.h"

enum { SNAPSHOT_BYTES = 300000 };
#define SUBJECT "namespace-n-component-c-kv-events.kv-events"

struct bench {
    struct loop *loop;
    struct nats_link *nats;
    char folder[64], *url;
    int port;
    pid_t server;
    bool up;
};

/* A router: what it heard. */
struct ear {
    struct kv_stream *stream;
    struct buf events, restored, index;
    unsigned n, restores;
};

static void on_state(void *arg, bool up)
{
    ((struct bench *)arg)->up = up;
}

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct nats_link_conf conf = {.state = on_state, .arg = b};
    struct err e;

    *state = b;
    (void)nats_test_program();
    (void)snprintf(b->folder, sizeof(b->folder), "/tmp/kv_stream_test.XXXXXX");
    assert_non_null(mkdtemp(b->folder));
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    b->port = nats_test_port();
    b->url = xasprintf("nats://127.0.0.1:%d", b->port);
    b->server = nats_test_start(b->port, b->folder);
    conf.servers = b->url;
    EXPECT_OK(nats_link_start(&b->nats, b->loop, &conf, &e), &e);
    LOOP_UNTIL(b->loop, b->up);
    return 0;
}

static void remove_tree(const char *folder)
{
    pid_t rm = fork();

    if (rm == 0) {
        (void)execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(rm, NULL, 0);
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    nats_link_free(b->nats);
    loop_free(b->loop);
    nats_test_kill(b->server);
    remove_tree(b->folder);
    free(b->url);
    free(b);
    return 0;
}

static void on_event(void *arg, struct str json)
{
    struct ear *x = arg;

    x->n++;
    buf_put_str(&x->events, json);
}

static void on_restore(void *arg, struct str snapshot)
{
    struct ear *x = arg;

    x->restores++;
    assert_int_equal(x->n, 0);
    buf_clear(&x->restored);
    buf_put_str(&x->restored, snapshot);
}

static void on_dump(void *arg, struct buf *out)
{
    buf_put_str(out, buf_str(&((struct ear *)arg)->index));
}

static void open_ear(struct bench *b, struct ear *x, uint64_t id, uint64_t threshold, bool reset)
{
    const struct kv_stream_conf conf = {.loop = b->loop,
                                        .nats = b->nats,
                                        .ns = "n",
                                        .component = "c",
                                        .router_id = id,
                                        .max_age_s = 3600,
                                        .snapshot_threshold = threshold,
                                        .reset = reset,
                                        .event = on_event,
                                        .restore = on_restore,
                                        .dump = on_dump,
                                        .arg = x};
    struct err e;

    EXPECT_OK(kv_stream_start(&x->stream, &conf, &e), &e);
    LOOP_UNTIL(b->loop, kv_stream_stats(x->stream).consuming);
}

static void close_ear(struct ear *x)
{
    x->stream = kv_stream_free(x->stream);
    buf_done(&x->events);
    buf_done(&x->restored);
    buf_done(&x->index);
    *x = (struct ear){0};
}

static void say(struct bench *b, const char *text)
{
    assert_int_equal(nats_link_publish(b->nats, SUBJECT, str_from(text)), 0);
}

static void each_router_hears_everything(void **state)
{
    struct bench *b = *state;
    struct ear x = {0}, y = {0};

    open_ear(b, &x, 11, 0, false);
    say(b, "a");
    say(b, "b");
    LOOP_UNTIL(b->loop, x.n == 2);
    open_ear(b, &y, 12, 0, false);
    say(b, "c");
    LOOP_UNTIL(b->loop, x.n == 3 && y.n == 3);
    assert_string_equal(buf_cstr(&y.events), "abc");
    assert_int_equal(y.restores, 0);
    close_ear(&x);
    /* More than one pull. */
    for (int i = 0; i < 500; i++)
        say(b, "x");
    LOOP_UNTIL(b->loop, y.n == 503);
    close_ear(&y);
}

static void a_reset_forgets_what_was(void **state)
{
    struct bench *b = *state;
    struct ear x = {0};

    open_ear(b, &x, 11, 0, false);
    say(b, "old");
    LOOP_UNTIL(b->loop, x.n == 1);
    close_ear(&x);
    open_ear(b, &x, 12, 0, true);
    say(b, "new");
    LOOP_UNTIL(b->loop, x.n == 1);
    assert_string_equal(buf_cstr(&x.events), "new");
    close_ear(&x);
}

/* Above the threshold the index goes into the object store, and the stream becomes short. */
static void a_snapshot_replaces_the_stream(void **state)
{
    struct bench *b = *state;
    struct ear x = {0}, y = {0};

    open_ear(b, &x, 11, 3, false);
    for (size_t i = 0; i < SNAPSHOT_BYTES; i++) /* three pieces */
        buf_put_char(&x.index, (char)(i * 7 + i / 256));
    for (int i = 0; i < 5; i++)
        say(b, "x");
    LOOP_UNTIL(b->loop, x.n == 5 && kv_stream_stats(x.stream).snapshots_written == 1);
    say(b, "later");
    open_ear(b, &y, 12, 0, false);
    LOOP_UNTIL(b->loop, y.n == 1);
    assert_int_equal(y.restores, 1);
    assert_string_equal(buf_cstr(&y.events), "later");
    assert_true(str_eq(buf_str(&y.restored), buf_str(&x.index)));
    close_ear(&y);

    /* A second one takes the place of the first. */
    buf_truncate(&x.index, 100);
    for (int i = 0; i < 5; i++)
        say(b, "x");
    LOOP_UNTIL(b->loop, kv_stream_stats(x.stream).snapshots_written == 2);
    open_ear(b, &y, 13, 0, false);
    assert_true(str_eq(buf_str(&y.restored), buf_str(&x.index)));
    close_ear(&y);
    close_ear(&x);
}

/* A server that forgets everything: the stream is made again. */
static void a_server_that_lost_its_store_is_served_again(void **state)
{
    struct bench *b = *state;
    struct ear x = {0};

    open_ear(b, &x, 11, 0, false);
    nats_test_kill(b->server);
    LOOP_UNTIL(b->loop, !b->up);
    remove_tree(b->folder);
    b->server = nats_test_start(b->port, b->folder);
    LOOP_UNTIL(b->loop, b->up);
    kv_stream_link_up(x.stream);
    LOOP_UNTIL(b->loop,
               kv_stream_stats(x.stream).restarts >= 2 && kv_stream_stats(x.stream).consuming);
    say(b, "again");
    LOOP_UNTIL(b->loop, x.n == 1);
    close_ear(&x);
}

#define S(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(S(each_router_hears_everything), S(a_reset_forgets_what_was),
                    S(a_snapshot_replaces_the_stream),
                    S(a_server_that_lost_its_store_is_served_again));
}
