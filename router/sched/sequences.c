/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A use is one target's interest in one block: (hash, slot) with the number of requests behind it.
 * All uses of a hash form a chain whose head the map knows; most chains have one element. Uses lie
 * in a pool and are named by position, 0 meaning none.
 */
#include "router/sched/sequences.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"

struct use {
    uint64_t hash;
    double fraction; /* how much the block counts: 1, or less for ageing output */
    uint32_t slot, refs;
    uint32_t next;
};

struct target {
    uint64_t prefill_tokens;
    uint64_t unique_blocks;
    double discount; /* sum of (1 - fraction) over its blocks */
    uint32_t n_requests;
    struct list bookings;
};

struct sequences {
    uint32_t block_size;
    struct map64 heads; /* block hash -> first use */
    struct use *uses;
    uint32_t n_uses, cap_uses, first_free;
    struct target **targets; /* by slot */
    size_t n_targets;
    size_t n_bookings;
};

struct booking {
    struct sequences *owner;
    struct list link; /* in its target, while that is there */
    uint32_t slot;
    uint32_t prefill_tokens;
    bool detached; /* the target is gone */
    uint64_t *hashes;
    size_t n_hashes, cap_hashes;
};

struct sequences *sequences_new(uint32_t block_size)
{
    struct sequences *s = xcalloc(1, sizeof(*s));

    assert(block_size >= 1);
    s->block_size = block_size;
    s->n_uses = 1;
    return s;
}

struct sequences *sequences_free(struct sequences *s)
{
    if (!s)
        return NULL;
    assert(s->n_bookings == 0);
    for (size_t i = 0; i < s->n_targets; i++)
        free(s->targets[i]);
    free(s->targets);
    free(s->uses);
    map64_done(&s->heads);
    free(s);
    return NULL;
}

static struct target *need_target(struct sequences *s, uint32_t slot)
{
    if (slot >= s->n_targets) {
        size_t n = MAX((size_t)slot + 1, s->n_targets * 2);

        s->targets = xreallocarray(s->targets, n, sizeof(*s->targets));
        memset(s->targets + s->n_targets, 0, (n - s->n_targets) * sizeof(*s->targets));
        s->n_targets = n;
    }
    if (!s->targets[slot]) {
        s->targets[slot] = xcalloc(1, sizeof(*s->targets[slot]));
        list_init(&s->targets[slot]->bookings);
    }
    return s->targets[slot];
}

static const struct target *find_target(const struct sequences *s, uint32_t slot)
{
    return slot < s->n_targets ? s->targets[slot] : NULL;
}

static uint32_t use_find(const struct sequences *s, uint64_t hash, uint32_t slot)
{
    const uint64_t *head = map64_find(&s->heads, hash);
    uint32_t id = head ? (uint32_t)*head : 0;

    while (id && s->uses[id].slot != slot)
        id = s->uses[id].next;
    return id;
}

static uint32_t use_take_free(struct sequences *s)
{
    uint32_t id = s->first_free;

    if (id) {
        s->first_free = s->uses[id].next;
        return id;
    }
    if (s->n_uses >= s->cap_uses) {
        s->cap_uses = s->cap_uses ? s->cap_uses * 2 : 256;
        s->uses = xreallocarray(s->uses, s->cap_uses, sizeof(*s->uses));
    }
    return s->n_uses++;
}

static void use_add(struct sequences *s, struct target *t, uint32_t slot, uint64_t hash)
{
    uint32_t id = use_find(s, hash, slot);
    uint64_t *head;

    if (id) {
        s->uses[id].refs++;
        return;
    }
    id = use_take_free(s);
    head = map64_put(&s->heads, hash, NULL);
    s->uses[id] =
        (struct use){.hash = hash, .fraction = 1, .slot = slot, .refs = 1, .next = (uint32_t)*head};
    *head = id;
    t->unique_blocks++;
}

static void use_unlink(struct sequences *s, uint32_t id)
{
    uint64_t *head = map64_find(&s->heads, s->uses[id].hash);
    uint32_t before = (uint32_t)*head;

    if (before == id) {
        *head = s->uses[id].next;
        if (*head == 0)
            (void)map64_remove(&s->heads, s->uses[id].hash, NULL);
    } else {
        while (s->uses[before].next != id)
            before = s->uses[before].next;
        s->uses[before].next = s->uses[id].next;
    }
    s->uses[id].next = s->first_free;
    s->first_free = id;
}

static void use_drop(struct sequences *s, struct target *t, uint32_t slot, uint64_t hash)
{
    uint32_t id = use_find(s, hash, slot);

    assert(id);
    if (--s->uses[id].refs > 0)
        return;
    t->unique_blocks--;
    t->discount -= 1 - s->uses[id].fraction;
    use_unlink(s, id);
}

static void add_hash(struct booking *b, uint64_t hash)
{
    if (b->n_hashes == b->cap_hashes) {
        b->cap_hashes = b->cap_hashes ? b->cap_hashes * 2 : 16;
        b->hashes = xreallocarray(b->hashes, b->cap_hashes, sizeof(*b->hashes));
    }
    b->hashes[b->n_hashes++] = hash;
    use_add(b->owner, b->owner->targets[b->slot], b->slot, hash);
}

struct booking *sequences_book(struct sequences *s, uint32_t slot, const uint64_t *sequence,
                               size_t n, uint32_t isl, uint32_t overlap_blocks)
{
    struct target *t = need_target(s, slot);
    struct booking *b = xcalloc(1, sizeof(*b));
    uint64_t cached = (uint64_t)overlap_blocks * s->block_size;

    b->owner = s;
    b->slot = slot;
    b->prefill_tokens = cached < isl ? isl - (uint32_t)cached : 0;
    b->cap_hashes = sequence ? n + 4 : 0;
    b->hashes = b->cap_hashes ? xreallocarray(NULL, b->cap_hashes, sizeof(*b->hashes)) : NULL;
    for (size_t i = 0; sequence && i < n; i++)
        add_hash(b, sequence[i]);

    t->prefill_tokens += b->prefill_tokens;
    t->n_requests++;
    list_append(&t->bookings, &b->link);
    s->n_bookings++;
    return b;
}

void booking_prefill_done(struct booking *b)
{
    if (!b->detached)
        b->owner->targets[b->slot]->prefill_tokens -= b->prefill_tokens;
    b->prefill_tokens = 0;
}

void booking_output_block(struct booking *b, uint64_t hash, double decay)
{
    struct sequences *s = b->owner;

    if (b->detached)
        return;
    add_hash(b, hash);
    if (!(decay > 0 && decay < 1))
        return;
    for (size_t i = 0; i < b->n_hashes; i++) {
        struct use *u = &s->uses[use_find(s, b->hashes[i], b->slot)];

        if (u->refs == 1) {
            s->targets[b->slot]->discount += u->fraction - decay;
            u->fraction = decay;
        }
    }
}

/* What the booking counts for on its target ends. */
static void detach(struct booking *b)
{
    struct target *t = b->owner->targets[b->slot];

    booking_prefill_done(b);
    for (size_t i = 0; i < b->n_hashes; i++)
        use_drop(b->owner, t, b->slot, b->hashes[i]);
    b->n_hashes = 0;
    t->n_requests--;
    list_remove(&b->link);
    b->detached = true;
}

struct booking *booking_release(struct booking *b)
{
    if (!b)
        return NULL;
    if (!b->detached)
        detach(b);
    b->owner->n_bookings--;
    free(b->hashes);
    free(b);
    return NULL;
}

uint32_t booking_slot(const struct booking *b)
{
    return b->slot;
}

void sequences_drop_slot(struct sequences *s, uint32_t slot)
{
    if (!find_target(s, slot))
        return;
    LIST_FOREACH (b, &s->targets[slot]->bookings, struct booking, link)
        detach(b);
    free(s->targets[slot]);
    s->targets[slot] = NULL;
}

uint32_t sequences_active_requests(const struct sequences *s, uint32_t slot)
{
    const struct target *t = find_target(s, slot);

    return t ? t->n_requests : 0;
}

uint64_t sequences_prefill_tokens(const struct sequences *s, uint32_t slot)
{
    const struct target *t = find_target(s, slot);

    return t ? t->prefill_tokens : 0;
}

uint64_t sequences_active_blocks(const struct sequences *s, uint32_t slot)
{
    const struct target *t = find_target(s, slot);

    return t ? (uint64_t)llround((double)t->unique_blocks - t->discount) : 0;
}

void sequences_shared(const struct sequences *s, const uint64_t *sequence, size_t n,
                      uint32_t *ret_shared, size_t n_slots)
{
    memset(ret_shared, 0, n_slots * sizeof(*ret_shared));
    for (size_t i = 0; i < n; i++) {
        const uint64_t *head = map64_find(&s->heads, sequence[i]);

        for (uint32_t id = head ? (uint32_t)*head : 0; id; id = s->uses[id].next)
            if (s->uses[id].slot < n_slots)
                ret_shared[s->uses[id].slot]++;
    }
}

size_t sequences_bookings(const struct sequences *s)
{
    return s->n_bookings;
}
