/* SPDX-License-Identifier: Apache-2.0 */
/* A router that asks and one that serves its index, on loopback; and servers that do not answer well. */
#include "router/sync/remote_index.h"
#include "lib/base/test.h"

#include "lib/base/log.h"
#include "lib/base/metric.h"
#include "lib/net/loop_test.h"
#include "router/sched/sched_test.h"
#include "router/sched/scheduler.h"
#include "router/sync/index_server.h"
#include "router/wire/indexer_query.h"
#include "router/wire/plane_loopback_test.h"

enum { SERVER = 0xa1, OTHER = 0xa2, N = 4, DEADLINE_MS = 1500 };
static const struct worker_rank ONE = {1, 0};
static const uint64_t LOCAL[N] = {11, 12, 13, 14}, SEQUENCE[N] = {21, 22, 23, 24};

struct bench {
    struct loop *loop;
    struct plane_client *client;
    struct plane_server *server;
    struct metric_registry *metrics;
    struct scheduler *scheduler;
    struct index_server *index;
    struct remote_index *remote;
    struct prompt_matches matches;
    size_t n_done, n_announced;
    struct plane_request *open; /* never answered */
    const char *answer;         /* of the server that is not ours */
    size_t n_asked;
};

/* Discovery of one process. */
static void on_announce(void *arg, const struct plane_endpoint *ep, bool there)
{
    struct bench *b = arg;
    AUTO(buf_done) struct buf address = BUF_NULL;
    struct remote_endpoint re = {ep->ns, ep->component, ep->name, ep->instance_id, NULL};

    plane_server_put_address(b->server, ep, &address);
    re.address = buf_cstr(&address);
    b->n_announced += there;
    b->n_announced -= !there;
    if (there)
        remote_index_put(b->remote, &re);
    else
        remote_index_gone(b->remote, &re);
}

static void build(struct bench *b, bool use_kv_events)
{
    struct route_conf conf = ROUTE_CONF_KV;

    conf.use_kv_events = use_kv_events;
    conf.ttl_ms = 600000;
    b->scheduler = scheduler_new(4, &conf);
    assert_true(
        scheduler_put_worker(b->scheduler, &(struct worker_info){.worker_id = 1, .dp_size = 1}));
}

static int setup(void **state)
{
    struct bench *b = xcalloc(1, sizeof(*b));
    struct err e;

    assert_int_equal(log_setup("off", false, NULL), 0);
    EXPECT_OK(loop_new(&b->loop, &e), &e);
    test_planes(b->loop, &b->client, &b->server);
    b->metrics = metric_registry_new();
    b->remote = remote_index_new(&(struct remote_index_conf){.loop = b->loop,
                                                             .plane = b->client,
                                                             .metrics = b->metrics,
                                                             .router_id = 255,
                                                             .deadline_ms = DEADLINE_MS});
    b->index = index_server_new(&(struct index_server_conf){.server = b->server,
                                                            .instance_id = SERVER,
                                                            .metrics = b->metrics,
                                                            .announce = on_announce,
                                                            .arg = b});
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    index_server_free(b->index);
    assert_int_equal(b->n_announced, 0);
    remote_index_free(b->remote);
    if (b->open)
        plane_request_abort(b->open);
    LOOP_UNTIL(b->loop, plane_server_running(b->server) == 0);
    scheduler_free(b->scheduler);
    prompt_matches_done(&b->matches);
    metric_registry_free(b->metrics);
    plane_client_free(b->client);
    plane_server_free(b->server);
    loop_free(b->loop);
    free(b);
    return 0;
}

static void on_done(void *arg)
{
    ((struct bench *)arg)->n_done++;
}

static struct remote_prompt prompt(const char *model, bool by_writes)
{
    return (struct remote_prompt){.ns = "n",
                                  .component = "c",
                                  .model = str_from(model),
                                  .local = LOCAL,
                                  .sequence = SEQUENCE,
                                  .n_blocks = N,
                                  .by_writes = by_writes};
}

/* Whether there was an answer; it is in b->matches. */
static bool ask(struct bench *b, const char *model, bool by_writes)
{
    const struct remote_prompt p = prompt(model, by_writes);
    struct remote_lookup *l = remote_lookup_start(b->remote, &p, &b->matches, on_done, b);
    size_t n = b->n_done;

    if (!l)
        return false;
    LOOP_UNTIL(b->loop, b->n_done > n);
    remote_lookup_free(l);
    return b->matches.told;
}

static double failures(const struct bench *b, const char *what)
{
    AUTO(mem_free)
    char *name = xasprintf("dynamo_component_router_remote_indexer_%s_failures_total", what);
    const struct metric_desc d = {.name = name};

    return metric_value(metric_with(metric_family(b->metrics, &d), "n", "c", "255", "ff"));
}

static double served(const struct bench *b, const char *kind, const char *outcome)
{
    const struct metric_desc d = {.name = "commutator_router_index_requests_total"};

    return metric_value(metric_with(metric_family(b->metrics, &d), kind, outcome));
}

static void what_one_holds_the_other_hears(void **state)
{
    struct bench *b = *state;
    struct prefix_block blocks[2] = {{101, LOCAL[0]}, {102, LOCAL[1]}};

    build(b, true);
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_false(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_int_equal(b->n_announced, 1); /* no placements: events tell */
    assert_true(ask(b, "m", false));
    assert_int_equal(b->matches.n, 0);
    assert_int_equal(scheduler_store(b->scheduler, ONE, NULL, blocks, 2), 0);
    assert_true(ask(b, "m", false));
    assert_int_equal(b->matches.n, 1);
    assert_int_equal(b->matches.rows[0].worker.worker_id, 1);
    assert_int_equal(b->matches.rows[0].blocks, 2);
    assert_true(b->matches.took_ns > 0);
    assert_int_equal((int)failures(b, "query"), 0);
}

/* The same model, once to prefill and once to decode. */
static void components_are_told_apart(void **state)
{
    struct bench *b = *state;
    AUTO(scheduler_free) struct scheduler *other = scheduler_new(4, &ROUTE_CONF_KV);
    struct prefix_block blocks[2] = {{101, LOCAL[0]}, {102, LOCAL[1]}};

    build(b, true);
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_true(index_server_add(b->index, "n", "d", "m", other));
    assert_int_equal(scheduler_store(b->scheduler, ONE, NULL, blocks, 2), 0);
    assert_true(ask(b, "m", false));
    assert_int_equal(b->matches.n, 1);
    index_server_remove(b->index, other);
    assert_true(ask(b, "m", false));
    assert_int_equal(b->matches.n, 1);
}

static void placements_are_written_and_found(void **state)
{
    struct bench *b = *state;
    const struct remote_prompt p = prompt("m", true);

    build(b, false);
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_int_equal(b->n_announced, 2);
    remote_index_write(b->remote, &p, ONE);
    LOOP_UNTIL(b->loop, served(b, "record", "answered") == 1);
    assert_true(ask(b, "m", true));
    assert_int_equal(b->matches.n, 1);
    assert_int_equal(b->matches.rows[0].blocks, N);
    remote_index_write(b->remote, &p, (struct worker_rank){99, 0}); /* is not known there */
    LOOP_UNTIL(b->loop, failures(b, "write") == 1);
    assert_true(ask(b, "m", true)); /* it is well all the same */
}

static void a_stranger_is_refused_in_words_and_nobody_is_blamed(void **state)
{
    struct bench *b = *state;

    build(b, true);
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_false(ask(b, "other", false));
    assert_int_equal((int)failures(b, "query"), 1);
    assert_int_equal((int)served(b, "query", "refused"), 1);
    assert_true(ask(b, "m", false));
}

static void nobody_there_fails_at_once(void **state)
{
    struct bench *b = *state;

    assert_false(ask(b, "m", false));
    assert_int_equal((int)failures(b, "query"), 1);
    build(b, true);
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    assert_true(ask(b, "m", false));
    assert_false(ask(b, "m", true)); /* it takes no placements */
    index_server_remove(b->index, b->scheduler);
    assert_int_equal(b->n_announced, 0);
    assert_false(ask(b, "m", false));
}

/* --- servers that are not well ------------------------------------------------------------------ */

static void on_cancelled(void *arg)
{
    struct bench *b = arg;

    plane_request_abort(b->open);
    b->open = NULL;
}

static void serve_badly(void *arg, struct plane_request *rq)
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled};
    struct bench *b = arg;

    b->n_asked++;
    plane_request_start(rq);
    if (!b->answer) {
        b->open = rq;
        plane_request_set_handlers(rq, &handlers, b);
        return;
    }
    plane_request_item_raw(rq, str_from(b->answer));
    plane_request_finish(rq);
}

static const struct plane_endpoint BAD = {"n", "c", INDEXER_QUERY_ENDPOINT, OTHER, false};

static void put_bad_server(struct bench *b, const char *answer)
{
    b->answer = answer;
    plane_server_register(b->server, &BAD, serve_badly, b);
    on_announce(b, &BAD, true);
    b->n_announced--; /* not to be taken back */
}

static void who_is_silent_is_left_alone_for_a_while(void **state)
{
    struct bench *b = *state;
    uint64_t begin;

    put_bad_server(b, NULL);
    begin = loop_now_ms(b->loop);
    assert_false(ask(b, "m", false));
    assert_true(loop_now_ms(b->loop) - begin >= DEADLINE_MS - 1);
    assert_false(ask(b, "m", false)); /* at once, and it is not asked */
    assert_int_equal(b->n_asked, 1);
    assert_int_equal((int)failures(b, "query"), 2);
    LOOP_UNTIL(b->loop, !b->open);
    b->answer =
        "{\"TieredScores\":{\"device\":{\"scores\":[[{\"worker_id\":1,\"dp_rank\":0},3]]}}}";
    while (!ask(b, "m", false))
        loop_run_once(b->loop, 50);
    assert_int_equal(b->matches.rows[0].blocks, 3);
    assert_true(loop_now_ms(b->loop) - begin >= REMOTE_PAUSE_MS);
    assert_int_equal(b->n_asked, 2);
}

static void another_one_answers_for_who_talks_nonsense(void **state)
{
    struct bench *b = *state;

    build(b, true);
    put_bad_server(b, "{\"TieredScores\":[");
    assert_true(index_server_add(b->index, "n", "c", "m", b->scheduler));
    for (int i = 0; i < 6; i++)
        assert_true(ask(b, "m", false));
    assert_int_equal(b->n_asked, 1);
    assert_int_equal((int)failures(b, "query"), 0);
}

static void a_lookup_may_be_given_up(void **state)
{
    struct bench *b = *state;
    const struct remote_prompt p = prompt("m", false);
    struct remote_lookup *l;

    put_bad_server(b, NULL);
    l = remote_lookup_start(b->remote, &p, &b->matches, on_done, b);
    assert_non_null(l);
    LOOP_UNTIL(b->loop, b->open);
    remote_lookup_free(l);
    LOOP_UNTIL(b->loop, !b->open);
    assert_int_equal(b->n_done, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(what_one_holds_the_other_hears),
        CASE(components_are_told_apart),
        CASE(placements_are_written_and_found),
        CASE(a_stranger_is_refused_in_words_and_nobody_is_blamed),
        CASE(nobody_there_fails_at_once),
        CASE(who_is_silent_is_left_alone_for_a_while),
        CASE(another_one_answers_for_who_talks_nonsense),
        CASE(a_lookup_may_be_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
