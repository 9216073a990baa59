/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions whose results have the same bits on every machine.
 *
 * A C library chooses its exp() by processor and by version, so last bits differ from machine to
 * machine. These use nothing but the operations that IEEE 754 defines to the bit (and the build sets
 * -ffp-contract=off, so that none of them are fused). Within 2 units in the last place of the true
 * value. Pure.
 */
#pragma once

/* 0 below -745, infinity above 709.78. */
double portable_exp(double x);
/* log(1 + x) for x >= 0; keeps its digits where x is small. */
double portable_log1p(double x);
/* Between -1 and 1. */
double portable_tanh(double x);
