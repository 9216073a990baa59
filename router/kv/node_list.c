/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/node_list.h"

#include <assert.h>

enum { CAP_MIN = 8, DOUBLE_BELOW = 2048 };

void node_list_done(struct node_list *l, struct kv_mem *mem)
{
    kv_free(mem, l->places, node_list_bytes(l));
    *l = (struct node_list){0};
}

static bool resize(struct node_list *l, struct kv_mem *mem, uint32_t cap)
{
    struct node_place *places =
        kv_resize(mem, l->places, node_list_bytes(l), cap * sizeof(*places));

    if (!places)
        return false;
    l->places = places;
    l->cap = cap;
    return true;
}

bool node_list_reserve(struct node_list *l, struct kv_mem *mem)
{
    uint32_t more = l->cap < DOUBLE_BELOW ? MAX(l->cap, (uint32_t)CAP_MIN) : l->cap / 2;

    return l->len < l->cap || resize(l, mem, l->cap + more);
}

uint32_t node_list_add(struct node_list *l, struct node_place p)
{
    assert(l->len < l->cap);
    l->places[l->len] = p;
    return l->len++;
}

uint32_t node_list_remove(struct node_list *l, struct kv_mem *mem, uint32_t place)
{
    uint32_t moved = 0;

    assert(place < l->len);
    l->len--;
    if (place < l->len) {
        l->places[place] = l->places[l->len];
        moved = l->places[place].node;
    }
    if (l->len == 0)
        node_list_done(l, mem);
    else if (l->cap > 4 * CAP_MIN && l->len < l->cap / 4)
        (void)resize(l, mem, l->cap / 2); /* without memory it stays large */
    return moved;
}
