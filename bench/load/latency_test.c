/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/latency.h"
#include "lib/base/test.h"

#include <math.h>

enum { N = 5000 };

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Oracle: the sorted values. */
static void quantiles_are_those_of_the_sorted_values(void **state)
{
    static const double q[] = {.01, .5, .9, .95, .99, 1};
    AUTO(mem_free) struct latency *l = xcalloc(1, sizeof(*l));
    AUTO(mem_free) uint64_t *all = xcalloc(N, sizeof(*all));
    double sum = 0;
    unsigned random = 1;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        random = random * 1103515245u + 12345u;
        all[i] = (uint64_t)(exp((double)(random >> 8 & 0xffff) / 65536 * 16) * 1e3) + 1000;
        sum += (double)all[i];
        latency_add(l, all[i]);
    }
    qsort(all, N, sizeof(*all), by_value);
    for (size_t i = 0; i < ARRAY_LEN(q); i++) {
        double want = (double)all[(size_t)ceil(q[i] * N) - 1] / 1e6;

        assert_true(fabs(latency_quantile_ms(l, q[i]) / want - 1) < 0.003);
    }
    assert_true(fabs(latency_mean_ms(l) / (sum / N / 1e6) - 1) < 1e-9);
}

static void the_ends_of_the_range_hold(void **state)
{
    AUTO(mem_free) struct latency *l = xcalloc(1, sizeof(*l));

    (void)state;
    assert_true(latency_quantile_ms(l, .5) == 0 && latency_mean_ms(l) == 0);
    latency_add(l, 0);
    assert_true(latency_quantile_ms(l, .99) == 0);
    latency_add(l, UINT64_C(86400000000000)); /* a day */
    assert_true(latency_quantile_ms(l, 1) <= 86400000.0);
    assert_true(latency_quantile_ms(l, 1) >= 3600000.0);
}

int main(void)
{
    return TEST_RUN(T(quantiles_are_those_of_the_sorted_values), T(the_ends_of_the_range_hold));
}
