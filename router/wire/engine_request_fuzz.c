/* SPDX-License-Identifier: Apache-2.0 */
/* What was read and written once is read and written the same ever after. */
#include <stdlib.h>

#include "lib/base/arena.h"
#include "router/wire/engine_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(arena_free) struct arena *a = arena_new();
    AUTO(buf_done) struct buf first = BUF_NULL;
    AUTO(buf_done) struct buf second = BUF_NULL;
    struct engine_request rq;

    if (engine_request_parse(a, str_slice(data, size), &rq, NULL) < 0)
        return 0;
    engine_request_put(&first, &rq);
    if (engine_request_parse(a, buf_str(&first), &rq, NULL) < 0)
        abort();
    engine_request_put(&second, &rq);
    if (!str_eq(buf_str(&first), buf_str(&second)))
        abort();
    return 0;
}
