/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a KV event as the indexes take and give them: views, nothing is copied.
 */
#pragma once

#include <stddef.h>

#include "router/kv/prefix_index.h"
#include "router/wire/kv_event.h"

_Static_assert(sizeof(struct prefix_block) == sizeof(struct kv_block) &&
                   offsetof(struct prefix_block, local) == offsetof(struct kv_block, tokens_hash),
               "one is read as the other");

static inline const struct prefix_block *event_blocks(const struct kv_event *ev)
{
    return (const struct prefix_block *)(const void *)ev->blocks;
}

static inline const struct kv_block *blocks_of_event(const struct prefix_block *blocks)
{
    return (const struct kv_block *)(const void *)blocks;
}

/* NULL: the first block begins a prompt. */
static inline const uint64_t *event_parent(const struct kv_event *ev)
{
    return ev->parent_hash.set ? &ev->parent_hash.v : NULL;
}
