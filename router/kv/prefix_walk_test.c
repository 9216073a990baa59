/* SPDX-License-Identifier: Apache-2.0 */
/* What the walk gives out builds the same index again. */
#include "lib/base/test.h"
#include "router/kv/prefix_index.h"

enum { PROMPTS = 60, DEPTH_MAX = 100, WORKERS = 4 };

struct copy {
    struct prefix_index *into;
    uint32_t slot;
    size_t n;
};

static void on_blocks(void *arg, const uint64_t *parent, const struct prefix_block *blocks,
                      size_t n)
{
    struct copy *c = arg;

    assert_int_equal(prefix_index_store(c->into, c->slot, parent, blocks, n), 0);
    c->n += n;
}

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Prompts that share beginnings; workers with hashes of their own, so that some are aliases. */
static size_t prompt(uint64_t *state, uint64_t local[DEPTH_MAX])
{
    size_t n = 1 + draw(state) % DEPTH_MAX, turn = draw(state) % (n + 1);
    uint64_t branch = 1 + draw(state) % 5;

    for (size_t i = 0; i < n; i++)
        local[i] = i < turn ? 1000 + i : branch * 100000 + i;
    return n;
}

static void store(struct prefix_index *ix, uint32_t slot, const uint64_t *local, size_t n)
{
    struct prefix_block blocks[DEPTH_MAX];
    uint64_t name = slot < 2 ? 7 : slot; /* two agree, two do not */

    for (size_t i = 0; i < n; i++) {
        name = (name ^ local[i]) * UINT64_C(0x9E3779B97F4A7C15);
        blocks[i] = (struct prefix_block){name, local[i]};
    }
    assert_int_equal(prefix_index_store(ix, slot, NULL, blocks, n), 0);
}

static void a_copy_matches_as_the_index_does(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(100000);
    AUTO(prefix_index_free) struct prefix_index *copy = prefix_index_new(100000);
    uint64_t seed = 1, local[DEPTH_MAX];

    (void)state;
    for (int i = 0; i < PROMPTS; i++) {
        size_t n = prompt(&seed, local);

        store(ix, (uint32_t)(draw(&seed) % WORKERS), local, n);
    }
    for (uint32_t slot = 0; slot < WORKERS; slot++) {
        struct copy c = {copy, slot, 0};

        prefix_index_each(ix, slot, on_blocks, &c);
        assert_int_equal(c.n, prefix_index_held(ix, slot));
        assert_int_equal(prefix_index_held(copy, slot), c.n);
    }
    prefix_index_check(copy);
    for (int i = 0; i < PROMPTS; i++) {
        uint32_t want[WORKERS], got[WORKERS];
        size_t n = prompt(&seed, local);

        (void)prefix_index_match(ix, local, n, want, WORKERS);
        (void)prefix_index_match(copy, local, n, got, WORKERS);
        assert_memory_equal(want, got, sizeof(want));
    }
}

/* The names are the worker's own: what it removes later is found. */
static void removals_fit_the_copy(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    AUTO(prefix_index_free) struct prefix_index *copy = prefix_index_new(1000);
    const struct prefix_block a[] = {{1, 10}, {2, 20}}, b[] = {{11, 10}, {12, 20}};
    struct copy c = {copy, 1, 0};

    (void)state;
    assert_int_equal(prefix_index_store(ix, 0, NULL, a, 2), 0);
    assert_int_equal(prefix_index_store(ix, 1, NULL, b, 2), 0);
    prefix_index_each(ix, 1, on_blocks, &c);
    assert_int_equal(prefix_index_remove(copy, 1, (uint64_t[]){11, 12}, 2), 0);
    assert_int_equal(prefix_index_held(copy, 1), 0);
}

static void what_lies_behind_a_hole_is_left_out(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(1000);
    AUTO(prefix_index_free) struct prefix_index *copy = prefix_index_new(1000);
    struct prefix_block blocks[40];
    struct copy c = {copy, 0, 0};

    (void)state;
    for (uint64_t i = 0; i < ARRAY_LEN(blocks); i++)
        blocks[i] = (struct prefix_block){i + 1, i + 100};
    assert_int_equal(prefix_index_store(ix, 0, NULL, blocks, ARRAY_LEN(blocks)), 0);
    assert_int_equal(prefix_index_remove(ix, 0, (uint64_t[]){20}, 1), 0);
    prefix_index_each(ix, 0, on_blocks, &c);
    assert_int_equal(c.n, 19);
    prefix_index_each(ix, 5, on_blocks, &c); /* holds nothing, never did */
    assert_int_equal(c.n, 19);
}

/* Each worker's own name of the block at each depth, wherever the workers' ways part. */
static void ends_are_called_as_their_workers_call_them(void **state)
{
    AUTO(prefix_index_free) struct prefix_index *ix = prefix_index_new(100000);
    uint64_t seed = 3, local[DEPTH_MAX];

    (void)state;
    for (int i = 0; i < PROMPTS; i++) {
        size_t n = prompt(&seed, local);

        store(ix, (uint32_t)(draw(&seed) % WORKERS), local, n);
    }
    for (int i = 0; i < PROMPTS; i++) {
        struct prefix_end ends[WORKERS * 2];
        uint32_t depth[WORKERS];
        size_t n = prompt(&seed, local);

        (void)prefix_index_match(ix, local, n, depth, WORKERS);
        for (uint32_t slot = 0; slot < WORKERS; slot++) {
            ends[2 * slot] = (struct prefix_end){.slot = slot, .depth = depth[slot]};
            ends[2 * slot + 1] = (struct prefix_end){.slot = slot, .depth = depth[slot] + 1};
        }
        prefix_index_ends(ix, local, n, ends, WORKERS * 2);
        for (uint32_t slot = 0; slot < WORKERS; slot++) {
            uint64_t name = slot < 2 ? 7 : slot;

            for (uint32_t at = 0; at < depth[slot]; at++)
                name = (name ^ local[at]) * UINT64_C(0x9E3779B97F4A7C15);
            assert_int_equal(ends[2 * slot].known, depth[slot] > 0);
            assert_true(depth[slot] == 0 || ends[2 * slot].external == name);
            assert_false(ends[2 * slot + 1].known);
        }
    }
}

int main(void)
{
    return TEST_RUN(T(a_copy_matches_as_the_index_does), T(removals_fit_the_copy),
                    T(what_lies_behind_a_hole_is_left_out),
                    T(ends_are_called_as_their_workers_call_them));
}
