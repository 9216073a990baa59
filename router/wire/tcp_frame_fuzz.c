/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and acknowledgements; a prefix of a frame is never taken for a whole one. */
#include <stdlib.h>

#include "router/wire/tcp_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_slice(data, size), text;
    struct tcp_frame f, g;
    size_t used, n;

    while (tcp_frame_decode(in, 1 << 16, &f, &used, NULL) == 0) {
        if (used > in.len || f.path.len == 0 || f.path.len > TCP_FRAME_PATH_MAX)
            abort();
        if (tcp_frame_decode(str_head(in, used - 1), 1 << 16, &g, &n, NULL) != TCP_FRAME_MORE)
            abort();
        in = str_skip(in, used);
    }
    if (tcp_ack_decode(str_slice(data, size), &text, &used, NULL) == 0 && text.len + 4 != used)
        abort();
    return 0;
}
