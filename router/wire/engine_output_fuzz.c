/* SPDX-License-Identifier: Apache-2.0 */
/* What was read and written once is read and written the same ever after. */
#include <stdlib.h>

#include "router/wire/engine_output.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(engine_output_reader_done) struct engine_output_reader r = {0};
    AUTO(buf_done) struct buf first = BUF_NULL;
    AUTO(buf_done) struct buf second = BUF_NULL;
    struct engine_output o;

    if (engine_output_parse(&r, str_slice(data, size), &o, NULL) < 0)
        return 0;
    engine_output_put(&first, &o);
    if (engine_output_parse(&r, buf_str(&first), &o, NULL) < 0)
        abort();
    engine_output_put(&second, &o);
    if (!str_eq(buf_str(&first), buf_str(&second)))
        abort();
    return 0;
}
