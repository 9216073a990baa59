/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/route_spread.h"
#include "lib/base/test.h"

#include <math.h>

static void a_window_is_told_when_the_next_begins(void **state)
{
    AUTO(herd_done) struct herd h = {0};

    (void)state;
    for (unsigned i = 0; i < 8; i++) /* 6 of 8 to one of four: three times its share */
        assert_true(isnan(herd_count(&h, 1000 + i, i < 6 ? 2 : 900, 4)));
    assert_true(herd_count(&h, 1100, 1, 4) == 3);
    for (unsigned i = 0; i < 11; i++)
        assert_true(isnan(herd_count(&h, 1199, (i + 2) % 4, 4)));
    assert_true(herd_count(&h, 1200, 0, 4) == 1);
}

static void few_decisions_say_nothing(void **state)
{
    AUTO(herd_done) struct herd h = {0};

    (void)state;
    for (unsigned i = 0; i < 7; i++)
        (void)herd_count(&h, 1000, 0, 4);
    assert_true(isnan(herd_count(&h, 1100, 0, 4)));
    for (unsigned i = 0; i < 50; i++)
        (void)herd_count(&h, 1200, 0, 1);
    assert_true(isnan(herd_count(&h, 1300, 0, 1))); /* there was no choice */
}

static void variation_is_the_deviation_over_the_mean(void **state)
{
    struct route_candidate c[4] = {{.requests = 5}, {.requests = 5}, {.requests = 5}};

    (void)state;
    assert_true(load_variation(c, 3) == 0);
    c[0].requests = 0;
    c[1].requests = 10;
    assert_true(load_variation(c, 2) == 1);
    assert_true(load_variation(c + 3, 1) == 0);
}

int main(void)
{
    return TEST_RUN(T(a_window_is_told_when_the_next_begins), T(few_decisions_say_nothing),
                    T(variation_is_the_deviation_over_the_mean));
}
