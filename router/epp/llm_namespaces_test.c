/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C interface of the generation with cache namespaces: what differs from the one before.
 */
#define LLM_CAPI_GENERATION 3
/* Built here as that generation: the archive has another. */
#include "router/epp/llm_capi.c"

#include "router/epp/llm_folder_test.h"

#define SALTED(salt)                                                                               \
    "{\"model\":\"default\",\"cache_salt\":\"" salt "\",\"messages\":[{\"role\":\"user\","         \
    "\"content\":\"" WORDS8("a") WORDS8("b") WORDS8("c") WORDS8("d") WORDS8("e") "\"}]}"

struct rig {
    struct folder folder;
    RouterHandles *router;
};

static void rig_up(struct rig *rig)
{
    rig->folder = (struct folder){.empty = false};
    workers_start(&rig->folder, false);
    assert_int_equal(create_routers("graph", NULL, false, &rig->router), QUERY_ROUTER_OK);
}

static void rig_down(struct rig *rig)
{
    destroy(rig->router);
    workers_stop(&rig->folder);
}

static void test_salt_is_told(void **state)
{
    CRoutingResult res;
    struct rig rig;

    (void)state;
    rig_up(&rig);
    assert_int_equal(route_decode_request(rig.router, SALTED("tenant-7"), NULL, false, &res),
                     QUERY_ROUTER_OK);
    assert_int_equal(res.cache_namespace_len, strlen("tenant-7"));
    assert_string_equal(res.cache_namespace, "tenant-7");
    assert_int_equal(add_request_with_cache_namespace(rig.router, "r", res.token_ids,
                                                      res.token_count, res.decode_worker_id, 0,
                                                      res.cache_namespace, res.cache_namespace_len),
                     QUERY_ROUTER_OK);
    assert_int_equal(mark_prefill_complete(rig.router, "r"), QUERY_ROUTER_OK);
    assert_int_equal(free_request(rig.router, "r"), QUERY_ROUTER_OK);
    free_routing_result(&res);
    assert_true(!res.cache_namespace && res.cache_namespace_len == 0);
    free_routing_result(&res);
    rig_down(&rig);
}

static void test_none(void **state)
{
    CRoutingResult res;
    struct rig rig;

    (void)state;
    rig_up(&rig);
    assert_int_equal(route_decode_request(rig.router, CHAT("x"), NULL, false, &res),
                     QUERY_ROUTER_OK);
    assert_true(!res.cache_namespace && res.cache_namespace_len == 0);
    assert_int_equal(add_request_with_cache_namespace(rig.router, "r", res.token_ids,
                                                      res.token_count, res.decode_worker_id, 0,
                                                      NULL, 0),
                     QUERY_ROUTER_OK);
    assert_int_equal(add_request_with_cache_namespace(rig.router, "s", NULL, 0, 1, 0, "\xff", 1),
                     QUERY_ROUTER_ERR_INVALID_PARAM);
    free_routing_result(&res);
    rig_down(&rig);
}

static uint64_t chosen(struct rig *rig, const char *request)
{
    CRoutingResult res;
    uint64_t id;

    assert_int_equal(route_decode_request(rig->router, request, A_AND_B, false, &res),
                     QUERY_ROUTER_OK);
    id = res.decode_worker_id;
    free_routing_result(&res);
    return id;
}

static void wait_for_choice(struct rig *rig, const char *request, uint64_t id)
{
    uint64_t give_up = clock_now_ns() + WAIT_MS * UINT64_C(1000000);

    while (chosen(rig, request) != id)
        assert_true(clock_now_ns() < give_up);
}

/* Where it was is where its blocks are taken to be: for whoever has its namespace. */
static void test_blocks_of_a_namespace(void **state)
{
    CRoutingResult res;
    struct rig rig;

    (void)state;
    rig_up(&rig);
    wait_for_choice(&rig, SALTED("tenant-7"), id_of("pod-a"));
    wait_for_choice(&rig, SALTED("tenant-7"), id_of("pod-b"));
    assert_int_equal(route_decode_request(rig.router, SALTED("tenant-7"), ONLY_A, false, &res),
                     QUERY_ROUTER_OK);
    assert_int_equal(add_request_with_cache_namespace(rig.router, "r", res.token_ids,
                                                      res.token_count, res.decode_worker_id, 0,
                                                      res.cache_namespace, res.cache_namespace_len),
                     QUERY_ROUTER_OK);
    assert_int_equal(free_request(rig.router, "r"), QUERY_ROUTER_OK);
    for (int i = 0; i < 16; i++)
        assert_true(chosen(&rig, SALTED("tenant-7")) == id_of("pod-a"));
    wait_for_choice(&rig, SALTED("tenant-8"), id_of("pod-b"));
    free_routing_result(&res);
    rig_down(&rig);
}

int main(void)
{
    return TEST_RUN(T(test_salt_is_told), T(test_none), T(test_blocks_of_a_namespace));
}
