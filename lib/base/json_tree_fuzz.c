/* SPDX-License-Identifier: Apache-2.0 */
/* What is printed reads back as the same tree, in tree order and sorted. */
#include "lib/base/json_tree.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct json *v, struct str text)
{
    AUTO(json_free) struct json *again = NULL;

    assert(json_parse(&again, text, NULL) == 0);
    assert(json_equal(v, again) && json_contains(again, v));
}

static void check_wide(struct str text)
{
    AUTO(json_free) struct json *v = NULL;
    AUTO(json_free) struct json *again = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;

    if (json_parse_wide(&v, text, NULL) < 0)
        return;
    json_print(v, &out);
    assert(json_parse_wide(&again, buf_str(&out), NULL) == 0 && json_equal(v, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(json_free) struct json *v = NULL;
    AUTO(json_free) struct json *copy = NULL;
    AUTO(buf_done) struct buf out = BUF_NULL;

    check_wide(str_slice(data, size));
    if (json_parse(&v, str_slice(data, size), NULL) < 0) {
        assert(!v);
        return 0;
    }
    json_print(v, &out);
    check(v, buf_str(&out));
    buf_clear(&out);
    json_print_sorted(v, &out);
    check(v, buf_str(&out));

    copy = json_dup(v);
    assert(json_equal(copy, v));
    return 0;
}
