/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/load/trace_line.h"

#include "lib/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(trace_line_done) struct trace_line t = {.hash_ids = NULL};
    struct err e;

    if (trace_line_parse(str_slice(data, size), &t, &e) == 0 && t.input_length < 1)
        __builtin_trap();
    return 0;
}
