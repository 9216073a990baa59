/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_memory.h"

#include "router/kv/prefix_index.h"
#include "router/kv/tier_index.h"
#include "router/sync/event_blocks.h"

enum { SLOT = 0 }; /* of the only worker that the indexes know */

struct event_memory {
    struct event_ring *ring;
    struct prefix_index *device;
    struct tier_index *slower;
};

struct event_memory *event_memory_new(void)
{
    struct event_memory *m = xcalloc(1, sizeof(*m));

    m->ring = event_ring_new();
    m->device = prefix_index_new(EVENT_MEMORY_BYTES / 2);
    m->slower = tier_index_new(EVENT_MEMORY_BYTES / 2);
    return m;
}

struct event_memory *event_memory_free(struct event_memory *m)
{
    if (!m)
        return NULL;
    event_ring_free(m->ring);
    prefix_index_free(m->device);
    tier_index_free(m->slower);
    free(m);
    return NULL;
}

/* --- what is held ----------------------------------------------------------------------------- */

/* What does not fit, or follows what nobody knows, is left out as a router leaves it out. */
static void apply_to_device(struct event_memory *m, const struct kv_event *ev)
{
    switch (ev->kind) {
    case KV_STORED:
        (void)!prefix_index_store(m->device, SLOT, event_parent(ev), event_blocks(ev),
                                  ev->n_blocks);
        break;
    case KV_REMOVED:
        (void)prefix_index_remove(m->device, SLOT, ev->removed, ev->n_removed);
        break;
    case KV_CLEARED:
        prefix_index_clear(m->device, SLOT);
        break;
    }
}

static void apply_to_slower(struct event_memory *m, const struct kv_event *ev)
{
    enum cache_tier tier = (enum cache_tier)(ev->tier - KV_TIER_HOST);

    switch (ev->kind) {
    case KV_STORED:
        tier_index_store(m->slower, SLOT, tier, event_parent(ev), event_blocks(ev), ev->n_blocks);
        break;
    case KV_REMOVED:
        (void)tier_index_remove(m->slower, SLOT, tier, ev->removed, ev->n_removed);
        break;
    case KV_CLEARED:
        tier_index_clear_tier(m->slower, SLOT, tier);
        break;
    }
}

void event_memory_push(struct event_memory *m, const struct kv_event *ev)
{
    event_ring_push(m->ring, ev);
    if (ev->tier == KV_TIER_DEVICE)
        apply_to_device(m, ev);
    else
        apply_to_slower(m, ev);
}

const struct kv_event *event_memory_newest(const struct event_memory *m)
{
    return event_ring_newest(m->ring);
}

/* --- answers ---------------------------------------------------------------------------------- */

struct dump {
    struct buf *out;
    struct kv_event next; /* whose, where, its number */
};

static void dump_blocks(void *arg, const uint64_t *parent, const struct prefix_block *blocks,
                        size_t n)
{
    struct dump *d = arg;

    d->next.parent_hash = (struct opt_u64){parent != NULL, parent ? *parent : 0};
    d->next.blocks = blocks_of_event(blocks);
    d->next.n_blocks = n;
    if (d->next.event_id > 0)
        buf_put_char(d->out, ',');
    kv_event_put_json(d->out, &d->next);
    d->next.event_id++;
}

static void dump_rank(struct event_memory *m, struct dump *d)
{
    const struct kv_event *newest = event_ring_newest(m->ring);

    if (!newest)
        return;
    d->next.worker_id = newest->worker_id;
    d->next.dp_rank = newest->dp_rank;
    d->next.tier = KV_TIER_DEVICE;
    prefix_index_each(m->device, SLOT, dump_blocks, d);
    for (int tier = 0; tier < N_CACHE_TIERS; tier++) {
        d->next.tier = (enum kv_tier)(KV_TIER_HOST + tier);
        tier_index_each(m->slower, SLOT, (enum cache_tier)tier, dump_blocks, d);
    }
}

static void put_dump(struct event_memory *const *ranks, size_t n, bool newer, struct buf *out)
{
    struct dump d = {.out = out, .next = {.kind = KV_STORED}};

    kv_events_begin_put("TreeDump", out, newer);
    for (size_t i = 0; i < n; i++)
        dump_rank(ranks[i], &d);
    kv_events_end_put(ranks[0]->ring, out, newer);
}

void event_memory_answer(struct event_memory *m, const struct kv_query *q, bool newer,
                         struct buf *out)
{
    if (event_ring_answer(m->ring, q, newer, out) == EVENT_RING_DUMP)
        put_dump(&m, 1, newer, out);
}

void event_memory_dump(struct event_memory *const *ranks, size_t n, struct buf *out)
{
    put_dump(ranks, n, false, out);
}
