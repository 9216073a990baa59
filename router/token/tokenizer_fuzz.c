/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as tokenizer.json or tiktoken file: refused with a message, or a tokenizer whose ids and texts hold.
 */
#include "router/token/tokenizer.h"

#include <assert.h>

#include "lib/base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t)
{
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(token_ids_done) struct token_ids embedded = {0};
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct err e;

    if (tokenizer_encode_embedded(t, s, STR("Hello"), true, &embedded, &e) < 0)
        assert(embedded.len == 0 && e.text[0]);
    if (tokenizer_encode(t, s, STR("Hello hello  <s> w\xc3\xb6rld 123\n\xf0\x9f\x98\x80!"), &ids,
                         &e) < 0)
        return;
    for (size_t i = 0; i < ids.len; i++)
        assert(tokenizer_token_text(t, ids.ptr[i]).ptr);
    tokenizer_decode(t, ids.ptr, ids.len, true, &text);
    assert(str_is_utf8(buf_str(&text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    struct err e = {""};
    const struct tokenizer_files f = {.tokenizer = str_slice(data, size),
                                      .config = STR("{\"model_type\":\"kimi_k2\"}")};

    if (tokenizer_load_files(&t, &f, &e) < 0)
        assert(e.text[0]);
    else
        use(t);
    return 0;
}
