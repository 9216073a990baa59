/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/ctrl/stamp.h"

#include "lib/base/test.h"

static void test_parse(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        uint64_t ms;
    } cases[] = {
        {"1970-01-01T00:00:00Z", true, 0},
        {"2026-11-21T12:00:00Z", true, UINT64_C(1795262400000)},
        {"2026-11-21T12:00:00.250000Z", true, UINT64_C(1795262400250)},
        {"2026-11-21T12:00:00.123456789Z", true, UINT64_C(1795262400123)},
        {"2026-11-21T12:00:00.5Z", true, UINT64_C(1795262400500)},
        {"2026-11-21T12:00:00", false, 7},
        {"2026-11-21T12:00:00+01:00", false, 7},
        {"2026-11-21T12:00:00.12x4Z", false, 7},
        {"2026-11-21", false, 7},
        {"", false, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t ms = 7;

        assert_int_equal(stamp_parse(str_from(cases[i].text), &ms), cases[i].ok);
        assert_int_equal(ms, cases[i].ms);
    }
}

static void test_what_is_written_reads_back(void **state)
{
    static const uint64_t times[] = {0, 999, 1795262400250, 4102444799999};
    char text[STAMP_SIZE];
    uint64_t ms;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        stamp_format_micro(times[i], text);
        assert_true(stamp_parse(str_from(text), &ms));
        assert_int_equal(ms, times[i]);
        stamp_format(times[i], text);
        assert_true(stamp_parse(str_from(text), &ms));
        assert_int_equal(ms, times[i] / 1000 * 1000);
    }
}

int main(void)
{
    return TEST_RUN(T(test_parse), T(test_what_is_written_reads_back));
}
