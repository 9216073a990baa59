/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/output_vocab.h"
#include "lib/base/test.h"

#include <errno.h>

#include "router/token/tokenizer.h"

/* Answers of any words must read as text and be cut into the same tokens when they come back. */
static void check_round_trip(const char *path)
{
    AUTO(output_vocab_done) struct output_vocab v = {.ids = NULL};
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = NULL;
    AUTO(token_ids_done) struct token_ids ids = {.ptr = NULL}, again = {.ptr = NULL};
    AUTO(buf_done) struct buf json = BUF_NULL, text = BUF_NULL;
    struct err e;

    assert_true(test_read_file(path, &json));
    EXPECT_OK(output_vocab_of(&v, buf_str(&json), &e), &e);
    assert_true(v.n >= 100);
    EXPECT_OK(tokenizer_load(&t, buf_str(&json), &e), &e);
    s = tokenizer_scratch_new(t);
    EXPECT_OK(tokenizer_encode(t, s, STR("Hello"), &ids, &e), &e);
    for (size_t i = 0; i < 500; i++)
        token_ids_push(&ids, v.ids[(i * i * 31 + i) % v.n]);
    tokenizer_decode(t, ids.ptr, ids.len, true, &text);
    for (size_t i = 0; i < text.len; i++)
        assert_true(buf_data(&text)[i] == ' ' || (buf_data(&text)[i] >= 'A'));
    EXPECT_OK(tokenizer_encode(t, s, buf_str(&text), &again, &e), &e);
    assert_int_equal(again.len, ids.len);
    assert_memory_equal(again.ptr, ids.ptr, ids.len * sizeof(*ids.ptr));
}

static void answers_of_the_example_model_come_back_as_the_same_tokens(void **state)
{
    (void)state;
    check_round_trip("examples/model/tokenizer.json");
}

static void answers_of_a_byte_fallback_model_come_back_as_the_same_tokens(void **state)
{
    const char *shared = test_shared();
    AUTO(mem_free) char *path = xasprintf("%s/data/models/TinyLlama_v1.1/tokenizer.json", shared);

    (void)state;
    check_round_trip(path);
}

static void a_file_that_is_no_tokenizer_is_refused(void **state)
{
    AUTO(output_vocab_done) struct output_vocab v = {.ids = NULL};
    struct err e;

    (void)state;
    assert_true(output_vocab_of(&v, STR("{}"), &e) < 0);
    assert_null(v.ids);
    output_vocab_fallback(&v);
    assert_int_equal(v.n, 1000);
    assert_int_equal(v.ids[0], 1000);
    assert_int_equal(v.ids[999], 1999);
}

int main(void)
{
    return TEST_RUN(T(answers_of_the_example_model_come_back_as_the_same_tokens),
                    T(answers_of_a_byte_fallback_model_come_back_as_the_same_tokens),
                    T(a_file_that_is_no_tokenizer_is_refused));
}
