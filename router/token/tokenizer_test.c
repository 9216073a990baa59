/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tokenizer.h"

#include <errno.h>

#include "lib/base/test.h"
#include "router/token/sample.h"
#include "router/token/text_pieces.h"

struct fixture {
    struct tokenizer *t;
    struct tokenizer_scratch *s;
};

static struct fixture open_text(struct str json)
{
    struct fixture f = {0};
    struct err e;

    EXPECT_OK(tokenizer_load(&f.t, json, &e), &e);
    f.s = tokenizer_scratch_new(f.t);
    return f;
}

static struct fixture open_sample(bool byte_level, const char *normalizer)
{
    AUTO(buf_done) struct buf json = BUF_NULL;

    if (byte_level)
        sample_byte_level(&json, normalizer);
    else
        sample_fallback(&json);
    return open_text(buf_str(&json));
}

static struct fixture open_file(const char *path)
{
    AUTO(buf_done) struct buf json = BUF_NULL;

    if (!test_read_file(path, &json))
        fail_msg("cannot read %s", path);
    return open_text(buf_str(&json));
}

static void done(struct fixture *f)
{
    tokenizer_scratch_free(f->s);
    tokenizer_free(f->t);
}

/* The tokens of @text as the file spells them, with "|" between. */
static void assert_tokens(struct fixture *f, const char *text, const char *want)
{
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(buf_done) struct buf got = BUF_NULL;
    struct err e;

    EXPECT_OK(tokenizer_encode(f->t, f->s, str_from(text), &ids, &e), &e);
    for (size_t i = 0; i < ids.len; i++) {
        if (i > 0)
            buf_put_char(&got, '|');
        buf_put_str(&got, tokenizer_token_text(f->t, ids.ptr[i]));
    }
    assert_string_equal(buf_cstr(&got), want);
}

static void assert_decodes(struct fixture *f, const uint32_t *ids, size_t n, bool skip_special,
                           const char *want)
{
    AUTO(buf_done) struct buf got = BUF_NULL;

    tokenizer_decode(f->t, ids, n, skip_special, &got);
    assert_string_equal(buf_cstr(&got), want);
}

static void test_byte_level(void **state)
{
    struct fixture f = open_sample(true, "null");

    (void)state;
    assert_tokens(&f, "", "");
    assert_tokens(&f, "hello world", "hello|\xc4\xa0wo|rld");
    assert_tokens(&f, "hehell", "he|hell");
    assert_tokens(&f, "\xc3\xa9\n", "\xc3\x83|\xc2\xa9|\xc4\x8a");
    assert_tokens(&f, "1212", "12|12");
    done(&f);
}

static void test_byte_fallback(void **state)
{
    struct fixture f = open_sample(false, NULL);

    (void)state;
    assert_tokens(&f, "hello", "\xe2\x96\x81hello");
    assert_tokens(&f, "hello hello", "\xe2\x96\x81hello|\xe2\x96\x81hello");
    assert_tokens(&f, "a  b", "\xe2\x96\x81|a|\xe2\x96\x81\xe2\x96\x81|b");
    assert_tokens(&f, "\xc3\xa9", "\xe2\x96\x81|<0xC3>|<0xA9>");
    done(&f);
}

static void test_added_tokens(void **state)
{
    struct fixture f = open_sample(true, "null");

    (void)state;
    assert_tokens(&f, "h<|s|>h", "h|<|s|>|h");
    assert_tokens(&f, "<word>", "<word>");
    assert_tokens(&f, "x<word>", "x|<|wo|r|d|>");             /* does not stand alone */
    assert_tokens(&f, "h \n<left> h", "h|<left>|\xc4\xa0|h"); /* takes the blanks before */
    assert_tokens(&f, "h <right>\n h", "h|\xc4\xa0|<right>|h");
    assert_tokens(&f, "xa bx", "x|a b|x");
    assert_tokens(&f, "<|s|", "<|||s||");
    done(&f);
}

/* A mark is one where the prompt says so; a piece that was cut off is as long as the text. */
static void test_pieces(void **state)
{
    static const char text[] = "<|s|><|s|>heh";
    struct fixture f = open_sample(true, "null");
    AUTO(text_pieces_done) struct text_pieces pieces = {0};
    AUTO(token_ids_done) struct token_ids ids = {0}, plain = {0};
    uint32_t mark;
    struct err e;

    (void)state;
    assert_true(tokenizer_find(f.t, STR("<|s|>"), &mark));
    text_pieces_add(&pieces, 5, true);
    text_pieces_add(&pieces, 5, false);
    text_pieces_add(&pieces, 10, false);
    text_pieces_add(&pieces, 11, false);
    text_pieces_add(&pieces, 99, true);
    assert_int_equal(pieces.len, 4);
    EXPECT_OK(tokenizer_encode_pieces(f.t, f.s, str_from(text), &pieces, &ids, &e), &e);
    assert_true(ids.len > 4 && ids.ptr[0] == mark);
    for (size_t i = 1; i < ids.len; i++)
        assert_int_not_equal(ids.ptr[i], mark);
    EXPECT_OK(tokenizer_encode(f.t, f.s, str_from(text), &plain, &e), &e);
    assert_int_equal(plain.ptr[1], mark);
    assert_int_equal(tokenizer_encode_pieces(f.t, f.s, STR("\xff"), &pieces, &ids, &e), -EILSEQ);
    done(&f);
}

static void test_special_tokens_can_be_skipped(void **state)
{
    struct fixture f = open_sample(true, "null");
    uint32_t s, ids[3] = {'h', 0, 'h'};

    (void)state;
    assert_true(tokenizer_find(f.t, STR("<|s|>"), &s));
    assert_true(tokenizer_is_special(f.t, s));
    assert_false(tokenizer_is_special(f.t, 'h'));
    ids[1] = s;
    assert_decodes(&f, ids, 3, false, "h<|s|>h");
    assert_decodes(&f, ids, 3, true, "hh");
    assert_false(tokenizer_find(f.t, STR("nothing"), &s));
    done(&f);
}

static void test_decode_gives_whole_characters(void **state)
{
    struct fixture b = open_sample(true, "null"), f = open_sample(false, NULL);
    uint32_t half[] = {0xc3}, broken[] = {0xe2, 0x96, 'h', 0xff};
    uint32_t run[] = {1 + 0xe2, 1 + 0x96, 'h' + 200, 1 + 0xc3, 1 + 0xa9}, out[] = {999999, 'h'};

    (void)state;
    assert_decodes(&b, half, 1, false, "\xef\xbf\xbd");
    assert_decodes(&b, broken, 4, false, "\xef\xbf\xbdh\xef\xbf\xbd");      /* one for both bytes */
    assert_decodes(&f, run, 5, false, "\xef\xbf\xbd\xef\xbf\xbdh\xc3\xa9"); /* one for each */
    assert_decodes(&b, out, 2, false, "h");
    done(&b);
    done(&f);
}

static void test_nfc(void **state)
{
    struct fixture f = open_sample(true, "{\"type\":\"NFC\"}");

    (void)state;
    assert_tokens(&f, "e\xcc\x81", "\xc3\x83|\xc2\xa9");
    done(&f);
}

static void test_bad_text_is_refused(void **state)
{
    struct fixture f = open_sample(true, "null");
    AUTO(token_ids_done) struct token_ids ids = {0};
    struct err e;

    (void)state;
    token_ids_push(&ids, 7);
    assert_int_equal(tokenizer_encode(f.t, f.s, STR("ab\xff"), &ids, &e), -EILSEQ);
    assert_int_equal(ids.len, 1);
    done(&f);
}

/* A word without an end must not cost more than n log n. A quadratic merge takes minutes here. */
static void test_long_word(void **state)
{
    const size_t n = TEST_STEPS(400000);
    struct fixture f = open_sample(true, "null");
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(buf_done) struct buf text = BUF_NULL, back = BUF_NULL;
    struct err e;

    (void)state;
    for (size_t i = 0; i < n; i++)
        buf_put_cstr(&text, "hello");
    EXPECT_OK(tokenizer_encode(f.t, f.s, buf_str(&text), &ids, &e), &e);
    assert_int_equal(ids.len, n);
    tokenizer_decode(f.t, ids.ptr, ids.len, false, &back);
    assert_true(str_eq(buf_str(&text), buf_str(&back)));
    done(&f);
}

struct refusal {
    const char *json;
    int want;
    const char *says;
};

static void assert_refused(const struct refusal *c)
{
    struct tokenizer *t = NULL;
    struct err e = {""};
    int r = tokenizer_load(&t, str_from(c->json), &e);

    if (r != c->want || t || !strstr(e.text, c->says))
        fail_msg("%s: %d %s", c->json, r, e.text);
}

static void test_refusals_name_the_field(void **state)
{
    static const struct refusal cases[] = {
        {"", -EINVAL, "tokenizer.json"},
        {"[]", -EINVAL, "tokenizer.json"},
        {"{}", -EINVAL, "model is missing"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":[]}}", -EINVAL, "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", -EINVAL,
         "twice"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", -E2BIG,
         "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", -EINVAL,
         "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", -EINVAL,
         "merges[0]"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
         -ENOTSUP, "dropout"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"normalizer\":{\"type\":\"Surprise\"}}",
         -ENOTSUP, "normalizer: type \"Surprise\""},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Surprise\"}}",
         -ENOTSUP, "pre_tokenizer: type \"Surprise\""},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"FixedLength\","
         "\"length\":0}}",
         -EINVAL, "length 0"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"FixedLength\","
         "\"length\":65536}}",
         -EINVAL, "length 65536"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\","
         "\"pattern\":"
         "{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}}",
         -EINVAL, "pre_tokenizer: pattern"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", -EINVAL, "unk_token"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", -EINVAL,
         "unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",null]]}}", -EINVAL,
         "vocab[0]"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"normalizer\":{\"type\":\"Strip\",\"strip_"
         "left\":true},"
         "\"added_tokens\":[{\"content\":\" \",\"normalized\":true}]}",
         -ENOTSUP, "makes empty"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"normalizer\":{\"type\":\"Nmt\"},"
         "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
         "\"first\"}}",
         -ENOTSUP, "prepend_scheme"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"normalizer\":{\"type\":\"Precompiled\","
         "\"precompiled_charsmap\":\"/////w==\"}}",
         -EINVAL, "charsmap"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"truncation\":{\"max_length\":-5}}", -EINVAL,
         "truncation"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"padding\":{\"strategy\":{\"Fixed\":"
         "100000000000}}}",
         -E2BIG, "padding"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"surprise\":1}", -ENOTSUP, "surprise"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(&cases[i]);
}

static void test_refusals_of_affixes_and_decoders(void **state)
{
    static const struct refusal cases[] = {
        {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":"
         "\"12345678901234567\"}"
         "}",
         -E2BIG, "end_of_word_suffix"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{},\"end_of_word_suffix\":\"x\"}}", -ENOTSUP,
         "end_of_word_suffix"},
        {"{\"model\":{\"vocab\":{\"ab\":0,\"b\":1},\"merges\":[\"ab b\"],"
         "\"continuing_subword_prefix\":\"##\"}}",
         -EINVAL, "prefix"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"decoder\":{\"type\":\"CTC\"}}", -EINVAL,
         "pad_token"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
         "{\"type\":\"BPEDecoder\",\"suffix\":\"x\"},{\"type\":\"ByteFallback\"}]}}",
         -ENOTSUP, "BPEDecoder"},
        {"{\"model\":{\"vocab\":{},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
         "{\"type\":\"CTC\",\"pad_token\":\"p\",\"word_delimiter_token\":\"|\"},{\"type\":"
         "\"WordPiece\","
         "\"prefix\":\"#\"}]}}",
         -ENOTSUP, "after CTC"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_refused(&cases[i]);
}

/* Ends of words are spelt; the last token prints no blank. */
static void test_end_of_word(void **state)
{
    uint32_t ids[] = {4, 3, 4};
    struct fixture f = open_text(str_from(
        "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"decoder\":{\"type\":\"BPEDecoder\","
        "\"suffix\":\"</w>\"},\"model\":{\"end_of_word_suffix\":\"</"
        "w>\",\"vocab\":{\"a\":0,\"b\":1,"
        "\"a</w>\":2,\"b</w>\":3,\"ab</w>\":4},\"merges\":[\"a b</w>\"]}}"));

    (void)state;
    assert_tokens(&f, "ab a aab ba", "ab</w>|a</w>|a|ab</w>|b|a</w>");
    assert_decodes(&f, ids, 3, false, "ab b ab");
    assert_decodes(&f, ids, 1, false, "ab");
    done(&f);
}

static void test_ctc(void **state)
{
    uint32_t ids[] = {0, 0, 1, 2, 2, 3, 2, 4, 4, 0};
    struct fixture f = open_text(
        str_from("{\"decoder\":{\"type\":\"CTC\",\"pad_token\":\"-\",\"word_delimiter_token\":\"|"
                 "\",\"cleanup\":true},"
                 "\"model\":{\"vocab\":{\"h\":0,\"e\":1,\"l\":2,\"-\":3,\"|\":4},\"merges\":[]}}"));

    (void)state;
    assert_decodes(&f, ids, ARRAY_LEN(ids), false, "hell h");
    done(&f);
}

/* What goes with any script has to have one before it. */
static void test_scripts(void **state)
{
    struct fixture f = open_text(str_from(
        "{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},\"model\":{\"type\":\"WordLevel\",\"unk_"
        "token\":\"?\","
        "\"vocab\":{\"?\":0,\"ab c\":1,\"\xe3\x81\x93\xe4\xb8\xad\":2,\" \":3,\".\":4}}}"));

    (void)state;
    assert_tokens(&f, "  ab c\xe3\x81\x93\xe4\xb8\xad.", "ab c|\xe3\x81\x93\xe4\xb8\xad|.");
    assert_tokens(&f, " ", "");
    done(&f);
}

static void test_unknown_words_of_models_that_fail_on_them(void **state)
{
    static const char *const files[] = {
        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"a\":0}}}",
        "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"ab\",0]]}}",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        struct fixture f = open_text(str_from(files[i]));
        AUTO(token_ids_done) struct token_ids ids = {0};
        struct err e;

        assert_int_equal(tokenizer_encode(f.t, f.s, STR("ab"), &ids, &e), -EINVAL);
        assert_int_equal(ids.len, 0);
        EXPECT_OK(tokenizer_encode(f.t, f.s, STR("a"), &ids, &e), &e);
        assert_int_equal(ids.len, 1);
        done(&f);
    }
}

static void test_added_ids_follow_the_vocabulary(void **state)
{
    struct fixture f = open_text(STR(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"added_tokens\":["
        "{\"id\":1,\"content\":\"b\",\"special\":true},{\"id\":77,\"content\":\"<x>\"}]}"));
    uint32_t id;

    (void)state;
    assert_true(tokenizer_find(f.t, STR("b"), &id) && id == 1);
    assert_true(tokenizer_find(f.t, STR("<x>"), &id) && id == 2); /* as the library counts */
    assert_int_equal(tokenizer_vocab_size(f.t), 3);
    assert_int_equal(tokenizer_id_limit(f.t), 3);
    assert_tokens(&f, "ab<x>c", "a|b|<x>");
    done(&f);
}

static void test_unigram(void **state)
{
    struct fixture f = open_text(
        STR("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-2],["
            "\"b\",-2],"
            "[\"ab\",-3.5],[\"aba\",-5],[\"ba\",-1]]},\"added_tokens\":[{\"content\":\"<s>\"}]}"));

    (void)state;
    assert_tokens(&f, "ab", "ab");
    assert_tokens(&f, "aba", "a|ba"); /* -3 beats -5 and -5.5 */
    assert_tokens(&f, "a\xc3\xa9xb<s>x", "a|<unk>|b|<s>|<unk>");
    done(&f);
}

static void test_wordpiece(void **state)
{
    struct fixture f = open_text(STR(
        "{\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
        "\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},\"model\":{"
        "\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","
        "\"max_input_chars_per_word\":8,\"vocab\":{\"[UNK]\":0,\"caf\":1,\"##e\":2,\"##es\":3,"
        "\".\":4,\"\xe4\xb8\xad\":5,\"##caf\":6}}}"));
    const uint32_t ids[] = {2, 1, 3, 4};

    (void)state;
    assert_tokens(&f, "CAF\xc3\x89\tcaf\xc3\xa9s.", "caf|##e|caf|##es|.");
    assert_tokens(&f,
                  "caf\xe4\xb8\xad"
                  "caf",
                  "caf|\xe4\xb8\xad|caf");
    assert_tokens(&f, "cafx cafcafcaf", "[UNK]|[UNK]"); /* no piece; too long */
    assert_decodes(&f, ids, 4, false, "##e cafes.");
    done(&f);
}

#define LETTERS "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2},\"merges\":[]}}"
#define BERT "{\"type\":\"BertProcessing\",\"cls\":[\"x\",7],\"sep\":[\"y\",8]}"

static void assert_ids(const struct token_ids *got, const uint32_t *want, size_t n)
{
    assert_int_equal(got->len, n);
    assert_memory_equal(got->ptr, want, n * sizeof(*want));
}

static void test_embedded_texts(void **state)
{
    struct fixture f =
        open_text(STR("{\"truncation\":{\"max_length\":2},\"padding\":{\"strategy\":{"
                      "\"Fixed\":6}},\"post_processor\":" BERT "," LETTERS));
    struct fixture g = open_text(STR("{\"post_processor\":{\"type\":\"New\"}," LETTERS));
    AUTO(token_ids_done) struct token_ids ids = {0};
    struct err e;

    (void)state;
    EXPECT_OK(tokenizer_encode_embedded(f.t, f.s, STR("abc"), true, &ids, &e), &e);
    EXPECT_OK(tokenizer_encode_embedded(f.t, f.s, STR("cb"), false, &ids, &e), &e);
    assert_ids(&ids, (const uint32_t[]){7, 0, 1, 2, 8, 2, 1}, 7);
    assert_int_equal(tokenizer_encode_embedded(f.t, f.s, STR("\xff"), true, &ids, &e), -EILSEQ);
    assert_int_equal(tokenizer_encode_embedded(g.t, g.s, STR("a"), true, &ids, &e), -ENOTSUP);
    assert_int_equal(ids.len, 7);
    EXPECT_OK(tokenizer_encode_embedded(g.t, g.s, STR("a"), false, &ids, &e), &e);
    assert_int_equal(ids.len, 8);
    done(&f);
    done(&g);
}

static void test_texts_that_are_filled_up_together(void **state)
{
    static const struct {
        const char *padding;
        uint32_t want[8];
        size_t n;
    } cases[] = {
        {"{\"strategy\":\"BatchLongest\",\"direction\":\"Right\",\"pad_id\":9}", {0, 9, 1, 2}, 4},
        {"{\"strategy\":\"BatchLongest\",\"direction\":\"Left\",\"pad_id\":9}", {9, 0, 1, 2}, 4},
        {"{\"strategy\":{\"Fixed\":2},\"pad_id\":9}",
         {0, 1, 2},
         3}, /* of which each text has its own */
        {"null", {0, 1, 2}, 3},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf json = BUF_NULL;
        AUTO(token_ids_done) struct token_ids ids = {0};
        size_t ends[] = {1, 3};
        struct fixture f;
        struct err e;

        buf_printf(&json, "{\"padding\":%s," LETTERS, cases[i].padding);
        f = open_text(buf_str(&json));
        for (uint32_t id = 0; id < 3; id++)
            token_ids_push(&ids, id);
        if (cases[i].n == 4)
            assert_int_equal(tokenizer_shape_together(f.t, &ids, ends, 2, 3, &e), -E2BIG);
        assert_int_equal(ids.len, 3);
        EXPECT_OK(tokenizer_shape_together(f.t, &ids, ends, 2, 4, &e), &e);
        assert_ids(&ids, cases[i].want, cases[i].n);
        assert_int_equal(ends[0], cases[i].n - 2);
        assert_int_equal(ends[1], cases[i].n);
        done(&f);
    }
}

static void test_tinyllama(void **state)
{
    AUTO(buf_done) struct buf path = BUF_NULL;
    struct fixture f;
    uint32_t ids[] = {1, 15043, 3186, 29991};

    (void)state;
    buf_printf(&path, "%s/data/models/TinyLlama_v1.1/tokenizer.json", test_shared());
    f = open_file(buf_cstr(&path));
    assert_int_equal(tokenizer_vocab_size(f.t), 32000);
    assert_tokens(&f, "Hello world!", "\xe2\x96\x81Hello|\xe2\x96\x81world|!");
    assert_tokens(&f, "<s>Hi</s>", "<s>|\xe2\x96\x81Hi|</s>");
    assert_decodes(&f, ids, 4, false, "<s> Hello world!");
    assert_decodes(&f, ids, 4, true, "Hello world!");
    done(&f);
}

static void test_example_model(void **state)
{
    struct fixture f = open_file("examples/model/tokenizer.json");
    uint32_t id;

    (void)state;
    assert_int_equal(tokenizer_vocab_size(f.t), 6144);
    assert_true(tokenizer_find(f.t, STR("<|im_end|>"), &id));
    assert_int_equal(id, 6142);
    assert_tokens(&f, "<|im_start|>user\n", "<|im_start|>|user|\xc4\x8a");
    done(&f);
}

int main(void)
{
    return TEST_RUN(
        T(test_byte_level), T(test_byte_fallback), T(test_added_tokens), T(test_pieces),
        T(test_special_tokens_can_be_skipped), T(test_decode_gives_whole_characters), T(test_nfc),
        T(test_bad_text_is_refused), T(test_long_word), T(test_refusals_name_the_field),
        T(test_refusals_of_affixes_and_decoders), T(test_end_of_word), T(test_ctc), T(test_scripts),
        T(test_unknown_words_of_models_that_fail_on_them), T(test_added_ids_follow_the_vocabulary),
        T(test_unigram), T(test_wordpiece), T(test_embedded_texts),
        T(test_texts_that_are_filled_up_together), T(test_tinyllama), T(test_example_model));
}
