/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What benchmarks share: CPU time, samples, and the line that `make bench` reads.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* CPU time of this process in ns: a busy neighbour disturbs it less than wall time. */
static inline uint64_t bench_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of this thread, for single operations of some microseconds: being preempted does not count. */
static inline uint64_t bench_thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* @better "higher" or "lower". */
static inline void bench_report(const char *name, double value, const char *unit,
                                const char *better)
{
    printf("{\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\",\"better\":\"%s\"}\n", name, value,
           unit, better);
    fflush(stdout);
}

static inline int bench_order(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Sorts @samples; @share 0.99 gives p99. */
static inline uint64_t bench_percentile(uint64_t *samples, size_t n, double share)
{
    qsort(samples, n, sizeof(*samples), bench_order);
    return samples[(size_t)((double)(n - 1) * share)];
}
