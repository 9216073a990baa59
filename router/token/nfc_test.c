/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/nfc.h"

#include "lib/base/test.h"

static void test_compose(void **state)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"plain", "plain"},
        {"e\xcc\x81", "\xc3\xa9"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"a\xcc\xa3\xcc\x81", "\xe1\xba\xa1\xcc\x81"},            /* below first, then above */
        {"a\xcc\x81\xcc\xa3", "\xe1\xba\xa1\xcc\x81"},            /* whatever the order */
        {"\xe2\x84\xab", "\xc3\x85"},                             /* angstrom sign */
        {"\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c"}, /* Hangul L V T */
        {"\xed\x95\x98\xe1\x86\xab", "\xed\x95\x9c"},             /* LV T */
        {"\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},             /* excluded from composition */
        {"\xcc\x81", "\xcc\x81"},
        {"x\xcd\x84y", "\xe1\xba\x8d\xcc\x81y"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        nfc_compose(str_from(cases[i].in), &out);
        assert_string_equal(buf_cstr(&out), cases[i].want);
        assert_true(strcmp(cases[i].in, cases[i].want) == 0 ||
                    !nfc_is_composed(str_from(cases[i].in)));
    }
}

static void test_many_marks_are_sorted_quickly(void **state)
{
    AUTO(buf_done) struct buf in = BUF_NULL, out = BUF_NULL;

    (void)state;
    buf_put_char(&in, 'q');
    for (int i = 0; i < 200000; i++)
        buf_put_cstr(&in, i % 2 ? "\xcc\xa3" : "\xcc\x81");
    nfc_compose(buf_str(&in), &out);
    assert_int_equal(out.len, in.len);
    assert_memory_equal(buf_data(&out), "q\xcc\xa3\xcc\xa3", 5);
}

int main(void)
{
    return TEST_RUN(T(test_compose), T(test_many_marks_are_sorted_quickly));
}
