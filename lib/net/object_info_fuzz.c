/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of JetStream's API, the descriptions of objects in them, and either alone. */
#include "lib/net/object_info.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 1000000, PIECES_MAX = 100 };

static void check_info(struct str json)
{
    struct object_info v = {.size = 0};

    if (!object_info_parse(&v, json, BYTES_MAX, PIECES_MAX))
        return;
    if (v.size > BYTES_MAX || v.pieces > PIECES_MAX || !v.nuid[0] ||
        strpbrk(v.nuid, ".*> \r\n\"") || strlen(v.nuid) >= sizeof(v.nuid) ||
        strlen(v.digest) >= sizeof(v.digest))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;
    struct str all = str_slice(data, size);
    uint64_t seq;

    check_info(all);
    if (object_message_parse(all, &seq, &bytes))
        check_info(buf_str(&bytes));
    return 0;
}
