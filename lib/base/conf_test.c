/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/conf.h"
#include "lib/base/test.h"

#include <errno.h>
#include <math.h>

struct options {
    char *host;
    uint64_t port, ttl_ms;
    double weight, threshold;
    bool events;
    int mode;
    uint64_t shadows;
    char *engines;
};

static const char *const MODES[] = {"round-robin", "random", "kv", NULL};
#define AT(member) offsetof(struct options, member)
static const struct conf_field FIELDS[] = {
    {"http-host", NULL, "DYN_HTTP_HOST", NULL, CONF_STR, AT(host), "0.0.0.0", 0, 0, NULL,
     "address"},
    {"http-port", NULL, "DYN_HTTP_PORT", "DYNAMO_PORT", CONF_U64, AT(port), "8000", 0, 65535, NULL,
     "port"},
    {"router-ttl", "router-ttl-secs", "DYN_ROUTER_TTL", NULL, CONF_DURATION, AT(ttl_ms), "120.0", 0,
     0, NULL, "ttl"},
    {"kv-overlap-score-weight", NULL, "DYN_KV_OVERLAP_SCORE_WEIGHT", NULL, CONF_F64, AT(weight),
     "1.0", 0, 0, NULL, "weight"},
    {"threshold", NULL, NULL, NULL, CONF_F64, AT(threshold), NULL, 0, 1, NULL, "share"},
    {"kv-events", NULL, "DYN_KV_EVENTS", NULL, CONF_BOOL, AT(events), "true", 0, 0, NULL, "events"},
    {"router-mode", NULL, "DYN_ROUTER_MODE", NULL, CONF_ENUM, AT(mode), "round-robin", 0, 0, MODES,
     "mode"},
    {"engine", NULL, "ENGINES", NULL, CONF_LIST, AT(engines), NULL, 0, 0, NULL, "engines"},
    {"shadows", NULL, NULL, NULL, CONF_SET, AT(shadows), NULL, 0, 0, MODES, "modes, a comma list"},
};
static const struct conf_spec SPEC = {"prog", "Does things.", FIELDS, ARRAY_LEN(FIELDS), false};

static const char *env_mode, *env_port_alias, *env_engines;

static const char *fake_env(const char *name)
{
    if (strcmp(name, "DYN_ROUTER_MODE") == 0)
        return env_mode;
    if (strcmp(name, "ENGINES") == 0)
        return env_engines;
    if (strcmp(name, "DYNAMO_PORT") == 0)
        return env_port_alias;
    return NULL;
}

static int load(struct options *o, struct err *e, char **args)
{
    int argc = 0;

    while (args[argc])
        argc++;
    memset(o, 0, sizeof(*o));
    return conf_load(&SPEC, o, argc, args, fake_env, e);
}
#define ARGS(...) ((char *[]){(char[]){"prog"}, ##__VA_ARGS__, NULL})
#define A(text) ((char[]){text})

static void a_list_grows(void **state)
{
    struct options o;
    struct err e;

    (void)state;
    EXPECT_OK(load(&o, &e, ARGS(A("--engine"), A("a"), A("--engine=b"))), &e);
    assert_string_equal(o.engines, "a b");
    conf_done(&SPEC, &o);
    env_engines = "c d";
    EXPECT_OK(load(&o, &e, ARGS(A("--engine"), A("a"))), &e);
    assert_string_equal(o.engines, "c d a");
    conf_done(&SPEC, &o);
    env_engines = NULL;
    EXPECT_OK(load(&o, &e, ARGS()), &e);
    assert_null(o.engines);
    conf_done(&SPEC, &o);
}

static void precedence_is_flag_environment_default(void **state)
{
    struct options o;
    struct err e;

    (void)state;
    env_mode = "round_robin";
    env_port_alias = "9000";
    EXPECT_OK(load(&o, &e, ARGS()), &e);
    assert_string_equal(o.host, "0.0.0.0");
    assert_int_equal(o.port, 9000);
    assert_int_equal(o.ttl_ms, 120000);
    assert_int_equal(o.mode, 0);
    assert_true(o.events);
    assert_true(isnan(o.threshold));
    conf_done(&SPEC, &o);

    env_mode = "";
    EXPECT_OK(
        load(&o, &e, ARGS(A("--router-mode=KV"), A("--no-kv-events"), A("--http-port"), A("1"))),
        &e);
    assert_int_equal(o.mode, 2);
    assert_false(o.events);
    assert_int_equal(o.port, 1);
    conf_done(&SPEC, &o);
    env_mode = env_port_alias = NULL;
}

static void wrong_values_are_named(void **state)
{
    static const struct {
        const char *arg, *want;
    } cases[] = {
        {"--http-port=x", "--http-port: 'x' is not a whole number"},
        {"--http-port=70000", "--http-port: 70000 is outside 0 to 65535"},
        {"--router-mode=best", "--router-mode: 'best' is none of round-robin, random, kv"},
        {"--router-ttl=5 parsecs",
         "--router-ttl: '5 parsecs' is not a duration such as 30s, 15m or 250ms"},
        {"--kv-events=maybe", "--kv-events: 'maybe' is not true or false"},
        {"--threshold", "--threshold needs a value"},
        {"--colour=red", "unknown option --colour; see --help"},
        {"--no-http-port", "unknown option --no-http-port; see --help"},
        {"stray", "'stray' is not an option; see --help"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(mem_free) char *arg = xstrdup(cases[i].arg);
        struct options o;
        struct err e;

        assert_true(load(&o, &e, ARGS(arg)) < 0);
        assert_string_equal(e.text, cases[i].want);
        conf_done(&SPEC, &o);
    }
}

static void durations(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } cases[] = {{"250ms", 250},   {"1.5s", 1500},     {"15m", 900000},
                 {"4h", 14400000}, {"1h30m", 5400000}, {"2", 2000}};
    struct options o = {0};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        EXPECT_OK(conf_set(&SPEC, &o, STR("DYN_ROUTER_TTL"), str_from(cases[i].text), &e), &e);
        assert_int_equal(o.ttl_ms, cases[i].ms);
    }
    assert_int_equal(conf_set(&SPEC, &o, STR("DYN_NOTHING"), STR("1"), &e), -ENOENT);
}

static void help_is_printed_from_the_table(void **state)
{
    AUTO(mem_free) char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    struct options o;
    struct err e;

    (void)state;
    assert_int_equal(load(&o, &e, ARGS(A("--http-port=x"), A("--help"))), CONF_HELP);
    conf_print_help(&SPEC, out);
    (void)fclose(out);
    assert_non_null(strstr(text, "--router-mode WORD\n      mode: round-robin, random, kv (default "
                                 "round-robin) [DYN_ROUTER_MODE]"));
}

static void a_set_is_a_list_of_words(void **state)
{
    struct options o;
    struct err e;

    (void)state;
    assert_int_equal(load(&o, &e, ARGS(A("--port-less"))), -EINVAL);
    conf_done(&SPEC, &o);
    assert_int_equal(load(&o, &e, ARGS(A("--shadows"), A("kv, ROUND_ROBIN"))), 0);
    assert_int_equal(o.shadows, 1 << 2 | 1 << 0);
    conf_done(&SPEC, &o);
    assert_int_equal(load(&o, &e, ARGS(A("--shadows="))), 0);
    assert_int_equal(o.shadows, 0);
    conf_done(&SPEC, &o);
    assert_int_equal(load(&o, &e, ARGS(A("--shadows=kv,fair"))), -EINVAL);
    assert_string_equal(e.text, "--shadows: 'fair' is none of round-robin, random, kv");
    conf_done(&SPEC, &o);
    assert_int_equal(load(&o, &e, ARGS(A("--shadows=kv,"))), -EINVAL);
    conf_done(&SPEC, &o);
}

int main(void)
{
    return TEST_RUN(T(a_list_grows), T(precedence_is_flag_environment_default),
                    T(wrong_values_are_named), T(durations), T(help_is_printed_from_the_table),
                    T(a_set_is_a_list_of_words));
}
