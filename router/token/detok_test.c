/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/detok.h"

#include "lib/base/test.h"
#include "router/token/sample.h"

static struct tokenizer *load(bool byte_level)
{
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct tokenizer *t = NULL;
    struct err e;

    if (byte_level)
        sample_byte_level(&json, "null");
    else
        sample_fallback(&json);
    EXPECT_OK(tokenizer_load(&t, buf_str(&json), &e), &e);
    return t;
}

static void expect(struct detok *d, uint32_t id, const char *want)
{
    struct str got = detok_push(d, id);

    if (!str_is(got, want))
        fail_msg("token %u: \"%.*s\", not \"%s\"", id, STR_ARG(got), want);
}

static void test_characters_come_whole(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *t = load(true);
    AUTO(detok_done) struct detok d;
    uint32_t prompt[] = {'h', 'i'};

    (void)state;
    detok_init(&d, t, prompt, 2, false);
    expect(&d, 'a', "a");
    expect(&d, 0xf0, "");
    expect(&d, 0x9f, "");
    expect(&d, 0x98, "");
    expect(&d, 0x80, "\xf0\x9f\x98\x80");
    expect(&d, 'b', "b");
    expect(&d, 0xff, ""); /* never becomes a character: comes with what follows */
    expect(&d, 'c',
           "\xef\xbf\xbd"
           "c");
}

/* What no token completes is a U+FFFD when it is asked for at the end, and before that nothing. */
static void test_end_within_a_character(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *b = load(true), *f = load(false);
    AUTO(detok_done) struct detok bytes, fallback, none;
    uint32_t prompt[] = {'h', 0xc3};

    (void)state;
    detok_init(&bytes, b, NULL, 0, false);
    expect(&bytes, 'a', "a");
    assert_int_equal(detok_flush(&bytes).len, 0);
    expect(&bytes, 0xf0, "");
    expect(&bytes, 0x9f, "");
    assert_true(str_is(detok_flush(&bytes), "\xef\xbf\xbd"));
    detok_init(&fallback, f, NULL, 0, false);
    expect(&fallback, 1 + 0xf0, "");
    expect(&fallback, 1 + 0x9f, "");
    assert_true(str_is(detok_flush(&fallback), "\xef\xbf\xbd\xef\xbf\xbd")); /* one per byte */
    detok_init(&none, b, prompt, 2, false);
    assert_int_equal(detok_flush(&none).len, 0); /* the prompt's */
}

/* A prompt that ends in the middle of a character: the rest of it comes out whole. */
static void test_prompt_may_end_within_a_character(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *t = load(true);
    AUTO(detok_done) struct detok d;
    uint32_t prompt[] = {'h', 0xc3};

    (void)state;
    detok_init(&d, t, prompt, 2, false);
    expect(&d, 0xa9, "\xc3\xa9");
    expect(&d, 'x', "x");
}

static void test_first_space_is_kept_inside_of_text(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *t = load(false);
    AUTO(detok_done) struct detok d, fresh;
    uint32_t hello = 0, prompt[1];

    (void)state;
    assert_true(tokenizer_find(t, STR("\xe2\x96\x81hello"), &hello));
    prompt[0] = hello;
    detok_init(&d, t, prompt, 1, false);
    expect(&d, hello, " hello");
    expect(&d, 1 + ' ', " ");
    expect(&d, 1 + 0xc3, "");
    expect(&d, 1 + 0xa9, "\xc3\xa9");
    detok_init(&fresh, t, NULL, 0, false);
    expect(&fresh, hello, "hello");
    expect(&fresh, hello, " hello");
}

static void test_special_tokens(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *t = load(true);
    AUTO(detok_done) struct detok shown, skipped;
    uint32_t s = 0;

    (void)state;
    assert_true(tokenizer_find(t, STR("<|s|>"), &s));
    detok_init(&shown, t, NULL, 0, false);
    expect(&shown, s, "<|s|>");
    detok_init(&skipped, t, NULL, 0, true);
    expect(&skipped, s, "");
    expect(&skipped, 'a', "a");
}

/* A run that never becomes text costs O(1) a token: quadratic work takes minutes here. */
static void test_long_broken_run(void **state)
{
    AUTO(tokenizer_free) struct tokenizer *b = load(true), *f = load(false);
    AUTO(detok_done) struct detok bytes, fallback;

    (void)state;
    detok_init(&bytes, b, NULL, 0, false);
    detok_init(&fallback, f, NULL, 0, false);
    for (int i = 0; i < 300000; i++) {
        assert_int_equal(detok_push(&bytes, 0xff).len, 0);
        assert_int_equal(detok_push(&fallback, 1 + 0xff).len, 0);
    }
    assert_int_equal(detok_push(&bytes, 'a').len, 3 * 300000 + 1);
    assert_int_equal(detok_push(&fallback, 'a' + 200).len, 3 * 300000 + 1);
}

int main(void)
{
    return TEST_RUN(T(test_characters_come_whole), T(test_end_within_a_character),
                    T(test_prompt_may_end_within_a_character),
                    T(test_first_space_is_kept_inside_of_text), T(test_special_tokens),
                    T(test_long_broken_run));
}
