/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any ids after any prompt: the text of each step is what decoding both windows from scratch gives,
 * and never a part of a character.
 */
#include "router/token/detok.h"

#include <assert.h>

#include "lib/base/err.h"
#include "router/token/sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* wire.md 8.5, word by word, but for a first window that turns out otherwise than it looked. */
struct naive {
    const struct tokenizer *t;
    const uint32_t *ids;
    size_t prefix, read, len;
};

static void naive_push(struct naive *n, struct buf *out)
{
    AUTO(buf_done) struct buf before = BUF_NULL, now = BUF_NULL;
    size_t from;

    n->len++;
    tokenizer_decode(n->t, n->ids + n->prefix, n->read - n->prefix, false, &before);
    tokenizer_decode(n->t, n->ids + n->prefix, n->len - n->prefix, false, &now);
    buf_clear(out);
    if (now.len == 0 || str_ends(buf_str(&now), STR(UTF8_REPLACEMENT)))
        return;
    for (from = 0; from < MIN(now.len, before.len); from++)
        if (buf_data(&now)[from] != buf_data(&before)[from])
            break;
    while (from > 0 && from < now.len && utf8_is_continuation(buf_data(&now)[from]))
        from--;
    if (from == now.len)
        return;
    buf_put(out, buf_data(&now) + from, now.len - from);
    n->prefix = n->read;
    n->read = n->len;
}

static void check(const struct tokenizer *t, const uint32_t *ids, size_t n, size_t prompt)
{
    AUTO(detok_done) struct detok d;
    AUTO(buf_done) struct buf want = BUF_NULL;
    size_t prefix = prompt > DETOK_CONTEXT ? prompt - DETOK_CONTEXT : 0;
    struct naive naive = {t, ids, prefix, prompt, prompt};

    /* The first window starts at a character, which takes three bytes at most. */
    while (naive.prefix > 0 && prefix - naive.prefix < 3 &&
           tokenizer_is_continuation(t, ids[naive.prefix]))
        naive.prefix--;
    detok_init(&d, t, ids, prompt, false);
    for (size_t i = prompt; i < n; i++) {
        struct str got = detok_push(&d, ids[i]);

        naive_push(&naive, &want);
        assert(str_eq(got, buf_str(&want)) && str_is_utf8(got));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizers[2];
    uint32_t ids[256];
    size_t n = MIN(size / 2, ARRAY_LEN(ids));

    for (int i = 0; i < 2 && !tokenizers[i]; i++) {
        AUTO(buf_done) struct buf json = BUF_NULL;
        struct err e;

        if (i == 0)
            sample_byte_level(&json, "null");
        else
            sample_fallback(&json);
        if (tokenizer_load(&tokenizers[i], buf_str(&json), &e) < 0)
            abort();
    }
    for (size_t i = 0; i < n; i++)
        ids[i] = load_u16be(data + 2 * i) % 410;
    for (int i = 0; i < 2; i++)
        check(tokenizers[i], ids, n, size > 0 ? data[0] % (n + 1) : 0);
    return 0;
}
