/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of 0.9.0 against workers that stand in a folder.
 */
#include "router/epp/llm_pipeline.h"
#include "router/epp/llm_folder_test.h"

#include "lib/base/json_pull.h"

struct rig {
    struct folder folder;
    WorkerSelectionPipeline *pipeline;
};

struct answer {
    int64_t decode, prefill;
    uint32_t *tokens;
    size_t n_tokens;
    char *text;
};

static dynamo_llm_result_t create(struct rig *rig, bool kv, bool enforce)
{
    return dynamo_create_worker_selection_pipeline("graph", NULL, "example", kv, -1, -1, -1, false,
                                                   false, enforce, &rig->pipeline);
}

static dynamo_llm_result_t ask(struct rig *rig, const char *request, struct answer *ret)
{
    return dynamo_query_worker_selection_and_annotate(rig->pipeline, request, &ret->decode,
                                                      &ret->prefill, &ret->tokens, &ret->n_tokens,
                                                      &ret->text);
}

static void answer_free(struct answer *a)
{
    assert_int_equal(dynamo_free_worker_selection_result(a->tokens, a->n_tokens, a->text),
                     DYNAMO_LLM_OK);
}

static struct answer asked(struct rig *rig, const char *request)
{
    struct answer a;

    assert_int_equal(ask(rig, request, &a), DYNAMO_LLM_OK);
    assert_true(a.n_tokens > 0 && a.tokens && a.text);
    return a;
}

/* All are known when choices at random, of an empty cluster, have found each. */
static void wait_for_all(struct rig *rig, bool prefill)
{
    uint64_t give_up = clock_now_ns() + WAIT_MS * UINT64_C(1000000);
    bool a = false, b = false, c = false, p = !prefill;

    while (!a || !b || !c || !p) {
        struct answer one = asked(rig, CHAT("hello"));

        a = a || (uint64_t)one.decode == id_of("pod-a");
        b = b || (uint64_t)one.decode == id_of("pod-b");
        c = c || (uint64_t)one.decode == id_of("pod-c");
        p = p || (uint64_t)one.prefill == id_of("pod-p");
        answer_free(&one);
        assert_true(clock_now_ns() < give_up);
    }
}

static void rig_up(struct rig *rig, bool kv, bool prefill, bool enforce)
{
    rig->folder = (struct folder){.empty = false};
    workers_start(&rig->folder, prefill);
    set("DYN_EVENT_PLANE", "zmq");
    assert_int_equal(dynamo_llm_init("graph-1234", "backend", BLOCK), DYNAMO_LLM_OK);
    assert_int_equal(create(rig, kv, enforce), DYNAMO_LLM_OK);
    wait_for_all(rig, prefill);
}

static void rig_down(struct rig *rig)
{
    assert_int_equal(dynamo_destroy_worker_selection_pipeline(rig->pipeline), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_llm_shutdown(), DYNAMO_LLM_OK);
    workers_stop(&rig->folder);
}

/* Of the annotated request. */
static uint64_t told(const struct answer *a, const char *key)
{
    struct str value = json_pull_member(json_pull_member(str_from(a->text), "nvext"), key);
    uint64_t number;

    if (!value.len)
        return 0;
    assert_true(str_parse_u64(value, &number));
    return number;
}

static void test_alone(void **state)
{
    struct rig rig;
    struct answer a;

    (void)state;
    rig_up(&rig, true, false, false);
    a = asked(&rig, CHAT("hello"));
    assert_true(a.prefill == a.decode);
    assert_true(told(&a, "backend_instance_id") == (uint64_t)a.decode);
    assert_true(told(&a, "prefill_worker_id") == 0 && told(&a, "decode_worker_id") == 0);
    answer_free(&a);
    rig_down(&rig);
}

static void test_apart(void **state)
{
    struct rig rig;
    struct answer a;

    (void)state;
    rig_up(&rig, true, true, true);
    a = asked(&rig, CHAT("hello"));
    assert_true((uint64_t)a.prefill == id_of("pod-p"));
    assert_true(a.prefill != a.decode);
    assert_true(told(&a, "prefill_worker_id") == id_of("pod-p"));
    assert_true(told(&a, "decode_worker_id") == (uint64_t)a.decode);
    assert_true(told(&a, "backend_instance_id") == 0);
    answer_free(&a);
    rig_down(&rig);
}

static void expect_other_than(struct rig *rig, int64_t worker)
{
    for (int i = 0; i < 8; i++) {
        struct answer a = asked(rig, LONG("y"));

        assert_true(a.decode != worker);
        answer_free(&a);
    }
}

static void test_account(void **state)
{
    struct answer a, b;
    struct rig rig;
    int64_t first;

    (void)state;
    rig_up(&rig, true, false, false);
    a = asked(&rig, LONG("x"));
    first = a.decode;
    assert_int_equal(
        dynamo_router_add_request(rig.pipeline, "r", a.tokens, a.n_tokens, (uint64_t)a.decode, 0),
        DYNAMO_LLM_OK);
    expect_other_than(&rig, a.decode);
    assert_int_equal(dynamo_router_mark_prefill_complete(rig.pipeline, "r"), DYNAMO_LLM_OK);
    expect_other_than(&rig, a.decode); /* its blocks still are there */
    assert_int_equal(dynamo_router_free_request(rig.pipeline, "r"), DYNAMO_LLM_OK);
    answer_free(&a);
    b = asked(&rig, LONG("x"));
    assert_true(b.decode == first); /* nothing is left but what its cache holds */
    answer_free(&b);
    /* What nobody knows of is for the log. */
    assert_int_equal(dynamo_router_add_request(rig.pipeline, "s", NULL, 0, 4711, 0), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_router_mark_prefill_complete(rig.pipeline, "s"), DYNAMO_LLM_OK);
    assert_int_equal(dynamo_router_free_request(rig.pipeline, "s"), DYNAMO_LLM_OK);
    rig_down(&rig);
}

static void test_turns(void **state)
{
    struct rig rig;
    struct answer a, b;

    (void)state;
    rig_up(&rig, false, false, false);
    a = asked(&rig, CHAT("hello"));
    b = asked(&rig, CHAT("hello"));
    assert_true(a.prefill == -1 && a.decode != b.decode);
    assert_true(told(&a, "backend_instance_id") == (uint64_t)a.decode);
    assert_int_equal(dynamo_router_add_request(rig.pipeline, "r", a.tokens, a.n_tokens, 4711, 0),
                     DYNAMO_LLM_OK);
    answer_free(&a);
    answer_free(&b);
    rig_down(&rig);
}

static void expect_untouched(struct rig *rig, const char *request)
{
    struct answer a = {.decode = 7, .prefill = 8, .n_tokens = 9};

    assert_int_equal(ask(rig, request, &a), DYNAMO_LLM_ERR);
    assert_true(a.decode == 7 && a.prefill == 8 && a.n_tokens == 9 && !a.tokens && !a.text);
}

static void test_refusals(void **state)
{
    WorkerSelectionPipeline *none = NULL;
    struct rig rig, early = {.pipeline = NULL};

    (void)state;
    assert_int_equal(create(&early, true, false), DYNAMO_LLM_ERR); /* before dynamo_llm_init() */
    assert_null(early.pipeline);
    rig_up(&rig, true, false, false);
    expect_untouched(&rig, "{");
    expect_untouched(&rig, "{\"model\":\"m\",\"prompt\":\"x\"}");
    assert_int_equal(dynamo_create_worker_selection_pipeline("graph", NULL, "example", true, -1, -1,
                                                             1e9, false, false, false, &none),
                     DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_create_worker_selection_pipeline("graph", NULL, NULL, true, -1, -1, -1,
                                                             false, false, false, &none),
                     DYNAMO_LLM_ERR);
    assert_null(none);
    assert_int_equal(dynamo_router_add_request(NULL, "x", NULL, 0, 1, 0), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_router_mark_prefill_complete(rig.pipeline, NULL), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_router_free_request(NULL, "x"), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_destroy_worker_selection_pipeline(NULL), DYNAMO_LLM_ERR);
    assert_int_equal(dynamo_free_worker_selection_result(NULL, 0, NULL), DYNAMO_LLM_OK);
    rig_down(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_alone), T(test_apart), T(test_account), T(test_turns), T(test_refusals));
}
