/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/cuts.h"

#include "lib/base/test.h"
#include "router/token/bpe.h"

/* The pieces of @word for a model of the letters a, b, c, "." and the mark, with "|" between. */
static void assert_pieces(const char *const *merges, const char *word, const char *want)
{
    static const char *const letters[] = {"a", "b", "c", ".", CUTS_MARK};
    AUTO(buf_done) struct buf got = BUF_NULL;
    struct vocab words = {0};
    struct bpe b = {.words = &words};
    struct str text = str_from(word);
    struct cuts c;

    for (uint32_t i = 0; i < ARRAY_LEN(letters); i++)
        (void)vocab_add(&words, i, str_from(letters[i]));
    bpe_prepare(&b);
    cuts_init(&c, &b);
    for (; *merges; merges += 2)
        cuts_merge(&c, str_from(merges[0]), str_from(merges[1]));
    for (size_t at = 0, end; at < text.len; at = end) {
        end = cuts_next(&c, text, at);
        if (at > 0)
            buf_put_char(&got, '|');
        buf_put(&got, text.ptr + at, end - at);
    }
    assert_string_equal(buf_cstr(&got), want);
    vocab_done(&words);
}

static void test_cuts_where_nothing_is_joined(void **state)
{
    static const char *const merges[] = {"a", "b", CUTS_MARK, "a", NULL};
    static const char *const inside[] = {"ab", "bc", NULL}; /* joins b and b */
    static const char *const bytes[] = {"a", "b", "<0x0A>", "a", NULL};
    static const char *const none[] = {NULL};

    (void)state;
    assert_pieces(merges, CUTS_MARK "ab." CUTS_MARK "ac", CUTS_MARK "ab|.|" CUTS_MARK "a|c");
    assert_pieces(inside, "abba", "a|bb|a");
    assert_pieces(none, "aa" CUTS_MARK, "a|a|" CUTS_MARK);
    assert_pieces(bytes, "ac", "ac");
}

static void test_unknown_characters_stay_together(void **state)
{
    static const char *const none[] = {NULL};

    (void)state;
    assert_pieces(none, "axy\xc3\xa9z.b", "a|xy\xc3\xa9z|.|b");
}

int main(void)
{
    return TEST_RUN(T(test_cuts_where_nothing_is_joined), T(test_unknown_characters_stay_together));
}
