/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever decodes encodes to the same bytes, but for the checksum. */
#include <stdlib.h>
#include <string.h>

#include "router/wire/two_part.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct str in = str_slice(data, size);
    struct two_part m;
    size_t used;

    while (two_part_decode(in, 1 << 16, &m, &used, NULL) == 0) {
        if (used > in.len || used != TWO_PART_HEAD + m.header.len + m.body.len)
            abort();
        buf_clear(&out);
        two_part_put(&out, m.header, m.body);
        if (out.len != used || memcmp(buf_data(&out), in.ptr, 16) != 0 ||
            memcmp(buf_data(&out) + TWO_PART_HEAD, in.ptr + TWO_PART_HEAD, used - TWO_PART_HEAD) !=
                0)
            abort();
        in = str_skip(in, used);
    }
    return 0;
}
