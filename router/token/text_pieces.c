/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/text_pieces.h"

#include <stdlib.h>

void text_pieces_done(struct text_pieces *p)
{
    free(p->ptr);
    *p = (struct text_pieces){0};
}

void text_pieces_add(struct text_pieces *p, size_t end, bool is_mark)
{
    if (end == (p->len ? p->ptr[p->len - 1].end : 0))
        return;
    if (p->len == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->ptr = xreallocarray(p->ptr, p->cap, sizeof(*p->ptr));
    }
    p->ptr[p->len++] = (struct text_piece){end, is_mark};
}
