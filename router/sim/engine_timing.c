/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sim/engine_timing.h"

static const double DECODE_SQUARE = -25.74, DECODE_LINEAR = 54.01, DECODE_CONSTANT = 5.74;
static const double DECODE_SCALE = 16384;

double engine_prefill_ms(double new_tokens)
{
    return 4.209989e-07 * new_tokens * new_tokens + 1.518344e-02 * new_tokens + 16.50142;
}

double engine_decode_ms(double active_tokens, enum decode_timing timing)
{
    const double peak = -DECODE_LINEAR / (2 * DECODE_SQUARE);
    double p = active_tokens / DECODE_SCALE, ms;

    if (timing == DECODE_SATURATING && p > peak)
        p = peak;
    ms = DECODE_SQUARE * p * p + DECODE_LINEAR * p + DECODE_CONSTANT;
    return ms > 0 ? ms : 0;
}
