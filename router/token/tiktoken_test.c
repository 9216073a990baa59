/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tiktoken.h"

#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/test.h"
#include "router/token/tokenizer.h"

/* All bytes, then "ab" and "abc", of which the second is no merge of two tokens but a whole word. */
static void put_file(struct buf *out)
{
    for (int i = 0; i < 256; i++) {
        base64_encode(out, str_slice(&(char){(char)i}, 1));
        buf_printf(out, " %d\n", i);
    }
    buf_put_cstr(out, "YmM= 256\r\nYWI= 257\n\n  YWJjZA== 300 \n");
}

static void test_ids_and_texts(void **state)
{
    static const char special[] = "{\"added_tokens_decoder\":{\"301\":{\"content\":\"[EOS]\"},"
                                  "\"400\":{\"content\":\"<\xc3\xa9>\"}}}";
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = NULL;
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(buf_done) struct buf file = BUF_NULL;
    AUTO(buf_done) struct buf text = BUF_NULL;
    static const uint32_t want[] = {256, 'd', 400, 300, 301, 'a', 256, 'a', 302};
    struct err e;

    (void)state;
    put_file(&file);
    assert_true(tiktoken_is(buf_str(&file)));
    EXPECT_OK(tokenizer_load_files(&t,
                                   &(struct tokenizer_files){buf_str(&file),
                                                             STR("{\"model_type\":\"kimi\"}"),
                                                             str_from(special)},
                                   &e),
              &e);
    s = tokenizer_scratch_new(t);
    EXPECT_OK(
        tokenizer_encode(t, s, STR("bcd<\xc3\xa9>abcd[EOS]abca<|reserved_token_302|>"), &ids, &e),
        &e);
    assert_int_equal(ids.len, ARRAY_LEN(want));
    assert_memory_equal(ids.ptr, want, sizeof(want));
    tokenizer_decode(t, ids.ptr, ids.len, false, &text);
    assert_string_equal(buf_cstr(&text), "bcd<\xc3\xa9>abcd[EOS]abca<|reserved_token_302|>");
    buf_clear(&text);
    tokenizer_decode(t, ids.ptr, ids.len, true, &text);
    assert_string_equal(buf_cstr(&text), "bcdabcdabca");
    assert_true(tokenizer_is_special(t, 301));
    assert_int_equal(tokenizer_id_limit(t), 301 + 256);
}

static void test_what_is_none(void **state)
{
    (void)state;
    assert_false(tiktoken_is(STR("")));
    assert_false(tiktoken_is(STR("{\"model\":{}}")));
    assert_false(tiktoken_is(STR("IQ==")));
    assert_false(tiktoken_is(STR("!! 0\n")));
    assert_true(tiktoken_is(STR("IQ== 0")));
}

int main(void)
{
    return TEST_RUN(T(test_ids_and_texts), T(test_what_is_none));
}
