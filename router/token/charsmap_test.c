/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/charsmap.h"

#include <errno.h>

#include "lib/base/test.h"
#include "router/token/regex.h"

enum { UNITS = 1024, CHILDREN = 256, LEAVES = 512 };

static void put_u32(struct buf *out, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        buf_put_char(out, (char)(v >> 8 * i & 0xff));
}

/* A map of "A" to "a" and of "e" to nothing: one level of the trie, with a leaf below each. */
static void put_map(struct buf *out, uint32_t text_of_a)
{
    uint32_t units[UNITS] = {[0] = CHILDREN << 10};
    const char keys[] = {'A', 'e'};
    const uint32_t values[] = {text_of_a, 2};

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        uint32_t at = CHILDREN ^ (uint8_t)keys[i];

        units[at] = LEAVES << 10 | 1 << 8 | (uint8_t)keys[i];
        units[at ^ LEAVES] = values[i];
    }
    put_u32(out, sizeof(units));
    for (size_t i = 0; i < UNITS; i++)
        put_u32(out, units[i]);
    buf_put(out, "a\0\0", 3);
}

static void assert_maps(struct str bytes, const char *text, const char *want)
{
    AUTO(regex_scratch_free) struct regex_scratch *scratch = regex_scratch_new();
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct charsmap m = {0};
    struct err e;

    EXPECT_OK(charsmap_load(&m, bytes, &e), &e);
    assert_int_equal(charsmap_apply(&m, scratch, str_from(text), 1000, &out), 0);
    assert_string_equal(buf_cstr(&out), want);
    charsmap_done(&m);
}

static void test_map(void **state)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;

    (void)state;
    put_map(&bytes, 0);
    assert_maps(buf_str(&bytes), "xAeA", "xaa");
    assert_maps(buf_str(&bytes), "A\xcc\x81x",
                "ax"); /* a short cluster goes as its beginning does */
    assert_maps(buf_str(&bytes), "A\xcc\x81\xcc\x81\xcc\x81", "a\xcc\x81\xcc\x81\xcc\x81");
    assert_maps(buf_str(&bytes), "", "");
    assert_maps(STR(""), "Ae", "Ae"); /* an empty map changes nothing */
}

static void test_what_leads_nowhere_changes_nothing(void **state)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;

    (void)state;
    put_map(&bytes, 1U << 30); /* a text beyond the block */
    assert_maps(buf_str(&bytes), "xAeA", "xAA");
}

static void test_growth_is_bounded(void **state)
{
    AUTO(regex_scratch_free) struct regex_scratch *scratch = regex_scratch_new();
    AUTO(buf_done) struct buf bytes = BUF_NULL, out = BUF_NULL;
    struct charsmap m = {0};
    struct err e;

    (void)state;
    put_map(&bytes, 0);
    EXPECT_OK(charsmap_load(&m, buf_str(&bytes), &e), &e);
    assert_int_equal(charsmap_apply(&m, scratch, STR("AAAA"), 3, &out), -E2BIG);
    charsmap_done(&m);
}

static void test_cut_short(void **state)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;

    (void)state;
    put_map(&bytes, 0);
    for (size_t n = 1; n < 4 + UNITS * 4; n += 101) {
        struct charsmap m = {0};
        struct err e;

        assert_int_equal(charsmap_load(&m, str_head(buf_str(&bytes), n), &e), -EINVAL);
        charsmap_done(&m);
    }
}

int main(void)
{
    return TEST_RUN(T(test_map), T(test_what_leads_nowhere_changes_nothing),
                    T(test_growth_is_bounded), T(test_cut_short));
}
