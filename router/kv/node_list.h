/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes where a worker holds blocks, in no order. Whoever is in the list knows its place there:
 * the last one moves to a place that becomes free. Growth may fail, and only node_list_reserve()
 * grows. Pure; one thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/kv/kv_mem.h"

struct node_place {
    uint32_t node;
    uint32_t alias; /* the chain of the worker's aliases there, 0 = none */
};

/* Embedded by value; zero-initialised is empty. */
struct node_list {
    struct node_place *places;
    uint32_t len, cap;
};

void node_list_done(struct node_list *l, struct kv_mem *mem);
/* Makes room for one more; false when there is no memory. */
MUST_CHECK bool node_list_reserve(struct node_list *l, struct kv_mem *mem);
/* Room was reserved; returns the place. */
uint32_t node_list_add(struct node_list *l, struct node_place p);
/* Returns the node that moved to the place, 0 if none did. */
uint32_t node_list_remove(struct node_list *l, struct kv_mem *mem, uint32_t place);

static inline size_t node_list_bytes(const struct node_list *l)
{
    return l->cap * sizeof(struct node_place);
}
