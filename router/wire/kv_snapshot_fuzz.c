/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots: what was read says the same after writing and reading it. */
#include <stdlib.h>
#include <string.h>

#include "router/wire/kv_snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(void *arg, const struct kv_event *ev)
{
    const struct kv_event *want = arg;

    if (ev->worker_id != want->worker_id || ev->event_id != want->event_id ||
        ev->kind != want->kind || ev->dp_rank != want->dp_rank || ev->n_blocks != want->n_blocks ||
        ev->n_removed != want->n_removed || ev->parent_hash.set != want->parent_hash.set ||
        (ev->n_blocks && memcmp(ev->blocks, want->blocks, ev->n_blocks * sizeof(*ev->blocks)) != 0))
        abort();
}

static void again(void *arg, const struct kv_event *ev)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct kv_event want = *ev;

    (void)arg;
    kv_snapshot_begin_put(&out, 1);
    kv_snapshot_event_put(&out, ev);
    if (kv_snapshot_decode(&r, buf_str(&out), same, &want, NULL) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(kv_event_reader_done) struct kv_event_reader r = {0};

    (void)!kv_snapshot_decode(&r, str_slice(data, size), again, NULL, NULL);
    return 0;
}
