/* SPDX-License-Identifier: Apache-2.0 */
/* What is forwarded parses again, and to the same tokens. */
#include <assert.h>

#include "lib/base/arena.h"
#include "lib/base/err.h"
#include "router/service/routed_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str json = str_slice(data, size);
    struct routed_request rq, again;
    struct err e;

    if (routed_request_parse(a, json, &rq, &e) < 0 || rq.bare)
        return 0;
    routed_request_put(&out, json, &rq, 7);
    assert(routed_request_parse(a, buf_str(&out), &again, &e) == 0);
    assert(again.n_tokens == rq.n_tokens && again.dp_rank.v == 7);
    return 0;
}
