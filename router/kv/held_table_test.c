/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/held_table.h"
#include "lib/base/test.h"

enum { KEYS = 3000, STEPS = 200000 };

/* Keys as engines make them: hashes, small numbers, and numbers that differ in their high bits. */
static uint64_t key_of(uint32_t i)
{
    switch (i % 3) {
    case 0:
        return i * UINT64_C(0x9E3779B97F4A7C15);
    case 1:
        return i;
    default:
        return (uint64_t)i << 48 | (uint64_t)i << 32;
    }
}

static void random_operations_match_an_array(void **state)
{
    AUTO(held_table_done) struct held_table t = {0};
    static uint32_t positions[KEYS];
    uint64_t rng = 88172645463325252;
    uint32_t len = 0;

    (void)state;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t i, fill = step / 40000 % 2 ? 1 : 3; /* it grows, then shrinks, and so on */

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        i = (uint32_t)(rng % KEYS);
        if ((rng >> 40) % 4 < fill) {
            uint32_t *at = held_table_put(&t, key_of(i));

            assert_int_equal(*at, positions[i]);
            len += positions[i] == 0;
            *at = positions[i] = step;
        } else {
            assert_int_equal(held_table_remove(&t, key_of(i)), positions[i]);
            len -= positions[i] != 0;
            positions[i] = 0;
        }
        assert_int_equal(t.len, len);
        for (i = 0; step % 5000 == 0 && i < KEYS; i++)
            assert_int_equal(held_table_find(&t, key_of(i)), positions[i]);
    }
}

static void an_empty_table_holds_no_memory(void **state)
{
    AUTO(held_table_done) struct held_table t = {0};

    (void)state;
    for (uint32_t i = 1; i <= 1000; i++)
        *held_table_put(&t, key_of(i)) = i;
    assert_true(held_table_bytes(&t) < 1000 * 25);
    for (uint32_t i = 1; i <= 1000; i++)
        assert_int_equal(held_table_remove(&t, key_of(i)), i);
    assert_int_equal(held_table_bytes(&t), 0);
}

/* Large enough for pages of its own, there and back. */
static void a_large_table_keeps_all(void **state)
{
    enum { MANY = 600000 };
    AUTO(held_table_done) struct held_table t = {0};

    (void)state;
    for (uint32_t i = 1; i <= MANY; i++)
        *held_table_put(&t, i * UINT64_C(0x9E3779B97F4A7C15)) = i;
    for (uint32_t i = 1; i <= MANY; i++)
        assert_int_equal(held_table_find(&t, i * UINT64_C(0x9E3779B97F4A7C15)), i);
    for (uint32_t i = 1; i <= MANY; i++)
        assert_int_equal(held_table_remove(&t, i * UINT64_C(0x9E3779B97F4A7C15)), i);
    assert_int_equal(held_table_bytes(&t), 0);
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_an_array), T(an_empty_table_holds_no_memory),
                    T(a_large_table_keeps_all));
}
