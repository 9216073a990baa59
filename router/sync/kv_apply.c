/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_apply.h"

#include <assert.h>

#include "router/sched/scheduler.h"

const char *const KV_APPLIED_WORDS[] = {"ok", "parent_block_not_found", "block_not_found",
                                        "invalid_block"};
const char *const KV_KIND_WORDS[] = {"stored", "removed", "cleared"};

/* Events are handed to the index as they were read. */
_Static_assert(sizeof(struct prefix_block) == sizeof(struct kv_block) &&
                   offsetof(struct prefix_block, local) == offsetof(struct kv_block, tokens_hash),
               "same layout");
_Static_assert(KV_TIER_DISK - KV_TIER_HOST == (int)TIER_DISK - (int)TIER_HOST &&
                   KV_TIER_EXTERNAL - KV_TIER_HOST == (int)TIER_EXTERNAL - (int)TIER_HOST,
               "same order");

static const struct prefix_block *blocks_of(const struct kv_event *ev)
{
    return (const struct prefix_block *)(const void *)ev->blocks;
}

static const uint64_t *parent_of(const struct kv_event *ev)
{
    return ev->parent_hash.set ? &ev->parent_hash.v : NULL;
}

static enum kv_applied outcome(int r)
{
    switch (r) {
    case 0:
        return KV_APPLIED_OK;
    case PREFIX_NO_PARENT:
        return KV_APPLIED_NO_PARENT;
    case PREFIX_UNKNOWN:
        return KV_APPLIED_NO_BLOCK;
    default:
        return KV_APPLIED_INVALID;
    }
}

static void apply_to_tier(struct scheduler *s, struct worker_rank w, const struct kv_event *ev)
{
    enum cache_tier tier = (enum cache_tier)(ev->tier - KV_TIER_HOST);

    switch (ev->kind) {
    case KV_STORED:
        scheduler_tier_store(s, w, tier, parent_of(ev), blocks_of(ev), ev->n_blocks);
        break;
    case KV_REMOVED:
        (void)scheduler_tier_remove(s, w, tier, ev->removed, ev->n_removed);
        break;
    case KV_CLEARED:
        scheduler_tier_clear(s, w, tier);
        break;
    }
}

enum kv_applied kv_apply(struct scheduler *s, const struct kv_event *ev)
{
    struct worker_rank w = {ev->worker_id, ev->dp_rank};

    assert(ev->tier != KV_TIER_UNKNOWN);
    if (ev->tier != KV_TIER_DEVICE) {
        apply_to_tier(s, w, ev);
        return KV_APPLIED_OK;
    }
    switch (ev->kind) {
    case KV_STORED:
        return outcome(scheduler_store(s, w, parent_of(ev), blocks_of(ev), ev->n_blocks));
    case KV_REMOVED:
        return outcome(scheduler_remove(s, w, ev->removed, ev->n_removed));
    case KV_CLEARED:
        scheduler_clear(s, w);
        break;
    }
    return KV_APPLIED_OK;
}
