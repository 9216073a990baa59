/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of engines: what was read says the same after writing and reading it. */
#include <stdlib.h>
#include <string.h>

#include "router/wire/engine_batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(void *arg, const struct engine_batch *b, const struct engine_event *ev)
{
    const struct engine_event *want = arg;

    if (!b->dp_rank.set || b->dp_rank.v != 3 || ev->kind != want->kind || ev->tier != want->tier ||
        ev->n_hashes != want->n_hashes || ev->n_tokens != want->n_tokens ||
        ev->block_size != want->block_size || !str_eq(ev->lora_name, want->lora_name) ||
        ev->parent_hash.set != want->parent_hash.set)
        abort();
    if (ev->n_hashes && memcmp(ev->hashes, want->hashes, ev->n_hashes * sizeof(*ev->hashes)) != 0)
        abort();
    if (ev->n_media != want->n_media ||
        (ev->n_media && memcmp(ev->media, want->media, ev->n_media * sizeof(*ev->media)) != 0))
        abort();
    if (ev->n_tokens && memcmp(ev->tokens, want->tokens, ev->n_tokens * sizeof(*ev->tokens)) != 0)
        abort();
}

static void again(void *arg, const struct engine_batch *b, const struct engine_event *ev)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct engine_event want = *ev;

    (void)arg;
    (void)b;
    if (ev->raw_hashes)
        return;
    engine_batch_begin_put(&out, 1, 1);
    engine_event_put(&out, ev);
    engine_batch_end_put(&out, 3);
    if (engine_batch_decode(&r, buf_str(&out), same, &want, NULL, NULL) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(engine_reader_done) struct engine_reader r = {0};

    (void)!engine_batch_decode(&r, str_slice(data, size), again, NULL, NULL, NULL);
    return 0;
}
