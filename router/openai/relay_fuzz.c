/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of engines: what is passed on says what was read, and says it again when read again. And
 * bodies of clients: what is taken out once is out. */
#include <assert.h>

#include "lib/base/err.h"
#include "router/openai/relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unsteer(struct str body)
{
    AUTO(buf_done) struct buf once = BUF_NULL, twice = BUF_NULL;

    if (!relay_put_unsteered(&once, body)) {
        assert(once.len == 0);
        return;
    }
    assert(relay_put_unsteered(&twice, buf_str(&once)));
    assert(str_eq(buf_str(&once), buf_str(&twice)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct relay_change changes[] = {
        {.hide_usage = false}, {.model = {"ours", 4}}, {.model = {"ours", 4}, .hide_usage = true}};
    AUTO(buf_done) struct buf scratch = BUF_NULL, again = BUF_NULL;
    struct relay_answer a, b;
    struct err e;

    unsteer(str_slice(data, size));
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
