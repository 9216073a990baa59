/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/elector.h"

#include <stdatomic.h>

#include "lib/base/test.h"
#include "lib/kube/kube_test.h"
#include "lib/net/http_server.h"
#include "lib/net/loop_test.h"

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

static void test_no_call_outlasts_the_lease(void **state)
{
    (void)state;
    assert_int_equal(elector_call_ms(1000, 1000), ELECTOR_CALL_MS);
    assert_int_equal(elector_call_ms(1000, 1000 + ELECTOR_RENEW_MS - ELECTOR_CALL_MS),
                     ELECTOR_CALL_MS);
    assert_int_equal(elector_call_ms(1000, 1000 + ELECTOR_RENEW_MS - 1), 1);
    assert_int_equal(elector_call_ms(1000, 1000 + ELECTOR_RENEW_MS), 0);
    assert_int_equal(elector_call_ms(1000, UINT64_MAX / 2), 0);
    assert_true(ELECTOR_RENEW_MS < ELECTOR_LEASE_MS);
}

/* --- against a server that holds one Lease ------------------------------------------------------------ */

struct store {
    struct loop *loop;
    struct http_server *server;
    struct json *lease;
    int version;
    struct buf asked; /* a letter for each request: Get, pOst, pUt */
    _Atomic bool leading, lost;
};

static void put_version(struct store *s)
{
    AUTO(mem_free) char *text = xasprintf("%d", ++s->version);

    json_set_cstr(json_need_object(s->lease, "metadata"), "resourceVersion", text);
}

static void answer(struct http_exchange *x, int status, const struct json *v)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    if (v)
        json_print(v, &text);
    http_respond(x, status, "application/json", v ? buf_str(&text) : STR("{}"));
}

static void on_get(struct http_exchange *x, void *arg)
{
    struct store *s = arg;

    buf_put_char(&s->asked, 'G');
    answer(x, s->lease ? 200 : 404, s->lease);
}

static bool is_current(const struct store *s, const struct json *given)
{
    const char *version = json_cstr(json_path(given, "metadata", "resourceVersion", NULL));
    AUTO(mem_free) char *want = xasprintf("%d", s->version);

    return version && strcmp(version, want) == 0;
}

static void on_write(struct http_exchange *x, void *arg)
{
    struct store *s = arg;
    struct json *given = NULL;
    struct err e;

    buf_put_char(&s->asked, s->lease ? 'U' : 'O');
    EXPECT_OK(json_parse(&given, http_request(x)->body, &e), &e);
    if (s->lease && !is_current(s, given)) {
        (void)json_free(given);
        answer(x, 409, NULL);
        return;
    }
    (void)json_free(s->lease);
    s->lease = given;
    put_version(s);
    answer(x, 200, s->lease);
}

static void on_leading(void *arg)
{
    struct store *s = arg;

    atomic_store(&s->leading, true);
}

static void on_lost(void *arg, const char *why)
{
    struct store *s = arg;

    (void)why;
    atomic_store(&s->lost, true);
}

static void store_open(struct store *s)
{
    static const struct http_route routes[] = {
        {.method = "GET", .path = "/*", .handle = on_get},
        {.method = "POST", .path = "/*", .handle = on_write},
        {.method = "PUT", .path = "/*", .handle = on_write},
    };
    struct err e;

    *s = (struct store){.lease = NULL};
    EXPECT_OK(loop_new(&s->loop, &e), &e);
    s->server = kube_test_server(s->loop, routes, ARRAY_LEN(routes), s);
}

static void store_close(struct store *s)
{
    (void)http_server_free(s->server);
    (void)loop_free(s->loop);
    (void)json_free(s->lease);
    buf_done(&s->asked);
}

static bool asked_lately(const struct store *s, const char *want)
{
    return str_ends(buf_str(&s->asked), str_from(want));
}

static void test_renewing_is_one_write(void **state)
{
    struct elector_conf conf = me;
    struct kube_config *config;
    struct elector *el;
    struct store s;
    struct err e;

    (void)state;
    store_open(&s);
    config = kube_test_config(http_server_port(s.server));
    conf.retry_ms = 10;
    conf.leading = on_leading;
    conf.lost = on_lost;
    conf.arg = &s;
    EXPECT_OK(elector_start(&el, config, &conf, &e), &e);
    LOOP_UNTIL(s.loop, atomic_load(&s.leading) && asked_lately(&s, "UUU"));
    assert_memory_equal(buf_str(&s.asked).ptr, "GOUUU", 5);
    /* Touched, but still ours. */
    put_version(&s);
    LOOP_UNTIL(s.loop, asked_lately(&s, "UGUUU"));
    assert_false(atomic_load(&s.lost));
    /* Another one has it. */
    json_set_cstr(json_need_object(s.lease, "spec"), "holderIdentity", "other");
    put_version(&s);
    LOOP_UNTIL(s.loop, atomic_load(&s.lost));
    assert_true(asked_lately(&s, "UG"));
    (void)elector_stop(el);
    assert_string_equal(text(s.lease, "holderIdentity"), "other");
    (void)kube_config_free(config);
    store_close(&s);
}

int main(void)
{
    return TEST_RUN(T(test_a_living_holder_is_left_alone), T(test_free_and_own),
                    T(test_what_is_written), T(test_no_call_outlasts_the_lease),
                    T(test_renewing_is_one_write));
}
