/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a Mooncake master: what was read says the same after writing and reading it. */
#include <stdlib.h>

#include "router/wire/mooncake_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(void *arg, const struct mooncake_event *ev)
{
    const struct mooncake_event *want = arg;

    if (ev->change != want->change || !ev->object.ptr != !want->object.ptr ||
        !str_eq(ev->object, want->object) || !str_eq(ev->tenant, want->tenant))
        abort();
}

static void again(void *arg, const struct mooncake_event *ev)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct mooncake_event want = *ev;

    (void)arg;
    mooncake_batch_begin_put(&out, -1, 1);
    mooncake_event_put(&out, ev);
    mooncake_batch_end_put(&out);
    if (mooncake_batch_decode(buf_str(&out), same, &want, NULL) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)!mooncake_batch_decode(str_slice(data, size), again, NULL, NULL);
    return 0;
}
