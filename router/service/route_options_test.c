/* SPDX-License-Identifier: Apache-2.0 */
#include "router/service/route_options.h"

#include "lib/base/test.h"

static const char *none(const char *name)
{
    (void)name;
    return NULL;
}

static const char *in_a_graph(const char *name)
{
    if (strcmp(name, "DYN_NAMESPACE") == 0)
        return "graph";
    if (strcmp(name, "DYN_NAMESPACE_WORKER_SUFFIX") == 0)
        return "v2";
    return strcmp(name, "DYN_SYSTEM_PORT") == 0 ? "9090" : NULL;
}

static int load(struct route_options *o, const char *(*env)(const char *), char *const *argv,
                int argc)
{
    struct err e;
    int r;

    *o = (struct route_options){.endpoint_text = NULL};
    r = conf_load(route_options_spec(), o, argc, argv, env, &e);
    return r < 0 ? r : route_options_derive(o, &e);
}

static void done(struct route_options *o)
{
    route_options_done(o);
    conf_done(route_options_spec(), o);
}

#define ARGS(...) ((char *[]){(char *)(uintptr_t) "route", __VA_ARGS__})
#define WORD(w) ((char *)(uintptr_t)(w))

static void test_defaults_are_those_of_the_reference(void **state)
{
    struct route_options o;

    (void)state;
    assert_int_equal(load(&o, none, ARGS(WORD("--endpoint"), WORD("a.b.prefill.generate")), 3), 0);
    assert_string_equal(o.ns, "a.b");
    assert_string_equal(o.worker_ns, "a.b");
    assert_string_equal(o.component, "prefill");
    assert_string_equal(o.endpoint, "generate");
    assert_int_equal(o.block_size, 128);
    assert_int_equal(o.system.port, -1);
    assert_int_equal(o.base.route.mode, ROUTE_KV);
    assert_true(o.base.route.use_kv_events);
    assert_int_equal(o.base.route.ttl_ms, 120000);
    done(&o);
}

static void test_takes_the_flags_of_both_generations(void **state)
{
    struct route_options o;

    (void)state;
    assert_int_equal(
        load(&o, in_a_graph,
             ARGS(WORD("--endpoint=dyn://w.backend.generate"), WORD("--router-block-size=16"),
                  WORD("--no-router-kv-events"), WORD("--router-ttl-secs=5"),
                  WORD("--no-track-active-blocks"), WORD("--track-output-blocks"),
                  WORD("--kv-overlap-score-weight=2.5"), WORD("--shared-cache-type=hicache"),
                  WORD("--shared-cache-multiplier=0.25")),
             10),
        0);
    assert_string_equal(o.ns, "graph");
    assert_string_equal(o.worker_ns, "w-v2");
    assert_int_equal(o.block_size, 16);
    assert_int_equal(o.system.port, 9090);
    assert_false(o.base.route.use_kv_events);
    assert_int_equal(o.base.route.ttl_ms, 5000);
    assert_false(o.base.route.track_active_blocks);
    assert_true(o.base.route.track_output_blocks);
    assert_true(o.base.route.overlap_weight == 2.5);
    assert_int_equal(o.base.route.shared_cache, SHARED_CACHE_HICACHE);
    assert_true(o.base.route.shared_weight == 0.25);
    done(&o);
}

static void test_refuses_what_is_no_endpoint(void **state)
{
    static const char *const bad[] = {"", "generate", "backend.generate", "a..generate", "A.b.c"};
    struct route_options o;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_true(load(&o, none, ARGS(WORD("--endpoint"), WORD(bad[i])), 3) < 0);
        done(&o);
    }
}

static void test_has_no_options_of_http_serving(void **state)
{
    struct route_options o;

    (void)state;
    assert_true(load(&o, none, ARGS(WORD("--http-port=1")), 2) < 0);
    done(&o);
    assert_true(load(&o, none, ARGS(WORD("--router-mode=random")), 2) < 0);
    done(&o);
}

/* As 1.6.1 where no policy file names others. */
static void test_knows_the_one_selector(void **state)
{
    static const char *const flags[] = {"--router-prefill-policy", "--router-decode-policy"};
    struct route_options o;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        assert_int_equal(
            load(&o, none, ARGS(WORD("--endpoint"), WORD("n.c.e"), WORD(flags[i]), WORD("default")),
                 5),
            0);
        done(&o);
        assert_true(load(&o, none,
                         ARGS(WORD("--endpoint"), WORD("n.c.e"), WORD(flags[i]), WORD("nosuch")),
                         5) < 0);
        done(&o);
    }
}

int main(void)
{
    return TEST_RUN(T(test_knows_the_one_selector), T(test_defaults_are_those_of_the_reference),
                    T(test_takes_the_flags_of_both_generations),
                    T(test_refuses_what_is_no_endpoint), T(test_has_no_options_of_http_serving));
}
