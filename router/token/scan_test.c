/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/scan.h"

#include "lib/base/test.h"
#include "router/token/regex.h"

static const char *const PATTERNS[] = {
    SCAN_PATTERN_GPT2,
    SCAN_PATTERN_WORDS("\\p{N}{1,3}"),
    SCAN_PATTERN_WORDS("\\p{N}"),
    SCAN_PATTERN_CASED(SCAN_CAPITALS, SCAN_SMALL, "/"),
    SCAN_PATTERN_KIMI,
};

/* What is found by hand is what the engine finds there; where it stops, a foreign character is near. */
static void assert_agrees(struct scan scan, const struct regex *re, struct regex_scratch *s,
                          struct str text)
{
    struct split_span spans[100];
    size_t at = 0, max = text.len % 2 ? ARRAY_LEN(spans) : 8;

    while (at < text.len) {
        size_t n = scan_matches(scan, text, at, spans, max), start, end;

        for (size_t i = 0; i < n; i++) {
            assert_int_equal(regex_find(re, s, text, at, &start, &end), REGEX_FOUND);
            if (spans[i].start != start || spans[i].end != end)
                fail_msg("\"%.*s\" at %zu: %u, not %zu", (int)text.len, text.ptr, at, spans[i].end,
                         end);
            at = end;
        }
        if (n == max || at == text.len)
            continue;
        assert_int_equal(regex_find(re, s, text, at, &start, &end), REGEX_FOUND);
        assert_int_equal(start, at);
        at = end;
    }
}

static void test_agrees_with_the_engine(void **state)
{
    static const char *const parts[] = {"a",
                                        "Z",
                                        "the",
                                        "letters",
                                        "HTTP",
                                        "'",
                                        "s",
                                        "S",
                                        "ll",
                                        "RE",
                                        "1",
                                        "234567",
                                        " ",
                                        " ",
                                        "  ",
                                        "\t",
                                        "\n",
                                        "\r\n",
                                        "\f",
                                        "\v",
                                        "\x1c",
                                        "\x7f",
                                        ".",
                                        "/",
                                        "-->",
                                        "_",
                                        "\xc3\xa9",
                                        "\xc2\xa0",
                                        "\xe2\x80\x83",
                                        "\xc5\xbf",
                                        "\xe4\xb8\xad",
                                        "\xc2\xb2",
                                        "\xcc\x81",
                                        "\xf0\x9f\x98\x80"};

    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(PATTERNS); p++) {
        struct scan scan = scan_of(str_from(PATTERNS[p]));
        AUTO(regex_free) struct regex *re = NULL;
        AUTO(regex_scratch_free) struct regex_scratch *s = regex_scratch_new();
        AUTO(buf_done) struct buf text = BUF_NULL;
        uint32_t seed = 7;
        struct err e;

        assert_int_not_equal(scan.kind, SCAN_NONE);
        EXPECT_OK(regex_compile(&re, str_from(PATTERNS[p]), REGEX_ONIGURUMA, &e), &e);
        for (int i = 0; i < 20000; i++) {
            uint32_t n_parts = 1 + seed % (i % 16 ? 13 : 150), n_foreign = i % 16 ? 0 : 8;

            buf_clear(&text);
            for (uint32_t n = 0; n < n_parts; n++) {
                seed = seed * 1664525 + 1013904223;
                buf_put_cstr(&text, parts[(seed >> 8) % (ARRAY_LEN(parts) - n_foreign)]);
            }
            assert_agrees(scan, re, s, buf_str(&text));
        }
    }
}

static void test_other_patterns_are_left_to_the_engine(void **state)
{
    (void)state;
    assert_int_equal(scan_of(STR("\\p{L}+")).kind, SCAN_NONE);
    assert_int_equal(scan_of(STR("")).kind, SCAN_NONE);
}

int main(void)
{
    return TEST_RUN(T(test_agrees_with_the_engine), T(test_other_patterns_are_left_to_the_engine));
}
