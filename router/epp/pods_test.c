/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/pods.h"
#include "lib/base/test.h"

#include "router/discovery/records.h"

static void check(const char *json, size_t n, const char *present, const char *absent)
{
    AUTO(arena_free) struct arena *a = arena_new();
    const struct pods p = pods_parse(a, str_from(json));

    assert_int_equal(p.n, n);
    if (present)
        assert_true(pods_have(&p, instance_id_of_pod(str_from(present))));
    if (absent)
        assert_false(pods_have(&p, instance_id_of_pod(str_from(absent))));
}

static void test_names(void **state)
{
    (void)state;
    check("[{\"pod\":{\"name\":\"x\",\"podName\":\"worker-0\"},\"metrics\":null},"
          "{\"podName\":\"worker-1\"},{\"podName\":\"wor\\u006ber-2\"}]",
          3, "worker-2", "x");
    check("[{\"podName\":\"outer\",\"pod\":{\"podName\":\"inner\"}}]", 1, "inner", "outer");
}

static void test_nameless_are_passed_over(void **state)
{
    (void)state;
    check("[{},7,null,{\"pod\":null},{\"podName\":3},{\"podName\":\"a\"}]", 1, "a", NULL);
}

static void test_what_restricts_nothing(void **state)
{
    static const char *const texts[] = {
        "", "[]", "[{}]", "null", "{\"podName\":\"a\"}", "[{\"podName\":\"a\"},", "[{\"podName\":",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        check(texts[i], 0, NULL, "a");
}

static void test_too_many(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf json = BUF_NULL;

    (void)state;
    buf_put_str(&json, STR("[{\"podName\":\"a\"}"));
    for (size_t i = 1; i < PODS_MAX; i++)
        buf_put_str(&json, STR(",{}"));
    buf_put_str(&json, STR("]"));
    assert_int_equal(pods_parse(a, buf_str(&json)).n, 1);
    buf_truncate(&json, json.len - 1);
    buf_put_str(&json, STR(",{}]"));
    assert_int_equal(pods_parse(a, buf_str(&json)).n, 0);
}

int main(void)
{
    return TEST_RUN(T(test_names), T(test_nameless_are_passed_over), T(test_what_restricts_nothing),
                    T(test_too_many));
}
