/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken for a traceparent comes out as one; nothing that is no header value comes out.
 * And the same bytes as headers of a frame. */
#include <stdlib.h>
#include <string.h>

#include "router/wire/trace_context.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace_headers in = {.parent = str_slice(data, size), .state = str_slice(data, size)};
    struct plane_header out[TRACE_HEADERS_MAX];
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct trace_context t, again;
    struct trace_headers told;

    trace_context_init(&t, &in, NULL);
    for (size_t i = 0, n = trace_context_headers(&t, out); i < n; i++)
        for (size_t k = 0; k < out[i].value.len; k++)
            if (out[i].value.ptr[k] < ' ' || out[i].value.ptr[k] > '~')
                abort();
    in.parent = str_from(t.parent);
    trace_context_init(&again, &in, NULL);
    if (strcmp(t.parent, again.parent) != 0)
        abort();
    trace_headers_parse(&told, str_slice(data, size), &scratch);
    if (told.parent.len + told.state.len + told.client_id.len + told.dynamo_id.len > size)
        abort();
    return 0;
}
