/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface against workers that stand in a folder: they are chosen, never asked.
 */
#include "router/epp/llm_capi.h"
#include "router/epp/llm_folder_test.h"

struct rig {
    struct folder folder;
    RouterHandles *router;
};

typedef query_router_result_t (*asked)(struct rig *rig, const char *pods, CRoutingResult *ret);

static query_router_result_t ask_prefill(struct rig *rig, const char *pods, CRoutingResult *ret)
{
    return route_prefill_request(rig->router, CHAT("hello"), pods, ret);
}

static query_router_result_t ask_decode(struct rig *rig, const char *pods, CRoutingResult *ret)
{
    return route_decode_request(rig->router, CHAT("hello"), pods, true, ret);
}

/* A router is ready with its first worker; the others come as their files are read. */
static void wait_for(struct rig *rig, const char *pod, asked ask)
{
    uint64_t give_up = clock_now_ns() + WAIT_MS * UINT64_C(1000000);
    AUTO(mem_free) char *pods = xasprintf("[{\"podName\":\"%s\"}]", pod);
    CRoutingResult res = {.token_ids = NULL};

    while (ask(rig, pods, &res) != QUERY_ROUTER_OK)
        assert_true(clock_now_ns() < give_up);
    free_routing_result(&res);
}

static void rig_up(struct rig *rig, bool prefill, bool enforce)
{
    rig->folder = (struct folder){.empty = false};
    workers_start(&rig->folder, prefill);
    assert_int_equal(create_routers("graph", NULL, enforce, &rig->router), QUERY_ROUTER_OK);
    assert_non_null(rig->router);
    wait_for(rig, "pod-a", ask_decode);
    wait_for(rig, "pod-b", ask_decode);
    wait_for(rig, "pod-c", ask_decode);
    if (prefill)
        wait_for(rig, "pod-p", ask_prefill);
}

static void rig_down(struct rig *rig)
{
    destroy(rig->router);
    workers_stop(&rig->folder);
}

/* The worker that would answer. */
static uint64_t decode(struct rig *rig, const char *request, const char *pods)
{
    CRoutingResult res;

    assert_int_equal(route_decode_request(rig->router, request, pods, false, &res),
                     QUERY_ROUTER_OK);
    assert_true(res.token_count > 0 && res.token_ids);
    assert_false(res.is_disaggregated);
    assert_int_equal(res.prefill_worker_id, 0);
    assert_int_equal(res.decode_dp_rank, 0);
    free_routing_result(&res);
    assert_null(res.token_ids);
    free_routing_result(&res);
    return res.decode_worker_id;
}

static void test_choice(void **state)
{
    struct rig rig;
    uint64_t id;

    (void)state;
    rig_up(&rig, false, false);
    id = decode(&rig, CHAT("hello"), NULL);
    assert_true(id == id_of("pod-a") || id == id_of("pod-b") || id == id_of("pod-c"));
    for (int i = 0; i < 8; i++)
        assert_true(decode(&rig, CHAT("hello"), ONLY_A) == id_of("pod-a"));
    assert_true(decode(&rig, CHAT("hello"), "") != 0);
    rig_down(&rig);
}

/* Books the same prompt on the worker, which then is not the one to choose, until it ends. */
static void book_and_end(struct rig *rig, const char *pod, const char *other)
{
    CRoutingResult res;

    assert_int_equal(route_decode_request(rig->router, LONG("x"), A_AND_B, false, &res),
                     QUERY_ROUTER_OK);
    assert_int_equal(add_request(rig->router, "r1", res.token_ids, res.token_count, id_of(pod), 0),
                     QUERY_ROUTER_OK);
    assert_true(decode(rig, LONG("y"), A_AND_B) == id_of(other));
    /* The id is taken: the second counts for nothing. */
    assert_int_equal(
        add_request(rig->router, "r1", res.token_ids, res.token_count, id_of(other), 0),
        QUERY_ROUTER_OK);
    assert_true(decode(rig, LONG("y"), A_AND_B) == id_of(other));
    assert_int_equal(mark_prefill_complete(rig->router, "r1"), QUERY_ROUTER_OK);
    assert_true(decode(rig, LONG("y"), A_AND_B) == id_of(other)); /* its blocks still are there */
    assert_int_equal(free_request(rig->router, "r1"), QUERY_ROUTER_OK);
    free_routing_result(&res);
}

static void test_account(void **state)
{
    struct rig rig;

    (void)state;
    rig_up(&rig, false, false);
    book_and_end(&rig, "pod-a", "pod-b");
    book_and_end(&rig, "pod-b", "pod-a"); /* so nothing of the first is left */
    assert_int_equal(mark_prefill_complete(rig.router, "nobody"), QUERY_ROUTER_OK);
    assert_int_equal(free_request(rig.router, "nobody"), QUERY_ROUTER_OK);
    assert_int_equal(add_request(rig.router, "r2", NULL, 0, 4711, 0), QUERY_ROUTER_OK);
    /* What is booked when it ends is given back with it. */
    assert_int_equal(add_request(rig.router, "r3", (uint32_t[]){1, 2}, 2, id_of("pod-a"), 0),
                     QUERY_ROUTER_OK);
    rig_down(&rig);
}

static void test_prefill(void **state)
{
    struct rig rig;
    CRoutingResult res;

    (void)state;
    rig_up(&rig, true, true);
    assert_int_equal(route_prefill_request(rig.router, CHAT("hello"), NULL, &res), QUERY_ROUTER_OK);
    assert_true(res.is_disaggregated);
    assert_true(res.prefill_worker_id == id_of("pod-p"));
    assert_int_equal(res.decode_worker_id, 0);
    free_routing_result(&res);
    assert_int_equal(route_decode_request(rig.router, CHAT("hello"), ONLY_A, true, &res),
                     QUERY_ROUTER_OK);
    assert_true(res.is_disaggregated);
    assert_true(res.decode_worker_id == id_of("pod-a"));
    free_routing_result(&res);
    assert_int_equal(route_decode_request(rig.router, CHAT("hello"), NULL, false, &res),
                     QUERY_ROUTER_ERR_DISAGG_ENFORCED);
    rig_down(&rig);
}

static void test_refusals(void **state)
{
    static const char *const wrong[] = {"", "{", "[]", "{\"model\":\"m\"}", "{\"prompt\":\"x\"}"};
    CRoutingResult res = {.token_count = 7};
    RouterHandles *none = NULL;
    struct rig rig;

    (void)state;
    rig_up(&rig, false, false);
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_int_equal(route_decode_request(rig.router, wrong[i], NULL, false, &res),
                         QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(
        route_decode_request(rig.router, CHAT("x"), "[{\"podName\":\"pod-z\"}]", false, &res),
        QUERY_ROUTER_ERR_QUERY_FAILED);
    assert_int_equal(route_prefill_request(rig.router, CHAT("x"), NULL, &res),
                     QUERY_ROUTER_ERR_QUERY_FAILED);
    assert_int_equal(res.token_count, 7); /* untouched */
    assert_int_equal(route_decode_request(NULL, CHAT("x"), NULL, false, &res),
                     QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(route_prefill_request(rig.router, NULL, NULL, &res),
                     QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(add_request(rig.router, NULL, NULL, 0, 1, 0), QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(mark_prefill_complete(NULL, "x"), QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(free_request(NULL, "x"), QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(create_routers(NULL, NULL, false, &none), QUERY_ROUTER_ERR_INVALID_PARAM);
    assert_int_equal(create_routers("graph", NULL, false, NULL), QUERY_ROUTER_ERR_INVALID_PARAM);
    set("DYN_ROUTER_TEMPERATURE", "warm");
    assert_int_equal(create_routers("graph", NULL, false, &none), QUERY_ROUTER_ERR_INIT_FAILED);
    assert_int_equal(unsetenv("DYN_ROUTER_TEMPERATURE"), 0);
    assert_null(none);
    destroy(NULL);
    free_routing_result(NULL);
    rig_down(&rig);
}

enum { CALLERS = 4, REQUESTS = 20 };

struct caller {
    struct rig *rig;
    int number;
    unsigned failures;
    pthread_t thread;
};

/* Failures are counted: asserting is for the test's own thread. */
static void *call(void *arg)
{
    struct caller *c = arg;
    char id[32];

    for (int i = 0; i < REQUESTS; i++) {
        CRoutingResult res = {.token_count = 0};

        (void)snprintf(id, sizeof(id), "r-%d-%d", c->number, i);
        c->failures += route_decode_request(c->rig->router, LONG("hello"), NULL, false, &res) != 0;
        c->failures += add_request(c->rig->router, id, res.token_ids, res.token_count,
                                   res.decode_worker_id, res.decode_dp_rank) != 0;
        c->failures += mark_prefill_complete(c->rig->router, id) != 0;
        c->failures += free_request(c->rig->router, id) != 0;
        free_routing_result(&res);
    }
    return NULL;
}

static void test_many_callers(void **state)
{
    struct caller callers[CALLERS];
    struct rig rig;

    (void)state;
    rig_up(&rig, false, false);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.rig = &rig, .number = i};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        (void)pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].failures, 0);
    }
    rig_down(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_choice), T(test_account), T(test_prefill), T(test_refusals),
                    T(test_many_callers));
}
