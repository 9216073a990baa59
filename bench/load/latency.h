/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distribution of durations in fixed memory: buckets 0.5 % apart from 1 µs to an hour, so any
 * percentile is right within 0.25 %; count, sum, smallest and largest are exact. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { LATENCY_BUCKETS = 4422 }; /* ln(3.6e9 µs) / ln(1.005), and one */

/* Embedded by value; zero-initialised is empty. */
struct latency {
    uint64_t buckets[LATENCY_BUCKETS];
    uint64_t count, min_ns, max_ns;
    double sum_ns;
};

void latency_add(struct latency *l, uint64_t ns);
/* @q in 0..1; 0 when empty. */
double latency_quantile_ms(const struct latency *l, double q);
double latency_mean_ms(const struct latency *l);
