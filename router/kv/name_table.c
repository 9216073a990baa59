/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/name_table.h"

#include <assert.h>

enum {
    BUCKETS_MIN = 4,
    BUCKETS_MAX = 1 << 27,
    SLACK = 128, /* buckets behind the last home that may come to be used */
    /* A table that empties moves seldom, for the system clears the pages of each that it moves to. */
    SHRINK_BELOW = 8, /* of whose lanes one is used, */
    SHRINK_BY = 4,
    MOVE = 3, /* old buckets that a change moves at least: done before it gets too full */
};

/*
 * Hashes that are none may displace each other past SLACK, so there are buckets for as many entries
 * as there can be. No page of them is touched, and none is charged, for hashes that are.
 */
static size_t place_size(const struct name_place *p)
{
    return p->n ? ((size_t)p->n * 2 + 1) * sizeof(struct name_bucket) : 0;
}

static size_t place_charge(const struct name_place *p)
{
    return p->n ? ((size_t)p->n + SLACK) * sizeof(struct name_bucket) : 0;
}

static void place_done(struct name_place *p, struct kv_mem *mem)
{
    kv_free_part(mem, p->buckets, place_size(p), place_charge(p));
    *p = (struct name_place){0};
}

void name_table_done(struct name_table *t, struct kv_mem *mem)
{
    place_done(&t->now, mem);
    place_done(&t->old, mem);
    *t = (struct name_table){0};
}

static void insert(struct name_bucket *home, uint32_t check, uint32_t position)
{
    struct name_bucket *b = home;

    while (b->len == NAME_LANES)
        b++->spilled++;
    b->check[b->len] = check;
    b->position[b->len++] = position;
}

/* --- moving ------------------------------------------------------------------------------------
 */

/* What @n changes have to move, up to a bucket that spills nothing: all before it is moved then. */
static void move_some(struct name_table *t, struct kv_mem *mem, size_t n)
{
    size_t i = t->moved, end = MIN((size_t)t->old.n, i + n * MOVE);
    bool spills = false;

    for (; i < end || spills; i++) {
        const struct name_bucket *b = &t->old.buckets[i];

        for (uint32_t k = 0; k < b->len; k++)
            insert(&t->now.buckets[name_home(&t->now, b->check[k])], b->check[k], b->position[k]);
        spills = b->spilled;
    }
    t->moved = (uint32_t)i;
    if (i >= t->old.n)
        place_done(&t->old, mem);
}

static void move_to(struct name_table *t, struct kv_mem *mem, uint32_t n)
{
    struct name_place to = {.n = n};

    if (t->old.n || n > BUCKETS_MAX)
        return;
    to.buckets = kv_alloc_part(mem, place_size(&to), place_charge(&to));
    if (!to.buckets)
        return;
    t->old = t->now;
    t->now = to;
    t->moved = 0;
}

bool name_table_reserve(struct name_table *t, struct kv_mem *mem, size_t n)
{
    size_t room = (size_t)t->now.n * NAME_LANES;

    if ((t->len + n) * 8 > room * 7)
        move_to(t, mem, t->now.n ? t->now.n * 2 : BUCKETS_MIN);
    if (t->old.n)
        move_some(t, mem, n);
    /* Without memory it may get fuller than it should be. */
    room = (size_t)t->now.n * NAME_LANES;
    return t->len + n < room - room / 16;
}

void name_table_shrink(struct name_table *t, struct kv_mem *mem, size_t n)
{
    if (t->len == 0)
        name_table_done(t, mem);
    else if (t->now.n > 4 * BUCKETS_MIN && t->len < (size_t)t->now.n * NAME_LANES / SHRINK_BELOW)
        move_to(t, mem, t->now.n / SHRINK_BY);
    if (t->old.n)
        move_some(t, mem, n);
}

/* --- entries -----------------------------------------------------------------------------------
 */

void name_table_put(struct name_table *t, uint64_t mixed, uint32_t position)
{
    assert(position);
    insert(name_table_home(t, mixed), name_check(mixed), position);
    t->len++;
}

/* Whether an entry in a bucket or behind it may be meant. */
static bool is_known(const struct name_bucket *b, uint32_t check)
{
    while (!name_lanes(b->check, b->len, check) && b->spilled)
        b++;
    return name_lanes(b->check, b->len, check);
}

/*
 * Looks and inserts in one go, for how many buckets are full is what the processor guesses wrong:
 * those before the place count the entry at once, and no more if it turns out to be known.
 */
bool name_table_put_new(struct name_table *t, uint64_t mixed, uint32_t position)
{
    struct name_bucket *home = name_table_home(t, mixed), *b = home;
    uint32_t check = name_check(mixed), lanes;

    while (!(lanes = name_lanes(b->check, b->len, check)) && b->len == NAME_LANES)
        b++->spilled++;
    if (lanes || (b->spilled && is_known(b, check))) {
        while (b > home)
            (--b)->spilled--;
        return false;
    }
    b->check[b->len] = check;
    b->position[b->len++] = position;
    t->len++;
    return true;
}

void name_table_remove(struct name_table *t, uint64_t mixed, uint32_t position)
{
    struct name_bucket *b = name_table_home(t, mixed);
    uint32_t lanes, lane;

    while (!(lanes = name_lanes(b->position, b->len, position))) {
        assert(b->spilled);
        b++->spilled--;
    }
    lane = (uint32_t)__builtin_ctz(lanes);
    b->len--;
    b->check[lane] = b->check[b->len];
    b->position[lane] = b->position[b->len];
    t->len--;
}
