/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/latency.h"

#include <math.h>

#include "lib/base/mem.h"

static const double RATIO = 1.005;

static size_t bucket_of(uint64_t ns)
{
    double us = (double)ns / 1e3;
    size_t i = us <= 1 ? 0 : (size_t)ceil(log(us) / log(RATIO));

    return MIN(i, (size_t)LATENCY_BUCKETS - 1);
}

void latency_add(struct latency *l, uint64_t ns)
{
    l->buckets[bucket_of(ns)]++;
    if (l->count == 0 || ns < l->min_ns)
        l->min_ns = ns;
    if (ns > l->max_ns)
        l->max_ns = ns;
    l->count++;
    l->sum_ns += (double)ns;
}

/* The middle of the bucket in which the rank lies, kept within what was seen. */
double latency_quantile_ms(const struct latency *l, double q)
{
    uint64_t rank = (uint64_t)ceil(q * (double)l->count), below = 0;
    double ns = (double)l->max_ns;

    if (l->count == 0)
        return 0;
    for (size_t i = 0; i < LATENCY_BUCKETS; i++) {
        below += l->buckets[i];
        if (below >= MAX(rank, 1u)) {
            ns = pow(RATIO, (double)i - 0.5) * 1e3;
            break;
        }
    }
    ns = MAX(ns, (double)l->min_ns);
    return MIN(ns, (double)l->max_ns) / 1e6;
}

double latency_mean_ms(const struct latency *l)
{
    return l->count ? l->sum_ns / (double)l->count / 1e6 : 0;
}
