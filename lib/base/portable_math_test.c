/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/portable_math.h"
#include "lib/base/test.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void assert_close(double got, double want, double relative)
{
    if (!(fabs(got - want) <= relative * fabs(want)))
        fail_msg("%.17g is not %.17g", got, want);
}

static void they_agree_with_the_c_library(void **state)
{
    (void)state;
    for (double x = -700; x <= 709; x += 0.3717)
        assert_close(portable_exp(x), exp(x), 6e-16);
    for (double x = 1e-18; x < 1e18; x *= 1.0371)
        assert_close(portable_log1p(x), log1p(x), 6e-16);
    for (double x = -25; x < 25; x += 0.0371)
        assert_true(fabs(portable_tanh(x) - tanh(x)) < 4e-16);
}

static void the_ends_are_right(void **state)
{
    (void)state;
    assert_true(portable_exp(0) == 1);
    assert_true(portable_exp(-800) == 0 && portable_exp(-INFINITY) == 0);
    assert_true(isinf(portable_exp(710)) && isinf(portable_exp(INFINITY)));
    assert_true(isnan(portable_exp(NAN)) && isnan(portable_log1p(NAN)));
    assert_true(portable_log1p(0) == 0 && isinf(portable_log1p(INFINITY)));
    assert_true(portable_tanh(0) == 0 && portable_tanh(100) == 1 && portable_tanh(-100) == -1);
    assert_close(portable_exp(-740), exp(-740), 1e-2); /* subnormal: few digits are left */
}

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* All bits of a walk through the three of them: another machine, compiler or library must find the
 * same. */
static void the_bits_are_the_same_everywhere(void **state)
{
    uint64_t sum = 0;

    (void)state;
    for (double x = -40; x < 40; x += 0.125) {
        sum = sum * UINT64_C(0x9E3779B97F4A7C15) + bits_of(portable_exp(x));
        sum = sum * UINT64_C(0x9E3779B97F4A7C15) + bits_of(portable_log1p(portable_exp(x)));
        sum = sum * UINT64_C(0x9E3779B97F4A7C15) + bits_of(portable_tanh(x));
    }
    if (sum != UINT64_C(1414881122122400654))
        fail_msg("%" PRIu64, sum);
}

int main(void)
{
    return TEST_RUN(T(they_agree_with_the_c_library), T(the_ends_are_right),
                    T(the_bits_are_the_same_everywhere));
}
