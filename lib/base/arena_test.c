/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/arena.h"
#include "lib/base/test.h"

static void allocations_are_aligned_zeroed_and_apart(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    unsigned char *before = NULL;

    (void)state;
    for (size_t size = 0; size < 20000; size += 97) {
        unsigned char *p = arena_alloc(a, size);

        assert_int_equal((uintptr_t)p % _Alignof(max_align_t), 0);
        assert_ptr_not_equal(p, before);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAA, size); /* the next one must not lie in here */
        before = size ? p : NULL;
    }
}

static void strings_are_copied_with_their_nul_bytes(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();
    char *s = arena_strdup(a, str_slice("a\0b", 3));

    (void)state;
    assert_memory_equal(s, "a\0b\0", 4);
    assert_string_equal(arena_strdup(a, STR_NULL), "");
    assert_string_equal(arena_printf(a, "%s-%d", "x", 7), "x-7");
}

static void reset_keeps_one_block_and_starts_over(void **state)
{
    AUTO(arena_free) struct arena *a = arena_new();

    (void)state;
    (void)arena_alloc(a, 100000);
    assert_in_range(arena_used(a), 100000, 100016);
    arena_reset(a);
    assert_int_equal(arena_used(a), 0);
    assert_string_equal(arena_strdup(a, STR("again")), "again");
}

int main(void)
{
    return TEST_RUN(T(allocations_are_aligned_zeroed_and_apart),
                    T(strings_are_copied_with_their_nul_bytes),
                    T(reset_keeps_one_block_and_starts_over));
}
