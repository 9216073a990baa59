/* SPDX-License-Identifier: Apache-2.0 */
/* Any text ends in an error or in documents within the limits, which print as JSON that reads back.
 */
#include "lib/base/yaml.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(json_free) struct json *docs = NULL;
    AUTO(json_free) struct json *again = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (yaml_parse(&docs, str_slice(data, size), NULL) < 0) {
        assert(!docs);
        return 0;
    }
    assert(json_is_array(docs));
    JSON_FOREACH (doc, docs) {
        assert(!json_is_null(doc));
    }
    json_print(docs, &out);
    assert(json_parse(&again, buf_str(&out), NULL) == 0 && json_equal(docs, again));
    return 0;
}
