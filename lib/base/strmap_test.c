/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/strmap.h"
#include "lib/base/test.h"

static void keeps_insertion_order_through_growth_and_removal(void **state)
{
    AUTO(strmap_free) struct strmap *m = strmap_new();
    static int values[200];
    struct str key;
    void *value;
    size_t at = 0;
    int expected = 0;

    (void)state;
    for (int i = 0; i < 200; i++) {
        char name[16];

        (void)snprintf(name, sizeof(name), "key-%d", i);
        assert_null(strmap_set(m, str_from(name), &values[i]));
        if (i % 2) {
            (void)snprintf(name, sizeof(name), "key-%d", i - 1);
            assert_ptr_equal(strmap_remove(m, str_from(name)), &values[i - 1]);
        }
    }
    assert_int_equal(strmap_len(m), 100);
    while (strmap_next(m, &at, &key, &value)) {
        assert_ptr_equal(value, &values[expected * 2 + 1]);
        expected++;
    }
    assert_int_equal(expected, 100);
}

static void keys_are_bytes_and_replaceable(void **state)
{
    AUTO(strmap_free) struct strmap *m = strmap_new();
    int a, b;

    (void)state;
    assert_null(strmap_get(m, STR("x")));
    assert_null(strmap_set(m, str_slice("a\0b", 3), &a));
    assert_null(strmap_get(m, STR("a")));
    assert_ptr_equal(strmap_set(m, str_slice("a\0b", 3), &b), &a);
    assert_ptr_equal(strmap_get(m, str_slice("a\0b", 3)), &b);
    assert_null(strmap_set(m, STR_NULL, &a));
    assert_ptr_equal(strmap_remove(m, STR_NULL), &a);
    assert_null(strmap_remove(m, STR_NULL));
}

int main(void)
{
    return TEST_RUN(T(keeps_insertion_order_through_growth_and_removal),
                    T(keys_are_bytes_and_replaceable));
}
