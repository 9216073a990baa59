/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/word_cache.h"

#include "lib/base/test.h"

/* NULL when the cache does not know it; one id only. */
static const uint32_t *look_up(const struct word_cache *c, struct str word, size_t room)
{
    const struct word_short *w;
    struct word_key k;
    size_t n;

    word_key_set(&k, word, room);
    w = word_cache_find(c, &k);
    return w ? w->ids : word_cache_find_long(c, word, &n);
}

static void put(struct word_cache *c, struct str word, uint32_t id)
{
    struct word_key k;

    word_key_set(&k, word, word.len);
    word_cache_put(c, &k, word, &id, 1);
}

static void test_words_of_every_length(void **state)
{
    struct word_cache c;
    char text[WORD_LONG_TEXT + 2];

    (void)state;
    word_cache_init(&c);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 26);
    for (uint32_t n = 1; n <= WORD_LONG_TEXT; n++) {
        const uint32_t *id;

        put(&c, str_slice(text, n), n);
        id = look_up(&c, str_slice(text, n), sizeof(text));
        assert_non_null(id);
        assert_int_equal(*id, n);
    }
    put(&c, str_slice(text, WORD_LONG_TEXT + 1), 1);
    assert_null(look_up(&c, str_slice(text, WORD_LONG_TEXT + 1), sizeof(text)));
    assert_null(look_up(&c, STR("nothing"), 7));
    /* What stands behind a word, or a zero in it, does not matter. */
    assert_int_equal(*look_up(&c, STR("abc"), 3), 3);
    assert_null(look_up(&c, str_slice("abc\0", 4), 4));
    word_cache_done(&c);
}

static void test_many_ids(void **state)
{
    uint32_t ids[WORD_LONG_IDS + 1] = {0};
    struct word_cache c;
    struct word_key k;
    size_t n = 0;

    (void)state;
    word_cache_init(&c);
    word_key_set(&k, STR("word"), 4);
    word_cache_put(&c, &k, STR("word"), ids, ARRAY_LEN(ids));
    assert_null(look_up(&c, STR("word"), 4));
    word_cache_put(&c, &k, STR("word"), ids, WORD_LONG_IDS);
    assert_non_null(word_cache_find_long(&c, STR("word"), &n));
    assert_int_equal(n, WORD_LONG_IDS);
    word_cache_done(&c);
}

/* More than fit: what is found is right, and the last ones are. */
static void test_overflow(void **state)
{
    struct word_cache c;
    char text[16];

    (void)state;
    word_cache_init(&c);
    for (uint32_t i = 0; i < 100000; i++)
        put(&c, str_slice(text, (size_t)snprintf(text, sizeof(text), "w%u", i)), i);
    for (uint32_t i = 0; i < 100000; i++) {
        struct str word = str_slice(text, (size_t)snprintf(text, sizeof(text), "w%u", i));
        const uint32_t *id = look_up(&c, word, sizeof(text));

        assert_true(!id || *id == i);
        assert_true(id || i < 99999);
    }
    word_cache_done(&c);
}

int main(void)
{
    return TEST_RUN(T(test_words_of_every_length), T(test_many_ids), T(test_overflow));
}
