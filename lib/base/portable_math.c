/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/portable_math.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "lib/base/mem.h"

/* ln 2 in two parts: the first has 20 zero bits at its end, so that small multiples are exact. */
#define LN2_HIGH 0x1.62e42fefap-1
#define LN2_LOW 0x1.cf79abc9e3b398p-40

/* 1/14!, 1/13! … 1/1!, 1: the series of e^r. */
static const double EXP_SERIES[] = {1.0 / 87178291200,
                                    1.0 / 6227020800,
                                    1.0 / 479001600,
                                    1.0 / 39916800,
                                    1.0 / 3628800,
                                    1.0 / 362880,
                                    1.0 / 40320,
                                    1.0 / 5040,
                                    1.0 / 720,
                                    1.0 / 120,
                                    1.0 / 24,
                                    1.0 / 6,
                                    1.0 / 2,
                                    1,
                                    1};
/* 1/25, 1/23 … 1/3: the series of log((1 + s) / (1 - s)) behind 2 s, in s squared. */
static const double LOG_SERIES[] = {1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15,
                                    1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};

/* 2^k, for the exponents of normal numbers. */
static double power_of_two(int k)
{
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double out;

    memcpy(&out, &bits, sizeof(out));
    return out;
}

/* x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its series, then scaled by 2^k in two exact steps. */
double portable_exp(double x)
{
    double k, r, sum = 0;

    if (!(x > -745))
        return isnan(x) ? x : 0;
    if (x > 709.78)
        return INFINITY;
    k = floor(x * 0x1.71547652b82fep0 + 0.5);
    r = (x - k * LN2_HIGH) - k * LN2_LOW;
    for (size_t i = 0; i < ARRAY_LEN(EXP_SERIES); i++)
        sum = sum * r + EXP_SERIES[i];
    if (k < -1000)
        return sum * power_of_two((int)k + 200) * power_of_two(-200);
    return sum * power_of_two((int)k - 1) * 2;
}

/* log((1 + s) / (1 - s)) = 2 (s + s^3/3 + s^5/5 + …), for small s. */
static double log_ratio(double s)
{
    double square = s * s, sum = 0;

    for (size_t i = 0; i < ARRAY_LEN(LOG_SERIES); i++)
        sum = (sum + LOG_SERIES[i]) * square;
    return 2 * s + 2 * s * sum;
}

double portable_log1p(double x)
{
    double y = 1 + x, m;
    uint64_t bits;
    int k;

    if (!(x > 0))
        return isnan(x) ? x : 0;
    if (isinf(x))
        return x;
    if (x < 0.4)
        return log_ratio(x / (2 + x));
    memcpy(&bits, &y, sizeof(bits));
    k = (int)(bits >> 52) - 1023;
    m = y * power_of_two(-k);
    if (m > 0x1.6a09e667f3bcdp0) {
        m /= 2;
        k++;
    }
    return k * LN2_HIGH + (log_ratio((m - 1) / (m + 1)) + k * LN2_LOW);
}

double portable_tanh(double x)
{
    double e;

    if (x < 0)
        return -portable_tanh(-x);
    if (x > 20)
        return 1;
    e = portable_exp(-2 * x);
    return (1 - e) / (1 + e);
}
