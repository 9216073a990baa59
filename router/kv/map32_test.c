/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/map32.h"
#include "lib/base/test.h"

enum { KEYS = 500, STEPS = 100000 };

/* It grows, shrinks and empties on the way. */
static void random_operations_match_an_array(void **state)
{
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct map32 m = {0};
    uint32_t values[KEYS + 1] = {0};
    uint64_t rng = 88172645463325252;
    uint32_t len = 0;

    (void)state;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t key, fill = step / 20000 % 2 ? 1 : 3;

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        key = 1 + (uint32_t)(rng % KEYS);
        if ((rng >> 40) % 4 < fill) {
            assert_true(map32_reserve(&m, &mem));
            len += values[key] == 0;
            *map32_put(&m, key) = values[key] = step;
        } else {
            map32_remove(&m, &mem, key);
            len -= values[key] != 0;
            values[key] = 0;
        }
        assert_int_equal(m.len, len);
        for (key = 1; step % 500 == 0 && key <= KEYS; key++) {
            const uint32_t *at = map32_find(&m, key);

            assert_int_equal(at ? *at : 0, values[key]);
        }
    }
    map32_done(&m, &mem);
    assert_int_equal(mem.used, 0);
}

static void without_memory_it_fills_up_and_then_refuses(void **state)
{
    struct kv_mem mem = {.limit = 100};
    struct map32 m = {0};
    uint32_t n = 0;

    (void)state;
    while (map32_reserve(&m, &mem))
        *map32_put(&m, ++n) = 1;
    assert_int_equal(n, 7); /* of eight places, so that a probe ends */
    map32_done(&m, &mem);
    assert_int_equal(mem.used, 0);
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_an_array),
                    T(without_memory_it_fills_up_and_then_refuses));
}
