/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_spec.h"
#include "lib/base/test.h"

static void test_reads_what_is_given(void **state)
{
    static const struct {
        const char *text, *url, *host;
    } urls[] = {
        {"http://h:8000", "http://h:8000", "h"},
        {"http://h:8000/v1/", "http://h:8000", "h"},
        {"https://h/engine/v1", "https://h/engine", "h"},
        {"http://10.0.0.1", "http://10.0.0.1", "10.0.0.1"},
        {"http://[fd00::1]:8000/", "http://[fd00::1]:8000", "[fd00::1]"},
    };
    AUTO(engine_spec_done) struct engine_spec s = {.url = NULL}, t = {.url = NULL};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        engine_spec_done(&s);
        EXPECT_OK(engine_spec_parse(&s, str_from(urls[i].text), &e), &e);
        assert_string_equal(s.url, urls[i].url);
        assert_string_equal(s.host, urls[i].host);
        assert_null(s.events);
    }
    EXPECT_OK(engine_spec_parse(&t,
                                STR("http://h:8000,kv-events=tcp://h:5557,kv-replay=tcp://h:5558,"
                                    "block-size=16,model=m,model-path=/models/x,"
                                    "api-key-env=KEY"),
                                &e),
              &e);
    assert_string_equal(t.events, "tcp://h:5557");
    assert_string_equal(t.replay, "tcp://h:5558");
    assert_string_equal(t.model, "m");
    assert_string_equal(t.model_path, "/models/x");
    assert_string_equal(t.key_env, "KEY");
    assert_int_equal(t.block_size, 16);
    assert_false(t.no_events);
    assert_true(engine_spec_equal(&t, &t));
    assert_false(engine_spec_equal(&s, &t));
    engine_spec_done(&s);
    EXPECT_OK(engine_spec_parse(&s, STR("http://h,kv-events=none"), &e), &e);
    assert_true(s.no_events);
}

static void test_refuses(void **state)
{
    static const char *const bad[] = {"",
                                      "h:8000",
                                      "ftp://h",
                                      "http://",
                                      "http:///",
                                      "http://h,x=1",
                                      "http://h,model=",
                                      "http://h,block-size=0",
                                      "http://a b",
                                      "http://h,block-size=x"};
    struct engine_spec s;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (engine_spec_parse(&s, str_from(bad[i]), &e) == 0)
            fail_msg("taken: %s", bad[i]);
}

int main(void)
{
    return TEST_RUN(T(test_reads_what_is_given), T(test_refuses));
}
