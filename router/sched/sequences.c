/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run is a stretch of blocks that the same bookings go through. Every booking ends at the end of
 * a run; one that ends or turns off inside cuts it in two, and the lower half keeps the number, so
 * that bookings and children need no repair. The users of a run are the targets of those bookings,
 * sorted by slot. Runs are named by position, 0 is the root above all prompts. A run without users
 * has no children either and goes at once, so there are at most two runs per booking.
 */
#include "router/sched/sequences.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lib/base/list.h"
#include "router/kv/edge_table.h"

enum { ROOT = 0 };

struct user {
    uint32_t slot, refs; /* bookings of that target which run through here */
    double fraction;     /* how much each block counts: 1, or less for ageing output */
};

struct run {
    uint64_t *hashes; /* NULL in a free run */
    uint32_t n_hashes;
    uint32_t parent; /* of a free run: the next free one */
    struct user *users;
    uint32_t n_users, cap_users;
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
    struct run *runs;
    uint32_t n_runs, cap_runs, first_free;
    struct edge_table edges; /* (run, first hash of the next) -> next run */
    struct target **targets; /* by slot */
    size_t n_targets;
    size_t n_bookings;
};

struct booking {
    struct sequences *owner;
    struct list link; /* in its target, while that is there */
    uint32_t slot;
    uint32_t prefill_tokens;
    uint32_t last; /* the run where its prompt ends */
    uint32_t n_output;
    double output_discount; /* its part of the target's discount */
    bool detached;          /* the target is gone */
};

struct sequences *sequences_new(uint32_t block_size)
{
    struct sequences *s = xcalloc(1, sizeof(*s));

    assert(block_size >= 1);
    s->block_size = block_size;
    s->n_runs = 1;
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
    free(s->runs);
    edge_table_done(&s->edges);
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

/* --- users of a run ----------------------------------------------------------------------------
 */

/* Position of the slot's user, or where it belongs. */
static uint32_t user_position(const struct run *r, uint32_t slot)
{
    uint32_t low = 0, high = r->n_users;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (r->users[middle].slot < slot)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct user *user_get(const struct run *r, uint32_t slot)
{
    uint32_t at = user_position(r, slot);

    assert(at < r->n_users && r->users[at].slot == slot);
    return &r->users[at];
}

static void user_add(struct run *r, struct target *t, uint32_t slot)
{
    uint32_t at = user_position(r, slot);

    if (at < r->n_users && r->users[at].slot == slot) {
        r->users[at].refs++;
        return;
    }
    if (r->n_users == r->cap_users) {
        r->cap_users = r->cap_users ? r->cap_users * 2 : 1;
        r->users = xreallocarray(r->users, r->cap_users, sizeof(*r->users));
    }
    memmove(r->users + at + 1, r->users + at, (r->n_users - at) * sizeof(*r->users));
    r->users[at] = (struct user){.slot = slot, .refs = 1, .fraction = 1};
    r->n_users++;
    t->unique_blocks += r->n_hashes;
}

static void user_drop(struct run *r, struct target *t, uint32_t slot)
{
    struct user *u = user_get(r, slot);

    if (--u->refs > 0)
        return;
    t->unique_blocks -= r->n_hashes;
    t->discount -= (1 - u->fraction) * r->n_hashes;
    r->n_users--;
    memmove(u, u + 1, (size_t)(r->users + r->n_users - u) * sizeof(*u));
}

/* --- runs --------------------------------------------------------------------------------------
 */

static uint32_t run_take_free(struct sequences *s)
{
    uint32_t id = s->first_free;

    if (id) {
        s->first_free = s->runs[id].parent;
        return id;
    }
    if (s->n_runs >= s->cap_runs) {
        s->cap_runs = s->cap_runs ? s->cap_runs * 2 : 64;
        s->runs = xreallocarray(s->runs, s->cap_runs, sizeof(*s->runs));
    }
    return s->n_runs++;
}

static uint32_t run_new(struct sequences *s, uint32_t parent, const uint64_t *hashes, size_t n)
{
    uint32_t id = run_take_free(s);
    struct run *r = &s->runs[id];

    *r = (struct run){.n_hashes = (uint32_t)n, .parent = parent};
    r->hashes = xreallocarray(NULL, n, sizeof(*hashes));
    memcpy(r->hashes, hashes, n * sizeof(*hashes));
    edge_table_put(&s->edges, parent, hashes[0], id);
    return id;
}

static void run_free(struct sequences *s, uint32_t id)
{
    struct run *r = &s->runs[id];

    edge_table_remove(&s->edges, r->parent, r->hashes[0]);
    free(r->hashes);
    free(r->users);
    *r = (struct run){.parent = s->first_free};
    s->first_free = id;
}

/* Cuts the run after its first @n blocks; returns the new upper half. */
static uint32_t run_split(struct sequences *s, uint32_t id, uint32_t n)
{
    uint32_t upper = run_new(s, s->runs[id].parent, s->runs[id].hashes, n);
    struct run *u = &s->runs[upper], *r = &s->runs[id];

    u->users = xreallocarray(NULL, r->n_users, sizeof(*u->users));
    memcpy(u->users, r->users, r->n_users * sizeof(*u->users));
    u->n_users = u->cap_users = r->n_users;

    r->n_hashes -= n;
    memmove(r->hashes, r->hashes + n, r->n_hashes * sizeof(*r->hashes));
    r->parent = upper;
    edge_table_put(&s->edges, upper, r->hashes[0], id);
    return upper;
}

static uint32_t common_length(const struct run *r, const uint64_t *hashes, size_t n)
{
    uint32_t most = (uint32_t)MIN(n, (size_t)r->n_hashes), i = 0;

    while (i < most && r->hashes[i] == hashes[i])
        i++;
    return i;
}

/* The run that ends where the sequence does; the rest of the sequence becomes a run without users.
 */
static uint32_t need_path(struct sequences *s, const uint64_t *sequence, size_t n)
{
    uint32_t at = ROOT;

    for (size_t depth = 0; depth < n;) {
        uint32_t id = edge_table_find(&s->edges, at, sequence[depth]), common;

        if (!id)
            return run_new(s, at, sequence + depth, n - depth);
        common = common_length(&s->runs[id], sequence + depth, n - depth);
        at = common < s->runs[id].n_hashes ? run_split(s, id, common) : id;
        depth += common;
    }
    return at;
}

/* --- bookings ----------------------------------------------------------------------------------
 */

struct booking *sequences_book(struct sequences *s, uint32_t slot, const uint64_t *sequence,
                               size_t n, uint32_t isl, uint32_t overlap_blocks)
{
    struct target *t = need_target(s, slot);
    struct booking *b = xcalloc(1, sizeof(*b));
    uint64_t cached = (uint64_t)overlap_blocks * s->block_size;

    b->owner = s;
    b->slot = slot;
    b->prefill_tokens = cached < isl ? isl - (uint32_t)cached : 0;
    b->last = sequence ? need_path(s, sequence, n) : ROOT;
    for (uint32_t id = b->last; id != ROOT; id = s->runs[id].parent)
        user_add(&s->runs[id], t, slot);

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

static void set_output_discount(struct booking *b, struct target *t, double discount)
{
    t->discount += discount - b->output_discount;
    b->output_discount = discount;
}

void booking_output_block(struct booking *b, double decay)
{
    struct sequences *s = b->owner;
    struct target *t;

    if (b->detached)
        return;
    t = s->targets[b->slot];
    t->unique_blocks++;
    b->n_output++;
    if (!(decay > 0 && decay < 1))
        return;
    set_output_discount(b, t, (1 - decay) * b->n_output);
    for (uint32_t id = b->last; id != ROOT; id = s->runs[id].parent) {
        struct user *u = user_get(&s->runs[id], b->slot);

        if (u->refs == 1) {
            t->discount += (u->fraction - decay) * s->runs[id].n_hashes;
            u->fraction = decay;
        }
    }
}

/* What the booking counts for on its target ends. */
static void detach(struct booking *b)
{
    struct sequences *s = b->owner;
    struct target *t = s->targets[b->slot];

    booking_prefill_done(b);
    set_output_discount(b, t, 0);
    t->unique_blocks -= b->n_output;
    for (uint32_t id = b->last, up; id != ROOT; id = up) {
        up = s->runs[id].parent;
        user_drop(&s->runs[id], t, b->slot);
        if (s->runs[id].n_users == 0)
            run_free(s, id);
    }
    if (t->unique_blocks == 0)
        t->discount = 0; /* rounding does not add up over the years */
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

/* --- loads -------------------------------------------------------------------------------------
 */

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
    uint32_t at = ROOT, common;

    memset(ret_shared, 0, n_slots * sizeof(*ret_shared));
    for (size_t depth = 0; depth < n; depth += common) {
        const struct run *r;

        at = edge_table_find(&s->edges, at, sequence[depth]);
        if (at == ROOT)
            break;
        r = &s->runs[at];
        common = common_length(r, sequence + depth, n - depth);
        /* Who uses this run uses all above it. */
        for (uint32_t i = 0; i < r->n_users && r->users[i].slot < n_slots; i++)
            ret_shared[r->users[i].slot] = (uint32_t)depth + common;
        if (common < r->n_hashes)
            break;
    }
}

size_t sequences_bookings(const struct sequences *s)
{
    return s->n_bookings;
}

void sequences_check(const struct sequences *s)
{
    size_t n_live = 0;

    for (uint32_t id = 1; id < s->n_runs; id++) {
        const struct run *r = &s->runs[id];

        if (!r->hashes)
            continue;
        n_live++;
        assert(r->n_hashes > 0 && r->n_users > 0);
        assert(edge_table_find(&s->edges, r->parent, r->hashes[0]) == id);
        for (uint32_t i = 0; i < r->n_users; i++) {
            assert(r->users[i].refs > 0);
            assert(i == 0 || r->users[i - 1].slot < r->users[i].slot);
            if (r->parent != ROOT)
                assert(user_get(&s->runs[r->parent], r->users[i].slot)->refs >= r->users[i].refs);
        }
    }
    assert(n_live == s->edges.len);
    assert(n_live <= 2 * s->n_bookings);
    (void)n_live;
}
