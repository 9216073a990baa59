/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a gateway writes: ids in order, each of which is found, no more than there are elements. */
#include <assert.h>

#include "router/epp/pods.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    const struct pods p = pods_parse(a, str_slice(data, size));

    assert(p.n <= size);
    for (size_t i = 0; i < p.n; i++) {
        assert(i == 0 || p.worker_ids[i - 1] <= p.worker_ids[i]);
        assert(pods_have(&p, p.worker_ids[i]));
    }
    return 0;
}
