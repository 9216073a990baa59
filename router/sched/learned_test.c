/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sched/learned.h"
#include "lib/base/test.h"

#include <math.h>

static void nothing_learned_means_the_priors(void **state)
{
    struct learned l;

    (void)state;
    learned_init(&l);
    assert_true(learned_seconds_per_token(&l) == 1e-4);
    assert_true(learned_slowness(&l, 3) == 1);
    assert_true(learned_lifetime(&l, 3) == 10);
    learned_end(&l, 3, 4);
    assert_true(learned_lifetime(&l, 3) == 4); /* the fleet's: this worker has ended only one */
    learned_done(&l);
}

/* Two workers at 50 and one at 150 microseconds a token, above a common 20 ms. */
static void rates_and_a_slow_worker_are_found(void **state)
{
    struct learned l;

    (void)state;
    learned_init(&l);
    for (int i = 0; i < 3000; i++) {
        uint32_t slot = (uint32_t)(i % 3);
        double tokens = 200 + i * 7919 % 4000;

        learned_first_token(&l, slot, tokens, 0.02 + tokens * (slot == 2 ? 150e-6 : 50e-6));
    }
    assert_true(fabs(learned_seconds_per_token(&l) - 83e-6) < 10e-6);
    assert_true(learned_slowness(&l, 2) > 1.4 && learned_slowness(&l, 2) < 1.9);
    assert_true(learned_slowness(&l, 0) < 1);
    learned_forget(&l, 2);
    assert_true(learned_slowness(&l, 2) == 1);
    learned_done(&l);
}

static void like_workers_are_alike(void **state)
{
    struct learned l;

    (void)state;
    learned_init(&l);
    for (int i = 0; i < 3000; i++)
        learned_first_token(&l, (uint32_t)(i % 3), 100 + i % 50, 0.02 * (1 + i * 31 % 7 / 20.0));
    for (uint32_t slot = 0; slot < 3; slot++)
        assert_true(learned_slowness(&l, slot) == 1);
    learned_done(&l);
}

static void lifetimes_follow_the_worker_after_five(void **state)
{
    struct learned l;

    (void)state;
    learned_init(&l);
    for (int i = 0; i < 5; i++) {
        learned_end(&l, 0, 2);
        learned_end(&l, 1, 6);
    }
    assert_true(learned_lifetime(&l, 0) == 2);
    assert_true(learned_lifetime(&l, 1) == 6);
    assert_true(fabs(learned_lifetime(&l, 2) - 4) < 1e-9);
    learned_done(&l);
}

int main(void)
{
    return TEST_RUN(T(nothing_learned_means_the_priors), T(rates_and_a_slow_worker_are_found),
                    T(like_workers_are_alike), T(lifetimes_follow_the_worker_after_five));
}
