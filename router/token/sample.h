/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiny tokenizers for tests and fuzzers, with added tokens of each kind: one byte-level, one with
 * byte fallback (both hold every byte), one Unigram, one WordPiece.
 */
#pragma once

#include "lib/base/json_put.h"
#include "router/token/tokenizer.h"
#include "router/token/utf8.h"

#define SAMPLE_ADDED                                                                               \
    "{\"id\":400,\"content\":\"<|s|>\",\"special\":true},"                                         \
    "{\"id\":401,\"content\":\"<word>\",\"single_word\":true},"                                    \
    "{\"id\":402,\"content\":\"<left>\",\"lstrip\":true,\"special\":true},"                        \
    "{\"id\":403,\"content\":\"<right>\",\"rstrip\":true},"                                        \
    "{\"id\":404,\"content\":\"a b\",\"normalized\":true}"

/* Tokens "x" and "y" merge into "xy": pairs of texts, ended by NULL. */
static inline void sample_merges(struct buf *out, const char *const *pairs)
{
    struct json_put j = json_put_on(out);

    json_put_array(&j);
    for (; *pairs; pairs += 2) {
        json_put_array(&j);
        json_put_cstr(&j, pairs[0]);
        json_put_cstr(&j, pairs[1]);
        json_put_array_end(&j);
    }
    json_put_array_end(&j);
}

static inline void sample_merged_words(struct buf *out, const char *const *pairs, unsigned id)
{
    for (; *pairs; pairs += 2)
        buf_printf(out, ",\"%s%s\":%u", pairs[0], pairs[1], id++);
}

/* The letter that stands for a byte in byte-level vocabularies. */
static inline uint32_t sample_letter(unsigned byte)
{
    unsigned n = 0;

    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
        return byte;
    for (unsigned b = 0; b < byte; b++)
        n += !((b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad));
    return 0x100 + n;
}

static inline void sample_byte_level(struct buf *out, const char *normalizer)
{
    static const char *const pairs[] = {"h",        "e",  "l", "l", "he", "ll", "hell",
                                        "o",        "w",  "o", "l", "d",  "r",  "ld",
                                        "\xc4\xa0", "wo", "1", "2", NULL};

    buf_printf(out, "{\"version\":\"1.0\",\"normalizer\":%s,\"added_tokens\":[%s],", normalizer,
               SAMPLE_ADDED);
    buf_put_cstr(out,
                 "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                 "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[4];
        size_t n = utf8_put(sample_letter(byte), letter);

        buf_put_cstr(out, byte ? ",\"" : "\"");
        if (byte == '"' || byte == '\\')
            buf_put_char(out, '\\');
        buf_put(out, letter, n);
        buf_printf(out, "\":%u", byte);
    }
    sample_merged_words(out, pairs, 256);
    buf_put_cstr(out, "},\"merges\":");
    sample_merges(out, pairs);
    buf_put_cstr(out, "}}");
}

static inline void sample_fallback(struct buf *out)
{
    static const char *const pairs[] = {"h",
                                        "e",
                                        "l",
                                        "l",
                                        "he",
                                        "ll",
                                        "hell",
                                        "o",
                                        "\xe2\x96\x81",
                                        "hello",
                                        "\xe2\x96\x81",
                                        "\xe2\x96\x81",
                                        NULL};

    buf_printf(out, "{\"added_tokens\":[%s],", SAMPLE_ADDED);
    buf_put_cstr(
        out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
             "\"prepend\":\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
             "\"content\":\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":"
             "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
             "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
             "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},\"model\":{\"type\":"
             "\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{"
             "\"<unk>\":0");
    for (unsigned byte = 0; byte < 256; byte++)
        buf_printf(out, ",\"<0x%02X>\":%u", byte, byte + 1);
    for (char c = 'a'; c <= 'z'; c++)
        buf_printf(out, ",\"%c\":%u", c, (unsigned)c + 200);
    buf_put_cstr(out, ",\"\xe2\x96\x81\":257");
    sample_merged_words(out, pairs, 330);
    buf_put_cstr(out, "},\"merges\":");
    sample_merges(out, pairs);
    buf_put_cstr(out, "}}");
}

static inline void sample_unigram(struct buf *out)
{
    buf_printf(out, "{\"added_tokens\":[%s],", SAMPLE_ADDED);
    buf_put_cstr(out,
                 "\"normalizer\":{\"type\":\"NFKC\"},\"pre_tokenizer\":{\"type\":\"Metaspace\","
                 "\"replacement\":\"\xe2\x96\x81\"},\"decoder\":{\"type\":\"Sequence\","
                 "\"decoders\":[{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"},{"
                 "\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},\"model\":{\"type\":\"Unigram\","
                 "\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0]");
    for (unsigned byte = 0; byte < 256; byte++)
        buf_printf(out, ",[\"<0x%02X>\",-9]", byte);
    buf_put_cstr(out, ",[\"\xe2\x96\x81\",-2],[\"a\",-3],[\"b\",-3.5],[\"ab\",-5],[\"ba\",-6.5],"
                      "[\"aba\",-7],[\"\xe2\x96\x81"
                      "b\",-4]]}}");
}

static inline void sample_wordpiece(struct buf *out)
{
    buf_printf(out, "{\"added_tokens\":[%s],", SAMPLE_ADDED);
    buf_put_cstr(
        out, "\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
             "\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"##\"},"
             "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,"
             "\"b\":2,\"##a\":3,\"##b\":4,\"##ab\":5,\"aba\":6,\".\":7,\"n\":8,\"'\":9,\"t\":10}"
             "}}");
}
