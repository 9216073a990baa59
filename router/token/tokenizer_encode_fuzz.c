/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any text through the sample tokenizers: the byte-level one gives it back as it was, cached words
 * encode as fresh ones do, and decoding token by token ends where decoding at once does.
 */
#include "router/token/tokenizer.h"

#include <assert.h>

#include "lib/base/err.h"
#include "router/token/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sample_bytes(struct buf *out)
{
    sample_byte_level(out, "null");
}

static struct tokenizer *load(void (*sample)(struct buf *))
{
    AUTO(buf_done) struct buf json = BUF_NULL;
    struct tokenizer *t = NULL;
    struct err e;

    sample(&json);
    if (tokenizer_load(&t, buf_str(&json), &e) < 0)
        abort();
    return t;
}

static bool eats_blanks(struct str text)
{
    return str_has(text, STR("<left>")) || str_has(text, STR("<right>"));
}

static void check(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                  bool byte_level)
{
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *fresh = tokenizer_scratch_new(t);
    AUTO(token_ids_done) struct token_ids ids = {0}, again = {0};
    AUTO(buf_done) struct buf at_once = BUF_NULL, joined = BUF_NULL;
    struct tokenizer_join j;
    struct err e;
    bool broken;
    int r = tokenizer_encode(t, s, text, &ids, &e);

    assert((r == 0) == str_is_utf8(text));
    if (r < 0)
        return;
    assert(tokenizer_encode(t, fresh, text, &again, &e) == 0 && again.len == ids.len);
    assert(ids.len == 0 || memcmp(ids.ptr, again.ptr, ids.len * sizeof(*ids.ptr)) == 0);
    tokenizer_decode(t, ids.ptr, ids.len, false, &at_once);
    if (byte_level && !eats_blanks(text))
        assert(str_eq(buf_str(&at_once), text));
    tokenizer_join_init(&j, t);
    for (size_t i = 0; i < ids.len; i++)
        tokenizer_join_push(&j, ids.ptr[i], false);
    tokenizer_join_text(&j, 0, &joined);
    assert(str_eq(buf_str(&at_once), buf_str(&joined)));
    assert(tokenizer_join_len(&j, &broken) == joined.len);
    tokenizer_join_done(&j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const samples[])(struct buf *) = {sample_bytes, sample_fallback, sample_unigram,
                                                    sample_wordpiece};
    static struct tokenizer *tokenizers[ARRAY_LEN(samples)];
    static struct tokenizer_scratch *scratch[ARRAY_LEN(samples)];

    for (size_t i = 0; i < ARRAY_LEN(samples); i++) {
        if (!tokenizers[i]) {
            tokenizers[i] = load(samples[i]);
            scratch[i] = tokenizer_scratch_new(tokenizers[i]);
        }
        check(tokenizers[i], scratch[i], str_slice(data, size), i == 0);
    }
    return 0;
}
