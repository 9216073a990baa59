/* SPDX-License-Identifier: Apache-2.0 */
#include "router/wire/plane_address.h"

#include <errno.h>

#include "lib/base/test.h"

static void test_address(void **state)
{
    static const struct {
        const char *text, *ip, *path;
        unsigned port;
    } cases[] = {
        {"10.0.0.7:40123/43710f49c0cff/generate", "10.0.0.7", "43710f49c0cff/generate", 40123},
        {"tcp://1.2.3.4:5/a/b/c/d", "1.2.3.4", "a/b/c/d", 5},
        {"[fe80::1]:80/x", "fe80::1", "x", 80},
        {"fe80::1:80", "fe80::1", "", 80},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plane_address a;
        struct err e;

        EXPECT_OK(plane_address_parse(str_from(cases[i].text), &a, &e), &e);
        assert_string_equal(a.ip, cases[i].ip);
        assert_int_equal(a.port, cases[i].port);
        assert_true(str_is(a.path, cases[i].path));
    }
}

static void test_other_planes(void **state)
{
    static const struct {
        enum plane_kind kind;
        const char *told, *endpoint, *text, *path;
    } cases[] = {
        {PLANE_TCP, "1.2.3.4:5/ab/generate", "generate", "1.2.3.4:5/ab/generate", "ab/generate"},
        {PLANE_NATS, "dynamo_backend.generate-ab", "generate",
         "nats:dynamo_backend.generate-ab/generate", "dynamo_backend.generate-ab"},
        {PLANE_HTTP, "http://h:8888/v1/rpc/generate", "generate", "http://h:8888/v1/rpc/generate",
         "http://h:8888/v1/rpc/generate"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf text = BUF_NULL;
        struct plane_address a;
        struct err e;

        plane_address_put(&text, cases[i].kind, str_from(cases[i].told),
                          str_from(cases[i].endpoint));
        assert_true(str_is(buf_str(&text), cases[i].text));
        EXPECT_OK(plane_address_parse(buf_str(&text), &a, &e), &e);
        assert_int_equal(a.kind, cases[i].kind);
        assert_true(str_is(a.path, cases[i].path));
    }
}

static void test_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "host:1/a",
        "1.2.3.4",
        "1.2.3.4/a",
        "1.2.3.4:0",
        "1.2.3.4:65536",
        "1.2.3.4:x",
        ":5/a",
        "1.2.3.4:+5",
        "[]:5",
        "nats:",
        "nats:/generate",
        "nats:a b/generate",
        "nats:a.>/generate",
        "nats:a.*/generate",
        "http://h:1/a b",
        "http://h:1/a\r\nx: y",
        "1111111111111111111111111111111111111111111111111111111111111111111111:5",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plane_address a;
        struct err e = {""};

        assert_int_equal(plane_address_parse(str_from(cases[i]), &a, &e), -EINVAL);
        assert_true(e.text[0]);
    }
}

int main(void)
{
    return TEST_RUN(T(test_address), T(test_other_planes), T(test_refused));
}
