/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replicas that find each other's publishers by what these announce, over real ZeroMQ sockets on
 * loopback. What is said before a subscriber is there is lost, so tests say it until it is heard.
 */
#include "router/sync/replica.h"
#include "lib/base/test.h"

#include <math.h>
#include <string.h>

#include "lib/net/loop_test.h"
#include "router/sched/affinity.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/sched/sequences.h"
#include "router/wire/event_bus.h"
#include "router/wire/sequence_event.h"

enum { CHANNELS_MAX = 16, SITES = 2, WORKER = 7 };

static const uint64_t BLOCKS[] = {1, 2, 3};

struct channel {
    char topic[64], endpoint[16], address[64];
    uint64_t publisher_id;
};

struct site {
    struct world *world;
    struct event_bus *bus;
    struct scheduler *scheduler;
    struct affinity *affinity;
    struct metric_registry *metrics;
    struct replica *replica;
    struct booking *booking;
    struct channel channels[CHANNELS_MAX]; /* announced and not withdrawn */
    size_t n_channels;
    uint64_t n_booked;
};

struct world {
    struct loop *loop;
    struct site sites[SITES];
};

/* --- discovery, of one process ---------------------------------------------------------------- */

static void tell_site(struct site *s, const struct event_channel_info *ch, bool there)
{
    if (!s->bus)
        return;
    if (there)
        event_bus_put_channel(s->bus, ch);
    else
        event_bus_remove_channel(s->bus, ch);
    if (!there && s->replica && strcmp(ch->topic, TOPIC_ACTIVE_SEQUENCES) == 0)
        replica_publisher_gone(s->replica, ch->publisher_id);
}

static void keep(struct site *s, const struct event_channel_info *ch)
{
    struct channel *c = &s->channels[s->n_channels++];

    assert_in_range(s->n_channels, 1, CHANNELS_MAX);
    c->publisher_id = ch->publisher_id;
    (void)snprintf(c->topic, sizeof(c->topic), "%s", ch->topic);
    (void)snprintf(c->endpoint, sizeof(c->endpoint), "%s", ch->endpoint);
    (void)snprintf(c->address, sizeof(c->address), "%s", ch->address);
}

static void forget(struct site *s, const struct event_channel_info *ch)
{
    for (size_t i = 0; i < s->n_channels; i++) {
        if (s->channels[i].publisher_id != ch->publisher_id)
            continue;
        s->channels[i] = s->channels[--s->n_channels];
        return;
    }
    fail_msg("withdrawn and never announced: %s", ch->topic);
}

/* Everybody hears of it, who announces included. */
static void on_announce(void *arg, const struct event_channel_info *ch, bool there)
{
    struct site *s = arg;

    if (there)
        keep(s, ch);
    else
        forget(s, ch);
    for (size_t i = 0; i < SITES; i++)
        tell_site(&s->world->sites[i], ch, there);
}

/* --- sites ------------------------------------------------------------------------------------ */

static void replica_on(struct site *s, uint64_t router_id)
{
    const struct replica_conf conf = {.loop = s->world->loop,
                                      .bus = s->bus,
                                      .scheduler = s->scheduler,
                                      .affinity = s->affinity,
                                      .metrics = s->metrics,
                                      .ns = "n",
                                      .component = "c",
                                      .endpoint = "generate",
                                      .router_id = router_id};
    struct err e;

    EXPECT_OK(replica_start(&s->replica, &conf, &e), &e);
}

static void site_new(struct world *w, size_t i)
{
    struct site *s = &w->sites[i];
    const struct event_bus_conf conf = {.loop = w->loop,
                                        .host = "127.0.0.1",
                                        .announce = on_announce,
                                        .arg = s,
                                        .not_to_self = true};
    const struct worker_info worker = {.worker_id = WORKER, .dp_size = 1};
    struct route_conf route = ROUTE_CONF_KV;
    struct err e;

    route.affinity_ttl_s = 60;
    s->world = w;
    EXPECT_OK(event_bus_new(&s->bus, &conf, &e), &e);
    s->scheduler = scheduler_new(4, &route);
    assert_true(scheduler_put_worker(s->scheduler, &worker));
    s->affinity = affinity_new(16);
    s->metrics = metric_registry_new();
}

static void site_done(struct site *s)
{
    if (s->booking)
        (void)booking_end(s->booking, 1, false);
    s->replica = replica_free(s->replica);
    assert_int_equal(s->n_channels, 0); /* what was announced is withdrawn */
    affinity_free(s->affinity);
    scheduler_free(s->scheduler);
    s->bus = event_bus_free(s->bus);
    metric_registry_free(s->metrics);
}

static int set_up(void **state)
{
    struct world *w = xcalloc(1, sizeof(*w));
    struct err e;

    EXPECT_OK(loop_new(&w->loop, &e), &e);
    for (size_t i = 0; i < SITES; i++)
        site_new(w, i);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;

    for (size_t i = 0; i < SITES; i++)
        site_done(&w->sites[i]);
    loop_free(w->loop);
    free(w);
    return 0;
}

static void finish(struct site *s)
{
    (void)booking_end(s->booking, clock_now_ns(), false);
    s->booking = NULL;
}

/* One request of the site runs: another one than before. */
static void place(struct site *s)
{
    AUTO(route_decision_done) struct route_decision d = {0};
    char id[32];
    const struct route_request q = {
        .id = str_slice(id, (size_t)snprintf(id, sizeof(id), "r%zu", (size_t)s->n_booked++)),
        .local = BLOCKS,
        .sequence = BLOCKS,
        .n_blocks = ARRAY_LEN(BLOCKS),
        .isl = 12,
        .overlap_weight = NAN,
        .temperature = NAN,
        .now_ns = clock_now_ns()};

    if (s->booking)
        finish(s);
    assert_int_equal(scheduler_route(s->scheduler, &q, &d, &s->booking), 0);
}

static uint64_t running(const struct site *s)
{
    struct worker_load load = {0};

    assert_int_equal(scheduler_loads(s->scheduler, &load, 1), 1);
    return load.active_requests;
}

static const struct channel *channel_of(const struct site *s, const char *topic,
                                        const char *endpoint)
{
    for (size_t i = 0; i < s->n_channels; i++)
        if (strcmp(s->channels[i].topic, topic) == 0 &&
            strcmp(s->channels[i].endpoint, endpoint) == 0)
            return &s->channels[i];
    return NULL;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void each_publisher_has_a_record_that_every_store_can_hold(void **state)
{
    struct site *s = ((struct world *)*state)->sites;

    replica_on(s, 1);
    assert_non_null(channel_of(s, TOPIC_ACTIVE_SEQUENCES, ""));
    assert_non_null(channel_of(s, TOPIC_ACTIVE_SEQUENCES, "generate"));
    assert_non_null(channel_of(s, "session_affinity_events", "generate"));
    assert_non_null(channel_of(s, TOPIC_ROUTER_PRESENCE, ""));
    assert_int_equal(s->n_channels, 4);
    for (size_t i = 0; i < s->n_channels; i++) {
        assert_true(s->channels[i].publisher_id < UINT64_C(1) << 53);
        for (size_t k = 0; k < i; k++)
            assert_true(s->channels[k].publisher_id != s->channels[i].publisher_id);
    }
}

static void what_one_places_the_other_books_until_it_ends(void **state)
{
    struct world *w = *state;
    struct site *one = &w->sites[0], *two = &w->sites[1];

    replica_on(one, 1);
    replica_on(two, 2);
    LOOP_UNTIL(w->loop, (place(one), running(two) == 1));
    finish(one);
    LOOP_UNTIL(w->loop, running(two) == 0);
    LOOP_UNTIL(w->loop, (place(two), running(one) == 1));
    assert_int_equal(running(two), 1); /* its own, which it does not hear from itself */
}

static void a_router_goes_with_its_record(void **state)
{
    struct world *w = *state;
    struct site *one = &w->sites[0], *two = &w->sites[1];
    struct event_channel_info ch = {.ns = "n", .component = "c", .endpoint = ""};
    const struct channel *c;

    replica_on(one, 1);
    replica_on(two, 2);
    LOOP_UNTIL(w->loop, (place(one), running(two) == 1));
    c = channel_of(one, TOPIC_ACTIVE_SEQUENCES, "");
    ch.topic = c->topic;
    ch.publisher_id = c->publisher_id;
    ch.kind = EVENT_CHANNEL_ZMQ;
    ch.address = c->address;
    tell_site(two, &ch, false); /* its lease ended, or its pod is gone */
    assert_int_equal(running(two), 0);
}

static void sessions_are_told_with_where_they_are_bound(void **state)
{
    const uint64_t ttl_ns = UINT64_C(60000000000);
    struct world *w = *state;
    struct site *one = &w->sites[0], *two = &w->sites[1];
    struct worker_rank found = {0};

    replica_on(one, 1);
    replica_on(two, 2);
    LOOP_UNTIL(w->loop, (affinity_bind(one->affinity, STR("s"), (struct worker_rank){WORKER, 0},
                                       clock_now_ns()),
                         affinity_find(two->affinity, STR("s"), ttl_ns, clock_now_ns(), &found)));
    assert_int_equal(found.worker_id, WORKER);
}

static void count_lists(void *arg, const struct event_envelope *v)
{
    static const struct str list = STR("\x81\xa6"
                                       "events\x91");

    *(size_t *)arg += str_starts(v->payload, list); /* the form of 0.9.0 comes as well */
}

/* Site 2 plays a router of 1.x: under the endpoint, in lists, and deaf to anything else. */
static void a_router_of_1_x_is_told_in_its_words(void **state)
{
    const struct event_topic topic = {"n", "c", "generate", TOPIC_ACTIVE_SEQUENCES};
    const struct sequence_event theirs = {.request_id = STR("theirs"),
                                          .worker_id = WORKER,
                                          .router_id = 9,
                                          .kind = SEQUENCE_ADD,
                                          .sequence = BLOCKS,
                                          .n_sequence = ARRAY_LEN(BLOCKS),
                                          .prefill_tokens = OPT_U64(12)};
    AUTO(buf_done) struct buf payload = BUF_NULL;
    struct world *w = *state;
    struct site *one = &w->sites[0], *two = &w->sites[1];
    size_t lists = 0;
    const struct event_handlers h = {.event = count_lists, .arg = &lists};
    struct event_subscription *s;
    struct event_outlet *o;
    struct err e;

    replica_on(one, 1);
    EXPECT_OK(event_bus_subscribe(&s, two->bus, &topic, &h, &e), &e);
    EXPECT_OK(event_outlet_new(&o, two->bus, &topic, event_publisher_id(), &e), &e);
    sequence_list_put(&payload, &theirs);
    LOOP_UNTIL(w->loop, (event_outlet_send(o, buf_str(&payload)), running(one) == 1));
    LOOP_UNTIL(w->loop, (place(one), lists > 0));
    assert_int_equal(running(one), 2); /* its own and theirs */
    event_subscription_free(s);
    event_outlet_free(o);
    assert_int_equal(running(one), 1); /* their publisher is gone, our own request is not */
}

#define W(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    return TEST_RUN(
        W(each_publisher_has_a_record_that_every_store_can_hold),
        W(what_one_places_the_other_books_until_it_ends), W(a_router_goes_with_its_record),
        W(sessions_are_told_with_where_they_are_bound), W(a_router_of_1_x_is_told_in_its_words));
}
