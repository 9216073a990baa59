/* SPDX-License-Identifier: Apache-2.0 */
#include "router/epp/annotate.h"
#include "lib/base/test.h"

static const uint32_t TOKENS[] = {7, 0, 4294967295};

static struct annotation both(uint64_t decode, struct opt_u64 prefill)
{
    return (struct annotation){decode, prefill, TOKENS, ARRAY_LEN(TOKENS)};
}

static void test_members(void **state)
{
#define ALONE                                                                                      \
    "\"enable_local_updates\":false,\"backend_instance_id\":18446744073709551615,"                 \
    "\"token_data\":[7,0,4294967295]"
#define APART                                                                                      \
    "\"enable_local_updates\":false,\"prefill_worker_id\":3,\"decode_worker_id\":"                 \
    "18446744073709551615,\"token_data\":[7,0,4294967295]"
    static const struct {
        const char *in, *want;
        struct opt_u64 prefill;
    } cases[] = {
        {"{}", "{\"nvext\":{" ALONE "}}", {.set = false}},
        {"{\"a\":1.50, \"b\" : [1, 2]}", "{\"a\":1.50,\"b\":[1, 2],\"nvext\":{" ALONE "}}",
         OPT_U64(UINT64_MAX)},
        {"{\"nvext\":null}", "{\"nvext\":{" APART "}}", OPT_U64(3)},
        {"{\"nvext\":{\"annotations\":[\"x\"],\"token_data\":[1],\"backend_instance_id\":1,"
         "\"prefill_worker_id\":1,\"decode_worker_id\":1,\"enable_local_updates\":true,\"z\":{}},"
         "\"m\":\"\\u0041\"}",
         "{\"m\":\"\\u0041\",\"nvext\":{\"annotations\":[\"x\"],\"z\":{}," APART "}}", OPT_U64(3)},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        const struct annotation a = both(UINT64_MAX, cases[i].prefill);
        struct err e;

        EXPECT_OK(annotate_request(&out, str_from(cases[i].in), &a, &e), &e);
        buf_put_char(&out, '\0');
        assert_string_equal(buf_str(&out).ptr, cases[i].want);
    }
}

static void test_refusals(void **state)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "null",
        "{",
        "{\"a\":1}x",
        "{\"nvext\":[]}",
        "{\"nvext\":1}",
        "{\"nvext\":{\"a\"}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;
        const struct annotation a = both(1, OPT_U64(2));
        struct err e;

        assert_true(annotate_request(&out, str_from(wrong[i]), &a, &e) < 0);
    }
}

int main(void)
{
    return TEST_RUN(T(test_members), T(test_refusals));
}
