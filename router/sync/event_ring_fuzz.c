/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_ring.h"

#include "lib/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Any query must be refused or answered; never a read beyond the ring. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct event_ring *ring;
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct kv_query q;
    struct err e;

    if (!ring) {
        ring = event_ring_new();
        for (uint64_t id = 0; id < 40; id++) {
            const struct kv_event ev = {.event_id = id, .kind = KV_CLEARED};

            event_ring_push(ring, &ev);
        }
    }
    if (kv_query_parse(str_slice(data, size), &q, &e) == 0 &&
        event_ring_answer(ring, &q, false, &out) == 0 && out.len == 0)
        __builtin_trap();
    return 0;
}
