/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/output_vocab.h"

#include <errno.h>

#include "lib/base/buf.h"
#include "router/token/tokenizer.h"

enum {
    WORDS_MIN = 16,   /* fewer make no text */
    WORDS_MAX = 4096, /* more add nothing but time at the start */
    FALLBACK_FIRST = 1000,
    FALLBACK_COUNT = 1000,
};

void output_vocab_done(struct output_vocab *v)
{
    free(v->ids);
    *v = (struct output_vocab){.ids = NULL};
}

/* A space and at least two letters. Decoding begins a text with the space dropped in some models,
 * hence the token is looked at behind another one. */
static bool is_word(struct str s)
{
    if (s.len < 3 || s.ptr[0] != ' ')
        return false;
    for (size_t i = 1; i < s.len; i++)
        if (s.ptr[i] < 'a' || s.ptr[i] > 'z')
            return false;
    return true;
}

static bool text_of(const struct tokenizer *t, uint32_t before, uint32_t id, struct buf *both,
                    struct str *ret)
{
    size_t n;

    buf_clear(both);
    tokenizer_decode(t, &before, 1, false, both);
    n = both->len;
    buf_clear(both);
    tokenizer_decode(t, (const uint32_t[]){before, id}, 2, false, both);
    if (both->len <= n)
        return false;
    *ret = str_skip(buf_str(both), n);
    return true;
}

/* Whether "<word><word>" is cut into the same two tokens again. */
static bool comes_back(const struct tokenizer *t, struct tokenizer_scratch *s, struct str word,
                       uint32_t id)
{
    AUTO(token_ids_done) struct token_ids ids = {.ptr = NULL};
    AUTO(buf_done) struct buf text = BUF_NULL;

    buf_put_str(&text, STR("the"));
    buf_put_str(&text, word);
    buf_put_str(&text, word);
    if (tokenizer_encode(t, s, buf_str(&text), &ids, NULL) < 0)
        return false;
    return ids.len >= 2 && ids.ptr[ids.len - 1] == id && ids.ptr[ids.len - 2] == id;
}

static void choose(struct output_vocab *v, const struct tokenizer *t)
{
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = tokenizer_scratch_new(t);
    AUTO(token_ids_done) struct token_ids first = {.ptr = NULL};
    AUTO(buf_done) struct buf both = BUF_NULL;
    struct str word;

    if (tokenizer_encode(t, s, STR("a"), &first, NULL) < 0 || first.len == 0)
        return;
    for (uint32_t id = 0; id < tokenizer_id_limit(t) && v->n < WORDS_MAX; id++) {
        if (tokenizer_is_special(t, id) ||
            !text_of(t, first.ptr[first.len - 1], id, &both, &word) || !is_word(word))
            continue;
        if (comes_back(t, s, word, id))
            v->ids[v->n++] = id;
    }
}

int output_vocab_of(struct output_vocab *ret, struct str tokenizer_json, struct err *e)
{
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    AUTO(output_vocab_done) struct output_vocab v = {.ids = NULL};
    int r = tokenizer_load(&t, tokenizer_json, e);

    if (r < 0)
        return err_wrap(e, r, "tokenizer");
    v.ids = xcalloc(WORDS_MAX, sizeof(*v.ids));
    choose(&v, t);
    if (v.n < WORDS_MIN)
        return err_set(e, -ENOENT, "tokenizer has only %zu plain words", v.n);
    *ret = v;
    v.ids = NULL;
    return 0;
}

void output_vocab_fallback(struct output_vocab *ret)
{
    *ret = (struct output_vocab){.ids = xcalloc(FALLBACK_COUNT, sizeof(*ret->ids)),
                                 .n = FALLBACK_COUNT};
    for (uint32_t i = 0; i < FALLBACK_COUNT; i++)
        ret->ids[i] = FALLBACK_FIRST + i;
}
