/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deterministic English-like text of about a given number of tokens, from a seed. Pure.
 *
 * The words are short and common, so that tokenizers of any size need little more than one token
 * each; @tokens_per_word says how many (measured on the model that is asked).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

/* SplitMix64: one number is the whole state. */
uint64_t prose_random(uint64_t *state);
/* Uniform in lo..hi, both included. */
uint64_t prose_between(uint64_t *state, uint64_t lo, uint64_t hi);
/* Appends sentences. */
void prose_put(struct buf *out, uint64_t *state, size_t n_tokens, double tokens_per_word);
