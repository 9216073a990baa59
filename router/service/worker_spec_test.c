/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/worker_spec.h"

#include <errno.h>

#include "lib/base/test.h"

static void join(void *arg, const char *reason)
{
    buf_printf(arg, "%s; ", reason);
}

static void expect_missing(const char *json, const char *expected)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct worker_spec w;
    struct err e;

    EXPECT_OK(worker_spec_parse(a, str_from(json), &w, &e), &e);
    (void)worker_spec_missing(&w, (struct worker_needs){.events = true}, join, &out);
    assert_string_equal(buf_cstr(&out), expected);
}

/* The words are those of ai-dynamo 1.6.1. */
static void test_says_what_is_missing(void **state)
{
    (void)state;
    expect_missing("{\"worker_id\":3}", "endpoint is required; block_size must be greater than 0; "
                                        "kv_events endpoint is required for dp_rank 0; ");
    expect_missing("{\"worker_id\":1,\"endpoint\":\"http://a\",\"block_size\":4,"
                   "\"kv_events_endpoint\":\"tcp://a:1\"}",
                   "");
    expect_missing(
        "{\"worker_id\":1,\"endpoint\":\"http://a\",\"block_size\":4,"
        "\"data_parallel_start_rank\":1,\"data_parallel_size\":2,"
        "\"kv_events_endpoints\":{\"1\":\"tcp://a:1\"},\"replay_endpoint\":\"tcp://b:1\"}",
        "kv_events endpoint is required for dp_rank 2; "
        "replay_endpoint is supported only for data_parallel_size 1; ");
    expect_missing("{\"worker_id\":1,\"endpoint\":\"http://a\",\"block_size\":4,"
                   "\"data_parallel_size\":4294967295,\"data_parallel_start_rank\":1}",
                   "data_parallel_size must be between 1 and 1024; ");
}

static void test_needs_no_events_where_none_are_followed(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct buf out = BUF_NULL;
    struct worker_spec w;
    struct err e;

    (void)state;
    EXPECT_OK(worker_spec_parse(
                  a, STR("{\"worker_id\":1,\"endpoint\":\"http://a\",\"block_size\":4}"), &w, &e),
              &e);
    assert_int_equal(worker_spec_missing(&w, (struct worker_needs){.events = true}, join, &out), 1);
    assert_int_equal(worker_spec_missing(&w, (struct worker_needs){.events = false}, join, &out),
                     0);
    buf_done(&out);
}

static void test_says_its_size_where_requests_wait(void **state)
{
    static const struct worker_needs needs = {.capacity = true};
    AUTO(arena_free) struct arena *a = arena_new();
    struct buf out = BUF_NULL;
    struct worker_spec w;
    struct err e;

    (void)state;
    EXPECT_OK(worker_spec_parse(
                  a, STR("{\"worker_id\":1,\"endpoint\":\"http://a\",\"block_size\":4}"), &w, &e),
              &e);
    assert_int_equal(worker_spec_missing(&w, needs, join, &out), 1);
    assert_true(
        str_is(buf_str(&out), "max_num_batched_tokens is required while queueing is enabled; "));
    EXPECT_OK(worker_spec_patch(a, STR("{\"max_num_batched_tokens\":1}"), &w, &e), &e);
    assert_int_equal(worker_spec_missing(&w, needs, join, &out), 0);
    buf_done(&out);
}

static void test_taints_are_strings(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct str_list taints;
    struct worker_spec w;
    struct err e;

    (void)state;
    EXPECT_OK(worker_spec_parse(a, STR("{\"worker_id\":1}"), &w, &e), &e);
    assert_int_equal(worker_spec_taints(a, &w).len, 0);
    EXPECT_OK(worker_spec_patch(a, STR("{\"taints\":[\"a\",\"zone=x\"]}"), &w, &e), &e);
    taints = worker_spec_taints(a, &w);
    assert_int_equal(taints.len, 2);
    assert_true(str_is(taints.ptr[1], "zone=x"));
    assert_int_equal(worker_spec_patch(a, STR("{\"taints\":[1]}"), &w, &e), -EINVAL);
    assert_int_equal(worker_spec_taints(a, &w).len, 2);
}

static void test_tells_all_members_in_order(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct worker_spec w;
    struct err e;

    (void)state;
    EXPECT_OK(
        worker_spec_parse(a,
                          STR("{\"worker_id\":2,\"model_name\":\"m\",\"endpoint\":\"http://b\","
                              "\"block_size\":4,\"kv_events_endpoints\":{\"0\":\"tcp://b:1\"},"
                              "\"total_kv_blocks\":100,\"stable_routing_id\":\"x\"}"),
                          &w, &e),
        &e);
    json_put_object(&j);
    worker_spec_put(&j, &w, "schedulable");
    json_put_object_end(&j);
    assert_string_equal(
        buf_cstr(&out),
        "{\"worker_id\":2,\"model_name\":\"m\",\"routing_group\":\"default\",\"lifecycle\":"
        "\"schedulable\",\"endpoint\":\"http://b\",\"kv_events_endpoint\":null,"
        "\"kv_events_endpoints\":{\"0\":\"tcp://b:1\"},\"replay_endpoint\":null,\"block_size\":4,"
        "\"data_parallel_start_rank\":null,\"data_parallel_size\":null,\"max_num_batched_tokens\":"
        "null,\"total_kv_blocks\":100,\"stable_routing_id\":\"x\",\"is_eagle\":null,\"taints\":[],"
        "\"topology_domains\":{},\"kv_transfer_domain\":null,\"kv_transfer_enforcement\":null,"
        "\"kv_transfer_preferred_weight\":null}");
}

static void test_a_patch_changes_only_what_it_names(void **state)
{
    struct arena *before = arena_new(), *a = arena_new();
    struct worker_spec old, w;
    struct err e;

    (void)state;
    EXPECT_OK(worker_spec_parse(before,
                                STR("{\"worker_id\":2,\"endpoint\":\"http://b\",\"block_size\":4,"
                                    "\"taints\":[\"t\"]}"),
                                &old, &e),
              &e);
    w = worker_spec_copy(a, &old);
    arena_free(before);
    EXPECT_OK(worker_spec_patch(a, STR("{\"block_size\":8,\"bogus\":1}"), &w, &e), &e);
    assert_int_equal(w.block_size.v, 8);
    assert_true(str_is(w.endpoint, "http://b"));
    assert_true(str_is(w.taints, "[\"t\"]"));
    assert_int_equal(worker_spec_patch(a, STR("{\"block_size\":\"x\"}"), &w, &e), -EINVAL);
    assert_int_equal(w.block_size.v, 8);
    arena_free(a);
}

static void test_finds_the_events_of_a_rank(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    struct worker_spec w;
    struct err e;

    (void)state;
    EXPECT_OK(worker_spec_parse(a,
                                STR("{\"worker_id\":2,\"data_parallel_size\":2,"
                                    "\"kv_events_endpoints\":{\"0\":\"tcp://a:1\",\"x\":5,"
                                    "\"1\":\"tcp:\\/\\/a:2\"}}"),
                                &w, &e),
              &e);
    assert_true(str_is(worker_spec_events(a, &w, 0), "tcp://a:1"));
    assert_true(str_is(worker_spec_events(a, &w, 1), "tcp://a:2"));
    assert_null(worker_spec_events(a, &w, 2).ptr);
}

int main(void)
{
    return TEST_RUN(T(test_says_what_is_missing), T(test_needs_no_events_where_none_are_followed),
                    T(test_says_its_size_where_requests_wait), T(test_taints_are_strings),
                    T(test_tells_all_members_in_order), T(test_a_patch_changes_only_what_it_names),
                    T(test_finds_the_events_of_a_rank));
}
