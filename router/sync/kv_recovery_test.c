/* SPDX-License-Identifier: Apache-2.0 */
/* An intake without event bus, and a worker on loopback that answers what the test tells it. */
#include "router/sync/kv_intake.h"
#include "lib/base/test.h"

#include "lib/base/log.h"
#include "lib/net/loop_test.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/wire/kv_event.h"
#include "router/wire/plane_loopback_test.h"

enum { WORKER = 0xa1 };

struct bench {
    struct loop *loop;
    struct plane_client *client;
    struct plane_server *server;
    struct metric_registry *metrics;
    struct scheduler *scheduler;
    struct kv_intake *k;
    struct buf questions; /* bodies, one a line */
    const char *answers[8];
    size_t n_asked;
    struct plane_request *open; /* not answered */
    uint64_t sent_ms;
};

static void on_cancelled(void *arg)
{
    struct bench *b = arg;

    plane_request_abort(b->open);
    b->open = NULL;
}

static const struct plane_request_handlers OPEN = {.cancelled = on_cancelled};

static void serve(void *arg, struct plane_request *rq)
{
    struct bench *b = arg;
    const char *answer = b->answers[b->n_asked++];

    buf_put_str(&b->questions, plane_request_body(rq));
    buf_put_char(&b->questions, '\n');
    plane_request_start(rq);
    if (!answer) { /* it never does */
        b->open = rq;
        plane_request_set_handlers(rq, &OPEN, b);
        return;
    }
    plane_request_item_raw(rq, str_from(answer));
    plane_request_finish(rq);
}

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct kv_intake_conf conf = {.ns = "n", .component = "c", .endpoint = "generate"};
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    test_planes(b->loop, &b->client, &b->server);
    b->metrics = metric_registry_new();
    b->scheduler = scheduler_new(4, &ROUTE_CONF_KV);
    assert_true(scheduler_put_worker(b->scheduler,
                                     &(struct worker_info){.worker_id = WORKER, .dp_size = 1}));
    conf.loop = b->loop;
    conf.plane = b->client;
    conf.scheduler = b->scheduler;
    conf.metrics = b->metrics;
    EXPECT_OK(kv_intake_start(&b->k, &conf, &e), &e);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    kv_intake_free(b->k);
    LOOP_UNTIL(b->loop, !b->open && plane_server_running(b->server) == 0);
    scheduler_free(b->scheduler);
    metric_registry_free(b->metrics);
    plane_client_free(b->client);
    plane_server_free(b->server);
    loop_free(b->loop);
    buf_done(&b->questions);
    free(b);
    return 0;
}

static void put_worker_with(struct bench *b, const char *queries)
{
    AUTO(mem_free) char *address = xasprintf("%s/a1/generate", plane_server_address(b->server));

    kv_intake_put_worker(b->k, &(struct kv_intake_worker){.worker_id = WORKER,
                                                          .address = address,
                                                          .queries = queries,
                                                          .dp_size = 1,
                                                          .askable = true});
}

static void put_worker(struct bench *b)
{
    put_worker_with(b, NULL);
}

static size_t held(const struct bench *b)
{
    return scheduler_index_stats(b->scheduler).entries;
}

static double counted(struct bench *b, const char *kind, const char *outcome)
{
    struct metric_desc d = {.name = "commutator_router_kv_recoveries_total"};

    return metric_value(metric_with(metric_family(b->metrics, &d), "n", "c", kind, outcome));
}

/* A block that starts a prompt, in an event of that id. */
static void live(struct bench *b, uint64_t id)
{
    const struct kv_block block = {.block_hash = 100 + id, .tokens_hash = 200 + id};

    kv_intake_event(b->k,
                    &(struct kv_event){.worker_id = WORKER,
                                       .event_id = id,
                                       .kind = KV_STORED,
                                       .blocks = &block,
                                       .n_blocks = 1},
                    ++b->sent_ms);
}

#define AT(endpoint) (&(struct plane_endpoint){.name = (endpoint), .instance_id = WORKER})
#define STORED(id, hash)                                                                           \
    "{\"worker_id\":161,\"event\":{\"event_id\":" #id ",\"data\":{\"stored\":{\"parent_hash\":"    \
    "null,\"blocks\":[{\"block_hash\":" #hash ",\"tokens_hash\":" #hash "}]}},\"dp_rank\":0}}"

#define CAN ",\"supports_tree_dump_failed\":true,\"kind\":\"recovery\""

static void a_worker_of_0_9_is_recovered(void **state)
{
    struct bench *b = *state;

    plane_server_register(b->server, AT("worker_kv_indexer_query"), serve, b);
    b->answers[0] = "{\"TooNew\":{\"requested_start\":1,\"requested_end\":null,"
                    "\"newest_available\":4}}";
    b->answers[1] = "{\"TreeDump\":[" STORED(0, 1) "," STORED(1, 2) "]}";
    b->answers[2] = "{\"Events\":[" STORED(5, 3) "," STORED(6, 4) "]}";
    put_worker(b);
    LOOP_UNTIL(b->loop, counted(b, "dump", "dump") == 1);
    assert_int_equal(held(b), 2);
    live(b, 7);
    assert_int_equal(held(b), 2);
    LOOP_UNTIL(b->loop, counted(b, "range", "events") == 1);
    assert_int_equal(held(b), 5);
    assert_string_equal(
        buf_cstr(&b->questions),
        "{\"worker_id\":161,\"start_event_id\":4611686018427387904,\"end_event_id\":null,"
        "\"dp_rank\":0" CAN "}\n"
        "{\"worker_id\":161,\"start_event_id\":null,\"end_event_id\":null,\"dp_rank\":0" CAN "}\n"
        "{\"worker_id\":161,\"start_event_id\":5,\"end_event_id\":6,\"dp_rank\":0" CAN "}\n");
}

static void a_worker_of_1_x_has_an_endpoint_for_each_rank(void **state)
{
    struct bench *b = *state;

    plane_server_register(b->server, AT("worker_kv_indexer_query_dp0"), serve, b);
    b->answers[0] = "{\"TreeDump\":{\"events\":[" STORED(0, 1) "],\"last_event_id\":9}}";
    b->answers[1] = "{\"Events\":{\"events\":[" STORED(10, 2) "],\"last_event_id\":10}}";
    put_worker(b);
    LOOP_UNTIL(b->loop, counted(b, "position", "dump") == 1);
    live(b, 11);
    LOOP_UNTIL(b->loop, counted(b, "range", "events") == 1);
    assert_int_equal(held(b), 3);
    assert_int_equal(plane_server_stats(b->server).unknown_endpoints, 1); /* asked once for all */
}

/* Two sources, of which one is of another rank: it is tried next. */
static void a_later_worker_has_sources_that_discovery_tells(void **state)
{
    struct bench *b = *state;
    const char *at = plane_server_address(b->server);
    AUTO(mem_free)
    char *queries = xasprintf(
        "%s/a1/n/c/worker_kv_query_source_1f,%s/a1/n/c/worker_kv_query_source_2f", at, at);

    plane_server_register(b->server, AT("n/c/worker_kv_query_source_2f"), serve, b);
    b->answers[0] = "{\"TreeDump\":{\"events\":[" STORED(3, 1) "],\"last_event_id\":3,"
                                                               "\"reset_scope\":\"all\"}}";
    put_worker_with(b, queries);
    LOOP_UNTIL(b->loop, counted(b, "position", "dump") == 1);
    assert_int_equal(held(b), 1);
    assert_true(counted(b, "position", "failed") == 1);
}

/* The sources' records say whose they are: the right one is asked at once. */
static void a_source_that_names_its_rank_is_asked_first(void **state)
{
    struct bench *b = *state;
    const char *at = plane_server_address(b->server);
    AUTO(mem_free)
    char *queries =
        xasprintf("%s/a1/n/c/worker_kv_query_source_1f,%s/a1/n/c/worker_kv_query_source_2f,"
                  "%s/a1/n/c/worker_kv_query_source_1f#1,"
                  "%s/a1/n/c/worker_kv_query_source_2f#0",
                  at, at, at, at);

    plane_server_register(b->server, AT("n/c/worker_kv_query_source_2f"), serve, b);
    b->answers[0] = "{\"TreeDump\":{\"events\":[" STORED(3, 1) "],\"last_event_id\":3,"
                                                               "\"reset_scope\":\"all\"}}";
    put_worker_with(b, queries);
    LOOP_UNTIL(b->loop, counted(b, "position", "dump") == 1);
    assert_int_equal(held(b), 1);
    assert_true(counted(b, "position", "failed") == 0);
}

static void failures_are_asked_again(void **state)
{
    struct bench *b = *state;

    plane_server_register(b->server, AT("worker_kv_indexer_query"), serve, b);
    b->answers[0] = "{\"Error\":\"not now\"}";
    b->answers[1] = "nonsense";
    b->answers[2] = "{\"TreeDump\":[" STORED(0, 1) ",{\"worker_id\":161}]}";
    b->answers[3] = "{\"TreeDump\":[" STORED(0, 1) "," STORED(1, 2) "]}";
    put_worker(b);
    LOOP_UNTIL(b->loop, counted(b, "position", "dump") == 1);
    assert_true(counted(b, "position", "failed") == 3);
    assert_int_equal(held(b), 2);
}

static void a_worker_without_indexer_is_left_alone(void **state)
{
    struct bench *b = *state;

    put_worker(b);
    LOOP_UNTIL(b->loop, counted(b, "position", "unsupported") == 1);
    assert_int_equal(plane_server_stats(b->server).unknown_endpoints, 2);
    live(b, 3);
    live(b, 8);
    assert_int_equal(held(b), 2);
    for (int i = 0; i < 10; i++)
        loop_run_once(b->loop, 5);
    assert_int_equal(plane_server_stats(b->server).unknown_endpoints, 2);
}

static void a_worker_that_leaves_is_not_waited_for(void **state)
{
    struct bench *b = *state;

    plane_server_register(b->server, AT("worker_kv_indexer_query"), serve, b);
    put_worker(b);
    LOOP_UNTIL(b->loop, b->open);
    live(b, 0);
    assert_int_equal(held(b), 0); /* a dump may come */
    kv_intake_remove_worker(b->k, WORKER);
    assert_true(counted(b, "position", "withdrawn") == 1);
    LOOP_UNTIL(b->loop, !b->open);
}

static void a_lost_connection_is_followed_by_a_question(void **state)
{
    struct bench *b = *state;

    plane_server_register(b->server, AT("worker_kv_indexer_query"), serve, b);
    b->answers[0] = "{\"TreeDump\":[]}";
    b->answers[1] = "{\"Events\":[" STORED(0, 1) "," STORED(1, 2) "]}";
    b->answers[2] = "{\"TooNew\":{\"newest_available\":1}}";
    put_worker(b);
    LOOP_UNTIL(b->loop, counted(b, "position", "dump") == 1);
    kv_intake_check(b->k);
    LOOP_UNTIL(b->loop, counted(b, "news", "events") == 1);
    assert_int_equal(held(b), 2);
    kv_intake_check(b->k);
    LOOP_UNTIL(b->loop, counted(b, "news", "too_new") == 1);
    assert_int_equal(held(b), 2);
}

#define WITH(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    return TEST_RUN(
        WITH(a_worker_of_0_9_is_recovered), WITH(a_worker_of_1_x_has_an_endpoint_for_each_rank),
        WITH(a_later_worker_has_sources_that_discovery_tells),
        WITH(a_source_that_names_its_rank_is_asked_first), WITH(failures_are_asked_again),
        WITH(a_worker_without_indexer_is_left_alone), WITH(a_worker_that_leaves_is_not_waited_for),
        WITH(a_lost_connection_is_followed_by_a_question));
}
