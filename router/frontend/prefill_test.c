/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A prefill against two scripted workers behind a real plane server.
 */
#include "router/frontend/prefill.h"
#include "lib/base/test.h"

#include <inttypes.h>
#include <math.h>

#include "lib/base/arena.h"
#include "lib/net/loop_test.h"
#include "router/frontend/explain.h"
#include "router/frontend/router_metrics.h"
#include "router/kv/block_hash.h"
#include "router/wire/engine_output.h"
#include "router/wire/plane_loopback_test.h"

enum { BLOCK = 4, N_TOKENS = 20, N_WORKERS = 2 };

/* What a worker does with a request. */
enum script { ANSWER, NO_PARAMS, REFUSE, BREAK, ERROR_ITEM, HANG, STOP, STOP_AND_BREAK, STOP_LATE };

struct rig {
    struct loop *loop;
    struct plane_server *server;
    struct explain *explain;
    struct route_conf route;
    struct serving serving;
    struct pool *pool, *decode; /* of the latter, the way it cuts prompts */
    struct str salt;
    struct fake {
        struct rig *rig;
        enum script script;
        size_t n_asked, n_cancelled;
        struct plane_request *held;
        struct arena *arena;
        struct engine_request asked; /* the last one */
    } fakes[N_WORKERS];
    uint32_t tokens[N_TOKENS];
    uint64_t local[N_TOKENS / BLOCK], sequence[N_TOKENS / BLOCK];
    struct prefill *prefill;
    char seen[16];     /* 'g', 'a', 'l', 'f': callbacks in order */
    bool of_0_9;       /* whose prefills end no answers */
    struct buf answer; /* what answered() was told */
};

/* --- workers -----------------------------------------------------------------------------------
 */

static void on_cancelled(void *arg)
{
    struct fake *f = arg;

    f->n_cancelled++;
    plane_request_abort(TAKE(f->held));
}

static void put_item(struct plane_request *request, bool params, enum finish_reason finish)
{
    AUTO(buf_done) struct buf item = BUF_NULL;
    const uint32_t token = 7;
    struct engine_output out = {
        .token_ids = &token,
        .n_token_ids = 1,
        .finish = finish,
        .completion_usage_json =
            STR("{\"prompt_tokens\":20,\"completion_tokens\":1,\"total_tokens\":"
                "21,\"prompt_tokens_details\":{\"cached_tokens\":8}}")};

    if (params)
        out.disaggregated_params_json = STR("{\"kv_transfer_params\":{\"block\":1}}");
    engine_output_put(&item, &out);
    plane_request_item(request, buf_str(&item));
}

static void on_generate(void *arg, struct plane_request *request)
{
    static const struct plane_request_handlers handlers = {.cancelled = on_cancelled};
    struct fake *f = arg;
    struct err e;

    f->n_asked++;
    arena_reset(f->arena);
    EXPECT_OK(engine_request_parse(f->arena,
                                   str_from(arena_strdup(f->arena, plane_request_body(request))),
                                   &f->asked, &e),
              &e);
    if (f->script == REFUSE) {
        plane_request_refuse(request, STR("not today"));
        return;
    }
    plane_request_start(request);
    switch (f->script) {
    case ANSWER:
    case NO_PARAMS:
        put_item(request, f->script == ANSWER, FINISH_LENGTH);
        plane_request_finish(request);
        break;
    case ERROR_ITEM:
        plane_request_error(request, STR("the engine is dead"));
        plane_request_finish(request);
        break;
    case BREAK:
        put_item(request, true, FINISH_LENGTH);
        plane_request_abort(request);
        break;
    case STOP:
        put_item(request, false, FINISH_STOP);
        plane_request_finish(request);
        break;
    case STOP_AND_BREAK:
        put_item(request, false, FINISH_STOP);
        plane_request_abort(request);
        break;
    case STOP_LATE:
        put_item(request, true, FINISH_NONE);
        put_item(request, true, FINISH_STOP);
        plane_request_finish(request);
        break;
    case HANG:
        f->held = request;
        plane_request_set_handlers(request, &handlers, f);
        break;
    case REFUSE:
        break;
    }
}

/* --- the rig -----------------------------------------------------------------------------------
 */

static void add_worker(struct rig *rig, size_t i, bool bootstrap)
{
    AUTO(mem_free)
    char *address = xasprintf("%s/%zx/generate", plane_server_address(rig->server), i + 1);
    const struct plane_endpoint ep = {.name = "generate", .instance_id = i + 1};
    AUTO(model_card_unref) struct model_card *card = NULL;
    struct model_card_spec spec = {.dir = "examples/model",
                                   .kv_cache_block_size = BLOCK,
                                   .flags = MODEL_PREFILL,
                                   .dp_size = 2,
                                   .bootstrap_host = bootstrap ? "192.0.2.1" : NULL,
                                   .bootstrap_port = 18501};
    struct err e;

    rig->fakes[i] = (struct fake){.rig = rig, .arena = arena_new()};
    plane_server_register(rig->server, &ep, on_generate, &rig->fakes[i]);
    EXPECT_OK(model_card_build(&card, &spec, &e), &e);
    pool_put_worker(
        rig->pool,
        &(struct worker){.id = i + 1, .address = address, .card = card, .has_own_card = true});
}

static void rig_open_cut(struct rig *rig, enum route_mode mode, const struct model_card *cut,
                         bool bootstrap)
{
    struct model_card card = *cut;
    char name[] = "m", ns[] = "ns", component[] = "prefill", endpoint[] = "generate";
    struct histogram_range ranges[FRONTEND_HISTOGRAMS];
    struct served_model found = {.name = name,
                                 .is_prefill = true,
                                 .card = &card,
                                 .ns = ns,
                                 .component = component,
                                 .endpoint = endpoint};
    struct err e;

    *rig = (struct rig){.route = {.mode = mode,
                                  .overlap_weight = 1,
                                  .use_kv_events = true,
                                  .track_active_blocks = true,
                                  .assume_kv_reuse = true,
                                  .track_prefill_tokens = true,
                                  .prefill_load_scale = NAN,
                                  .max_tree_size = 1000,
                                  .prune_target_ratio = 0.8,
                                  .busy_decode_blocks = NAN,
                                  .busy_prefill_tokens = NAN}};
    EXPECT_OK(loop_new(&rig->loop, &e), &e);
    test_planes(rig->loop, &rig->serving.plane, &rig->server);
    rig->serving.loop = rig->loop;
    rig->serving.route = rig->route;
    for (size_t i = 0; i < FRONTEND_HISTOGRAMS; i++)
        ranges[i] = (struct histogram_range){1, 2, 2};
    serving_metrics_init(&rig->serving.metrics, "t", ranges);
    EXPECT_OK(explain_new(&rig->serving.explain,
                          &(struct explain_conf){.loop = rig->loop,
                                                 .records = 16,
                                                 .metrics = rig->serving.metrics.registry},
                          &e),
              &e);
    rig->serving.router = router_metrics_new(rig->serving.metrics.registry, 1);
    rig->pool = pool_new(rig->loop, &found, 0, &rig->route);
    card = (struct model_card){.kv_cache_block_size = BLOCK};
    rig->decode = pool_new(rig->loop, &found, 0, &rig->route);
    for (size_t i = 0; i < N_WORKERS; i++)
        add_worker(rig, i, bootstrap);
    for (uint32_t i = 0; i < N_TOKENS; i++)
        rig->tokens[i] = i;
    (void)block_hash_local(rig->tokens, N_TOKENS, BLOCK, rig->local);
    block_hash_sequence(rig->local, ARRAY_LEN(rig->local), rig->sequence);
}

static void rig_open(struct rig *rig, enum route_mode mode, uint32_t block_size, bool bootstrap)
{
    rig_open_cut(rig, mode, &(struct model_card){.kv_cache_block_size = block_size}, bootstrap);
}

static uint64_t booked(const struct rig *rig)
{
    struct worker_load loads[2 * N_WORKERS];
    size_t n = scheduler_loads(rig->pool->scheduler, loads, ARRAY_LEN(loads));
    uint64_t sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += loads[i].active_prefill_tokens + loads[i].active_requests;
    return sum;
}

/* Whatever happened, nothing is left. */
static void rig_close(struct rig *rig)
{
    prefill_free(rig->prefill);
    assert_int_equal(booked(rig), 0);
    LOOP_UNTIL(rig->loop, plane_server_running(rig->server) == 0);
    for (size_t i = 0; i < N_WORKERS; i++)
        arena_free(rig->fakes[i].arena);
    assert_int_equal(rig->pool->refs, 1);
    pool_unref(rig->pool);
    pool_unref(rig->decode);
    explain_free(rig->serving.explain);
    router_metrics_free(rig->serving.router);
    buf_done(&rig->answer);
    plane_client_free(rig->serving.plane);
    plane_server_free(rig->server);
    serving_metrics_done(&rig->serving.metrics);
    loop_free(rig->loop);
}

/* --- the owner ---------------------------------------------------------------------------------
 */

static void fill(void *arg, struct engine_request *ret)
{
    struct rig *rig = arg;

    *ret = (struct engine_request){.model = STR("m"),
                                   .token_ids = rig->tokens,
                                   .n_token_ids = N_TOKENS,
                                   .stop.max_tokens = OPT_U64(50)};
}

static void note(void *arg, char what)
{
    struct rig *rig = arg;

    assert_true(strlen(rig->seen) < sizeof(rig->seen) - 1);
    rig->seen[strlen(rig->seen)] = what;
}

static void on_go(void *arg)
{
    note(arg, 'g');
}

static void on_answered(void *arg, struct str item)
{
    struct rig *rig = arg;

    note(rig, 'a');
    buf_put_str(&rig->answer, item);
}

static void on_lost(void *arg)
{
    note(arg, 'l');
}

static void on_failed(void *arg)
{
    note(arg, 'f');
}

static enum prefill_state start(struct rig *rig, uint64_t pin)
{
    static const struct trace_context trace;
    struct prefill_conf conf = {.s = &rig->serving,
                                .pool = rig->pool,
                                .id = "4c1f0c0e-2b7e-4b52-9c43-0d3d6a7b8c9d",
                                .trace = &trace,
                                .label = "m",
                                .request = {.local = rig->local,
                                            .sequence = rig->sequence,
                                            .n_blocks = ARRAY_LEN(rig->local),
                                            .isl = N_TOKENS,
                                            .pinned = pin != 0,
                                            .pin.worker_id = pin,
                                            .overlap_weight = NAN,
                                            .temperature = NAN},
                                .hashed_for = rig->decode,
                                .salt = rig->salt,
                                .fill = fill,
                                .go = on_go,
                                .answered = rig->of_0_9 ? NULL : on_answered,
                                .lost = on_lost,
                                .failed = on_failed,
                                .arg = rig};

    rig->prefill = prefill_new(&conf);
    return prefill_start(rig->prefill);
}

static size_t asked(const struct rig *rig)
{
    return rig->fakes[0].n_asked + rig->fakes[1].n_asked;
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void without_a_meeting_place_the_decode_waits_for_the_params(void **state)
{
    struct engine_request decode = {.has_routing = false};
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, BLOCK, false);
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    assert_int_equal(booked(&rig), N_TOKENS + 1);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    assert_string_equal(rig.seen, "g");
    assert_int_equal(prefill_state(rig.prefill), PREFILL_READY);
    assert_int_equal(booked(&rig), 0);

    const struct worker_rank *at = &prefill_chosen(rig.prefill)->worker;
    const struct engine_request *asked_for = &rig.fakes[at->worker_id - 1].asked;

    assert_int_equal(asked_for->stop.max_tokens.v, 1);
    assert_int_equal(asked_for->routing.prefill_worker_id.v, at->worker_id);
    assert_true(asked_for->routing.dp_rank.set);
    assert_int_equal(asked_for->routing.dp_rank.v, at->dp_rank);
    assert_false(asked_for->has_bootstrap);

    prefill_fill_decode(rig.prefill, false, &decode);
    assert_true(decode.has_override && decode.overlap_score_weight.set);
    assert_false(decode.overlap_score_credit.set);
    assert_int_equal(decode.routing.prefill_worker_id.v, at->worker_id);
    assert_true(decode.has_routing && !decode.routing.prefill_dp_rank.set);
    assert_false(decode.has_bootstrap);
    assert_true(str_is(decode.prefill_result_json,
                       "{\"disaggregated_params\":{\"kv_transfer_params\":{\"block\":1}},"
                       "\"prompt_tokens_details\":{\"cached_tokens\":8}}"));
    rig_close(&rig);
}

static void a_worker_that_fails_hands_over_to_the_next(void **state)
{
    static const enum script ways[] = {REFUSE, BREAK, ERROR_ITEM};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct rig rig;

        rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, false);
        rig.fakes[0].script = ways[i];
        assert_int_equal(start(&rig, 0), PREFILL_WAITING);
        LOOP_UNTIL(rig.loop, rig.seen[0]);
        assert_string_equal(rig.seen, "g");
        assert_int_equal(rig.fakes[0].n_asked, 1);
        assert_int_equal(prefill_chosen(rig.prefill)->worker.worker_id, 2);
        rig_close(&rig);
    }
}

static void when_all_have_failed_the_owner_is_told(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, false);
    rig.fakes[0].script = rig.fakes[1].script = REFUSE;
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    assert_string_equal(rig.seen, "f");
    assert_int_equal(prefill_state(rig.prefill), PREFILL_FAILED);
    assert_string_equal(prefill_reason(rig.prefill), "engine");
    assert_int_equal(asked(&rig), 2);
    rig_close(&rig);
}

static void a_worker_without_params_is_a_failure_at_once(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, BLOCK, false);
    rig.fakes[0].script = rig.fakes[1].script = NO_PARAMS;
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    assert_string_equal(rig.seen, "f");
    assert_string_equal(prefill_reason(rig.prefill), "no_disaggregated_params");
    assert_int_equal(asked(&rig), 1);
    rig_close(&rig);
}

/* @what is seen of workers that do as @script says. */
static void sees(enum script script, bool bootstrap, bool of_0_9, const char *what)
{
    struct engine_output_reader reader = {.ids = NULL};
    struct engine_output o;
    struct rig rig;
    struct err e;

    rig_open(&rig, ROUTE_KV, BLOCK, bootstrap);
    rig.of_0_9 = of_0_9;
    rig.fakes[0].script = rig.fakes[1].script = script;
    (void)start(&rig, 0);
    LOOP_UNTIL(rig.loop, prefill_state(rig.prefill) == PREFILL_READY || strchr(rig.seen, 'f'));
    assert_string_equal(rig.seen, what);
    assert_int_equal(asked(&rig), 1);
    if (*what == 'a') {
        EXPECT_OK(engine_output_parse(&reader, buf_str(&rig.answer), &o, &e), &e);
        assert_int_equal(o.finish, FINISH_STOP);
        assert_int_equal(o.n_token_ids, 1);
        engine_output_reader_done(&reader);
    }
    rig_close(&rig);
}

static void an_end_that_a_prefill_finds_is_the_answer(void **state)
{
    (void)state;
    sees(STOP, false, false, "a");
    sees(STOP_AND_BREAK, false, false, "a");
    sees(STOP_LATE, false, false, "g"); /* it was asked for one token */
    sees(ANSWER, false, false, "g");
    sees(STOP, true, false, "");  /* the decode is under way */
    sees(STOP, false, true, "f"); /* as without params */
}

static void with_a_meeting_place_both_are_told_the_room(void **state)
{
    struct engine_request decode = {.has_routing = false};
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, BLOCK, true);
    assert_int_equal(start(&rig, 2), PREFILL_AHEAD);
    prefill_fill_decode(rig.prefill, true, &decode);
    assert_true(decode.routing.prefill_dp_rank.set && decode.routing.prefill_dp_rank.v == 0);
    assert_true(decode.has_override && decode.overlap_score_credit.set);
    assert_true(decode.assume_kv_reuse.set && !decode.assume_kv_reuse.v);
    assert_true(decode.track_prefill_tokens.set && !decode.overlap_score_weight.set);
    assert_true(decode.has_bootstrap && str_is(decode.bootstrap.host, "192.0.2.1"));
    assert_int_equal(decode.bootstrap.port, 18501);
    assert_int_equal(decode.bootstrap.room % 2, 0); /* the pin names rank 0 of 2 */
    LOOP_UNTIL(rig.loop, prefill_state(rig.prefill) == PREFILL_READY);
    assert_string_equal(rig.seen, "");
    assert_true(rig.fakes[1].asked.has_bootstrap);
    assert_int_equal(rig.fakes[1].asked.bootstrap.room, decode.bootstrap.room);
    rig_close(&rig);
}

static void a_prompt_that_will_not_come_ends_the_decode_that_waits(void **state)
{
    struct engine_request before = {.has_routing = false}, after = before;
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, true);
    rig.fakes[0].script = BREAK;
    assert_int_equal(start(&rig, 0), PREFILL_AHEAD);
    prefill_fill_decode(rig.prefill, true, &before);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    assert_string_equal(rig.seen, "lg");
    prefill_fill_decode(rig.prefill, true, &after);
    assert_true(before.bootstrap.room != after.bootstrap.room);
    LOOP_UNTIL(rig.loop, prefill_state(rig.prefill) == PREFILL_READY);
    assert_string_equal(rig.seen, "lg");
    rig_close(&rig);

    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, true);
    rig.fakes[0].script = rig.fakes[1].script = ERROR_ITEM;
    assert_int_equal(start(&rig, 0), PREFILL_AHEAD);
    LOOP_UNTIL(rig.loop, strchr(rig.seen, 'f'));
    assert_string_equal(rig.seen, "lglf");
    rig_close(&rig);
}

static void a_decode_worker_that_gets_no_prompt_asks_for_another(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, true);
    rig.fakes[0].script = HANG;
    assert_int_equal(start(&rig, 0), PREFILL_AHEAD);
    LOOP_UNTIL(rig.loop, rig.fakes[0].held);
    prefill_refused(rig.prefill);
    assert_string_equal(rig.seen, "lg");
    LOOP_UNTIL(rig.loop,
               rig.fakes[0].n_cancelled == 1 && prefill_state(rig.prefill) == PREFILL_READY);
    assert_int_equal(rig.fakes[1].n_asked, 1);
    /* It said good-bye, and died before its blocks were fetched; the first one works again. */
    rig.fakes[0].script = ANSWER;
    prefill_refused(rig.prefill);
    assert_string_equal(rig.seen, "lglf"); /* both had their turn */
    rig_close(&rig);

    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, false);
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    prefill_refused(rig.prefill);
    assert_string_equal(rig.seen, "gl");
    LOOP_UNTIL(rig.loop, rig.seen[2]);
    assert_string_equal(rig.seen, "glg");
    assert_int_equal(asked(&rig), 2);
    rig_close(&rig);
}

static void once_the_prompt_has_arrived_nothing_matters(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_ROUND_ROBIN, BLOCK, true);
    rig.fakes[0].script = HANG;
    assert_int_equal(start(&rig, 0), PREFILL_AHEAD);
    LOOP_UNTIL(rig.loop, rig.fakes[0].held);
    prefill_delivered(rig.prefill);
    assert_int_equal(booked(&rig),
                     1); /* the request is there until its stream ends, its prompt not */
    plane_request_abort(TAKE(rig.fakes[0].held));
    LOOP_UNTIL(rig.loop, prefill_state(rig.prefill) == PREFILL_READY);
    assert_string_equal(rig.seen, "");
    assert_int_equal(asked(&rig), 1);
    rig_close(&rig);
}

static void a_request_that_ends_ends_its_prefill(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, BLOCK, false);
    rig.fakes[0].script = rig.fakes[1].script = HANG;
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    LOOP_UNTIL(rig.loop, rig.fakes[0].held || rig.fakes[1].held);
    assert_int_equal(booked(&rig), N_TOKENS + 1);
    rig.prefill = prefill_free(rig.prefill);
    assert_int_equal(booked(&rig), 0);
    LOOP_UNTIL(rig.loop, rig.fakes[0].n_cancelled + rig.fakes[1].n_cancelled == 1);
    rig_close(&rig);
}

static void nobody_to_ask_is_said_at_once(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, BLOCK, true);
    assert_int_equal(start(&rig, 99), PREFILL_FAILED);
    assert_string_equal(prefill_reason(rig.prefill), "no_such_pin");
    prefill_free(rig.prefill);
    pool_remove_worker(rig.pool, 1);
    pool_remove_worker(rig.pool, 2);
    assert_int_equal(start(&rig, 0), PREFILL_FAILED);
    assert_string_equal(prefill_reason(rig.prefill), "no_workers");
    assert_int_equal(asked(&rig), 0);
    rig_close(&rig);
}

/* Blocks of 8 here, of 4 there: what is cached is found by the prefill worker's. */
static void the_prompt_is_cut_as_the_prefill_worker_does(void **state)
{
    uint64_t local[2];
    struct prefix_block blocks[2];
    struct rig rig;

    (void)state;
    rig_open(&rig, ROUTE_KV, 8, false);
    assert_int_equal(block_hash_local(rig.tokens, N_TOKENS, 8, local), 2);
    for (size_t i = 0; i < 2; i++)
        blocks[i] = (struct prefix_block){100 + i, local[i]};
    assert_int_equal(
        scheduler_store(rig.pool->scheduler, (struct worker_rank){2, 1}, NULL, blocks, 2), 0);
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    assert_int_equal(prefill_chosen(rig.prefill)->worker.worker_id, 2);
    assert_int_equal(prefill_chosen(rig.prefill)->worker.dp_rank, 1);
    assert_int_equal(prefill_chosen(rig.prefill)->overlap_blocks, 2);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    assert_int_equal(rig.fakes[1].asked.routing.dp_rank.v, 1);
    rig_close(&rig);
}

static void a_salt_is_part_of_the_cut(void **state)
{
    uint64_t local[2];
    struct prefix_block blocks[2];
    struct rig rig;

    (void)state;
    for (int salted = 0; salted < 2; salted++) {
        rig_open(&rig, ROUTE_KV, 8, false);
        rig.salt = salted ? STR("t") : STR("other");
        (void)block_hash_local_seeded(block_hash_seed(STR_NULL, STR("t")), rig.tokens, N_TOKENS, 8,
                                      local);
        for (size_t i = 0; i < 2; i++)
            blocks[i] = (struct prefix_block){100 + i, local[i]};
        assert_int_equal(
            scheduler_store(rig.pool->scheduler, (struct worker_rank){2, 1}, NULL, blocks, 2), 0);
        assert_int_equal(start(&rig, 0), PREFILL_WAITING);
        assert_int_equal(prefill_chosen(rig.prefill)->overlap_blocks, salted ? 2 : 0);
        LOOP_UNTIL(rig.loop, rig.seen[0]);
        rig_close(&rig);
    }
}

static void engines_that_draft_ahead_hash_one_token_more(void **state)
{
    static const struct model_card cut = {.kv_cache_block_size = BLOCK, .eagle = true};
    uint64_t local[N_TOKENS / BLOCK];
    struct prefix_block blocks[N_TOKENS / BLOCK];
    struct rig rig;
    size_t n;

    (void)state;
    rig_open_cut(&rig, ROUTE_KV, &cut, false);
    n = block_hash_local_eagle(rig.tokens, N_TOKENS, BLOCK, local);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++)
        blocks[i] = (struct prefix_block){100 + i, local[i]};
    assert_int_equal(
        scheduler_store(rig.pool->scheduler, (struct worker_rank){1, 0}, NULL, blocks, n), 0);
    assert_int_equal(start(&rig, 0), PREFILL_WAITING);
    assert_int_equal(prefill_chosen(rig.prefill)->overlap_blocks, 4);
    LOOP_UNTIL(rig.loop, rig.seen[0]);
    rig_close(&rig);
}

static void a_room_names_its_rank(void **state)
{
    static const uint64_t randoms[] = {0, 1, 12345678901234567890u, UINT64_MAX};

    (void)state;
    for (uint32_t size = 1; size < 20; size++)
        for (uint32_t rank = 0; rank < size; rank++)
            for (size_t i = 0; i < ARRAY_LEN(randoms); i++) {
                uint64_t room = prefill_room(randoms[i], rank, size);

                assert_int_equal(room % size, rank);
                assert_true(room <= INT64_MAX);
            }
}

int main(void)
{
    return TEST_RUN(T(without_a_meeting_place_the_decode_waits_for_the_params),
                    T(a_worker_that_fails_hands_over_to_the_next),
                    T(when_all_have_failed_the_owner_is_told),
                    T(a_worker_without_params_is_a_failure_at_once),
                    T(an_end_that_a_prefill_finds_is_the_answer),
                    T(with_a_meeting_place_both_are_told_the_room),
                    T(a_prompt_that_will_not_come_ends_the_decode_that_waits),
                    T(a_decode_worker_that_gets_no_prompt_asks_for_another),
                    T(once_the_prompt_has_arrived_nothing_matters),
                    T(a_request_that_ends_ends_its_prefill), T(nobody_to_ask_is_said_at_once),
                    T(a_salt_is_part_of_the_cut), T(the_prompt_is_cut_as_the_prefill_worker_does),
                    T(engines_that_draft_ahead_hash_one_token_more), T(a_room_names_its_rank));
}
