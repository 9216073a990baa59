/* SPDX-License-Identifier: Apache-2.0 */
/* A master's publisher, behind a real socket on loopback. */
#include "router/sync/mooncake_source.h"

#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/nats_server_test.h"
#include "lib/net/zmq_link.h"
#include "router/wire/mooncake_event.h"

struct bench {
    struct loop *loop;
    struct zmq_context *zmq;
    struct zmq_link *pub;
    char *endpoint;
    unsigned subscribers;
    struct shared_pages *pages;
    struct mooncake_source_stats stats;
    struct mooncake_source *source;
};

static void on_subscription(void *arg, const struct str *frames, size_t n)
{
    struct bench *b = arg;

    assert_int_equal(n, 1);
    b->subscribers += frames[0].ptr[0] ? 1 : -1;
}

static void publisher_open(struct bench *b)
{
    const struct zmq_link_conf conf = {
        .kind = ZMQ_KIND_XPUB, .received = on_subscription, .arg = b};
    struct err e;

    EXPECT_OK(zmq_link_new(&b->pub, b->zmq, &conf, &e), &e);
    if (!b->endpoint)
        b->endpoint = xasprintf("tcp://127.0.0.1:%d", nats_test_port());
    while (zmq_link_bind(b->pub, b->endpoint, NULL, &e) < 0) /* until the one before has closed */
        loop_run_once(b->loop, 10);
}

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    EXPECT_OK(loop_new(&b->loop, &e), &e);
    EXPECT_OK(zmq_context_new(&b->zmq, b->loop, &e), &e);
    publisher_open(b);
    b->pages = shared_pages_new();
    EXPECT_OK(mooncake_source_start(&b->source, b->zmq, b->endpoint, b->pages, &b->stats, &e), &e);
    LOOP_UNTIL(b->loop, b->subscribers == 1);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    mooncake_source_free(b->source);
    shared_pages_free(b->pages);
    zmq_link_free(b->pub);
    zmq_context_free(b->zmq);
    loop_free(b->loop);
    free(b->endpoint);
    free(b);
    return 0;
}

static void send_frames(struct bench *b, uint64_t sequence, struct str batch)
{
    AUTO(buf_done) struct buf number = BUF_NULL;
    struct str frames[3] = {STR(""), STR_NULL, batch};

    buf_put_u64be(&number, sequence);
    frames[1] = buf_str(&number);
    (void)zmq_link_send(b->pub, frames, 3);
}

static void tell(struct bench *b, uint64_t sequence, enum mooncake_change change, const char *name,
                 const char *tenant)
{
    AUTO(buf_done) struct buf batch = BUF_NULL;

    mooncake_batch_begin_put(&batch, 1, 1);
    mooncake_event_put(&batch, &(struct mooncake_event){change, str_from(name), str_from(tenant)});
    mooncake_batch_end_put(&batch);
    send_frames(b, sequence, buf_str(&batch));
}

#define OBJECTS(b) shared_pages_objects((b)->pages)
#define SEEN(b, n) LOOP_UNTIL((b)->loop, (b)->stats.batches == (n))

static void names_come_and_go(void **state)
{
    struct bench *b = *state;

    tell(b, 1, MOONCAKE_STORED, "a", "default");
    tell(b, 2, MOONCAKE_STORED, "b", "");
    tell(b, 3, MOONCAKE_STORED, "c", "somebody");
    SEEN(b, 3);
    assert_int_equal(OBJECTS(b), 2);
    tell(b, 4, MOONCAKE_REMOVED, "a", "somebody");
    tell(b, 5, MOONCAKE_REMOVED, "a", "default");
    tell(b, 6, MOONCAKE_REMOVED, "unknown", "default");
    SEEN(b, 6);
    assert_int_equal(OBJECTS(b), 1);
    tell(b, 7, MOONCAKE_CLEARED, NULL, "somebody");
    SEEN(b, 7);
    assert_int_equal(OBJECTS(b), 1);
    tell(b, 8, MOONCAKE_CLEARED, NULL, "default");
    SEEN(b, 8);
    assert_int_equal(OBJECTS(b), 0);
}

static void a_gap_forgets(void **state)
{
    struct bench *b = *state;

    tell(b, 1, MOONCAKE_STORED, "a", "");
    tell(b, 3, MOONCAKE_STORED, "b", "");
    SEEN(b, 2);
    assert_int_equal(b->stats.gaps, 1);
    assert_int_equal(OBJECTS(b), 1);
    tell(b, 3, MOONCAKE_REMOVED, "b", ""); /* came already */
    SEEN(b, 3);
    assert_int_equal(OBJECTS(b), 1);
    tell(b, 4, MOONCAKE_REMOVED, "b", "");
    SEEN(b, 4);
    assert_int_equal(OBJECTS(b), 0);
    assert_int_equal(b->stats.gaps, 1);
}

/* What a bad batch would have said is missing from then on. */
static void a_bad_batch_is_a_gap(void **state)
{
    struct bench *b = *state;
    const struct str two[] = {STR(""), STR("\0\0\0\0\0\0\0\2")};
    const struct str short_number[] = {STR(""), STR("\2"), STR("\x93\x01\x90\x00")};

    tell(b, 1, MOONCAKE_STORED, "a", "");
    (void)zmq_link_send(b->pub, two, 2);
    (void)zmq_link_send(b->pub, short_number, 3);
    send_frames(b, 2, STR("nonsense"));
    LOOP_UNTIL(b->loop, b->stats.bad == 3);
    assert_int_equal(OBJECTS(b), 1);
    tell(b, 3, MOONCAKE_STORED, "b", "");
    SEEN(b, 2);
    assert_int_equal(b->stats.gaps, 1);
    assert_int_equal(OBJECTS(b), 1);
}

/* Its numbers may be those that the old one had. */
static void a_new_publisher_starts_empty(void **state)
{
    struct bench *b = *state;

    tell(b, 1, MOONCAKE_STORED, "a", "");
    SEEN(b, 1);
    b->pub = zmq_link_free(b->pub);
    b->subscribers = 0;
    publisher_open(b);
    LOOP_UNTIL(b->loop, b->subscribers == 1);
    tell(b, 1, MOONCAKE_STORED, "b", "");
    tell(b, 2, MOONCAKE_STORED, "c", "");
    SEEN(b, 3);
    assert_int_equal(b->stats.gaps, 1);
    assert_int_equal(OBJECTS(b), 2);
}

#define E(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(E(names_come_and_go), E(a_gap_forgets), E(a_bad_batch_is_a_gap),
                    E(a_new_publisher_starts_empty));
}
