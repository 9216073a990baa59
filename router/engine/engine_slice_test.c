/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_slice.h"
#include "lib/base/test.h"

#include "lib/base/json_tree.h"

static void read_slice(const char *text, struct engine_wants *ret)
{
    AUTO(json_free) struct json *slice = NULL;
    struct err e;

    EXPECT_OK(json_parse(&slice, str_from(text), &e), &e);
    engine_slice_read(slice, ret);
}

static void test_ready_pods(void **state)
{
    AUTO(engine_wants_done) struct engine_wants w = {.at = NULL};

    (void)state;
    read_slice("{\"metadata\":{\"labels\":{\"commutator.dev/engine\":\"vllm\","
               "\"commutator.dev/engine-kv-events-port\":\"5557\","
               "\"commutator.dev/engine-block-size\":\"32\"}},"
               "\"ports\":[{\"name\":\"system\",\"port\":9090},{\"name\":\"http\",\"port\":8001}],"
               "\"endpoints\":[{\"addresses\":[\"10.0.0.1\"],\"conditions\":{\"ready\":true},"
               "\"targetRef\":{\"kind\":\"Pod\",\"name\":\"a\"}},"
               "{\"addresses\":[\"10.0.0.2\"],\"conditions\":{\"ready\":false}},"
               "{\"addresses\":[\"fd00::3\"],\"targetRef\":{\"name\":\"c\"}}]}",
               &w);
    assert_int_equal(w.n, 2);
    assert_string_equal(w.at[0].name, "a");
    assert_string_equal(w.at[0].spec.url, "http://10.0.0.1:8001");
    assert_string_equal(w.at[0].spec.events, "tcp://10.0.0.1:5557");
    assert_null(w.at[0].spec.replay);
    assert_int_equal(w.at[0].spec.block_size, 32);
    assert_string_equal(w.at[1].spec.url, "http://[fd00::3]:8001");
    assert_string_equal(w.at[1].spec.events, "tcp://[fd00::3]:5557");
}

static void test_what_is_not_said(void **state)
{
    AUTO(engine_wants_done) struct engine_wants w = {.at = NULL};
    AUTO(json_free) struct json *slice = NULL;
    struct err e;

    (void)state;
    read_slice("{\"metadata\":{\"labels\":{\"commutator.dev/engine-kv-events-port\":\"none\"}},"
               "\"endpoints\":[{\"addresses\":[\"10.0.0.1\"]},{\"addresses\":[]},{}]}",
               &w);
    assert_int_equal(w.n, 1);
    assert_string_equal(w.at[0].name, "http://10.0.0.1:8000");
    assert_true(w.at[0].spec.no_events);
    engine_wants_done(&w);
    read_slice("{\"endpoints\":null}", &w);
    assert_int_equal(w.n, 0);
    EXPECT_OK(json_parse(&slice,
                         STR("{\"metadata\":{\"labels\":{\"nvidia.com/dynamo-namespace\":\"n\"}}}"),
                         &e),
              &e);
    assert_true(engine_slice_is_of(slice, NULL) && engine_slice_is_of(slice, "n"));
    assert_false(engine_slice_is_of(slice, "m"));
}

int main(void)
{
    return TEST_RUN(T(test_ready_pods), T(test_what_is_not_said));
}
