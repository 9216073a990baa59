/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/sentencepiece.h"

#include <errno.h>

#include "lib/base/test.h"
#include "router/token/tokenizer.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED };
#define MARK "\xe2\x96\x81"

static void put_piece(struct buf *out, const char *text, int score, char type)
{
    float f = (float)score;
    size_t n = strlen(text);

    buf_put_char(out, '\n');
    buf_put_char(out, (char)(n + 9));
    buf_put_char(out, '\n');
    buf_put_char(out, (char)n);
    buf_put_cstr(out, text);
    buf_put_char(out, 0x15);
    buf_put(out, &f, sizeof(f)); /* little-endian, as this machine */
    buf_put(out, &(char[]){0x18, type}, 2);
}

/* Ids 0 to 9; @type is the trainer's: 1 Unigram, 2 BPE, 3 WORD, 4 CHAR. */
static void put_file(struct buf *out, char type)
{
    put_piece(out, "<unk>", 0, UNKNOWN);
    put_piece(out, "<s>", 0, CONTROL);
    put_piece(out, MARK "ab", -3, NORMAL);
    put_piece(out, "ab", -1, NORMAL);
    put_piece(out, "bc", -2, NORMAL);
    put_piece(out, "a", -10, NORMAL);
    put_piece(out, "b", -11, NORMAL);
    put_piece(out, "c", -12, NORMAL);
    put_piece(out, MARK, -13, NORMAL);
    put_piece(out, "[x]", 0, USER_DEFINED);
    buf_put(out, &(char[]){0x12, 2, 0x18, type}, 4);
}

static void assert_ids(struct str file, const char *config, const char *text, const char *want)
{
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = NULL;
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(buf_done) struct buf got = BUF_NULL;
    struct err e;

    EXPECT_OK(
        tokenizer_load_files(&t, &(struct tokenizer_files){file, STR_NULL, str_from(config)}, &e),
        &e);
    s = tokenizer_scratch_new(t);
    EXPECT_OK(tokenizer_encode(t, s, str_from(text), &ids, &e), &e);
    for (size_t i = 0; i < ids.len; i++)
        buf_printf(&got, "%s%u", i ? " " : "", ids.ptr[i]);
    buf_put_cstr(&got, " = ");
    tokenizer_decode(t, ids.ptr, ids.len, true, &got);
    assert_string_equal(buf_cstr(&got), want);
}

static void test_bpe(void **state)
{
    AUTO(buf_done) struct buf file = BUF_NULL;

    (void)state;
    put_file(&file, 2);
    assert_ids(buf_str(&file), "", "ab abc", "2 2 7 = ab abc");
    assert_ids(buf_str(&file), "", "  bbc  ", "8 6 4 = bbc");
    assert_ids(buf_str(&file), "", "[x]ab??[x]", "8 9 3 0 9 = [x]ab \xe2\x81\x87 [x]");
    assert_ids(buf_str(&file), "", "<s>ab<s> ab", "1 2 1 2 = ab ab");
    assert_ids(buf_str(&file), "{\"legacy\":false}", "<s>ab<s> ab", "1 3 1 3 = abab");
    assert_ids(buf_str(&file), "{\"add_prefix_space\":false}", "ab ab", "3 2 = ab ab");
    assert_ids(buf_str(&file), "{\"added_tokens_decoder\":{\"20\":{\"content\":\"?\"}}}", "ab?c",
               "2 20 8 7 = ab? c");
}

/* "d" and "e" are no pieces, but "de" and "ade" are. */
static void test_characters_that_are_no_pieces(void **state)
{
    AUTO(buf_done) struct buf file = BUF_NULL;

    (void)state;
    put_file(&file, 2);
    put_piece(&file, "de", -1, NORMAL);
    put_piece(&file, "ade", -2, NORMAL);
    assert_ids(buf_str(&file), "", "ade", "8 11 = ade");
    assert_ids(buf_str(&file), "", "ed?e de", "8 0 8 10 =  \xe2\x81\x87  de");
}

static void test_unigram(void **state)
{
    AUTO(buf_done) struct buf file = BUF_NULL;

    (void)state;
    put_file(&file, 1);
    assert_ids(buf_str(&file), "", "ab abc", "2 2 7 = ab abc");
    assert_ids(buf_str(&file), "", "a??[x]\xc3\xa9",
               "8 5 0 9 0 = a \xe2\x81\x87 [x] \xe2\x81\x87 ");
    assert_ids(buf_str(&file), "", "", " = ");
    /* What is said last counts: no blank before the text. */
    buf_put(&file, "\x1a\x02\x18\x00", 4);
    assert_ids(buf_str(&file), "", " abc", "5 4 = abc");
}

/* Whole words, or characters; a user-defined symbol is one among these only. */
static void test_listed(void **state)
{
    AUTO(buf_done) struct buf words = BUF_NULL, characters = BUF_NULL;

    (void)state;
    put_file(&words, 3);
    assert_ids(buf_str(&words), "", "ab abc x ab", "2 0 2 = ab \xe2\x81\x87  ab");
    assert_ids(buf_str(&words), "{\"add_prefix_space\":false}", "[x] ab[x]",
               "9 0 = [x] \xe2\x81\x87 ");
    put_file(&characters, 4);
    assert_ids(buf_str(&characters), "", "ab?!c[x]", "8 5 6 0 7 9 = ab \xe2\x81\x87 c[x]");
}

static void test_what_is_cut_off(void **state)
{
    AUTO(buf_done) struct buf file = BUF_NULL;

    (void)state;
    put_file(&file, 2);
    for (size_t n = 1; n < file.len; n++) {
        AUTO(tokenizer_free) struct tokenizer *t = NULL;
        struct err e = {""};
        struct tokenizer_files f = {.tokenizer = str_head(buf_str(&file), n)};

        if (tokenizer_load_files(&t, &f, &e) < 0)
            assert_non_null(strstr(e.text, "SentencePiece model"));
    }
}

static void test_what_is_none(void **state)
{
    (void)state;
    assert_true(sentencepiece_is(STR("\n\x0e\n\x05<unk>")));
    assert_false(sentencepiece_is(STR("")));
    assert_false(sentencepiece_is(STR("{\"model\":{}}")));
    assert_false(sentencepiece_is(STR("\n {\"model\":{}}")));
    assert_false(sentencepiece_is(STR("IQ== 0\n")));
}

int main(void)
{
    return TEST_RUN(T(test_bpe), T(test_characters_that_are_no_pieces), T(test_unigram),
                    T(test_listed), T(test_what_is_cut_off), T(test_what_is_none));
}
