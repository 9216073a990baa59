/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/approx_index.h"
#include "lib/base/test.h"
#include "router/kv/block_hash.h"
#include "router/kv/prefix_index.h"

enum { N = 4 };
static const uint64_t FAR = UINT64_C(1) << 60; /* ms */
static const uint64_t LOCAL[N] = {10, 20, 30, 40};
static const uint64_t OTHER[N] = {10, 21, 31, 41};

static void insert(struct approx_index *ix, uint32_t slot, const uint64_t *local, uint64_t now_ms)
{
    uint64_t sequence[N];

    block_hash_sequence(local, N, sequence);
    approx_index_insert(ix, slot, local, sequence, N, now_ms);
}

static size_t match(struct approx_index *ix, const uint64_t *local, uint64_t now_ms, uint32_t slot)
{
    uint32_t scores[2];

    (void)approx_index_match(ix, local, N, now_ms, scores, 2);
    return scores[slot];
}

static void an_entry_lives_for_its_ttl_after_the_last_use(void **state)
{
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){1000, 100, 0.8});

    (void)state;
    insert(ix, 0, LOCAL, 0);
    insert(ix, 1, OTHER, 500);
    assert_int_equal(match(ix, LOCAL, 999, 0), 4);
    assert_int_equal(match(ix, LOCAL, 999, 1), 1);
    assert_int_equal(match(ix, LOCAL, 1000, 0), 0);
    assert_int_equal(match(ix, OTHER, 1000, 1), 4);
    insert(ix, 1, OTHER, 1400);
    assert_int_equal(match(ix, OTHER, 2399, 1), 4);
    assert_int_equal(match(ix, OTHER, 2400, 1), 0);
    assert_int_equal(approx_index_stats(ix).nodes, 0);
}

static void above_the_bound_the_oldest_and_deepest_go(void **state)
{
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){1000, 7, 0.8});

    (void)state;
    insert(ix, 0, LOCAL, 0);
    insert(ix, 0, OTHER, 1); /* 7 entries: the first block is shared */
    assert_int_equal(approx_index_held(ix, 0), 7);
    insert(ix, 1, LOCAL, 2); /* 11: down to floor(7 × 0.8) = 5 */
    assert_int_equal(approx_index_held(ix, 0) + approx_index_held(ix, 1), 5);
    assert_int_equal(match(ix, LOCAL, 2, 1), 4);
    assert_int_equal(match(ix, OTHER, 2, 0), 1);
}

static void a_cleared_worker_holds_nothing(void **state)
{
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){1000, 100, 0.8});

    (void)state;
    insert(ix, 0, LOCAL, 0);
    insert(ix, 1, LOCAL, 0);
    approx_index_clear(ix, 0);
    assert_int_equal(match(ix, LOCAL, 1, 0), 0);
    assert_int_equal(match(ix, LOCAL, 1, 1), 4);
    insert(ix, 0, LOCAL, 2);
    assert_int_equal(match(ix, LOCAL, 2, 0), 4);
}

static void a_target_keeps_what_was_used_last(void **state)
{
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){UINT64_MAX, 100, 0.8});

    (void)state;
    approx_index_keep(ix, 3, 0); /* nobody knows it */
    insert(ix, 0, LOCAL, 0);
    insert(ix, 0, OTHER, 1);
    insert(ix, 1, LOCAL, 1);
    approx_index_keep(ix, 0, 5);
    assert_int_equal(match(ix, LOCAL, FAR, 0), 2);
    assert_int_equal(match(ix, OTHER, FAR, 0), 4);
    insert(ix, 0, LOCAL, 2);
    approx_index_keep(ix, 0, 5);
    assert_int_equal(match(ix, LOCAL, FAR, 0), 4);
    assert_int_equal(match(ix, OTHER, FAR, 0), 2);
    assert_int_equal(match(ix, LOCAL, FAR, 1), 4);
    approx_index_clear(ix, 0);
    approx_index_keep(ix, 0, 0);
    approx_index_keep(ix, 1, 0);
    assert_int_equal(approx_index_stats(ix).nodes, 0);
    insert(ix, 0, LOCAL, 3);
    assert_int_equal(match(ix, LOCAL, 3, 0), 4);
}

/* Thousands come, expire and come again; what is one moment old is always there. */
static void it_fills_and_empties_and_fills(void **state)
{
    enum { PROMPTS = 500, BLOCKS = 20, ROUNDS = 4 };
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){1000, 1000000, 0.8});

    (void)state;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t now = round * 10000;

        for (uint64_t p = 0; p < PROMPTS; p++) {
            uint64_t local[BLOCKS], sequence[BLOCKS];
            uint32_t scores[3];

            for (uint64_t i = 0; i < BLOCKS; i++)
                local[i] = sequence[i] = (round * PROMPTS + p) * BLOCKS + i + 1;
            approx_index_insert(ix, (uint32_t)(p % 3), local, sequence, BLOCKS, now);
            assert_int_equal(approx_index_match(ix, local, BLOCKS, now, scores, 3), BLOCKS);
            assert_int_equal(scores[p % 3], BLOCKS);
        }
        assert_int_equal(approx_index_stats(ix).entries, PROMPTS * BLOCKS);
        for (uint32_t slot = 0; round % 2 && slot < 3; slot++)
            approx_index_clear(ix, slot);
    }
}

/* A hash that repeats ends what is known of the prompt. */
static void a_repeated_hash_ends_the_prompt(void **state)
{
    AUTO(approx_index_free)
    struct approx_index *ix = approx_index_new(&(struct approx_conf){1000, 100, 0.8});
    const uint64_t local[] = {1, 2, 3, 4}, sequence[] = {10, 20, 20, 40};
    uint32_t score;

    (void)state;
    approx_index_insert(ix, 0, local, sequence, 4, 0);
    assert_int_equal(approx_index_match(ix, local, 4, 0, &score, 1), 2);
    assert_int_equal(approx_index_held(ix, 0), 2);
    assert_int_equal(approx_index_match(ix, local, 4, 1000, &score, 1), 0);
    assert_int_equal(approx_index_stats(ix).nodes, 0);
}

int main(void)
{
    return TEST_RUN(T(an_entry_lives_for_its_ttl_after_the_last_use),
                    T(above_the_bound_the_oldest_and_deepest_go), T(a_cleared_worker_holds_nothing),
                    T(a_target_keeps_what_was_used_last), T(it_fills_and_empties_and_fills),
                    T(a_repeated_hash_ends_the_prompt));
}
