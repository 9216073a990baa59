/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/form.h"

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

        form_apply(FORM_NFC, str_from(cases[i].in), SIZE_MAX, &out);
        assert_string_equal(buf_cstr(&out), cases[i].want);
        assert_true(strcmp(cases[i].in, cases[i].want) == 0 ||
                    !form_is(FORM_NFC, str_from(cases[i].in)));
    }
}

static void test_other_forms(void **state)
{
    static const struct {
        enum form form;
        const char *in, *want;
    } cases[] = {
        {FORM_NFD, "\xc3\xa9", "e\xcc\x81"},
        {FORM_NFD, "\xef\xac\x81", "\xef\xac\x81"},
        {FORM_NFD, "\xed\x95\x9c", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab"},
        {FORM_NFKD, "\xef\xac\x81\xc3\xa9", "fie\xcc\x81"},
        {FORM_NFKC, "\xef\xac\x81\xc3\xa9", "fi\xc3\xa9"},
        {FORM_NFKC, "\xe2\x84\x8c\xcc\x87", "\xe1\xb8\xa2"}, /* black-letter H, dot above */
        {FORM_NFKC, "\xc2\xbd",
         "1\xe2\x81\x84"
         "2"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        form_apply(cases[i].form, str_from(cases[i].in), SIZE_MAX, &out);
        assert_string_equal(buf_cstr(&out), cases[i].want);
        assert_false(form_is(cases[i].form, str_from(cases[i].in)) &&
                     strcmp(cases[i].in, cases[i].want) != 0);
        assert_true(form_is(cases[i].form, STR("ascii")));
    }
}

static void test_many_marks_are_sorted_quickly(void **state)
{
    AUTO(buf_done) struct buf in = BUF_NULL, out = BUF_NULL;

    (void)state;
    buf_put_char(&in, 'q');
    for (int i = 0; i < 200000; i++)
        buf_put_cstr(&in, i % 2 ? "\xcc\xa3" : "\xcc\x81");
    form_apply(FORM_NFC, buf_str(&in), SIZE_MAX, &out);
    assert_int_equal(out.len, in.len);
    assert_memory_equal(buf_data(&out), "q\xcc\xa3\xcc\xa3", 5);
}

static void test_growth_is_bounded(void **state)
{
    AUTO(buf_done) struct buf in = BUF_NULL, out = BUF_NULL;

    (void)state;
    for (int i = 0; i < 1000; i++)
        buf_put_cstr(&in, "\xef\xb7\xba"); /* a phrase of 18 letters */
    form_apply(FORM_NFKD, buf_str(&in), 100, &out);
    assert_in_range(out.len, 101, 200);
}

int main(void)
{
    return TEST_RUN(T(test_compose), T(test_other_forms), T(test_many_marks_are_sorted_quickly),
                    T(test_growth_is_bounded));
}
