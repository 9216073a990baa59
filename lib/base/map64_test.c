/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/map64.h"
#include "lib/base/test.h"

/* Random operations against an array that is trivially right. Few keys, so that runs collide. */
static void random_operations_match_an_array(void **state)
{
    enum { KEYS = 512, STEPS = 200000 };
    static uint64_t want[KEYS];
    static bool present[KEYS];
    AUTO(map64_done) struct map64 m = {0};
    uint64_t rng = 88172645463325252;
    size_t n = 0;

    (void)state;
    for (int i = 0; i < STEPS; i++) {
        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        size_t k = rng % KEYS;
        uint64_t value, key = k * UINT64_C(0x100000001);

        if (rng & (1 << 20)) {
            bool is_new;

            *map64_put(&m, key, &is_new) = rng;
            assert_int_equal(is_new, !present[k]);
            n += is_new;
            present[k] = true;
            want[k] = rng;
        } else {
            assert_int_equal(map64_remove(&m, key, &value), present[k]);
            if (present[k])
                assert_int_equal(value, want[k]);
            n -= present[k];
            present[k] = false;
        }
        assert_int_equal(m.len, n);
    }
    for (size_t k = 0; k < KEYS; k++) {
        uint64_t *v = map64_find(&m, k * UINT64_C(0x100000001));

        assert_int_equal(v != NULL, present[k]);
        if (v)
            assert_int_equal(*v, want[k]);
    }
}

static void iteration_sees_each_once(void **state)
{
    AUTO(map64_done) struct map64 m = {0};
    uint64_t key, value, sum = 0;
    size_t at = 0, seen = 0;

    (void)state;
    for (uint64_t i = 1; i <= 1000; i++)
        *map64_put(&m, i, NULL) = i * 2;
    while (map64_next(&m, &at, &key, &value)) {
        assert_int_equal(value, key * 2);
        sum += key;
        seen++;
    }
    assert_int_equal(seen, 1000);
    assert_int_equal(sum, 500500);
    map64_clear(&m);
    assert_null(map64_find(&m, 1));
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_an_array), T(iteration_sees_each_once));
}
