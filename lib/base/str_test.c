/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/str.h"

#include "lib/base/test.h"

static void assert_str(struct str got, const char *want)
{
    if (!str_is(got, want))
        fail_msg("got '%.*s', want '%s'", STR_ARG(got), want);
}

static void test_comparing(void **state)
{
    (void)state;
    assert_true(str_eq(STR_NULL, STR("")));
    assert_true(str_is(STR_NULL, ""));
    assert_true(str_eq(STR("a\0b"), STR("a\0b")));
    assert_false(str_eq(STR("a\0b"), STR("a\0c")));
    assert_false(str_eq(STR("a"), STR("ab")));
    assert_true(str_eq_nocase(STR("Content-TYPE"), STR("content-type")));
    assert_false(str_eq_nocase(STR("a"), STR("ab")));
    assert_true(str_cmp(STR("a"), STR("b")) < 0);
    assert_true(str_cmp(STR("ab"), STR("a")) > 0);
    assert_true(str_cmp(STR("a\xff"), STR("a\x01")) > 0); /* bytes are unsigned */
    assert_int_equal(str_cmp(STR_NULL, STR("")), 0);
    assert_true(str_from(NULL).len == 0);
}

static void test_searching(void **state)
{
    (void)state;
    assert_true(str_starts(STR("prefix.x"), STR("prefix")));
    assert_true(str_starts(STR("a"), STR("")));
    assert_false(str_starts(STR("pre"), STR("prefix")));
    assert_true(str_ends(STR("x.yaml"), STR(".yaml")));
    assert_false(str_ends(STR("yaml"), STR(".yaml")));
    assert_true(str_has(STR("a needle b"), STR("needle")));
    assert_true(str_has(STR_NULL, STR("")));
    assert_false(str_has(STR("needl"), STR("needle")));
    assert_false(str_has(STR_NULL, STR("x")));
    assert_int_equal(str_index(STR("a:b:c"), ':'), 1);
    assert_int_equal(str_index(STR("abc"), ':'), 3);
    assert_int_equal(str_index(STR_NULL, ':'), 0);
}

static void test_cutting(void **state)
{
    struct str rest = STR("a,,b"), part;

    (void)state;
    assert_str(str_trim(STR(" \t\r\n a b \n")), "a b");
    assert_str(str_trim(STR(" \n ")), "");
    assert_str(str_trim(STR_NULL), "");
    assert_str(str_skip(STR("abc"), 2), "c");
    assert_str(str_skip(STR("abc"), 4), "");
    assert_str(str_skip(STR_NULL, 4), "");
    assert_str(str_head(STR("abc"), 2), "ab");
    assert_str(str_head(STR("abc"), 4), "abc");

    assert_true(str_cut(&rest, ',', &part));
    assert_str(part, "a");
    assert_true(str_cut(&rest, ',', &part));
    assert_str(part, "");
    assert_false(str_cut(&rest, ',', &part));
    assert_str(part, "b");
    assert_str(rest, "");
    assert_false(str_cut(&rest, ',', &part));
    assert_str(part, "");
}

static void test_a_trailing_separator_gives_an_empty_last_part(void **state)
{
    struct str rest = STR("a,"), part;

    (void)state;
    assert_true(str_cut(&rest, ',', &part));
    assert_false(str_cut(&rest, ',', &part));
    assert_str(part, "");
}

static void test_copies_keep_embedded_zeros(void **state)
{
    AUTO(mem_free) char *copy = str_dup(STR("a\0b"));
    AUTO(mem_free) char *empty = str_dup(STR_NULL);

    (void)state;
    assert_memory_equal(copy, "a\0b", 4);
    assert_string_equal(empty, "");
}

static void test_unsigned_numbers(void **state)
{
    static const struct {
        const char *text;
        bool decimal, hex;
        uint64_t as_decimal, as_hex;
    } cases[] = {
        {"0", true, true, 0, 0},
        {"0017", true, true, 17, 0x17},
        {"18446744073709551615", true, false, UINT64_MAX, 7},
        {"18446744073709551616", false, false, 7, 7},
        {"99999999999999999999999", false, false, 7, 7},
        {"ffffffffffffffff", false, true, 7, UINT64_MAX},
        {"1ffffffffffffffff", false, false, 7, 7},
        {"aB", false, true, 7, 0xAB},
        {"0x10", false, false, 7, 7},
        {"", false, false, 7, 7},
        {"-1", false, false, 7, 7},
        {"+1", false, false, 7, 7},
        {" 1", false, false, 7, 7},
        {"1 ", false, false, 7, 7},
        {"1.0", false, false, 7, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str text = str_from(cases[i].text);
        uint64_t decimal = 7, hex = 7; /* stay when it fails */

        if (str_parse_u64(text, &decimal) != cases[i].decimal || decimal != cases[i].as_decimal)
            fail_msg("'%s' as decimal", cases[i].text);
        if (str_parse_hex64(text, &hex) != cases[i].hex || hex != cases[i].as_hex)
            fail_msg("'%s' as hex", cases[i].text);
    }
}

static void test_numbers_of_other_bases(void **state)
{
    uint64_t v = 7;

    (void)state;
    assert_true(str_parse_base(STR("1011"), 2, &v) && v == 11);
    assert_true(str_parse_base(STR("777"), 8, &v) && v == 511);
    assert_false(str_parse_base(STR("12"), 2, &v));
    assert_false(str_parse_base(STR("8"), 8, &v));
    assert_false(str_parse_base(STR(""), 8, &v));
    assert_true(v == 511);
}

static void test_signed_numbers(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        int64_t want;
    } cases[] = {
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"-0", true, 0},
        {"9223372036854775808", false, 7},
        {"-9223372036854775809", false, 7},
        {"-", false, 7},
        {"--1", false, 7},
        {"", false, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t got = 7;

        if (str_parse_i64(str_from(cases[i].text), &got) != cases[i].ok || got != cases[i].want)
            fail_msg("'%s' gave %lld", cases[i].text, (long long)got);
    }
}

static void test_floating_numbers(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        double want;
    } cases[] = {
        {"0.1", true, 0.1}, {"-2", true, -2},    {"1e3", true, 1000}, {".5", true, 0.5},
        {"+5.", true, 5},   {"1e-400", true, 0}, {"", false, 7},      {"inf", false, 7},
        {"nan", false, 7},  {"0x10", false, 7},  {"1e999", false, 7}, {"1 ", false, 7},
        {" 1", false, 7},   {"1e", false, 7},    {".", false, 7},     {"1,5", false, 7},
        {"--1", false, 7},  {"1.2.3", false, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        double got = 7;

        if (str_parse_f64(str_from(cases[i].text), &got) != cases[i].ok || got != cases[i].want)
            fail_msg("'%s' gave %g", cases[i].text, got);
    }
    assert_false(str_parse_f64(STR("1\0"), &(double){0}));
}

static void test_words_for_bools(void **state)
{
    bool v;

    (void)state;
    assert_true(str_parse_bool(STR("TRUE"), &v) && v);
    assert_true(str_parse_bool(STR("on"), &v) && v);
    assert_true(str_parse_bool(STR("No"), &v) && !v);
    assert_true(str_parse_bool(STR("0"), &v) && !v);
    v = true;
    assert_false(str_parse_bool(STR("maybe"), &v));
    assert_false(str_parse_bool(STR(""), &v));
    assert_true(v);
}

/* Unicode 15, table 3-7, row by row: the ends of each range and what lies just outside. */
static void test_utf8(void **state)
{
    static const struct {
        struct str text;
        size_t first; /* bytes of the first character; 0 = malformed */
    } cases[] = {
        {STR("a"), 1},
        {STR("\x7f"), 1},
        {STR("\x80"), 0},
        {STR("\xc1\xbf"), 0},
        {STR("\xc2\x80"), 2},
        {STR("\xdf\xbf"), 2},
        {STR("\xc2\x7f"), 0},
        {STR("\xc2\xc0"), 0},
        {STR("\xe0\x9f\xbf"), 0},
        {STR("\xe0\xa0\x80"), 3},
        {STR("\xed\x9f\xbf"), 3},
        {STR("\xed\xa0\x80"), 0},
        {STR("\xee\x80\x80"), 3},
        {STR("\xef\xbf\xbf"), 3},
        {STR("\xf0\x8f\xbf\xbf"), 0},
        {STR("\xf0\x90\x80\x80"), 4},
        {STR("\xf4\x8f\xbf\xbf"), 4},
        {STR("\xf4\x90\x80\x80"), 0},
        {STR("\xf5\x80\x80\x80"), 0},
        {STR("\xff"), 0},
        {STR("\xe2\x82"), 0},
        {STR("\xf0\x9f\x98"), 0},
        {STR(""), 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf text = BUF_NULL;

        assert_int_equal(str_utf8_char(cases[i].text), cases[i].first);
        /* The same behind plain text, which is skipped in whole words. */
        buf_put_cstr(&text, "0123456789abcde");
        buf_put_str(&text, cases[i].text);
        buf_put_cstr(&text, "0123456789");
        assert_int_equal(str_is_utf8(buf_str(&text)), cases[i].first > 0 || !cases[i].text.len);
    }
    assert_true(str_is_utf8(STR_NULL));
}

int main(void)
{
    return TEST_RUN(T(test_comparing), T(test_searching), T(test_cutting),
                    T(test_a_trailing_separator_gives_an_empty_last_part),
                    T(test_copies_keep_embedded_zeros), T(test_unsigned_numbers),
                    T(test_numbers_of_other_bases), T(test_signed_numbers),
                    T(test_floating_numbers), T(test_words_for_bools), T(test_utf8));
}
