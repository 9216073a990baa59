/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of engines: what is passed on says what was read, and says it again when read again. */
#include <assert.h>

#include "lib/base/err.h"
#include "router/openai/relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct relay_change changes[] = {
        {STR_NULL, false}, {{"ours", 4}, false}, {{"ours", 4}, true}};
    AUTO(buf_done) struct buf scratch = BUF_NULL, again = BUF_NULL;
    struct relay_answer a, b;
    struct err e;

    if (relay_answer_read(str_slice(data, size), &scratch, &a, &e) < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        relay_answer_put(&out, str_slice(data, size), &changes[i]);
        assert(relay_answer_read(buf_str(&out), &again, &b, &e) == 0);
        assert(a.has_choices == b.has_choices && a.has_text == b.has_text);
        assert(a.is_error == b.is_error && a.status == b.status && str_eq(a.error, b.error));
    }
    return 0;
}
