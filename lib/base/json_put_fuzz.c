/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes come out as a JSON string that reads back: the same if they were UTF-8. */
#include "lib/base/json_put.h"

#include <assert.h>

#include "lib/base/json_pull.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct str in = {(const char *)data, size}, back;
    struct json_put j = json_put_on(&out);
    struct json_pull p;

    json_put_str(&j, in);
    json_pull_init(&p, buf_str(&out));
    assert(json_pull_string(&p, &scratch, &back));
    assert(json_pull_end(&p, NULL) == 0);
    assert(str_is_utf8(back) && str_eq(in, back) == str_is_utf8(in));
    return 0;
}
