/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger of the model cache: what is read of it names nothing outside, and survives writing. */
#include <stdlib.h>

#include "router/discovery/hub_answer.h"
#include "router/discovery/hub_ledger.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_slice(data, size);
    struct hub_entry x, again;

    while (hub_entry_next(&rest, &x)) {
        AUTO(buf_done) struct buf line = BUF_NULL;
        struct str written;

        if (!hub_word_is_valid(x.etag) || !hub_word_is_valid(x.commit) ||
            !hub_word_is_valid(x.file))
            abort();
        hub_entry_put(&line, &x);
        written = buf_str(&line);
        if (!hub_entry_next(&written, &again) || !str_eq(again.etag, x.etag) ||
            !str_eq(again.commit, x.commit) || !str_eq(again.file, x.file))
            abort();
    }
    return 0;
}
