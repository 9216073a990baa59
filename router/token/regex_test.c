/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/regex.h"

#include <errno.h>

#include "lib/base/test.h"

static struct regex *compile(const char *pattern, enum regex_flavour flavour)
{
    struct regex *re = NULL;
    struct err e;

    if (regex_compile(&re, str_from(pattern), flavour, &e) < 0)
        fail_msg("%s: %s", pattern, e.text);
    return re;
}

/* All matches of @pattern, with "|" between. */
static void assert_matches(const char *pattern, enum regex_flavour flavour, const char *text,
                           const char *want)
{
    AUTO(regex_free) struct regex *re = compile(pattern, flavour);
    AUTO(regex_scratch_free) struct regex_scratch *s = regex_scratch_new();
    AUTO(buf_done) struct buf got = BUF_NULL;
    size_t start, end = 0;

    while (regex_find(re, s, str_from(text), end, &start, &end) == REGEX_FOUND && end > start) {
        if (got.len > 0)
            buf_put_char(&got, '|');
        buf_put(&got, text + start, end - start);
    }
    assert_string_equal(buf_cstr(&got), want);
}

static void test_classes_mean_what_oniguruma_means(void **state)
{
    (void)state;
    assert_matches("\\s+", REGEX_ONIGURUMA, "a\xe1\xa0\x8e b\xc2\x85 c",
                   " |\xc2\x85 "); /* not U+180E */
    assert_matches("[^\\s\\p{L}]", REGEX_ONIGURUMA, "a \xc2\xa0!", "!");
    assert_matches("\\w+", REGEX_ONIGURUMA, "a_1\xc2\xb2-\xe2\x93\x90", "a_1\xc2\xb2|\xe2\x93\x90");
    assert_matches("\\w+", REGEX_RUST, "a_1\xc2\xb2", "a_1");
    assert_matches("\\W+", REGEX_ONIGURUMA, "a--b", "--");
    assert_matches("\\d", REGEX_ONIGURUMA, "1\xd9\xa1", "1|\xd9\xa1");
    assert_matches("(?i:'s|'t)", REGEX_ONIGURUMA, "'S'\xc5\xbf", "'S|'\xc5\xbf");
    assert_matches("a.c", REGEX_LITERAL, "abca.c", "a.c");
    assert_matches("[\\[\\]]", REGEX_ONIGURUMA, "[x]", "[|]");
}

static void test_what_differs_is_refused(void **state)
{
    static const struct {
        const char *pattern;
        int want;
    } cases[] = {
        {"(", -EINVAL},    {"a\\", -EINVAL},  {"[a&&b]", -ENOTSUP}, {"[a[b]]", -ENOTSUP},
        {"\\h", -ENOTSUP}, {"\\R", -ENOTSUP}, {"[\\W]", -ENOTSUP},  {"\\p{Nope}", -EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct regex *re = NULL;
        struct err e = {""};
        int r = regex_compile(&re, str_from(cases[i].pattern), REGEX_ONIGURUMA, &e);

        if (r != cases[i].want || re || !e.text[0])
            fail_msg("%s: %d %s", cases[i].pattern, r, e.text);
    }
}

/* Blanks without end are text too; work that grows faster than the text is cut off. */
static void test_limits(void **state)
{
    AUTO(regex_free)
    struct regex *words = compile("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", REGEX_ONIGURUMA),
                 *slow = compile("(a+)+[bc]", REGEX_ONIGURUMA);
    AUTO(regex_scratch_free) struct regex_scratch *s = regex_scratch_new();
    AUTO(buf_done) struct buf blanks = BUF_NULL, letters = BUF_NULL;
    size_t start, end;

    (void)state;
    for (int i = 0; i < 2000000; i++)
        buf_put_cstr(&blanks, "\t ");
    for (int i = 0; i < 64; i++)
        buf_put_char(&letters, 'a');
    assert_int_equal(regex_find(words, s, buf_str(&blanks), 0, &start, &end), REGEX_FOUND);
    assert_int_equal(end, blanks.len);
    assert_int_equal(regex_find(slow, s, buf_str(&letters), 0, &start, &end), -E2BIG);
}

int main(void)
{
    return TEST_RUN(T(test_classes_mean_what_oniguruma_means), T(test_what_differs_is_refused),
                    T(test_limits));
}
