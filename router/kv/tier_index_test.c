/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/tier_index.h"
#include "lib/base/test.h"

enum { SLOTS = 3, BLOCKS = 40, STEPS = 20000 };

/* How far a prompt of local hashes 1, 2, 3 … goes on at a worker. */
static void match(const struct tier_index *ix, uint32_t slot, const uint64_t *parent,
                  uint64_t first_local, size_t n, uint32_t ret[N_CACHE_TIERS])
{
    uint64_t local[BLOCKS];

    for (size_t i = 0; i < n; i++)
        local[i] = first_local + i;
    tier_index_match(ix, slot, parent, local, n, ret);
}

#define EXPECT_MATCH(ix, slot, parent, first_local, n, host, disk, external)                       \
    do {                                                                                           \
        uint32_t got_[N_CACHE_TIERS];                                                              \
        match((ix), (slot), (parent), (first_local), (n), got_);                                   \
        assert_int_equal(got_[TIER_HOST], (host));                                                 \
        assert_int_equal(got_[TIER_DISK], (disk));                                                 \
        assert_int_equal(got_[TIER_EXTERNAL], (external));                                         \
    } while (0)

/* Block i is called 100 + i and hashes to i. */
static void store(struct tier_index *ix, uint32_t slot, enum cache_tier tier, uint64_t first,
                  uint64_t last)
{
    struct prefix_block blocks[BLOCKS];
    uint64_t parent = 100 + first - 1;

    for (uint64_t i = first; i <= last; i++)
        blocks[i - first] = (struct prefix_block){100 + i, i};
    tier_index_store(ix, slot, tier, first > 1 ? &parent : NULL, blocks, last - first + 1);
}

static void a_prompt_goes_on_from_tier_to_tier(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(0);
    const uint64_t device_end = 103;

    (void)state;
    store(ix, 0, TIER_HOST, 1, 5);
    store(ix, 0, TIER_EXTERNAL, 7, 7);
    store(ix, 0, TIER_DISK, 6, 6); /* in no order */
    EXPECT_MATCH(ix, 0, NULL, 1, 10, 5, 1, 1);
    EXPECT_MATCH(ix, 0, &device_end, 4, 7, 2, 1, 1);
    EXPECT_MATCH(ix, 0, &device_end, 4, 1, 1, 0, 0);
    EXPECT_MATCH(ix, 0, &device_end, 5, 5, 0, 0, 0); /* another block than the one that follows */
    EXPECT_MATCH(ix, 1, NULL, 1, 10, 0, 0, 0);
    store(ix, 0, TIER_HOST, 8, 8); /* never back to a faster tier */
    EXPECT_MATCH(ix, 0, NULL, 1, 10, 5, 1, 1);
    tier_index_check(ix);
}

static void a_hole_ends_it_until_it_is_filled(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(0);

    (void)state;
    store(ix, 2, TIER_HOST, 1, 6);
    assert_int_equal(tier_index_remove(ix, 2, TIER_HOST, (uint64_t[]){101, 104}, 2), 0);
    EXPECT_MATCH(ix, 2, NULL, 1, 6, 0, 0, 0);
    store(ix, 2, TIER_HOST, 1, 1);
    EXPECT_MATCH(ix, 2, NULL, 1, 6, 3, 0, 0);
    store(ix, 2, TIER_DISK, 4, 4);
    EXPECT_MATCH(ix, 2, NULL, 1, 6, 3, 1, 0); /* block 5 is in host memory only */
    assert_int_equal(tier_index_remove(ix, 2, TIER_HOST, (uint64_t[]){104}, 1), PREFIX_UNKNOWN);
    tier_index_clear(ix, 2);
    assert_int_equal(tier_index_held(ix, 2), 0);
    EXPECT_MATCH(ix, 2, NULL, 1, 6, 0, 0, 0);
    tier_index_check(ix);
}

static void of_two_blocks_at_one_place_the_first_counts(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(0);
    const struct prefix_block other = {999, 1};

    (void)state;
    store(ix, 0, TIER_HOST, 1, 3);
    tier_index_store(ix, 0, TIER_HOST, NULL, &other, 1);
    EXPECT_MATCH(ix, 0, NULL, 1, 3, 3, 0, 0);
    assert_int_equal(tier_index_remove(ix, 0, TIER_HOST, &other.external, 1), PREFIX_UNKNOWN);
    tier_index_store(ix, 1, TIER_HOST, NULL, &other, 1); /* another worker calls it so */
    EXPECT_MATCH(ix, 1, NULL, 1, 3, 1, 0, 0);
    assert_int_equal(tier_index_held(ix, 0), 3);
}

/* --- against a plain table --------------------------------------------------------------------- */

/* Whether the worker holds block i of the one prompt that there is. */
static bool held[SLOTS][N_CACHE_TIERS][BLOCKS + 1];

static void compare(const struct tier_index *ix)
{
    size_t n = 0;

    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        uint32_t want[N_CACHE_TIERS] = {0}, got[N_CACHE_TIERS], at = 1;

        for (unsigned tier = 0; tier < N_CACHE_TIERS; tier++) {
            for (; at <= BLOCKS && held[slot][tier][at]; at++)
                want[tier]++;
            for (uint32_t i = 1; i <= BLOCKS; i++)
                n += held[slot][tier][i];
        }
        match(ix, slot, NULL, 1, BLOCKS, got);
        assert_memory_equal(want, got, sizeof(want));
    }
    assert_int_equal(n, tier_index_stats(ix).blocks[TIER_HOST] +
                            tier_index_stats(ix).blocks[TIER_DISK] +
                            tier_index_stats(ix).blocks[TIER_EXTERNAL]);
    tier_index_check(ix);
}

static void random_operations_match_a_plain_table(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(0);
    uint64_t rng = 88172645463325252;

    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t slot, first, last;
        enum cache_tier tier;

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        slot = (uint32_t)(rng % SLOTS);
        tier = (enum cache_tier)(rng >> 8) % N_CACHE_TIERS;
        first = 1 + (uint32_t)(rng >> 16) % BLOCKS;
        last = MIN(first + (uint32_t)(rng >> 24) % 12, (uint32_t)BLOCKS);
        if ((rng >> 40) % 200 == 0) {
            tier_index_clear(ix, slot);
            memset(held[slot], 0, sizeof(held[slot]));
        } else if ((rng >> 40) % 2) {
            store(ix, slot, tier, first, last);
            for (uint32_t i = first; i <= last; i++)
                held[slot][tier][i] = true;
        } else {
            int want = held[slot][tier][first] ? 0 : PREFIX_UNKNOWN;

            assert_int_equal(tier_index_remove(ix, slot, tier, (uint64_t[]){100 + first}, 1), want);
            held[slot][tier][first] = false;
        }
        if (step % 50 == 0)
            compare(ix);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        tier_index_clear(ix, slot);
    tier_index_check(ix);
    assert_int_equal(tier_index_slots_end(ix), 0);
}

static void it_grows_no_larger_than_its_bound(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(1 << 20);
    struct tier_index_stats s;

    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        const struct prefix_block block = {i + 1, i + 1};

        tier_index_store(ix, (uint32_t)(i % 5), TIER_DISK, &i, &block, 1);
    }
    s = tier_index_stats(ix);
    assert_int_equal(s.blocks[TIER_DISK], (1 << 20) / 64);
    assert_int_equal(s.evicted + s.blocks[TIER_DISK], 100000);
    assert_true(s.bytes < (3 << 20) / 2);
    EXPECT_MATCH(ix, 99999 % 5, &(const uint64_t){99999}, 100000, 1, 0, 1, 0);
    tier_index_check(ix);
}

static void count_block(void *arg, const uint64_t *parent, const struct prefix_block *blocks,
                        size_t n)
{
    uint64_t *sum = arg;

    assert_int_equal(n, 1);
    assert_int_equal(parent ? *parent : 100, blocks->external - 1);
    *sum += blocks->external;
}

static void each_block_is_told_with_the_one_before(void **state)
{
    AUTO(tier_index_free) struct tier_index *ix = tier_index_new(0);
    uint64_t sum = 0;

    (void)state;
    store(ix, 0, TIER_HOST, 1, 3);
    store(ix, 0, TIER_DISK, 4, 4);
    tier_index_each(ix, 0, TIER_HOST, count_block, &sum);
    assert_int_equal(sum, 101 + 102 + 103);
    tier_index_each(ix, 7, TIER_HOST, count_block, &sum);
    assert_int_equal(sum, 101 + 102 + 103);
}

int main(void)
{
    return TEST_RUN(T(a_prompt_goes_on_from_tier_to_tier), T(a_hole_ends_it_until_it_is_filled),
                    T(of_two_blocks_at_one_place_the_first_counts),
                    T(random_operations_match_a_plain_table), T(it_grows_no_larger_than_its_bound),
                    T(each_block_is_told_with_the_one_before));
}
