/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/prompt_cache.h"

#include <pthread.h>

#include "lib/base/test.h"
#include "router/token/sample.h"

struct fixture {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
    struct prompt_cache *c;
};

static struct fixture set_up(size_t max_bytes)
{
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct fixture f = {0};
    struct err e;

    sample_byte_level(&json, "null");
    EXPECT_OK(tokenizer_load(&f.t, buf_str(&json), &e), &e);
    f.s = tokenizer_scratch_new(f.t);
    f.c = prompt_cache_new(f.t, max_bytes, 1);
    return f;
}

static void tear_down(struct fixture *f)
{
    prompt_cache_free(f->c);
    tokenizer_scratch_free(f->s);
    tokenizer_free(f->t);
}

/* Encodes @text through the cache; the ids must be those without it. Returns the bytes reused. */
static size_t encode(const struct fixture *f, struct tokenizer_scratch *s, struct str text)
{
    AUTO(token_ids_done) struct token_ids want = {0};
    AUTO(token_ids_done) struct token_ids got = {0};
    struct prompt_reuse reuse;
    struct err e;

    EXPECT_OK(tokenizer_encode(f->t, s, text, &want, &e), &e);
    EXPECT_OK(prompt_cache_encode(f->c, s, text, &got, &reuse, &e), &e);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.ptr, want.ptr, want.len * sizeof(*want.ptr));
    return reuse.bytes;
}

static void put_turn(struct buf *out, char c, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_put_char(out, i % 5 ? c : ' ');
    buf_put_cstr(out, "<|s|>");
}

static void test_turns_are_reused(void **state)
{
    struct fixture f = set_up(1 << 20);
    AUTO(buf_done) struct buf text = BUF_NULL;
    size_t first, second;

    (void)state;
    put_turn(&text, 'a', 200);
    first = text.len;
    assert_int_equal(encode(&f, f.s, buf_str(&text)), 0);
    put_turn(&text, 'b', 200);
    second = text.len;
    buf_put_cstr(&text, "open end");
    assert_int_equal(encode(&f, f.s, buf_str(&text)), first);
    put_turn(&text, 'c', 20); /* short, so it belongs to the part that follows */
    assert_int_equal(encode(&f, f.s, buf_str(&text)), second);
    assert_int_equal(encode(&f, f.s, buf_str(&text)), second);
    put_turn(&text, 'd', 200);
    assert_int_equal(encode(&f, f.s, buf_str(&text)), second);
    assert_int_equal(encode(&f, f.s, buf_str(&text)), text.len);
    /* Another conversation with the same beginning. */
    buf_truncate(&text, first);
    put_turn(&text, 'e', 200);
    assert_int_equal(encode(&f, f.s, buf_str(&text)), first);
    /* The same part elsewhere is another one. */
    assert_int_equal(encode(&f, f.s, str_skip(buf_str(&text), first)), 0);
    tear_down(&f);
}

/* "<right>" takes the blanks behind it, "<word>" asks what follows: nothing may be cut there. */
static void test_tokens_that_do_not_cut(void **state)
{
    struct fixture f = set_up(1 << 20);
    AUTO(buf_done) struct buf text = BUF_NULL;

    (void)state;
    put_turn(&text, 'a', 200);
    buf_truncate(&text, 200);
    buf_put_cstr(&text, "<right><word>");
    assert_int_equal(encode(&f, f.s, buf_str(&text)), 0);
    buf_put_cstr(&text, "  x");
    assert_int_equal(encode(&f, f.s, buf_str(&text)), 0);
    assert_int_equal(prompt_cache_stats(f.c).parts, 0);
    tear_down(&f);
}

static void test_budget(void **state)
{
    struct fixture f = set_up(16 << 10);
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct prompt_cache_stats stats;

    (void)state;
    for (int i = 0; i < 500; i++) {
        if (i % 7 == 0)
            buf_clear(&text);
        put_turn(&text, (char)('a' + i % 23), 150 + (size_t)i % 50);
        (void)encode(&f, f.s, buf_str(&text));
        stats = prompt_cache_stats(f.c);
        assert_true(stats.bytes <= 16 << 10);
    }
    assert_true(stats.evicted > 100 && stats.parts > 3);
    put_turn(&text, 'z', 60000); /* larger than all */
    put_turn(&text, 'y', 200);
    (void)encode(&f, f.s, buf_str(&text));
    assert_true(prompt_cache_stats(f.c).parts > 3);
    tear_down(&f);
}

/* @n prompts that nobody asks again; their first turns are all different. */
static void flood(const struct fixture *f, int n)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (int i = 0; i < n; i++) {
        buf_clear(&text);
        buf_printf(&text, "%d", i);
        put_turn(&text, 'n', 200);
        assert_int_equal(encode(f, f->s, buf_str(&text)), 0);
    }
}

static void test_prompts_that_never_come_back(void **state)
{
    struct fixture f = set_up(64 << 10);
    AUTO(buf_done) struct buf text = BUF_NULL;

    (void)state;
    put_turn(&text, 'a', 200);
    put_turn(&text, 'b', 200);
    (void)encode(&f, f.s, buf_str(&text));
    assert_int_equal(encode(&f, f.s, buf_str(&text)), text.len);
    flood(&f, 500);
    assert_in_range(prompt_cache_stats(f.c).bytes, 12 << 10,
                    18 << 10); /* a quarter, and the talk */
    put_turn(&text, 'c', 200);
    assert_int_equal(encode(&f, f.s, buf_str(&text)), text.len - 205);
    tear_down(&f);
}

/* What is proven goes when there is too much of it, and new parts behind it before. */
static void test_many_conversations(void **state)
{
    struct fixture f = set_up(32 << 10);
    AUTO(buf_done) struct buf text = BUF_NULL;

    (void)state;
    for (int i = 0; i < 200; i++) {
        buf_clear(&text);
        buf_printf(&text, "%d", i);
        for (int turn = 0; turn < 4; turn++) {
            size_t known = text.len;

            put_turn(&text, (char)('a' + turn), 200);
            assert_int_equal(encode(&f, f.s, buf_str(&text)), turn ? known : 0);
            assert_true(prompt_cache_stats(f.c).bytes <= 32 << 10);
        }
    }
    assert_true(prompt_cache_stats(f.c).bytes > 16 << 10);
    tear_down(&f);
}

static void *talk(void *arg)
{
    const struct fixture *f = arg;
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = tokenizer_scratch_new(f->t);
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (int i = 0; i < 300; i++) {
        if (i % 10 == 0)
            buf_clear(&text);
        put_turn(&text, (char)('a' + i % 17), 150);
        (void)encode(f, s, buf_str(&text));
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct fixture f = set_up(8 << 10);
    pthread_t threads[3];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &f), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        (void)pthread_join(threads[i], NULL);
    assert_true(prompt_cache_stats(f.c).bytes <= 8 << 10);
    tear_down(&f);
}

static void test_errors(void **state)
{
    struct fixture f = set_up(1 << 20);
    AUTO(token_ids_done) struct token_ids ids = {0};
    struct prompt_reuse reuse;
    struct err e;

    (void)state;
    assert_true(prompt_cache_encode(f.c, f.s, STR("\xff"), &ids, &reuse, &e) < 0);
    assert_int_equal(ids.len, 0);
    assert_int_equal(encode(&f, f.s, STR("")), 0);
    tear_down(&f);
}

int main(void)
{
    return TEST_RUN(T(test_turns_are_reused), T(test_tokens_that_do_not_cut), T(test_budget),
                    T(test_prompts_that_never_come_back), T(test_many_conversations),
                    T(test_threads), T(test_errors));
}
