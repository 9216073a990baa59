/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker's members are told as is read as the same worker again. */
#include <assert.h>

#include "router/service/worker_spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(void *arg, const char *reason)
{
    assert(reason[0]);
    ++*(size_t *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct worker_spec w, again;
    size_t n = 0;
    struct err e;

    if (worker_spec_parse(a, str_slice(data, size), &w, &e) != 0)
        return 0;
    assert(worker_spec_missing(&w, (struct worker_needs){true, true}, count, &n) == n);
    json_put_object(&j);
    worker_spec_put(&j, &w, "any");
    json_put_object_end(&j);
    assert(worker_spec_parse(a, buf_str(&out), &again, &e) == 0);
    assert(again.worker_id.v == w.worker_id.v && worker_spec_same_targets(&w, &again));
    return 0;
}
