/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/json_put.h"

#include <math.h>

#include "lib/base/json_pull.h"
#include "lib/base/test.h"

static void assert_text(const struct buf *out, const char *want)
{
    if (!str_is(buf_str(out), want))
        fail_msg("got %.*s, want %s", STR_ARG(buf_str(out)), want);
}

static void test_nesting_puts_commas_between_values_only(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);

    (void)state;
    json_put_object(&j);
    json_put_key(&j, "a");
    json_put_array(&j);
    json_put_u64(&j, 1);
    json_put_array(&j);
    json_put_array_end(&j);
    json_put_object(&j);
    json_put_object_end(&j);
    json_put_null(&j);
    json_put_array_end(&j);
    json_put_key_str(&j, STR("b\"c"));
    json_put_bool(&j, true);
    json_put_key(&j, "raw");
    json_put_raw(&j, STR("[1,2]"));
    json_put_member_cstr(&j, "none", NULL);
    json_put_member_raw(&j, STR("b\\u0022d"), STR("{\"e\":1}"));
    json_put_member_raw(&j, STR("f"), STR("2"));
    json_put_object_end(&j);
    assert_text(&out, "{\"a\":[1,[],{},null],\"b\\\"c\":true,\"raw\":[1,2],\"none\":null,"
                      "\"b\\u0022d\":{\"e\":1},\"f\":2}");
}

static void test_integers_are_exact(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);

    (void)state;
    json_put_array(&j);
    json_put_u64(&j, UINT64_MAX);
    json_put_i64(&j, INT64_MIN);
    json_put_i64(&j, INT64_MAX);
    json_put_i64(&j, -1);
    json_put_i64(&j, 0);
    json_put_array_end(&j);
    assert_text(&out, "[18446744073709551615,-9223372036854775808,9223372036854775807,-1,0]");
}

static void test_arrays_of_numbers_are_as_one_by_one(void **state)
{
    uint32_t v[1500];
    uint64_t random = 7;

    (void)state;
    for (size_t n = 0; n <= ARRAY_LEN(v); n = n < 3 ? n + 1 : n * 5 / 2) {
        AUTO(buf_done) struct buf fast = BUF_NULL;
        AUTO(buf_done) struct buf slow = BUF_NULL;
        struct json_put a = json_put_on(&fast), b = json_put_on(&slow);

        json_put_array(&a);
        json_put_array(&b);
        json_put_u64(&a, 1);
        json_put_u64(&b, 1);
        json_put_array(&b);
        for (size_t i = 0; i < n; i++) {
            random = random * UINT64_C(6364136223846793005) + 1;
            v[i] = (uint32_t)(random >> 32) >> (random >> 27 & 31);
            json_put_u64(&b, v[i]);
        }
        json_put_array_end(&b);
        json_put_u32_array(&a, v, n);
        json_put_u64(&a, 2);
        json_put_u64(&b, 2);
        json_put_array_end(&a);
        json_put_array_end(&b);
        assert_string_equal(buf_cstr(&fast), buf_cstr(&slow));
    }
}

static void test_arrays_of_numbers_hold_at_every_length(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    struct json_put j = json_put_on(&out);
    uint32_t v[] = {0,         9,         10,         99,        100,      999,
                    1000,      1001,      9999,       10000,     99999,    100000,
                    999999,    1000000,   1000001,    9999999,   10000000, 99999999,
                    100000000, 999999999, 1000000000, UINT32_MAX};

    (void)state;
    json_put_u32_array(&j, v, ARRAY_LEN(v));
    assert_text(&out, "[0,9,10,99,100,999,1000,1001,9999,10000,99999,100000,999999,1000000,1000001,"
                      "9999999,10000000,99999999,100000000,999999999,1000000000,4294967295]");
}

static void test_doubles_are_short_and_read_back(void **state)
{
    static const struct {
        double in;
        const char *want;
    } cases[] = {
        {0.1, "0.1"},
        {1, "1"},
        {-0.5, "-0.5"},
        {1e22, "1e+22"},
        {0.1 + 0.2, "0.30000000000000004"},
        {5e-324, "5e-324"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {9007199254740992, "9007199254740992"},
        {22222222222222224, "22222222222222224.0"},
        {NAN, "null"},
        {-INFINITY, "null"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        struct json_put j = json_put_on(&out);

        json_put_f64(&j, cases[i].in);
        assert_text(&out, cases[i].want);
    }
}

static void test_random_doubles_read_back(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    uint64_t bits = 88172645463325252u;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        struct json_put j = json_put_on(&out);
        struct json_pull p;
        double in, got;

        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&in, &bits, sizeof(in));
        if (!isfinite(in))
            continue;
        buf_clear(&out);
        json_put_f64(&j, in);
        json_pull_init(&p, buf_str(&out));
        assert_true(json_pull_f64(&p, &got));
        assert_memory_equal(&in, &got, sizeof(in));
    }
}

static void test_strings_are_escaped(void **state)
{
    static const struct {
        struct str in;
        const char *want;
    } cases[] = {
        {STR(""), ""},
        {STR("plain/text\x7f"), "plain/text\x7f"},
        {STR("\"\\\b\f\n\r\t"), "\\\"\\\\\\b\\f\\n\\r\\t"},
        {STR("a\0b\x01\x1f"), "a\\u0000b\\u0001\\u001f"},
        {STR("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {STR("\xff.\xc3"), "\xef\xbf\xbd.\xef\xbf\xbd"}, /* stray byte, cut sequence */
        {STR("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* an encoded surrogate */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        json_escape(&out, cases[i].in);
        assert_text(&out, cases[i].want);
    }
}

static void test_every_string_reads_back(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct json_pull p;
    struct str got;
    char all[128];

    (void)state;
    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (char)i;
    json_put_str(&j, str_slice(all, sizeof(all)));
    json_pull_init(&p, buf_str(&out));
    assert_true(json_pull_string(&p, &scratch, &got));
    assert_int_equal(got.len, sizeof(all));
    assert_memory_equal(got.ptr, all, sizeof(all));
}

int main(void)
{
    return TEST_RUN(T(test_nesting_puts_commas_between_values_only), T(test_integers_are_exact),
                    T(test_arrays_of_numbers_are_as_one_by_one),
                    T(test_arrays_of_numbers_hold_at_every_length),
                    T(test_doubles_are_short_and_read_back), T(test_random_doubles_read_back),
                    T(test_strings_are_escaped), T(test_every_string_reads_back));
}
