/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/scope.h"

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"

enum { RENEWED_MS = 100000 }; /* 1970-01-01T00:01:40Z */

static struct json *marker(const char *spec)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"metadata\":{\"name\":\"" SCOPE_LEASE
                           "\",\"namespace\":\"ns\",\"resourceVersion\":\"1\"},\"spec\":%s}",
                           spec);
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static void test_how_long_a_namespace_is_excluded(void **state)
{
    static const struct {
        const char *spec;
        uint64_t now_ms, left_ms;
    } cases[] = {
        {"{\"renewTime\":\"1970-01-01T00:01:40.000000Z\",\"leaseDurationSeconds\":30}", RENEWED_MS,
         30000},
        {"{\"renewTime\":\"1970-01-01T00:01:40Z\",\"leaseDurationSeconds\":30}", RENEWED_MS + 29999,
         1},
        {"{\"renewTime\":\"1970-01-01T00:01:40Z\",\"leaseDurationSeconds\":30}", RENEWED_MS + 30000,
         0},
        {"{\"acquireTime\":\"1970-01-01T00:01:40Z\",\"leaseDurationSeconds\":30}", RENEWED_MS, 0},
        {"{\"renewTime\":\"1970-01-01T00:01:40Z\"}", RENEWED_MS, 0},
        {"{\"renewTime\":\"soon\",\"leaseDurationSeconds\":30}", RENEWED_MS, 0},
        {"{\"renewTime\":\"1970-01-01T00:01:40Z\",\"leaseDurationSeconds\":-5}", RENEWED_MS, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *v = marker(cases[i].spec);

        assert_int_equal(scope_marker_left_ms(v, cases[i].now_ms), cases[i].left_ms);
    }
    assert_int_equal(scope_marker_left_ms(NULL, 0), 0);
}

static void test_the_marker_comes_from_the_cache(void **state)
{
    AUTO(cache_free) struct cache *cache = cache_new(NULL, 0);
    AUTO(json_free)
    struct json *v = marker("{\"renewTime\":\"1970-01-01T00:01:40Z\",\"leaseDurationSeconds\":30}");

    (void)state;
    assert_int_equal(scope_excluded_ms(cache, "ns", RENEWED_MS), 0);
    (void)cache_observe(cache, &KIND_LEASE, v);
    assert_int_equal(scope_excluded_ms(cache, "ns", RENEWED_MS), 30000);
    assert_int_equal(scope_excluded_ms(cache, "other", RENEWED_MS), 0);
}

int main(void)
{
    return TEST_RUN(T(test_how_long_a_namespace_is_excluded),
                    T(test_the_marker_comes_from_the_cache));
}
