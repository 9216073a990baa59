/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as tokenizer.model: refused with a message, or a tokenizer whose ids and texts hold.
 */
#include "router/token/sentencepiece.h"

#include <assert.h>

#include "lib/base/err.h"
#include "router/token/detok.h"
#include "router/token/proto.h"
#include "router/token/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const struct tokenizer *t)
{
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(buf_done) struct buf text = BUF_NULL;
    struct detok d;
    struct err e;

    if (tokenizer_encode(t, s,
                         STR(" Hello hello  <s> w\xc3\xb6rld 1\xe2\x96\x81\n\xf0\x9f\x98\x80! "),
                         &ids, &e) < 0)
        return;
    for (size_t i = 0; i < ids.len; i++)
        assert(tokenizer_token_text(t, ids.ptr[i]).ptr);
    for (uint32_t id = 0; id < MIN(tokenizer_id_limit(t), 1000U); id++)
        token_ids_push(&ids, id * 7 % tokenizer_id_limit(t));
    tokenizer_decode(t, ids.ptr, ids.len, false, &text);
    assert(str_is_utf8(buf_str(&text)));
    detok_init(&d, t, ids.ptr, ids.len / 2, true);
    for (size_t i = ids.len / 2; i < ids.len; i++)
        assert(str_is_utf8(detok_push(&d, ids.ptr[i])));
    detok_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    struct proto p = {.rest = str_slice(data, size)};
    struct err e = {""};
    struct proto_field f;
    const struct tokenizer_files files = {.tokenizer = str_slice(data, size),
                                          .tokenizer_config = STR("{\"legacy\":false}")};

    while (proto_next(&p, &f))
        assert(f.number > 0 && f.bytes.len <= size);
    assert(p.malformed || p.rest.len == 0);
    if (!sentencepiece_is(files.tokenizer))
        return 0;
    if (tokenizer_load_files(&t, &files, &e) < 0)
        assert(e.text[0]);
    else
        use(t);
    return 0;
}
