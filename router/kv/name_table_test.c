/* SPDX-License-Identifier: Apache-2.0 */
#include "router/kv/name_table.h"
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

/* Whether the table leads from the key to the position; the caller is who compares keys. */
static bool has(const struct name_table *t, uint64_t mixed, uint32_t position)
{
    struct name_probe p = name_table_probe(t, mixed);
    uint32_t at;

    while ((at = name_probe_next(&p)))
        if (at == position)
            return true;
    return false;
}

static bool put(struct name_table *t, struct kv_mem *mem, uint64_t mixed, uint32_t position)
{
    if (!name_table_reserve(t, mem, 1))
        return false;
    name_table_put(t, mixed, position);
    return true;
}

static void take(struct name_table *t, struct kv_mem *mem, uint64_t mixed, uint32_t position)
{
    name_table_remove(t, mixed, position);
    name_table_shrink(t, mem, 1);
}

static void random_operations_match_an_array(void **state)
{
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct name_table t = {0};
    static bool there[KEYS];
    uint64_t rng = 88172645463325252;
    size_t len = 0;

    (void)state;
    for (uint32_t step = 1; step <= STEPS; step++) {
        uint32_t i, fill = step / 40000 % 2 ? 1 : 3; /* it grows, then shrinks, and so on */

        rng ^= rng << 13, rng ^= rng >> 7, rng ^= rng << 17;
        i = (uint32_t)(rng % KEYS);
        if ((rng >> 40) % 4 < fill && !there[i]) {
            assert_true(put(&t, &mem, name_mix(key_of(i)), i + 1));
            len++;
            there[i] = true;
        } else if ((rng >> 40) % 4 >= fill && there[i]) {
            take(&t, &mem, name_mix(key_of(i)), i + 1);
            len--;
            there[i] = false;
        }
        assert_int_equal(t.len, len);
        for (i = 0; step % 1000 == 0 && i < KEYS; i++)
            assert_int_equal(has(&t, name_mix(key_of(i)), i + 1), there[i]);
    }
    name_table_done(&t, &mem);
    assert_int_equal(mem.used, 0);
}

/* Hashes that are none lie side by side at the end of the table; it only gets slow. */
static void equal_hashes_stay_apart(void **state)
{
    enum { SAME = 3000 };
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct name_table t = {0};

    (void)state;
    for (uint32_t i = 1; i <= SAME; i++)
        assert_true(put(&t, &mem, UINT64_MAX, i));
    for (uint32_t i = 1; i <= SAME; i++)
        assert_true(has(&t, UINT64_MAX, i));
    for (uint32_t i = 1; i <= SAME; i++)
        take(&t, &mem, UINT64_MAX, i);
    assert_int_equal(mem.used, 0);
}

/* Large enough for pages of its own, there and back. */
static void a_large_table_keeps_all(void **state)
{
    enum { MANY = 600000 };
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct name_table t = {0};

    (void)state;
    for (uint32_t i = 1; i <= MANY; i++)
        assert_true(put(&t, &mem, name_mix(i), i));
    for (uint32_t i = 1; i <= MANY; i++)
        assert_true(has(&t, name_mix(i), i));
    for (uint32_t i = 1; i <= MANY; i++)
        take(&t, &mem, name_mix(i), i);
    assert_int_equal(mem.used, 0);
}

/* Many at once, as a node's names come and go; another position of the same hash is not new. */
static void what_is_new_goes_in_many_at_a_time(void **state)
{
    enum { MANY = 20000, AT_ONCE = 16 };
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct name_table t = {0};

    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        if (i % AT_ONCE == 0)
            assert_true(name_table_reserve(&t, &mem, AT_ONCE));
        assert_true(name_table_put_new(&t, name_mix(i), i + 1));
        assert_false(name_table_put_new(&t, name_mix(i / 2), MANY + 1));
    }
    assert_int_equal(t.len, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(has(&t, name_mix(i), i + 1));
        name_table_remove(&t, name_mix(i), i + 1);
        assert_false(has(&t, name_mix(i), i + 1));
        if (i % AT_ONCE == AT_ONCE - 1)
            name_table_shrink(&t, &mem, AT_ONCE);
    }
    assert_int_equal(mem.used, 0);
}

/* Behind buckets that have room again there may still be what they spilled when they were full. */
static void what_is_new_is_told_from_what_lies_behind_holes(void **state)
{
    enum { MANY = 20000 };
    struct kv_mem mem = {.limit = SIZE_MAX};
    struct name_table t = {0};

    (void)state;
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(name_table_reserve(&t, &mem, 1));
        assert_true(name_table_put_new(&t, name_mix(i), i + 1));
    }
    for (uint32_t i = 0; i < MANY; i += 2)
        name_table_remove(&t, name_mix(i), i + 1);
    /* The last ones lie furthest from their homes, and are asked for while these have room. */
    for (uint32_t i = MANY; i-- > 0;)
        assert_int_equal(name_table_put_new(&t, name_mix(i), i + 1), i % 2 == 0);
    assert_int_equal(t.len, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_true(has(&t, name_mix(i), i + 1));
        name_table_remove(&t, name_mix(i), i + 1);
        assert_false(has(&t, name_mix(i), i + 1));
    }
    for (uint32_t i = 0; i < t.now.n; i++)
        assert_int_equal(t.now.buckets[i].spilled, 0);
    name_table_done(&t, &mem);
    assert_int_equal(mem.used, 0);
}

static void without_memory_it_fills_up_and_then_refuses(void **state)
{
    struct kv_mem mem = {.limit = 100000};
    struct name_table t = {0};
    uint32_t n = 0;

    (void)state;
    while (put(&t, &mem, name_mix(n), n + 1))
        n++;
    assert_in_range(n, 2000, 12500);
    assert_true(mem.used <= mem.limit);
    for (uint32_t i = 0; i < n; i++)
        assert_true(has(&t, name_mix(i), i + 1));
    name_table_done(&t, &mem);
    assert_int_equal(mem.used, 0);
}

int main(void)
{
    return TEST_RUN(T(random_operations_match_an_array), T(equal_hashes_stay_apart),
                    T(a_large_table_keeps_all), T(what_is_new_goes_in_many_at_a_time),
                    T(what_is_new_is_told_from_what_lies_behind_holes),
                    T(without_memory_it_fills_up_and_then_refuses));
}
