/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/kv_apply.h"

#include <assert.h>

#include "router/sched/scheduler.h"
#include "router/sync/event_blocks.h"

const char *const KV_APPLIED_WORDS[] = {"ok", "parent_block_not_found", "block_not_found",
                                        "invalid_block"};
const char *const KV_KIND_WORDS[] = {"stored", "removed", "cleared"};

_Static_assert(KV_TIER_DISK - KV_TIER_HOST == (int)TIER_DISK - (int)TIER_HOST &&
                   KV_TIER_EXTERNAL - KV_TIER_HOST == (int)TIER_EXTERNAL - (int)TIER_HOST,
               "same order");

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
        scheduler_tier_store(s, w, tier, event_parent(ev), event_blocks(ev), ev->n_blocks);
        break;
    case KV_REMOVED:
        (void)scheduler_tier_remove(s, w, tier, ev->removed, ev->n_removed);
        break;
    case KV_CLEARED:
        scheduler_tier_clear(s, w, tier);
        break;
    }
}

static size_t held_by(struct scheduler *s, struct worker_rank w)
{
    uint32_t slot = scheduler_slot(s, w);

    return slot == WORKER_SLOT_NONE ? 0 : prefix_index_held(scheduler_index(s), slot);
}

static enum kv_applied apply_stored(struct scheduler *s, const struct kv_event *ev, bool *ret_known)
{
    struct worker_rank w = {ev->worker_id, ev->dp_rank};
    size_t before = held_by(s, w);
    int r = scheduler_store(s, w, event_parent(ev), event_blocks(ev), ev->n_blocks);

    *ret_known = r == 0 && ev->n_blocks > 0 && before > 0 && held_by(s, w) == before;
    return outcome(r);
}

enum kv_applied kv_apply(struct scheduler *s, const struct kv_event *ev, bool *ret_known)
{
    struct worker_rank w = {ev->worker_id, ev->dp_rank};

    assert(ev->tier != KV_TIER_UNKNOWN);
    *ret_known = false;
    if (ev->tier != KV_TIER_DEVICE) {
        apply_to_tier(s, w, ev);
        return KV_APPLIED_OK;
    }
    switch (ev->kind) {
    case KV_STORED:
        return apply_stored(s, ev, ret_known);
    case KV_REMOVED:
        return outcome(scheduler_remove(s, w, ev->removed, ev->n_removed));
    case KV_CLEARED:
        scheduler_clear(s, w);
        break;
    }
    return KV_APPLIED_OK;
}
