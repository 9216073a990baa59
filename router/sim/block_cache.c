/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sim/block_cache.h"

#include <assert.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"

struct block {
    struct list lru; /* linked while inactive */
    struct cache_block id;
    uint64_t parent;
    uint32_t depth; /* 0 = begins a prompt */
    uint32_t refs;
    bool computed;
};

struct block_cache {
    struct map64 named;   /* hash -> struct block */
    struct list inactive; /* longest unused first */
    size_t capacity;
    size_t n_inactive, n_anonymous, n_computed;
    uint64_t *evicted; /* not yet told */
    size_t n_evicted, cap_evicted;
    uint64_t next_event;
    cache_event_fn event;
    void *arg;
};

struct block_cache *block_cache_new(size_t capacity, cache_event_fn event, void *arg)
{
    struct block_cache *c = xcalloc(1, sizeof(*c));

    assert(capacity > 0);
    c->capacity = capacity;
    c->event = event;
    c->arg = arg;
    list_init(&c->inactive);
    return c;
}

struct block_cache *block_cache_free(struct block_cache *c)
{
    uint64_t hash, value;

    if (!c)
        return NULL;
    for (size_t at = 0; map64_next(&c->named, &at, &hash, &value);)
        free((void *)(uintptr_t)value);
    map64_done(&c->named);
    free(c->evicted);
    free(c);
    return NULL;
}

static void tell(struct block_cache *c, struct cache_event ev)
{
    ev.id = c->next_event++;
    if (c->event)
        c->event(c->arg, &ev);
}

void block_cache_flush(struct block_cache *c)
{
    size_t n = c->n_evicted;

    c->n_evicted = 0;
    if (n > 0)
        tell(c, (struct cache_event){.kind = CACHE_REMOVED, .removed = c->evicted, .n_removed = n});
}

static void forget(struct block_cache *c, struct block *b)
{
    c->n_computed -= b->computed;
    (void)map64_remove(&c->named, b->id.hash, NULL);
    free(b);
}

static void evict(struct block_cache *c)
{
    struct block *b;

    assert(!list_empty(&c->inactive));
    b = LIST_ENTRY(c->inactive.next, struct block, lru);
    if (c->n_evicted == c->cap_evicted) {
        c->cap_evicted = c->cap_evicted ? 2 * c->cap_evicted : 64;
        c->evicted = xreallocarray(c->evicted, c->cap_evicted, sizeof(*c->evicted));
    }
    c->evicted[c->n_evicted++] = b->id.hash;
    list_remove(&b->lru);
    c->n_inactive--;
    forget(c, b);
}

static void make_room(struct block_cache *c)
{
    if (c->named.len + c->n_anonymous == c->capacity)
        evict(c);
}

size_t block_cache_active(const struct block_cache *c)
{
    return c->named.len - c->n_inactive + c->n_anonymous;
}

size_t block_cache_computed_count(const struct block_cache *c)
{
    return c->n_computed;
}

size_t block_cache_match(const struct block_cache *c, const struct cache_block *chain, size_t n)
{
    size_t i;

    for (i = 0; i < n; i++) {
        const struct block *b = map64_find_ptr(&c->named, chain[i].hash);

        if (!b || !b->computed)
            break;
    }
    return i;
}

static void reference(struct block_cache *c, struct block *b)
{
    if (b->refs++ == 0) {
        list_remove(&b->lru);
        c->n_inactive--;
    }
}

static struct block *create(struct block_cache *c, const struct cache_block *chain, size_t i)
{
    struct block *b;

    make_room(c);
    b = xcalloc(1, sizeof(*b));
    b->id = chain[i];
    b->parent = i > 0 ? chain[i - 1].hash : 0;
    b->depth = (uint32_t)i;
    b->refs = 1;
    map64_put_ptr(&c->named, b->id.hash, b);
    return b;
}

/* What is there is referenced before anything is created: creating may evict. */
void block_cache_hold(struct block_cache *c, const struct cache_block *chain, size_t n)
{
    size_t n_present = 0;

    for (; n_present < n; n_present++) {
        struct block *b = map64_find_ptr(&c->named, chain[n_present].hash);

        if (!b)
            break;
        reference(c, b);
    }
    for (size_t i = n_present; i < n; i++)
        (void)create(c, chain, i);
}

void block_cache_release(struct block_cache *c, const struct cache_block *chain, size_t n)
{
    while (n-- > 0) {
        struct block *b = map64_find_ptr(&c->named, chain[n].hash);

        assert(b && b->refs > 0);
        if (--b->refs > 0)
            continue;
        if (!b->computed) {
            forget(c, b);
            continue;
        }
        list_append(&c->inactive, &b->lru);
        c->n_inactive++;
    }
}

static void tell_stored(struct block_cache *c, const struct cache_block *chain, size_t from,
                        size_t to)
{
    block_cache_flush(c);
    tell(c, (struct cache_event){.kind = CACHE_STORED,
                                 .has_parent = from > 0,
                                 .parent = from > 0 ? chain[from - 1].hash : 0,
                                 .blocks = chain + from,
                                 .n_blocks = to - from});
}

/* Another sequence may have computed some of them meanwhile: one event for each run of new ones. */
void block_cache_computed(struct block_cache *c, const struct cache_block *chain, size_t from,
                          size_t to)
{
    size_t run = from;

    for (size_t i = from; i < to; i++) {
        struct block *b = map64_find_ptr(&c->named, chain[i].hash);

        assert(b && b->refs > 0);
        if (b->computed) {
            if (run < i)
                tell_stored(c, chain, run, i);
            run = i + 1;
            continue;
        }
        b->computed = true;
        c->n_computed++;
    }
    if (run < to)
        tell_stored(c, chain, run, to);
}

bool block_cache_take_anonymous(struct block_cache *c)
{
    if (block_cache_active(c) == c->capacity)
        return false;
    make_room(c);
    c->n_anonymous++;
    return true;
}

void block_cache_drop_anonymous(struct block_cache *c, size_t n)
{
    assert(n <= c->n_anonymous);
    c->n_anonymous -= n;
}

void block_cache_promote(struct block_cache *c, const struct cache_block *chain, size_t n)
{
    struct block *b = map64_find_ptr(&c->named, chain[n - 1].hash);

    block_cache_drop_anonymous(c, 1);
    if (b)
        reference(c, b);
    else
        (void)create(c, chain, n - 1);
    block_cache_computed(c, chain, n - 1, n);
}

static int by_depth(const void *a, const void *b)
{
    const struct block *x = *(const struct block *const *)a;
    const struct block *y = *(const struct block *const *)b;

    return (x->depth > y->depth) - (x->depth < y->depth);
}

void block_cache_each(const struct block_cache *c, cache_block_fn fn, void *arg)
{
    AUTO(mem_free) const struct block **all = NULL;
    uint64_t hash, value;
    size_t n = 0;

    if (c->n_computed == 0)
        return;
    all = xcalloc(c->n_computed, sizeof(const struct block *));
    for (size_t at = 0; map64_next(&c->named, &at, &hash, &value);) {
        const struct block *b = (const struct block *)(uintptr_t)value;

        if (b->computed)
            all[n++] = b;
    }
    qsort(all, n, sizeof(const struct block *), by_depth);
    for (size_t i = 0; i < n; i++)
        fn(arg, &all[i]->id, all[i]->depth > 0 ? &all[i]->parent : NULL);
}

void block_cache_check(const struct block_cache *c)
{
    size_t n_computed = 0, n_inactive = 0;
    uint64_t hash, value;

    for (size_t at = 0; map64_next(&c->named, &at, &hash, &value);) {
        const struct block *b = (const struct block *)(uintptr_t)value;
        const struct block *parent = b->depth ? map64_find_ptr(&c->named, b->parent) : NULL;

        assert(b->id.hash == hash);
        assert(list_linked(&b->lru) == (b->refs == 0));
        assert(b->refs > 0 || b->computed);
        assert(b->depth == 0 || (parent && parent->depth + 1 == b->depth));
        assert(!parent || !b->computed || parent->computed);
        assert(!parent || b->refs == 0 || parent->refs > 0);
        n_computed += b->computed;
        n_inactive += b->refs == 0;
    }
    assert(n_computed == c->n_computed && n_inactive == c->n_inactive);
    assert(c->named.len + c->n_anonymous <= c->capacity);
}
