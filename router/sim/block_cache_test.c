/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sim/block_cache.h"
#include "lib/base/test.h"

#include "router/kv/prefix_index.h"

enum { CAPACITY = 12, DEPTH = 4, LETTERS = 3, HOLDERS = 5, CONTEXTS = 512 };

/* A chain spelt by letters: block i is named by the letters up to i, in base 4 with a leading 1. */
static size_t chain_of(unsigned letters, size_t n, struct cache_block *ret)
{
    uint64_t name = 1;

    for (size_t i = 0; i < n; i++, letters /= LETTERS) {
        name = name * 4 + letters % LETTERS;
        ret[i] = (struct cache_block){.hash = name, .tokens_hash = letters % LETTERS + 100};
    }
    return n;
}

/* What a router would know: the events replayed into the real index. */
struct mirror {
    struct prefix_index *index;
    uint64_t next_id;
    size_t n_events;
};

static void mirror_event(void *arg, const struct cache_event *ev)
{
    struct mirror *m = arg;

    assert_int_equal(ev->id, m->next_id++);
    m->n_events++;
    if (ev->kind == CACHE_REMOVED) {
        assert_int_equal(prefix_index_remove(m->index, 0, ev->removed, ev->n_removed), 0);
        return;
    }
    assert_true(ev->n_blocks > 0);
    for (size_t i = 0; i < ev->n_blocks; i++) {
        const struct prefix_block b = {ev->blocks[i].hash, ev->blocks[i].tokens_hash};
        const uint64_t *parent = i ? &ev->blocks[i - 1].hash : ev->has_parent ? &ev->parent : NULL;

        assert_int_equal(prefix_index_store(m->index, 0, parent, &b, 1), 0);
    }
}

static void what_was_computed_is_found_again_and_told_once(void **state)
{
    struct mirror m = {.index = prefix_index_new(100)};
    AUTO(block_cache_free) struct block_cache *c = block_cache_new(CAPACITY, mirror_event, &m);
    struct cache_block chain[DEPTH];

    (void)state;
    chain_of(5, DEPTH, chain);
    block_cache_hold(c, chain, DEPTH);
    assert_int_equal(block_cache_match(c, chain, DEPTH), 0);
    block_cache_computed(c, chain, 0, 2);
    assert_int_equal(block_cache_match(c, chain, DEPTH), 2);
    block_cache_hold(c, chain, DEPTH);
    block_cache_computed(c, chain, 0, DEPTH);
    assert_int_equal(m.n_events, 2);
    block_cache_release(c, chain, DEPTH);
    block_cache_release(c, chain, DEPTH);
    assert_int_equal(block_cache_active(c), 0);
    assert_int_equal(block_cache_match(c, chain, DEPTH), DEPTH);
    assert_int_equal(prefix_index_held(m.index, 0), DEPTH);
    block_cache_check(c);
    prefix_index_free(m.index);
}

static void the_longest_unused_goes_first_and_leaves_before_roots(void **state)
{
    struct mirror m = {.index = prefix_index_new(100)};
    AUTO(block_cache_free) struct block_cache *c = block_cache_new(4, mirror_event, &m);
    struct cache_block a[2], b[2];

    (void)state;
    chain_of(0, 2, a);
    chain_of(1, 2, b);
    block_cache_hold(c, a, 2);
    block_cache_computed(c, a, 0, 2);
    block_cache_release(c, a, 2);
    block_cache_hold(c, b, 2);
    block_cache_computed(c, b, 0, 2);
    block_cache_release(c, b, 2);
    assert_true(block_cache_take_anonymous(c));
    block_cache_flush(c);
    assert_int_equal(block_cache_match(c, a, 2), 1);
    assert_int_equal(block_cache_match(c, b, 2), 2);
    for (int i = 0; i < 3; i++)
        assert_true(block_cache_take_anonymous(c));
    assert_false(block_cache_take_anonymous(c));
    block_cache_flush(c);
    assert_int_equal(prefix_index_held(m.index, 0), 0);
    block_cache_check(c);
    prefix_index_free(m.index);
}

static void what_was_never_computed_leaves_no_trace(void **state)
{
    struct mirror m = {.index = prefix_index_new(100)};
    AUTO(block_cache_free) struct block_cache *c = block_cache_new(CAPACITY, mirror_event, &m);
    struct cache_block chain[DEPTH];

    (void)state;
    chain_of(7, DEPTH, chain);
    block_cache_hold(c, chain, DEPTH);
    block_cache_computed(c, chain, 0, 1);
    block_cache_release(c, chain, DEPTH);
    assert_int_equal(block_cache_match(c, chain, DEPTH), 1);
    assert_int_equal(block_cache_computed_count(c), 1);
    assert_int_equal(prefix_index_held(m.index, 0), 1);
    block_cache_check(c);
    prefix_index_free(m.index);
}

/*
 * Oracle: per block name a reference count, whether it is computed and when it was last released.
 * Everything is recomputed from that by looking at all names.
 */
struct plain {
    struct plain_block {
        unsigned refs;
        bool computed;
        unsigned long released;
    } blocks[CONTEXTS];
    unsigned long now;
    size_t n_anonymous;
};

static size_t plain_used(const struct plain *p, bool active_only)
{
    size_t n = p->n_anonymous;

    for (size_t i = 0; i < CONTEXTS; i++)
        n += p->blocks[i].refs > 0 || (!active_only && p->blocks[i].computed);
    return n;
}

static void plain_make_room(struct plain *p)
{
    size_t oldest = CONTEXTS;

    if (plain_used(p, false) < CAPACITY)
        return;
    for (size_t i = 0; i < CONTEXTS; i++)
        if (p->blocks[i].computed && p->blocks[i].refs == 0 &&
            (oldest == CONTEXTS || p->blocks[i].released < p->blocks[oldest].released))
            oldest = i;
    assert_true(oldest < CONTEXTS);
    p->blocks[oldest].computed = false;
}

struct holder {
    struct cache_block chain[DEPTH];
    size_t n_held, n_computed;
    bool has_anonymous;
};

static void hold_both(struct block_cache *c, struct plain *p, struct holder *h, unsigned random)
{
    size_t n = random % DEPTH;

    if (block_cache_active(c) + n + 1 > CAPACITY)
        return;
    h->n_held = chain_of(random >> 4, n, h->chain);
    chain_of(random >> 4, DEPTH, h->chain);
    h->n_computed = block_cache_match(c, h->chain, n);
    for (size_t i = 0; i < h->n_computed; i++)
        assert_true(p->blocks[h->chain[i].hash].computed);
    for (size_t i = 0; i < n; i++) /* what is there first: making room must not take it */
        if (p->blocks[h->chain[i].hash].refs > 0 || p->blocks[h->chain[i].hash].computed)
            p->blocks[h->chain[i].hash].refs++;
        else
            break;
    for (size_t i = 0, fresh = 0; i < n; i++) {
        struct plain_block *b = &p->blocks[h->chain[i].hash];

        fresh |= b->refs == 0;
        if (fresh) {
            plain_make_room(p);
            b->refs++;
        }
    }
    block_cache_hold(c, h->chain, n);
    plain_make_room(p);
    p->n_anonymous++;
    assert_true(block_cache_take_anonymous(c));
    h->has_anonymous = true;
}

static void release_both(struct block_cache *c, struct plain *p, struct holder *h)
{
    for (size_t i = h->n_held; i-- > 0;) {
        p->blocks[h->chain[i].hash].refs--;
        p->blocks[h->chain[i].hash].released = ++p->now;
    }
    block_cache_release(c, h->chain, h->n_held);
    block_cache_drop_anonymous(c, 1);
    p->n_anonymous--;
    *h = (struct holder){.n_held = 0};
}

static void advance_both(struct block_cache *c, struct plain *p, struct holder *h)
{
    if (h->n_computed < h->n_held) {
        p->blocks[h->chain[h->n_computed].hash].computed = true;
        block_cache_computed(c, h->chain, h->n_computed, h->n_computed + 1);
        h->n_computed++;
    } else if (h->n_held < DEPTH && block_cache_active(c) < CAPACITY) {
        struct plain_block *b = &p->blocks[h->chain[h->n_held].hash];

        p->n_anonymous--;
        b->refs++;
        b->computed = true;
        h->n_computed = ++h->n_held;
        block_cache_promote(c, h->chain, h->n_held);
        plain_make_room(p);
        p->n_anonymous++;
        assert_true(block_cache_take_anonymous(c));
    }
}

static void compare(const struct block_cache *c, const struct plain *p, const struct mirror *m)
{
    size_t n_computed = 0;

    block_cache_check(c);
    prefix_index_check(m->index);
    assert_int_equal(block_cache_active(c), plain_used(p, true));
    for (unsigned w = 0; w < LETTERS * LETTERS * LETTERS * LETTERS; w++) {
        struct cache_block chain[DEPTH];
        uint64_t local[DEPTH];
        uint32_t score;
        size_t want = 0;

        chain_of(w, DEPTH, chain);
        for (size_t i = 0; i < DEPTH; i++)
            local[i] = chain[i].tokens_hash;
        while (want < DEPTH && p->blocks[chain[want].hash].computed)
            want++;
        assert_int_equal(block_cache_match(c, chain, DEPTH), want);
        (void)prefix_index_match(m->index, local, DEPTH, &score, 1);
        assert_int_equal(score, want);
    }
    for (size_t i = 0; i < CONTEXTS; i++)
        n_computed += p->blocks[i].computed;
    assert_int_equal(block_cache_computed_count(c), n_computed);
    assert_int_equal(prefix_index_held(m->index, 0), n_computed);
}

static void random_use_agrees_with_a_plain_model_and_with_an_index_fed_by_the_events(void **state)
{
    struct mirror m = {.index = prefix_index_new(1000)};
    AUTO(block_cache_free) struct block_cache *c = block_cache_new(CAPACITY, mirror_event, &m);
    struct holder holders[HOLDERS] = {0};
    struct plain p = {.now = 0};
    unsigned random = 12345;

    (void)state;
    for (int step = 0; step < 4000; step++) {
        struct holder *h;

        random = random * 1103515245u + 12345u;
        h = &holders[(random >> 16) % HOLDERS];
        if (!h->has_anonymous)
            hold_both(c, &p, h, random >> 8);
        else if ((random >> 28) % 4 == 0)
            release_both(c, &p, h);
        else
            advance_both(c, &p, h);
        block_cache_flush(c);
        if (step % 7 == 0)
            compare(c, &p, &m);
    }
    assert_true(m.n_events > 500);
    prefix_index_free(m.index);
}

static void dump_one(void *arg, const struct cache_block *block, const uint64_t *parent)
{
    const struct prefix_block b = {block->hash, block->tokens_hash};

    assert_int_equal(prefix_index_store(arg, 0, parent, &b, 1), 0);
}

static void a_dump_rebuilds_an_index_parents_first(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    AUTO(block_cache_free) struct block_cache *c = block_cache_new(1000, NULL, NULL);
    struct cache_block chain[DEPTH];

    (void)state;
    for (unsigned w = 0; w < 81; w++) {
        chain_of(w, DEPTH, chain);
        block_cache_hold(c, chain, DEPTH);
        block_cache_computed(c, chain, 0, DEPTH);
        block_cache_release(c, chain, DEPTH);
    }
    block_cache_each(c, dump_one, ix);
    assert_int_equal(prefix_index_held(ix, 0), 3 + 9 + 27 + 81);
}

int main(void)
{
    return TEST_RUN(T(what_was_computed_is_found_again_and_told_once),
                    T(the_longest_unused_goes_first_and_leaves_before_roots),
                    T(what_was_never_computed_leaves_no_trace),
                    T(random_use_agrees_with_a_plain_model_and_with_an_index_fed_by_the_events),
                    T(a_dump_rebuilds_an_index_parents_first));
}
