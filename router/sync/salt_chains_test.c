/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/salt_chains.h"
#include "lib/base/test.h"

static void blocks_keep_their_salt_until_no_tier_has_them(void **state)
{
    static const uint64_t blocks[] = {7, 8, 9};
    struct salt_chains c = {.tiers = {{.len = 0}}};

    (void)state;
    assert_int_equal(salt_chains_find(&c, 7), 0);
    salt_chains_remove(&c, KV_TIER_DISK, blocks, 3);
    assert_true(salt_chains_put(&c, KV_TIER_DEVICE, blocks, 3, 5));
    assert_true(salt_chains_put(&c, KV_TIER_HOST, blocks, 2, 5));
    assert_int_equal(salt_chains_find(&c, 9), 5);
    salt_chains_remove(&c, KV_TIER_DEVICE, blocks, 3);
    assert_int_equal(salt_chains_find(&c, 7), 5);
    assert_int_equal(salt_chains_find(&c, 8), 5);
    assert_int_equal(salt_chains_find(&c, 9), 0);
    salt_chains_remove(&c, KV_TIER_HOST, blocks, 1);
    assert_int_equal(salt_chains_find(&c, 7), 0);
    salt_chains_clear(&c);
    assert_int_equal(salt_chains_find(&c, 8), 0);
    salt_chains_done(&c);
}

static void beyond_the_bound_only_known_blocks_change(void **state)
{
    struct salt_chains c = {.tiers = {{.len = 0}}};

    (void)state;
    for (uint64_t i = 1; i < SALTED_BLOCKS_MAX; i++)
        assert_true(salt_chains_put(&c, KV_TIER_DEVICE, &i, 1, 5));
    assert_false(salt_chains_put(&c, KV_TIER_HOST, (const uint64_t[]){1, 2}, 2, 5));
    assert_false(salt_chains_put(&c, KV_TIER_DEVICE, (const uint64_t[]){UINT64_MAX}, 1, 5));
    assert_int_equal(salt_chains_find(&c, UINT64_MAX), 0);
    assert_true(salt_chains_put(&c, KV_TIER_DEVICE, (const uint64_t[]){3}, 1, 6));
    assert_int_equal(salt_chains_find(&c, 3), 6);
    salt_chains_remove(&c, KV_TIER_DEVICE, (const uint64_t[]){4}, 1);
    assert_true(salt_chains_put(&c, KV_TIER_DEVICE, (const uint64_t[]){UINT64_MAX}, 1, 5));
    salt_chains_done(&c);
}

int main(void)
{
    return TEST_RUN(T(blocks_keep_their_salt_until_no_tier_has_them),
                    T(beyond_the_bound_only_known_blocks_change));
}
