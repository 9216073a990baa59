/* SPDX-License-Identifier: Apache-2.0 */
/* A peer may send anything: it is refused, or its events are read within bounds. */
#include <assert.h>

#include "router/service/peer_recovery.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *on_group(void *arg, struct str model, struct str name, uint32_t block_size)
{
    size_t size = *(const size_t *)arg;

    assert(model.len <= size && name.len <= size && block_size > 0);
    return arg;
}

static void on_event(void *group, const struct kv_event *ev)
{
    assert(ev->n_blocks <= *(const size_t *)group && ev->n_removed <= *(const size_t *)group);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct peer_recovery_conf conf = {.group = on_group, .event = on_event, .arg = &size};
    struct err e;

    (void)!peer_dump_parse(str_slice(data, size), &conf, &e);
    return 0;
}
