/* SPDX-License-Identifier: Apache-2.0 */
#include "router/openai/logprobs.h"

#include "lib/base/test.h"

static void decode(void *arg, uint32_t id, struct buf *out)
{
    (void)arg;
    buf_printf(out, "t%u", id);
}

/* Items as the reference was given them, answers as 1.6.1 gave them, bytes included. */
static void gather(enum api api, struct buf *out)
{
    struct logprobs l = {.api = api, .decode = decode};
    struct logprobs_item it;

    logprobs_item_init(&it, STR("[-0.5,-2]"),
                       STR("[[{\"rank\":1,\"token_id\":5,\"token\":\"z\",\"logprob\":-0.5},"
                           "{\"rank\":2,\"token_id\":6,\"token\":null,\"logprob\":-1.25}],[]]"));
    logprobs_add(&l, &it, 5, STR("\xc3\xa9"));
    logprobs_add(&l, &it, 7, STR_NULL);
    logprobs_add(&l, &it, 8, STR("no number for it"));
    logprobs_take(&l, out);
    logprobs_take(&l, out); /* nothing is left */
    logprobs_done(&l);
}

static void test_chat(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    gather(API_CHAT, &out);
    assert_string_equal(
        buf_cstr(&out),
        "{\"content\":[{\"token\":\"\xc3\xa9\",\"logprob\":-0.5,\"token_id\":5,\"bytes\":[195,169],"
        "\"top_logprobs\":[{\"token\":\"z\",\"logprob\":-0.5,\"bytes\":[122]},"
        "{\"token\":\"t6\",\"logprob\":-1.25,\"bytes\":[116,54]}]},"
        "{\"token\":\"t7\",\"logprob\":-2,\"token_id\":7,\"bytes\":[116,55],\"top_logprobs\":["
        "{\"token\":\"t7\",\"logprob\":-2,\"bytes\":[116,55]}]}],\"refusal\":null}");
}

static void test_completions(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    gather(API_COMPLETIONS, &out);
    assert_string_equal(
        buf_cstr(&out),
        "{\"tokens\":[\"\xc3\xa9\",\"t7\"],\"token_logprobs\":[-0.5,-2],\"top_logprobs\":["
        "{\"z\":-0.5,\"t6\":-1.25,\"\xc3\xa9\":-0.5},{\"t7\":-2}],\"text_offset\":[]}");
}

static void test_what_is_no_list(void **state)
{
    static const char *const odd[] = {"", "null", "5", "[\"x\"]", "[", "{\"a\":1}"};
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        struct logprobs l = {.api = API_CHAT, .decode = decode};
        struct logprobs_item it;

        logprobs_item_init(&it, str_from(odd[i]), str_from(odd[i]));
        logprobs_add(&l, &it, 1, STR("x"));
        logprobs_take(&l, &out);
        assert_int_equal(out.len, 0);
        logprobs_done(&l);
    }
}

int main(void)
{
    return TEST_RUN(T(test_chat), T(test_completions), T(test_what_is_no_list));
}
