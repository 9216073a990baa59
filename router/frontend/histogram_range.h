/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fine the histograms of /metrics are, as operators may say: bounds on a log scale (metric_log_buckets).
 */
#pragma once

#include <stdint.h>

enum frontend_histogram {
    HISTOGRAM_DURATION,
    HISTOGRAM_INPUT, /* of cached tokens, too */
    HISTOGRAM_OUTPUT,
    HISTOGRAM_TTFT,
    HISTOGRAM_ITL,
    FRONTEND_HISTOGRAMS
};

enum { HISTOGRAM_BOUNDS_MAX = 512 };

struct histogram_range {
    double min, max; /* 0 < min < max; seconds or tokens */
    uint64_t n;      /* 1 to HISTOGRAM_BOUNDS_MAX, the bound 0 included */
};
