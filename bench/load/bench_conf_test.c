/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/bench_conf.h"
#include "lib/base/test.h"

static const char *no_env(const char *name)
{
    (void)name;
    return NULL;
}

#define A(text) ((char[]){text})
#define LOAD(c, e, ...)                                                                            \
    ({                                                                                             \
        char *args_[] = {A("dynamo-bench"), ##__VA_ARGS__, NULL};                                  \
        bench_conf_load((c), (int)ARRAY_LEN(args_) - 1, args_, no_env, (e));                       \
    })

static void each_command_has_its_flags(void **state)
{
    AUTO(bench_conf_done) struct bench_conf load, trace, compare;
    char *files[] = {A("dynamo-bench"), A("compare"), A("a.json"), A("b.json"), NULL};
    struct err e;

    (void)state;
    EXPECT_OK(LOAD(&load, &e, A("load"), A("--model"), A("m"), A("--duration"), A("60s"),
                   A("--turns"), A("2-4"), A("--output-tokens"), A("50")),
              &e);
    assert_int_equal(load.turns_min, 2);
    assert_int_equal(load.turns_max, 4);
    assert_int_equal(load.output_min, 50);
    assert_int_equal(load.output_max, 50);
    assert_int_equal(load.duration_ms, 60000);
    assert_int_equal(load.n_starters, 10);
    assert_int_equal(load.starter_tokens, 3500);
    EXPECT_OK(LOAD(&trace, &e, A("trace"), A("--model"), A("m"), A("--file"), A("t.jsonl"),
                   A("--speed"), A("2.5")),
              &e);
    assert_int_equal(trace.command, BENCH_TRACE);
    assert_float_equal(trace.speed, 2.5, 1e-9);
    assert_int_equal(trace.token_first, 256);
    EXPECT_OK(bench_conf_load(&compare, 4, files, no_env, &e), &e);
    assert_int_equal(compare.n_runs, 2);
    assert_string_equal(compare.runs[1], "b.json");
}

static void what_is_missing_or_wrong_is_named(void **state)
{
    struct err e;

    (void)state;
#define REFUSED(says, ...)                                                                         \
    do {                                                                                           \
        AUTO(bench_conf_done) struct bench_conf c_;                                                \
        assert_true(LOAD(&c_, &e, __VA_ARGS__) < 0);                                               \
        if (!strstr(e.text, says))                                                                 \
            fail_msg("'%s' does not speak of %s", e.text, says);                                   \
    } while (0)
    REFUSED("fly", A("fly"));
    REFUSED("--replay", A("decisions"));
    REFUSED("--temperature", A("decisions"), A("--replay"), A("-"), A("--temperature=warm"));
    REFUSED("--model", A("load"), A("--duration"), A("1"));
    REFUSED("--duration", A("load"), A("--model"), A("m"));
    REFUSED("turns", A("load"), A("--model"), A("m"), A("--duration"), A("1"), A("--turns"),
            A("5-3"));
    REFUSED("turns", A("load"), A("--model"), A("m"), A("--duration"), A("1"), A("--turns"),
            A("0"));
    REFUSED("output-tokens", A("load"), A("--model"), A("m"), A("--duration"), A("1"),
            A("--output-tokens"), A("many"));
    REFUSED("--file", A("trace"), A("--model"), A("m"));
    REFUSED("two results", A("compare"), A("a.json"));
}

int main(void)
{
    return TEST_RUN(T(each_command_has_its_flags), T(what_is_missing_or_wrong_is_named));
}
