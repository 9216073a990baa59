/* SPDX-License-Identifier: Apache-2.0 */
/* An answer that is taken keeps what its kind promises, and its views stay inside of it. */
#include "router/sync/kv_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_answer a;
    struct err e;

    if (kv_answer_parse(str_slice(data, size), &a, &e) < 0)
        return 0;
    if (a.kind == KV_ANSWER_TOO_NEW && !a.newest.set)
        __builtin_trap();
    if ((a.kind == KV_ANSWER_EVENTS || a.kind == KV_ANSWER_DUMP) &&
        (a.events.ptr < (const char *)data ||
         a.events.ptr + a.events.len > (const char *)data + size || a.events.ptr[0] != '['))
        __builtin_trap();
    return 0;
}
