/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a caller's request is: what comes of it is an object with these members, and to annotate it
 * again changes nothing. */
#include <assert.h>

#include "lib/base/json_pull.h"
#include "router/epp/annotate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t tokens[] = {1, 2};
    const struct annotation a = {9, {.set = size % 2, .v = 8}, tokens, ARRAY_LEN(tokens)};
    AUTO(buf_done) struct buf once = BUF_NULL, twice = BUF_NULL;
    struct err e;
    int r = annotate_request(&once, str_slice(data, size), &a, &e);

    if (r < 0)
        return 0;
    assert(
        str_is(json_pull_member(json_pull_member(buf_str(&once), "nvext"), "token_data"), "[1,2]"));
    r = annotate_request(&twice, buf_str(&once), &a, &e);
    assert(r == 0 && str_eq(buf_str(&once), buf_str(&twice)));
    return 0;
}
