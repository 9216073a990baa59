/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One line of a trace in Mooncake's format:
 *
 *     {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}
 *
 * timestamp is milliseconds since the start; each hash id stands for 512 tokens of the prompt,
 * equal ids for equal tokens with an equal past. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum {
    TRACE_BLOCK = 512,         /* tokens of a hash id */
    TRACE_INPUT_MAX = 1 << 21, /* tokens of a prompt that we believe */
    TRACE_LINE_MAX = 1 << 20,  /* bytes */
};

struct trace_line {
    double timestamp_ms;
    uint64_t input_length, output_length;
    uint64_t *hash_ids; /* owned, reused by the next parse */
    size_t n_hash_ids, cap_hash_ids;
};

void trace_line_done(struct trace_line *t);
DEFINE_CLEANUP_EMBEDDED(struct trace_line, trace_line_done)
/* -EINVAL says what is wrong. Unknown keys are ignored. */
MUST_CHECK int trace_line_parse(struct str line, struct trace_line *ret, struct err *e);
/*
 * Appends the prompt as a JSON array of token ids between @first and @last: the tokens of a block
 * follow from its hash id alone. What hash ids do not cover follows from @salt.
 */
struct buf;
void trace_line_put_prompt(struct buf *out, const struct trace_line *t, uint32_t first,
                           uint32_t last, uint64_t salt);
