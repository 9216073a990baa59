/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a file and as a URL: a size is found within them and is one, and both ways find the same. */
#include "router/token/image_size.h"

#include <assert.h>

#include "lib/base/buf.h"
#include "lib/base/digest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_size(struct image_size s)
{
    return s.width && s.height && s.width <= INT32_MAX && s.height <= INT32_MAX;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(buf_done) struct buf url = BUF_NULL;
    struct str file = {(const char *)data, size};
    struct image_size a = {0, 0}, b = {0, 0};
    bool found = image_size_read(file, &a);

    assert(!found || is_size(a));
    if (image_size_of_url(file, &b))
        assert(is_size(b));
    buf_put_str(&url, STR("data:image/png;base64,"));
    base64_encode(&url, file);
    if (image_size_of_url(buf_str(&url), &b))
        assert(found && a.width == b.width && a.height == b.height);
    else
        assert(!found || size > IMAGE_HEAD_MAX / 4 * 3);
    return 0;
}
