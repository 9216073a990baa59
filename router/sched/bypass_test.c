/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/bypass.h"
#include "lib/base/test.h"

#include <math.h>

static const struct bypass_conf DEFAULTS = {
    .enabled = true, .isl = 2048, .isl_ratio = 0.7, .prefill_busy = NAN, .decode_busy = NAN};

static void little_that_is_new_is_computed_where_the_rest_is_cached(void **state)
{
    static const struct {
        uint64_t prompt, cached;
        enum bypass expect;
    } cases[] = {
        {1000, 301, BYPASS_SHORT},                              /* 699 new, 0.699 */
        {1000, 300, BYPASS_NO},                                 /* exactly 0.7 */
        {1000, 0, BYPASS_NO},      {10000, 7953, BYPASS_SHORT}, /* 2047 new */
        {10000, 7952, BYPASS_NO},                               /* exactly 2048 */
        {100, 200, BYPASS_SHORT},                               /* more than all of it */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bypass_signals s = {.prompt_tokens = cases[i].prompt,
                                   .cached_tokens = cases[i].cached};

        assert_int_equal(bypass_decide(&DEFAULTS, &s), cases[i].expect);
    }
}

static void a_busy_prefill_worker_is_passed_by_when_that_is_asked_for(void **state)
{
    struct bypass_conf c = DEFAULTS;
    struct bypass_signals s = {
        .prompt_tokens = 5000, .prefill_tokens = 4097, .prefill_batch = 8192};

    (void)state;
    c.prefill_busy = 0.5;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO); /* isl_bounding does not look */
    c.policy = BYPASS_PREFILL_LOAD;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_PREFILL_BUSY);
    s.prefill_tokens = 4096;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO);
    s.prefill_tokens = 4097;
    s.prefill_batch = 0;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO);
    s.cached_tokens = 4900;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO); /* prefill_load does not look at that */
    c.policy = BYPASS_ISL_OR_LOAD;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_SHORT);
    s.cached_tokens = 0;
    s.prefill_batch = 8192;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_PREFILL_BUSY);
    c.prefill_busy = NAN;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO);
    c.enabled = false;
    s.cached_tokens = 4900;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO);
}

static void a_busy_decode_worker_gets_no_prompts(void **state)
{
    struct bypass_conf c = DEFAULTS;
    struct bypass_signals s = {.prompt_tokens = 100,
                               .cached_tokens = 90,
                               .decode_blocks = 50,
                               .decode_capacity_blocks = 100};

    (void)state;
    c.decode_busy = 0.5;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_SHORT);
    s.decode_blocks = 51;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_VETOED);
    assert_false(bypass_is_on(BYPASS_VETOED));
    s.decode_blocks = 0;
    s.decode_capacity_blocks = 0; /* unknown */
    assert_int_equal(bypass_decide(&c, &s), BYPASS_VETOED);
    s.cached_tokens = 0;
    assert_int_equal(bypass_decide(&c, &s), BYPASS_NO);
}

int main(void)
{
    return TEST_RUN(T(little_that_is_new_is_computed_where_the_rest_is_cached),
                    T(a_busy_prefill_worker_is_passed_by_when_that_is_asked_for),
                    T(a_busy_decode_worker_gets_no_prompts));
}
