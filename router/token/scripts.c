/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/scripts.h"

#include <stdlib.h>

#include "lib/base/mem.h"

struct script_range {
    uint32_t first, last;
    uint8_t script;
};

#include "router/token/scripts_table.inc"

static int compare(const void *key, const void *item)
{
    uint32_t cp = *(const uint32_t *)key;
    const struct script_range *r = item;

    return cp < r->first ? -1 : cp > r->last;
}

uint8_t scripts_of(uint32_t cp)
{
    const struct script_range *r =
        bsearch(&cp, SCRIPTS, ARRAY_LEN(SCRIPTS), sizeof(SCRIPTS[0]), compare);

    return r ? r->script : 0;
}
