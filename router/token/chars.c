/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/chars.h"

#include <stdlib.h>

#include "lib/base/mem.h"
#include "router/token/utf8.h"

struct chars_pair {
    uint32_t from, to;
};

struct chars_range {
    uint32_t first, last;
};

struct chars_compat {
    uint32_t from, start, n; /* of COMPAT_PARTS */
};

#include "router/token/chars_table.inc"

static int compare_range(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key;
    const struct chars_range *r = item;

    return cp < r->first ? -1 : cp > r->last;
}

static bool is_among(uint32_t cp, const struct chars_range *ranges, size_t n)
{
    return bsearch(&cp, ranges, n, sizeof(*ranges), compare_range) != NULL;
}

/* The first member of both kinds of entries is the character that they are about. */
static int compare_first(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key, first = *(const uint32_t *)item;

    return cp < first ? -1 : cp > first;
}

void chars_put_lower(struct buf *out, uint32_t cp)
{
    const struct chars_pair *p;

    if (cp < 0x80) {
        buf_put_char(out, (char)(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp));
    } else if (cp == 0x130) { /* the only one that becomes two: i, dot above */
        buf_put_cstr(out, "i\xcc\x87");
    } else {
        p = bsearch(&cp, LOWER, ARRAY_LEN(LOWER), sizeof(LOWER[0]), compare_first);
        utf8_append(out, p ? p->to : cp);
    }
}

bool chars_is_mark(uint32_t cp)
{
    return is_among(cp, MARKS, ARRAY_LEN(MARKS));
}

bool chars_is_nonspacing(uint32_t cp)
{
    return is_among(cp, NONSPACING, ARRAY_LEN(NONSPACING));
}

bool chars_is_control(uint32_t cp)
{
    return is_among(cp, CONTROLS, ARRAY_LEN(CONTROLS));
}

bool chars_is_ideograph(uint32_t cp)
{
    return is_among(cp, IDEOGRAPHS, ARRAY_LEN(IDEOGRAPHS));
}

const uint32_t *chars_compat(uint32_t cp, size_t *ret_n)
{
    const struct chars_compat *c =
        bsearch(&cp, COMPAT, ARRAY_LEN(COMPAT), sizeof(COMPAT[0]), compare_first);

    if (!c)
        return NULL;
    *ret_n = c->n;
    return COMPAT_PARTS + c->start;
}
