/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker behind a real plane server, asked by the real plane client, with records in memory.
 */
#include "worker/mock_worker.h"
#include "lib/base/test.h"

#include <inttypes.h>

#include "lib/base/json_put.h"
#include "lib/base/json_tree.h"
#include "lib/base/metric.h"
#include "lib/net/loop_test.h"
#include "router/kv/prefix_index.h"
#include "router/sync/kv_answer.h"
#include "router/wire/engine_output.h"
#include "router/wire/engine_request.h"
#include "router/wire/kv_event.h"
#include "router/wire/plane_loopback_test.h"
#include "worker/bootstrap.h"

enum { BLOCK = 4 };

struct rig {
    struct loop *loop;
    struct store_hub *hub;
    struct plane_server *server;
    struct plane_client *client;
    struct metric_registry *metrics;
    struct model_card *card;
    struct mock_worker *worker;
    struct bootstrap_server *bootstrap; /* the worker's */
    size_t n_ended;
};

enum role { AGGREGATED, PREFILL, DECODE };

struct call {
    struct engine_output_reader reader;
    struct plane_stream *stream;
    size_t n_tokens, cancel_at, cached, prompt;
    enum finish_reason finish;
    bool over, failed, has_params, is_error;
    enum plane_failure kind;
    struct buf raw, text;
};

static void on_ended(void *arg)
{
    ((struct rig *)arg)->n_ended++;
}

static const uint32_t WORDS[] = {500, 501, 502, 503};

static void rig_open_as(struct rig *rig, enum role role, uint32_t dp_size, double speedup,
                        bool to_endpoint)
{
    const struct model_card_spec card = {.dir = "examples/model",
                                         .kv_cache_block_size = BLOCK,
                                         .context_length = 200,
                                         .flags = role == PREFILL ? MODEL_PREFILL : 0,
                                         .is_decode = role == DECODE,
                                         .local_indexer = true,
                                         .dp_size = dp_size};
    struct mock_worker_conf conf = {.ns = "ns",
                                    .component = "backend",
                                    .endpoint = "generate",
                                    .engine = {.block_size = BLOCK,
                                               .n_blocks = 400,
                                               .max_num_seqs = 8,
                                               .max_num_batched_tokens = 1000,
                                               .waiting_max = 4,
                                               .prefix_caching = true,
                                               .chunked_prefill = true,
                                               .speedup_ratio = speedup,
                                               .vocab = WORDS,
                                               .n_vocab = ARRAY_LEN(WORDS)},
                                    .dp_size = dp_size,
                                    .seed = 1,
                                    .local_indexer = true,
                                    .to_endpoint = to_endpoint};
    struct err e;

    *rig = (struct rig){.hub = store_hub_new(), .metrics = metric_registry_new()};
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    test_planes(rig->loop, &rig->client, &rig->server);
    EXPECT_OK(model_card_build(&rig->card, &card, &e), &e);
    conf.loop = rig->loop;
    conf.take_store = store_mem_new(rig->hub, rig->loop);
    conf.plane = rig->server;
    conf.metrics = rig->metrics;
    conf.card = rig->card;
    conf.ended = on_ended;
    conf.arg = rig;
    if (role == PREFILL)
        EXPECT_OK(bootstrap_server_start(&rig->bootstrap, rig->loop, "127.0.0.1", 0, &e), &e);
    conf.take_bootstrap = rig->bootstrap;
    EXPECT_OK(mock_worker_new(&rig->worker, &conf, &e), &e);
    EXPECT_OK(mock_worker_register(rig->worker, &e), &e);
}

static void rig_open(struct rig *rig, uint32_t dp_size, double speedup)
{
    rig_open_as(rig, AGGREGATED, dp_size, speedup, false);
}

static void rig_close(struct rig *rig)
{
    mock_worker_free(rig->worker);
    plane_client_free(rig->client);
    plane_server_free(rig->server);
    store_hub_free(rig->hub);
    model_card_unref(rig->card);
    metric_registry_free(rig->metrics);
    loop_free(rig->loop);
}

/* --- calls ------------------------------------------------------------------------------------ */

static void read_usage(struct call *c, struct str json)
{
    AUTO(json_free) struct json *usage = NULL;
    int64_t n = -1;
    struct err e;

    EXPECT_OK(json_parse(&usage, json, &e), &e);
    assert_true(json_get_i64(usage, "completion_tokens", &n));
    assert_int_equal(n, c->n_tokens);
    assert_true(json_get_i64(usage, "prompt_tokens", &n));
    c->prompt = (size_t)n;
    assert_true(json_get_i64(json_get(usage, "prompt_tokens_details"), "cached_tokens", &n));
    c->cached = (size_t)n;
}

static void on_item(void *arg, const struct wire_item *item)
{
    struct call *c = arg;
    struct engine_output out;
    struct err e;

    buf_clear(&c->raw);
    buf_put_str(&c->raw, item->raw);
    if (item->is_error) {
        c->is_error = true;
        buf_put_str(&c->text, item->error);
    }
    if (item->data.len == 0)
        return; /* a recovery answer */
    EXPECT_OK(engine_output_parse(&c->reader, item->data, &out, &e), &e);
    for (size_t i = 0; i < out.n_token_ids; i++)
        assert_true(out.token_ids[i] >= 500 && out.token_ids[i] < 504);
    c->n_tokens += out.n_token_ids;
    c->has_params |= out.disaggregated_params_json.len > 0;
    c->finish = out.finish;
    if (out.completion_usage_json.len > 0)
        read_usage(c, out.completion_usage_json);
    if (c->cancel_at && c->n_tokens >= c->cancel_at) {
        c->stream = plane_stream_cancel(c->stream);
        c->over = true;
    }
}

static void on_finished(void *arg)
{
    ((struct call *)arg)->over = true;
}

static void on_failed(void *arg, enum plane_failure kind, const char *text)
{
    struct call *c = arg;

    c->over = c->failed = true;
    c->kind = kind;
    buf_put_cstr(&c->text, text);
}

static const struct plane_handlers HANDLERS = {
    .item = on_item, .finished = on_finished, .failed = on_failed};

static void call_done(struct call *c)
{
    engine_output_reader_done(&c->reader);
    buf_done(&c->raw);
    buf_done(&c->text);
}

static void send(struct rig *rig, struct call *c, const char *endpoint, struct str body)
{
    AUTO(mem_free)
    char *address = xasprintf("%s/%" PRIx64 "/%s", plane_server_address(rig->server),
                              mock_worker_id(rig->worker), endpoint);
    const struct plane_call call = {.address = str_from(address),
                                    .id = STR("4c1f0c0e-2b7e-4b52-9c43-0d3d6a7b8c9d"),
                                    .body = body};

    c->stream = plane_client_send(rig->client, &call, &HANDLERS, c);
}

/* A prompt of 40 tokens, which may come from elsewhere. */
static void send_asked(struct rig *rig, struct call *c, struct engine_request *rq)
{
    AUTO(buf_done) struct buf body = BUF_NULL;
    uint32_t tokens[40];

    for (uint32_t i = 0; i < ARRAY_LEN(tokens); i++)
        tokens[i] = i;
    rq->model = STR("m");
    rq->token_ids = tokens;
    rq->n_token_ids = ARRAY_LEN(tokens);
    rq->stop.max_tokens = OPT_U64(3);
    engine_request_put(&body, rq);
    send(rig, c, "generate", buf_str(&body));
}

static void send_prompt(struct rig *rig, struct call *c, size_t n, struct opt_u64 max_tokens,
                        struct opt_u64 dp_rank)
{
    AUTO(mem_free) uint32_t *tokens = xcalloc(n, sizeof(*tokens));
    AUTO(buf_done) struct buf body = BUF_NULL;
    struct engine_request rq = {.model = STR("m"),
                                .token_ids = tokens,
                                .n_token_ids = n,
                                .stop.max_tokens = max_tokens,
                                .has_routing = dp_rank.set,
                                .routing.dp_rank = dp_rank};

    for (size_t i = 0; i < n; i++)
        tokens[i] = (uint32_t)i;
    engine_request_put(&body, &rq);
    send(rig, c, "generate", buf_str(&body));
}
#define NONE ((struct opt_u64){false, 0})

/* --- tests ------------------------------------------------------------------------------------ */

static void a_prompt_is_answered_and_found_again(void **state)
{
    struct call a = {.n_tokens = 0}, b = {.n_tokens = 0};
    struct rig rig;

    (void)state;
    rig_open(&rig, 1, 0);
    send_prompt(&rig, &a, 41, OPT_U64(10), NONE);
    LOOP_UNTIL(rig.loop, a.over);
    assert_false(a.failed);
    assert_int_equal(a.n_tokens, 10);
    assert_int_equal(a.finish, FINISH_LENGTH);
    assert_int_equal(a.prompt, 41);
    assert_int_equal(a.cached, 0);
    send_prompt(&rig, &b, 41, NONE, NONE);
    LOOP_UNTIL(rig.loop, b.over);
    assert_int_equal(b.cached, 40);
    assert_int_equal(b.n_tokens, 200 - 41);
    assert_int_equal(rig.n_ended, 2);
    call_done(&a);
    call_done(&b);
    rig_close(&rig);
}

static void what_cannot_be_served_is_refused_in_words(void **state)
{
    static const struct {
        size_t n;
        struct opt_u64 rank;
        const char *says;
    } cases[] = {
        {200, {false, 0}, "context"}, {5, {true, 2}, "dp_rank"}, {0, {false, 0}, "prompt"}};
    struct rig rig;

    (void)state;
    rig_open(&rig, 2, 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct call c = {.n_tokens = 0};

        send_prompt(&rig, &c, cases[i].n, OPT_U64(1), cases[i].rank);
        LOOP_UNTIL(rig.loop, c.over);
        assert_true(c.failed);
        assert_int_equal(c.kind, PLANE_ENGINE);
        if (!strstr(buf_cstr(&c.text), cases[i].says))
            fail_msg("'%s' does not speak of %s", buf_cstr(&c.text), cases[i].says);
        call_done(&c);
    }
    {
        struct call c = {.n_tokens = 0};

        send(&rig, &c, "generate", STR("{\"token_ids\":\"x\"}"));
        LOOP_UNTIL(rig.loop, c.over);
        assert_int_equal(c.kind, PLANE_ENGINE);
        call_done(&c);
    }
    rig_close(&rig);
}

static void too_many_waiting_are_refused(void **state)
{
    struct call calls[16] = {0};
    struct rig rig;
    size_t n_failed = 0;

    (void)state;
    rig_open(&rig, 1, 1e-3); /* a pass takes for ever */
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        send_prompt(&rig, &calls[i], 8, OPT_U64(1), NONE);
    LOOP_UNTIL(rig.loop, ({
                   n_failed = 0;
                   for (size_t i = 0; i < ARRAY_LEN(calls); i++)
                       n_failed += calls[i].failed;
                   n_failed + mock_worker_running(rig.worker) == ARRAY_LEN(calls);
               }));
    assert_true(n_failed >= ARRAY_LEN(calls) - 4 - 1 - 8);
    assert_true(n_failed > 0);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        call_done(&calls[i]);
    rig_close(&rig);
}

static void a_client_that_leaves_frees_the_engine(void **state)
{
    struct call c = {.cancel_at = 3};
    AUTO(buf_done) struct buf text = BUF_NULL;
    size_t n_cancelled = 0;
    struct rig rig;

    (void)state;
    rig_open(&rig, 1, 5);
    send_prompt(&rig, &c, 20, OPT_U64(150), NONE);
    LOOP_UNTIL(rig.loop, c.over);
    LOOP_UNTIL(rig.loop, mock_worker_running(rig.worker) == 0);
    mock_worker_measure(rig.worker);
    metric_print(rig.metrics, &text);
    assert_non_null(strstr(buf_cstr(&text), "worker_id=\""));
    for (const char *line = buf_cstr(&text); line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "dynamo_component_kvstats_active_blocks{", 39) == 0 ||
            strncmp(line, "dynamo_component_inflight_requests{", 35) == 0)
            assert_memory_equal(strstr(line, "} "), "} 0\n", 4);
        if (strncmp(line, "dynamo_component_cancellation_total{", 36) == 0)
            n_cancelled += strstr(line, "} 1\n") == strstr(line, "} ");
    }
    assert_int_equal(n_cancelled, 1);
    call_done(&c);
    rig_close(&rig);
}

static void on_fetched(void *arg, int error)
{
    *(int *)arg = error;
}

static void a_prefill_worker_makes_one_token_and_opens_the_room(void **state)
{
    struct call c = {.n_tokens = 0};
    struct bootstrap_fetch *fetch;
    struct rig rig;
    struct err e;
    int fetched = 1;

    (void)state;
    rig_open_as(&rig, PREFILL, 1, 0, false);
    EXPECT_OK(bootstrap_fetch_start(&fetch, rig.loop, "127.0.0.1",
                                    bootstrap_server_port(rig.bootstrap), 77, on_fetched, &fetched,
                                    &e),
              &e);
    LOOP_UNTIL(rig.loop, bootstrap_server_stats(rig.bootstrap).waiting == 1);
    send_asked(&rig, &c,
               &(struct engine_request){.has_bootstrap = true,
                                        .bootstrap = {STR("127.0.0.1"), 1, .room = 77}});
    LOOP_UNTIL(rig.loop, c.over && fetched != 1);
    assert_int_equal(fetched, 0);
    assert_int_equal(c.n_tokens, 1);
    assert_true(c.has_params);
    call_done(&c);
    rig_close(&rig);
}

static void a_decode_worker_takes_the_prompt_from_elsewhere(void **state)
{
    struct call c = {.n_tokens = 0}, room = {.n_tokens = 0};
    struct bootstrap_server *prefill;
    struct rig rig;
    struct err e;

    (void)state;
    rig_open_as(&rig, DECODE, 1, 0, false);
    send_asked(&rig, &c,
               &(struct engine_request){.prefill_result_json = STR(
                                            "{\"disaggregated_params\":{\"x\":1},"
                                            "\"prompt_tokens_details\":{\"cached_tokens\":24}}")});
    LOOP_UNTIL(rig.loop, c.over);
    assert_int_equal(c.n_tokens, 3);
    assert_int_equal(c.cached, 24);
    assert_false(c.has_params);

    EXPECT_OK(bootstrap_server_start(&prefill, rig.loop, "127.0.0.1", 0, &e), &e);
    send_asked(&rig, &room,
               &(struct engine_request){
                   .has_bootstrap = true,
                   .bootstrap = {STR("127.0.0.1"), bootstrap_server_port(prefill), 5}});
    LOOP_UNTIL(rig.loop, bootstrap_server_stats(prefill).waiting == 1);
    assert_int_equal(mock_worker_running(rig.worker), 1);
    assert_false(room.over);
    bootstrap_server_ready(prefill, 5);
    LOOP_UNTIL(rig.loop, room.over);
    assert_int_equal(room.n_tokens, 3);
    call_done(&c);
    call_done(&room);
    bootstrap_server_free(prefill);
    rig_close(&rig);
}

static void a_room_that_never_opens_is_an_error(void **state)
{
    struct call c = {.n_tokens = 0}, gone = {.n_tokens = 0};
    struct bootstrap_server *prefill;
    struct rig rig;
    struct err e;

    (void)state;
    rig_open_as(&rig, DECODE, 1, 0, false);
    EXPECT_OK(bootstrap_server_start(&prefill, rig.loop, "127.0.0.1", 0, &e), &e);
    struct engine_request rq = {.has_bootstrap = true,
                                .bootstrap = {STR("127.0.0.1"), bootstrap_server_port(prefill), 5}};

    send_asked(&rig, &c, &rq);
    send_asked(&rig, &gone, &rq);
    LOOP_UNTIL(rig.loop, bootstrap_server_stats(prefill).waiting == 2);
    gone.stream = plane_stream_cancel(gone.stream);
    LOOP_UNTIL(rig.loop, bootstrap_server_stats(prefill).waiting == 1);
    assert_int_equal(mock_worker_running(rig.worker), 1);
    bootstrap_server_free(prefill);
    LOOP_UNTIL(rig.loop, c.over);
    assert_true(c.is_error);
    assert_non_null(strstr(buf_cstr(&c.text), "room 5"));
    assert_int_equal(c.n_tokens, 0);
    LOOP_UNTIL(rig.loop, mock_worker_running(rig.worker) == 0);
    call_done(&c);
    call_done(&gone);
    rig_close(&rig);
}

static void replay(void *arg, const struct kv_event *ev)
{
    assert_int_equal(ev->kind, KV_STORED);
    for (size_t i = 0; i < ev->n_blocks; i++) {
        const struct prefix_block b = {ev->blocks[i].block_hash, ev->blocks[i].tokens_hash};
        const uint64_t *parent = i                     ? &ev->blocks[i - 1].block_hash
                                 : ev->parent_hash.set ? &ev->parent_hash.v
                                                       : NULL;

        assert_int_equal(prefix_index_store(arg, 0, parent, &b, 1), 0);
    }
}

/* The same index comes of a dump and of all events. */
static void a_router_that_missed_everything_can_ask(void **state)
{
    static const char *const ranges[] = {"null", "0"};
    struct call c = {.n_tokens = 0};
    struct rig rig;

    (void)state;
    rig_open(&rig, 1, 0);
    send_prompt(&rig, &c, 41, OPT_U64(20), NONE);
    LOOP_UNTIL(rig.loop, c.over);
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++) {
        AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
        AUTO(kv_event_reader_done) struct kv_event_reader reader = {.blocks = NULL};
        AUTO(mem_free)
        char *body =
            xasprintf("{\"worker_id\":%" PRIu64 ",\"start_event_id\":%s,\"end_event_id\":null}",
                      mock_worker_id(rig.worker), ranges[i]);
        struct call q = {.n_tokens = 0};
        struct err e;

        send(&rig, &q, "worker_kv_indexer_query", str_from(body));
        LOOP_UNTIL(rig.loop, q.over);
        assert_false(q.failed);
        assert_true(
            str_starts(buf_str(&q.raw), i == 0 ? STR("{\"TreeDump\"") : STR("{\"Events\"")));
        EXPECT_OK(kv_events_parse(&reader, buf_str(&q.raw), replay, ix, &e), &e);
        assert_int_equal(prefix_index_held(ix, 0), (41 + 20) / BLOCK);
        call_done(&q);
    }
    call_done(&c);
    rig_close(&rig);
}

/* Of rank 1, which has a prompt of 41 tokens and 20 more; of rank 0, which has none. */
static void each_rank_has_an_endpoint_that_newer_routers_ask(void **state)
{
    struct call c = {.n_tokens = 0};
    struct rig rig;

    (void)state;
    rig_open_as(&rig, AGGREGATED, 2, 0, true);
    send_prompt(&rig, &c, 41, OPT_U64(20), OPT_U64(1));
    LOOP_UNTIL(rig.loop, c.over);
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t id = mock_worker_id(rig.worker), rank = i % 2;
        AUTO(mem_free) char *name = xasprintf("worker_kv_query_source_%" PRIx64, id + rank);
        AUTO(mem_free)
        char *body = xasprintf("{\"worker_id\":%" PRIu64 ",\"dp_rank\":%" PRIu64
                               ",\"start_event_id\":%s,\"end_event_id\":null}",
                               id, rank, i < 2 ? "null" : "1");
        AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
        AUTO(kv_event_reader_done) struct kv_event_reader reader = {.blocks = NULL};
        struct call q = {.n_tokens = 0};
        struct kv_answer a;
        struct err e;

        send(&rig, &q, name, str_from(body));
        LOOP_UNTIL(rig.loop, q.over);
        assert_false(q.failed);
        EXPECT_OK(kv_answer_parse(buf_str(&q.raw), &a, &e), &e);
        assert_int_equal(a.kind, i == 3 ? KV_ANSWER_EVENTS : KV_ANSWER_DUMP);
        assert_true(a.newest.set && (a.newest.v > 0) == (rank == 1));
        EXPECT_OK(kv_events_parse(&reader, a.events, replay, ix, &e), &e);
        assert_int_equal(prefix_index_held(ix, 0), rank == 1 ? (41 + 20) / BLOCK : 0);
        call_done(&q);
    }
    call_done(&c);
    rig_close(&rig);
}

static void an_unregistered_worker_finishes_what_it_has(void **state)
{
    struct call running = {.n_tokens = 0}, late = {.n_tokens = 0};
    struct rig rig;

    (void)state;
    rig_open(&rig, 1, 5);
    send_prompt(&rig, &running, 20, OPT_U64(20), NONE);
    LOOP_UNTIL(rig.loop, running.n_tokens > 0);
    mock_worker_unregister(rig.worker);
    assert_false(mock_worker_is_registered(rig.worker));
    send_prompt(&rig, &late, 20, OPT_U64(20), NONE);
    LOOP_UNTIL(rig.loop, late.over);
    assert_int_equal(late.kind, PLANE_REFUSED);
    LOOP_UNTIL(rig.loop, running.over);
    assert_false(running.failed);
    assert_int_equal(running.n_tokens, 20);
    call_done(&running);
    call_done(&late);
    rig_close(&rig);
}

/* --- records ---------------------------------------------------------------------------------- */

struct seen {
    size_t n_puts, n_gones, n_kinds[4];
    uint64_t id;
};

static void on_put(void *arg, struct str key, struct str json)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct seen *s = arg;
    struct record rec;
    struct err e;

    (void)key;
    EXPECT_OK(record_parse(json, &scratch, &rec, &e), &e);
    assert_true(rec.instance_id == s->id);
    s->n_kinds[rec.kind]++;
    s->n_puts++;
}

static void on_gone(void *arg, struct str key, enum store_end how)
{
    (void)key;
    (void)how;
    ((struct seen *)arg)->n_gones++;
}

static void its_records_come_and_go_with_it(void **state)
{
    static const struct store_watcher watcher = {.put = on_put, .gone = on_gone};
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct json_put j = json_put_on(&text);
    struct seen s = {.n_puts = 0};
    struct store *other;
    struct rig rig;
    struct err e;

    (void)state;
    rig_open(&rig, 1, 0);
    s.id = mock_worker_id(rig.worker);
    other = store_mem_new(rig.hub, rig.loop);
    EXPECT_OK(store_watch(other, &watcher, &s, &e), &e);
    LOOP_UNTIL(rig.loop, s.n_puts == 3);
    assert_int_equal(s.n_kinds[RECORD_ENDPOINT], 2);
    assert_int_equal(s.n_kinds[RECORD_MODEL], 1);
    json_put_object(&j);
    mock_worker_put_records(rig.worker, RECORD_ENDPOINT, &j);
    json_put_object_end(&j);
    assert_true(str_starts(buf_str(&text), STR("{\"ns/backend/generate/")));
    mock_worker_unregister(rig.worker);
    LOOP_UNTIL(rig.loop, s.n_gones == 3);
    store_free(other);
    rig_close(&rig);
}

int main(void)
{
    return TEST_RUN(
        T(a_prompt_is_answered_and_found_again), T(what_cannot_be_served_is_refused_in_words),
        T(a_prefill_worker_makes_one_token_and_opens_the_room),
        T(a_decode_worker_takes_the_prompt_from_elsewhere), T(a_room_that_never_opens_is_an_error),
        T(too_many_waiting_are_refused), T(a_client_that_leaves_frees_the_engine),
        T(a_router_that_missed_everything_can_ask),
        T(each_rank_has_an_endpoint_that_newer_routers_ask),
        T(an_unregistered_worker_finishes_what_it_has), T(its_records_come_and_go_with_it));
}
