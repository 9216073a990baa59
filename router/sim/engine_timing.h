/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long an engine's iteration takes, in milliseconds (router.md §8.5; the coefficients are the
 * reference mocker's fit). Pure.
 *
 *     prefill(n new tokens)  = 4.209989e-07 n² + 1.518344e-02 n + 16.50142
 *     decode(active tokens)  = -25.74 p² + 54.01 p + 5.74,  p = active tokens / 16384
 *
 * A quirk of the reference: it divides TOKENS by its default number of BLOCKS. The parabola peaks
 * at 17,189 active tokens (34.1 ms), falls from there, and is cut off at 0 above 36,000: a worker
 * under load decodes in no time. DECODE_REFERENCE keeps that, for comparisons with the reference;
 * DECODE_SATURATING stays at the peak, for load tests whose latencies are to mean something.
 */
#pragma once

enum decode_timing { DECODE_REFERENCE, DECODE_SATURATING };

double engine_prefill_ms(double new_tokens);
double engine_decode_ms(double active_tokens, enum decode_timing timing);
