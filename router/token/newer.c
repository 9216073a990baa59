/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/newer.h"

#include <stdint.h>
#include <stdlib.h>

#include "router/token/utf8.h"

struct newer_range {
    uint32_t first, last, stand_in;
};

#include "router/token/newer_table.inc"

static int compare(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key;
    const struct newer_range *r = item;

    return cp < r->first ? -1 : cp > r->last;
}

static const struct newer_range *find(uint32_t cp)
{
    if (cp < NEWER[0].first)
        return NULL;
    return bsearch(&cp, NEWER, ARRAY_LEN(NEWER), sizeof(NEWER[0]), compare);
}

/* Offset of the first such character from @at on; text.len when there is none. */
static size_t next_newer(struct str text, size_t at)
{
    while ((at = utf8_skip_ascii(text, at)) < text.len) {
        size_t n = utf8_len(text.ptr[at]);

        if (n > 2 && find(utf8_get(text.ptr + at)))
            break;
        at += n;
    }
    return at;
}

struct str newer_replaced(struct str text, struct buf *out)
{
    size_t at = next_newer(text, 0);

    if (at >= text.len)
        return text;
    buf_clear(out);
    buf_put_str(out, text);
    for (; at < text.len; at = next_newer(text, at))
        at += utf8_put(find(utf8_get(text.ptr + at))->stand_in, buf_data(out) + at);
    return buf_str(out);
}
