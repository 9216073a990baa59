/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/worker_table.h"

#include "lib/base/map64.h"

struct slot {
    struct worker_rank target;
    bool used;
};

struct worker_table {
    struct slot *slots;
    uint32_t end, cap;
    struct map64 by_target; /* worker_rank_key() -> slot of the first target with that key */
};

struct worker_table *worker_table_new(void)
{
    return xcalloc(1, sizeof(struct worker_table));
}

struct worker_table *worker_table_free(struct worker_table *t)
{
    if (!t)
        return NULL;
    map64_done(&t->by_target);
    free(t->slots);
    free(t);
    return NULL;
}

static bool is_target(const struct worker_table *t, uint32_t slot, struct worker_rank w)
{
    const struct slot *s = &t->slots[slot];

    return s->used && s->target.worker_id == w.worker_id && s->target.dp_rank == w.dp_rank;
}

uint32_t worker_table_find(const struct worker_table *t, struct worker_rank w)
{
    const uint64_t *at = map64_find(&t->by_target, worker_rank_key(w));

    if (!at)
        return WORKER_SLOT_NONE;
    if (is_target(t, (uint32_t)*at, w))
        return (uint32_t)*at;
    /* Two targets share the key: the other one is found the slow way. */
    for (uint32_t i = 0; i < t->end; i++)
        if (is_target(t, i, w))
            return i;
    return WORKER_SLOT_NONE;
}

static uint32_t free_slot(struct worker_table *t)
{
    for (uint32_t i = 0; i < t->end; i++)
        if (!t->slots[i].used)
            return i;
    if (t->end == WORKER_SLOTS_MAX)
        return WORKER_SLOT_NONE;
    if (t->end == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 16;
        t->slots = xreallocarray(t->slots, t->cap, sizeof(*t->slots));
    }
    return t->end++;
}

uint32_t worker_table_add(struct worker_table *t, struct worker_rank w)
{
    uint32_t slot = worker_table_find(t, w);
    bool is_new;
    uint64_t *at;

    if (slot != WORKER_SLOT_NONE)
        return slot;
    slot = free_slot(t);
    if (slot == WORKER_SLOT_NONE)
        return slot;
    t->slots[slot] = (struct slot){w, true};
    at = map64_put(&t->by_target, worker_rank_key(w), &is_new);
    if (is_new)
        *at = slot;
    return slot;
}

void worker_table_remove(struct worker_table *t, uint32_t slot)
{
    uint64_t key = worker_rank_key(t->slots[slot].target);
    const uint64_t *at = map64_find(&t->by_target, key);

    t->slots[slot].used = false;
    if (at && *at == slot) {
        (void)map64_remove(&t->by_target, key, NULL);
        for (uint32_t i = 0; i < t->end; i++)
            if (t->slots[i].used && worker_rank_key(t->slots[i].target) == key)
                *map64_put(&t->by_target, key, NULL) = i;
    }
    while (t->end && !t->slots[t->end - 1].used)
        t->end--;
}

uint32_t worker_table_end(const struct worker_table *t)
{
    return t->end;
}

bool worker_table_get(const struct worker_table *t, uint32_t slot, struct worker_rank *ret)
{
    if (slot >= t->end || !t->slots[slot].used)
        return false;
    *ret = t->slots[slot].target;
    return true;
}
