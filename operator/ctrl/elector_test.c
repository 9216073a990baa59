/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/elector.h"

#include "lib/base/test.h"

static const struct elector_conf me = {.ns = "ns", .name = "l", .identity = "me"};

static struct json *lease(const char *holder, const char *renewed, int seconds)
{
    AUTO(mem_free)
    char *text = xasprintf("{\"metadata\":{\"name\":\"l\",\"resourceVersion\":\"5\"},\"spec\":"
                           "{\"holderIdentity\":\"%s\",\"renewTime\":\"%s\","
                           "\"leaseDurationSeconds\":%d,\"leaseTransitions\":3}}",
                           holder, renewed, seconds);
    struct json *v = NULL;
    struct err e;

    EXPECT_OK(json_parse(&v, str_from(text), &e), &e);
    return v;
}

static enum elector_action decide(const char *holder, const char *renewed, int seconds,
                                  uint64_t now_ms, struct elector_view *view)
{
    AUTO(json_free) struct json *v = lease(holder, renewed, seconds);

    return elector_decide(v, "me", now_ms, view);
}

static void test_a_living_holder_is_left_alone(void **state)
{
    struct elector_view view = {0};
    uint64_t now = 1000000;

    (void)state;
    /* However old its time looks: clocks differ. Only standing still counts. */
    assert_int_equal(decide("other", "1999-01-01T00:00:00.000000Z", 15, now, &view), ELECTOR_WAIT);
    assert_int_equal(decide("other", "1999-01-01T00:00:02.000000Z", 15, now += 14999, &view),
                     ELECTOR_WAIT);
    assert_int_equal(decide("other", "1999-01-01T00:00:02.000000Z", 15, now += 14999, &view),
                     ELECTOR_WAIT);
    assert_int_equal(decide("other", "1999-01-01T00:00:02.000000Z", 15, now += 1, &view),
                     ELECTOR_TAKE);
    /* A new holder has its whole time again. */
    assert_int_equal(decide("third", "1999-01-01T00:00:02.000000Z", 15, now, &view), ELECTOR_WAIT);
}

static void test_free_and_own(void **state)
{
    struct elector_view view = {0};

    (void)state;
    assert_int_equal(decide("", "x", 1, 5, &view), ELECTOR_TAKE);
    assert_int_equal(decide("me", "x", 15, 5, &view), ELECTOR_RENEW);
}

static int64_t number(const struct json *v, const char *key)
{
    int64_t n = -1;

    (void)json_get_i64(json_get(v, "spec"), key, &n);
    return n;
}

static const char *text(const struct json *v, const char *key)
{
    return json_cstr(json_path(v, "spec", key, NULL));
}

static void test_what_is_written(void **state)
{
    AUTO(json_free) struct json *fresh = elector_held(NULL, &me, 1000);
    AUTO(json_free) struct json *others = lease("other", "x", 15);
    AUTO(json_free) struct json *taken = elector_held(others, &me, 2000);
    AUTO(json_free) struct json *renewed = elector_held(taken, &me, 3000);
    AUTO(json_free) struct json *released = elector_released(renewed, 4000);

    (void)state;
    assert_string_equal(text(fresh, "holderIdentity"), "me");
    assert_string_equal(text(fresh, "renewTime"), "1970-01-01T00:00:01.000000Z");
    assert_int_equal(number(fresh, "leaseTransitions"), 0);
    assert_int_equal(number(fresh, "leaseDurationSeconds"), 15);
    assert_int_equal(number(taken, "leaseTransitions"), 4);
    assert_string_equal(text(taken, "acquireTime"), "1970-01-01T00:00:02.000000Z");
    /* The write is conditional on what was read. */
    assert_string_equal(json_cstr(json_path(taken, "metadata", "resourceVersion", NULL)), "5");
    assert_int_equal(number(renewed, "leaseTransitions"), 4);
    assert_string_equal(text(renewed, "acquireTime"), "1970-01-01T00:00:02.000000Z");
    assert_string_equal(text(renewed, "renewTime"), "1970-01-01T00:00:03.000000Z");
    assert_string_equal(text(released, "holderIdentity"), "");
    assert_int_equal(number(released, "leaseDurationSeconds"), 1);
}

int main(void)
{
    return TEST_RUN(T(test_a_living_holder_is_left_alone), T(test_free_and_own),
                    T(test_what_is_written));
}
