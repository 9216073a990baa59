/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images from anywhere. The checksum is put right first, or it would keep the fuzzer out; whatever
 * is accepted then restores into an index that is whole.
 */
#include <string.h>

#include "lib/base/mem.h"
#include "router/kv/index_image.h"
#include "router/kv/prefix_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint32_t slots[65536];
    AUTO(mem_free) char *bytes = xmalloc(size + 8);
    AUTO(prefix_index_free) struct prefix_index *ix = NULL;
    struct index_image im;

    memcpy(bytes, data, size);
    if (size >= 8 && size % 8 == 0) {
        uint64_t sum = index_image_checksum(0, bytes, size - 8);

        memcpy(bytes + size - 8, &sum, sizeof(sum));
    }
    if (index_image_open(&im, str_slice(bytes, size), NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < 65536; i++)
        slots[i] = i % 3 ? i % 50 : WORKER_SLOT_NONE; /* some leave, some become one */
    ix = prefix_index_new(0);
    if (index_image_restore(&im, ix, slots) < 0)
        abort(); /* so little memory is always there */
    prefix_index_check(ix);
    for (uint32_t slot = 0; slot < 50; slot++)
        prefix_index_clear(ix, slot);
    if (prefix_index_stats(ix).nodes > 0)
        abort();
    return 0;
}
