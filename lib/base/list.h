/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Intrusive doubly linked list: the link is a member, so linking never allocates and removal is
 * O(1) from the element. A zeroed or freshly removed link is not in any list.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/mem.h"

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *head)
{
    head->prev = head->next = head;
}
static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}
static inline bool list_linked(const struct list *link)
{
    return link->next != NULL;
}
static inline void list_append(struct list *head, struct list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}
static inline void list_prepend(struct list *head, struct list *link)
{
    link->next = head->next;
    link->prev = head;
    head->next->prev = link;
    head->next = link;
}
static inline void list_remove(struct list *link)
{
    if (!link->next)
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = NULL;
}
/* All of @from to the end of @to. */
static inline void list_move_all(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next = from->next;
    to->prev = from->prev;
    list_init(from);
}
#define LIST_ENTRY(link, type, member) CONTAINER_OF(link, type, member)
/* Safe against removal of the current element. */
#define LIST_FOREACH(it, head, type, member)                                                       \
    for (type *it = LIST_ENTRY((head)->next, type, member),                                        \
              *it##_next = LIST_ENTRY(it->member.next, type, member);                              \
         &it->member != (head);                                                                    \
         it = it##_next, it##_next = LIST_ENTRY(it##_next->member.next, type, member))
