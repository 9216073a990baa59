/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishers and subscribers over real ZeroMQ sockets on loopback, direct and by brokers. What a
 * publisher sends before a subscriber is there is lost, so tests send until something is heard.
 */
#include "router/wire/event_bus.h"

#include "lib/base/test.h"
#include "lib/net/loop_test.h"
#include "lib/net/zmq_link.h"

enum { PUBLISHER = 77 };

struct ear {
    struct event_subscription *s;
    unsigned n, bad, joined;
    uint64_t last_sequence, last_joined;
    struct buf last;
};

struct bench {
    struct loop *loop;
};

static int set_up(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    EXPECT_OK(loop_new(&b->loop, &e), &e);
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;

    loop_free(b->loop);
    free(b);
    return 0;
}

static void on_event(void *arg, const struct event_envelope *ev)
{
    struct ear *x = arg;

    x->n++;
    x->last_sequence = ev->sequence;
    assert_int_equal(ev->publisher_id, PUBLISHER);
    buf_clear(&x->last);
    buf_put_str(&x->last, ev->payload);
}

static void on_bad(void *arg, const struct err *e)
{
    assert_true(e->text[0] != '\0');
    ((struct ear *)arg)->bad++;
}

static void on_joined(void *arg, uint64_t publisher_id)
{
    struct ear *x = arg;

    x->joined++;
    x->last_joined = publisher_id;
}

static struct event_bus *bus_new(struct bench *b, const char *brokers, bool find)
{
    const struct event_bus_conf conf = {
        .loop = b->loop, .host = "127.0.0.1", .brokers = brokers, .find_brokers = find};
    struct event_bus *bus;
    struct err e;

    EXPECT_OK(event_bus_new(&bus, &conf, &e), &e);
    return bus;
}

static void listen_to(struct ear *x, struct event_bus *bus, const struct event_topic *t)
{
    const struct event_handlers h = {on_event, on_bad, on_joined, x};
    struct err e;

    EXPECT_OK(event_bus_subscribe(&x->s, bus, t, &h, &e), &e);
}

static void ear_done(struct ear *x)
{
    x->s = event_subscription_free(x->s);
    buf_done(&x->last);
}

static struct event_outlet *outlet_new(struct event_bus *bus, const struct event_topic *t)
{
    struct event_outlet *o;
    struct err e;

    EXPECT_OK(event_outlet_new(&o, bus, t, PUBLISHER, &e), &e);
    return o;
}

static const struct event_topic GENERATE = {"n", "c", "generate", "kv-events"};
static const struct event_topic OF_09 = {"n", "c", NULL, "kv-events"};
static const struct event_topic OTHER = {"n", "other", NULL, "kv-events"};

static void a_channel_of_discovery_is_heard(void **state)
{
    struct bench *b = *state;
    struct event_bus *bus = bus_new(b, NULL, false);
    struct event_outlet *o = outlet_new(bus, &OF_09), *other = outlet_new(bus, &OTHER);
    struct event_channel_info ch, foreign;
    struct ear x = {0};

    assert_true(event_outlet_channel(o, &ch) && event_outlet_channel(other, &foreign));
    assert_int_equal(ch.kind, EVENT_CHANNEL_ZMQ);
    assert_string_equal(ch.endpoint, "");
    event_bus_put_channel(bus, &foreign);
    listen_to(&x, bus, &GENERATE);
    event_bus_put_channel(bus, &ch);
    LOOP_UNTIL(b->loop, x.joined == 1);
    assert_int_equal(x.last_joined, PUBLISHER);
    LOOP_UNTIL(b->loop,
               (event_outlet_send(other, STR("no")), event_outlet_send(o, STR("yes")), x.n > 3));
    assert_string_equal(buf_cstr(&x.last), "yes");
    assert_int_equal(x.bad, 0);

    event_bus_remove_channel(bus, &ch);
    for (unsigned n = x.n + 1; n != x.n;) { /* until nothing comes any more */
        n = x.n;
        (void)event_outlet_send(o, STR("late"));
        loop_run_once(b->loop, 50);
    }
    ear_done(&x);
    event_outlet_free(o);
    event_outlet_free(other);
    event_bus_free(bus);
}

/* A channel that was known before anybody listens, scoped to the endpoint as 1.x does it. */
static void scopes_of_both_generations_are_heard(void **state)
{
    struct bench *b = *state;
    struct event_bus *bus = bus_new(b, NULL, false);
    const struct event_topic whole = {"n", NULL, NULL, "kv-events"};
    const struct event_topic *topics[] = {&GENERATE, &OF_09, &whole};
    struct event_outlet *o[ARRAY_LEN(topics)];
    struct ear x = {0};

    for (size_t i = 0; i < ARRAY_LEN(topics); i++) {
        struct event_channel_info ch;

        o[i] = outlet_new(bus, topics[i]);
        assert_true(event_outlet_channel(o[i], &ch));
        event_bus_put_channel(bus, &ch);
    }
    listen_to(&x, bus, &GENERATE);
    LOOP_UNTIL(b->loop, x.joined == ARRAY_LEN(topics));
    for (size_t i = 0; i < ARRAY_LEN(topics); i++) {
        unsigned before = x.n;

        LOOP_UNTIL(b->loop, (event_outlet_send(o[i], STR("x")), x.n > before));
    }
    ear_done(&x);
    for (size_t i = 0; i < ARRAY_LEN(topics); i++)
        event_outlet_free(o[i]);
    event_bus_free(bus);
}

/* --- brokers: XSUB and XPUB that pass on to each other ------------------------------------------ */

struct broker {
    struct zmq_link *xsub, *xpub;
    uint16_t in, out;
};

static void pass_down(void *arg, const struct str *frames, size_t n)
{
    (void)zmq_link_send(((struct broker *)arg)->xpub, frames, n);
}

static void pass_up(void *arg, const struct str *frames, size_t n)
{
    (void)zmq_link_send(((struct broker *)arg)->xsub, frames, n);
}

static void broker_start(struct broker *k, struct zmq_context *c)
{
    struct err e;

    EXPECT_OK(
        zmq_link_new(&k->xsub, c, &(struct zmq_link_conf){ZMQ_KIND_XSUB, pass_down, NULL, k}, &e),
        &e);
    EXPECT_OK(
        zmq_link_new(&k->xpub, c, &(struct zmq_link_conf){ZMQ_KIND_XPUB, pass_up, NULL, k}, &e),
        &e);
    EXPECT_OK(zmq_link_bind(k->xsub, "tcp://127.0.0.1:*", &k->in, &e), &e);
    EXPECT_OK(zmq_link_bind(k->xpub, "tcp://127.0.0.1:*", &k->out, &e), &e);
}

static void broker_stop(struct broker *k)
{
    zmq_link_free(k->xsub);
    zmq_link_free(k->xpub);
}

static void what_two_brokers_bring_counts_once(void **state)
{
    struct bench *b = *state;
    struct zmq_context *c;
    struct broker k[2];
    struct ear x = {0};
    struct err e;

    EXPECT_OK(zmq_context_new(&c, b->loop, &e), &e);
    for (int i = 0; i < 2; i++)
        broker_start(&k[i], c);
    AUTO(mem_free)
    char *url = xasprintf("xsub=tcp://127.0.0.1:%u;tcp://127.0.0.1:%u , "
                          "xpub=tcp://127.0.0.1:%u;tcp://127.0.0.1:%u",
                          k[0].in, k[1].in, k[0].out, k[1].out);
    struct event_bus *bus = bus_new(b, url, false);
    struct event_outlet *o = outlet_new(bus, &OF_09);
    struct event_channel_info ch;

    assert_false(event_outlet_channel(o, &ch));
    listen_to(&x, bus, &GENERATE);
    LOOP_UNTIL(b->loop, x.joined == 2);
    assert_int_equal(x.last_joined, 0);
    /* As soon as both ways work, each message is dropped once. */
    LOOP_UNTIL(b->loop, (event_outlet_send(o, STR("x")), event_bus_stats(bus).twice > 3));
    LOOP_UNTIL(b->loop, x.n + event_bus_stats(bus).twice == event_bus_stats(bus).received &&
                            x.last_sequence + 1 == event_bus_stats(bus).sent);
    assert_true(x.n <= event_bus_stats(bus).sent);
    ear_done(&x);
    event_outlet_free(o);
    event_bus_free(bus);
    for (int i = 0; i < 2; i++)
        broker_stop(&k[i]);
    zmq_context_free(c);
}

struct names {
    bool own, scoped;
};

static void on_name(void *arg, const struct str *frames, size_t n)
{
    struct names *x = arg;

    assert_int_equal(n, 4);
    x->own = x->own || str_is(frames[0], "kv-events");
    x->scoped =
        x->scoped || str_is(frames[0], "namespace.n.component.c.endpoint.generate.kv-events");
}

/* As 0.9.0 and 1.6.1 name them there; our subscriptions hear either. */
static void brokers_get_the_names_of_each_generation(void **state)
{
    struct bench *b = *state;
    struct names names = {0};
    struct zmq_link *raw;
    struct zmq_context *c;
    struct broker k;
    struct ear x = {0};
    struct err e;

    EXPECT_OK(zmq_context_new(&c, b->loop, &e), &e);
    broker_start(&k, c);
    AUTO(mem_free)
    char *url = xasprintf("xsub=tcp://127.0.0.1:%u , xpub=tcp://127.0.0.1:%u", k.in, k.out);
    AUTO(mem_free) char *out = xasprintf("tcp://127.0.0.1:%u", k.out);
    struct event_bus *bus = bus_new(b, url, false);
    struct event_outlet *older = outlet_new(bus, &OF_09), *newer = outlet_new(bus, &GENERATE);

    EXPECT_OK(
        zmq_link_new(&raw, c, &(struct zmq_link_conf){ZMQ_KIND_SUB, on_name, NULL, &names}, &e),
        &e);
    EXPECT_OK(zmq_link_subscribe(raw, STR(""), &e), &e);
    EXPECT_OK(zmq_link_connect(raw, out, &e), &e);
    LOOP_UNTIL(b->loop, (event_outlet_send(newer, STR("x")), names.scoped));
    assert_false(names.own);
    LOOP_UNTIL(b->loop, (event_outlet_send(older, STR("x")), names.own));
    zmq_link_free(raw);
    listen_to(&x, bus, &GENERATE);
    LOOP_UNTIL(b->loop, (event_outlet_send(newer, STR("x")), x.n > 0));
    x.n = 0;
    ear_done(&x);
    listen_to(&x, bus, &GENERATE);
    LOOP_UNTIL(b->loop, (event_outlet_send(older, STR("x")), x.n > 0));
    ear_done(&x);
    event_outlet_free(older);
    event_outlet_free(newer);
    event_bus_free(bus);
    broker_stop(&k);
    zmq_context_free(c);
}

static void a_broker_is_found_by_its_record(void **state)
{
    struct bench *b = *state;
    struct zmq_context *c;
    struct broker k;
    struct ear x = {0};
    struct err e;

    EXPECT_OK(zmq_context_new(&c, b->loop, &e), &e);
    broker_start(&k, c);
    struct event_bus *bus = bus_new(b, NULL, true);
    struct event_outlet *o = outlet_new(bus, &OF_09);
    AUTO(mem_free)
    char *json = xasprintf("{\"xsub_endpoints\":[\"tcp://127.0.0.1:%u\"],\"more\":1,"
                           "\"xpub_endpoints\":[\"tcp://127.0.0.1:%u\"]}",
                           k.in, k.out);
    const struct event_channel_info ch = {"n", "zmq_broker",         "",  "broker",
                                          1,   EVENT_CHANNEL_BROKER, json};

    listen_to(&x, bus, &GENERATE);
    event_bus_put_channel(bus, &ch);
    LOOP_UNTIL(b->loop, (event_outlet_send(o, STR("x")), x.n > 0));
    event_bus_remove_channel(bus, &ch);
    ear_done(&x);
    event_outlet_free(o);
    event_bus_free(bus);
    broker_stop(&k);
    zmq_context_free(c);
}

/* --- what does not fit ---------------------------------------------------------------------------- */

static void broken_parts_are_counted(void **state)
{
    static const struct {
        struct str frames[5];
        size_t n;
    } BAD[] = {
        {{STR("kv-events"), STR("1"), STR("2")}, 3},
        {{STR("kv-events"), STR("1"), STR("2"), STR("\1\0")}, 4},
        {{STR("kv-events"), STR("1"), STR("2"), STR("\2\0\0\0\0")}, 4},
        {{STR("kv-events"), STR("1"), STR("2"), STR("\1\0\0\0\2x")}, 4},
        {{STR("kv-events"), STR("1"), STR("2"), STR("\1\0\0\0\1x")}, 4},
    };
    struct bench *b = *state;
    struct event_bus *bus = bus_new(b, NULL, false);
    struct zmq_context *c;
    struct zmq_link *pub;
    struct ear x = {0};
    uint16_t port;
    struct err e;

    EXPECT_OK(zmq_context_new(&c, b->loop, &e), &e);
    EXPECT_OK(zmq_link_new(&pub, c, &(struct zmq_link_conf){.kind = ZMQ_KIND_PUB}, &e), &e);
    EXPECT_OK(zmq_link_bind(pub, "tcp://127.0.0.1:*", &port, &e), &e);
    AUTO(mem_free) char *address = xasprintf("tcp://127.0.0.1:%u", port);
    event_bus_put_channel(bus, &(struct event_channel_info){"n", "c", "", "kv-events", 5,
                                                            EVENT_CHANNEL_ZMQ, address});
    listen_to(&x, bus, &GENERATE);
    for (size_t i = 0; i < ARRAY_LEN(BAD); i++) {
        unsigned before = x.bad;

        LOOP_UNTIL(b->loop, (zmq_link_send(pub, BAD[i].frames, BAD[i].n), x.bad > before));
    }
    assert_int_equal(x.n, 0);
    assert_int_equal(event_bus_stats(bus).bad, x.bad);
    ear_done(&x);
    event_bus_free(bus);
    zmq_link_free(pub);
    zmq_context_free(c);
}

static void brokers_must_have_both_sides(void **state)
{
    static const char *const bad[] = {"", "xsub=tcp://a:1", "xpub=tcp://a:1,xsub=", "other=x"};
    struct bench *b = *state;
    struct event_bus *bus;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_true(event_bus_new(&bus,
                                  &(struct event_bus_conf){.loop = b->loop, .brokers = bad[i]},
                                  &e) < 0);
}

#define B(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(B(a_channel_of_discovery_is_heard), B(scopes_of_both_generations_are_heard),
                    B(what_two_brokers_bring_counts_once),
                    B(brokers_get_the_names_of_each_generation), B(a_broker_is_found_by_its_record),
                    B(broken_parts_are_counted), B(brokers_must_have_both_sides));
}
