/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/buf.h"

#include "lib/base/test.h"

static void test_empty_buffer(void **state)
{
    struct buf b = BUF_NULL;

    (void)state;
    assert_true(str_eq(buf_str(&b), STR_NULL));
    buf_put(&b, NULL, 0);
    buf_put_str(&b, STR_NULL);
    buf_consume(&b, 0);
    buf_truncate(&b, 0);
    buf_clear(&b);
    assert_string_equal(buf_cstr(&b), "");
    buf_done(&b);
    buf_done(&b);
    buf_put_char(&b, 'x'); /* usable again */
    assert_int_equal(b.len, 1);
    buf_done(&b);
}

static void test_formatted_bytes(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    AUTO(mem_free) char *long_word = xcalloc(1, 1001);

    (void)state;
    buf_put_cstr(&b, "a");
    buf_put_u64dec(&b, 0);
    buf_put_u64dec(&b, UINT64_MAX);
    buf_printf(&b, "-%03d", 7);
    assert_string_equal(buf_cstr(&b), "a018446744073709551615-007");

    memset(long_word, 'w', 1000);
    buf_clear(&b);
    buf_printf(&b, "<%s>", long_word); /* longer than the first guess */
    assert_int_equal(b.len, 1002);
    assert_memory_equal(buf_data(&b) + 1, long_word, 1000);
    assert_int_equal(buf_data(&b)[1001], '>');
}

static void test_big_endian_numbers_read_back(void **state)
{
    static const uint8_t want[] = {0x12, 0x34, 0x12, 0x34, 0x56, 0x78, 0xfe,
                                   0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10};
    AUTO(buf_done) struct buf b = BUF_NULL;

    (void)state;
    buf_put_u16be(&b, 0x1234);
    buf_put_u32be(&b, 0x12345678);
    buf_put_u64be(&b, UINT64_C(0xfedcba9876543210));
    assert_int_equal(b.len, sizeof(want));
    assert_memory_equal(buf_data(&b), want, sizeof(want));
    assert_int_equal(load_u16be(buf_data(&b)), 0x1234);
    assert_int_equal(load_u32be(buf_data(&b) + 2), 0x12345678);
    assert_true(load_u64be(buf_data(&b) + 6) == UINT64_C(0xfedcba9876543210));
}

static void test_reserve_and_commit(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;

    (void)state;
    memset(buf_reserve(&b, 1000), 'r', 1000);
    assert_int_equal(b.len, 0);
    buf_commit(&b, 3);
    assert_string_equal(buf_cstr(&b), "rrr");
    buf_consume(&b, 1);
    buf_truncate(&b, 1);
    assert_string_equal(buf_cstr(&b), "r");
}

static void test_text_moves_out(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    AUTO(mem_free) char *text = NULL;

    (void)state;
    buf_put_cstr(&b, "header:body");
    buf_consume(&b, 7);
    text = buf_take_cstr(&b);
    assert_string_equal(text, "body");
    assert_null(b.base);
    assert_int_equal(b.len, 0);
}

/* Random appends and consumes against a plain array of everything ever appended. */
static void test_random_use_keeps_the_bytes(void **state)
{
    AUTO(buf_done) struct buf b = BUF_NULL;
    AUTO(mem_free) uint8_t *all = xmalloc(1 << 20);
    size_t end = 0, start = 0;
    uint32_t seed = 7;

    (void)state;
    while (end < (1 << 20) - 600) {
        size_t n;

        seed = seed * 1664525u + 1013904223u;
        n = seed >> 8 & 511;
        if (seed >> 30) {
            for (size_t i = 0; i < n; i++)
                all[end + i] = (uint8_t)(seed >> (i & 15));
            buf_put(&b, all + end, n);
            end += n;
        } else {
            n = MIN(n * 8, b.len);
            buf_consume(&b, n);
            start += n;
        }
        assert_int_equal(b.len, end - start);
        assert_true(b.len == 0 || memcmp(buf_data(&b), all + start, b.len) == 0);
        assert_true(b.start + b.len <= b.cap);
    }
    /* Consumed bytes are reclaimed: memory follows what is unread, not what went through. */
    assert_true(b.cap < 1 << 18);
}

int main(void)
{
    return TEST_RUN(T(test_empty_buffer), T(test_formatted_bytes),
                    T(test_big_endian_numbers_read_back), T(test_reserve_and_commit),
                    T(test_text_moves_out), T(test_random_use_keeps_the_bytes));
}
