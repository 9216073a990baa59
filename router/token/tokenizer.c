/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tokenizer.h"

#include <assert.h>
#include <errno.h>

#include "lib/base/err.h"
#include "router/token/regex.h"
#include "router/token/tokenizer_model.h"
#include "router/token/utf8.h"

/* One cache line each; a word that does not fit is encoded every time. */
enum { CACHE_SLOTS = 16384, CACHE_KEY = 30, CACHE_IDS = 8 };

enum { KEEP_BELOW = 1 << 20 }; /* bytes of text up to which working memory is kept for the next */

struct cached_word {
    uint8_t len, n_ids;
    char key[CACHE_KEY];
    uint32_t ids[CACHE_IDS];
};

struct tokenizer_scratch {
    const struct tokenizer *owner;
    struct regex_scratch *regex;
    struct normalize_work normalize;
    struct split_work split;
    struct bpe_work bpe;
    struct cached_word *cache;
};

/* --- ids and scratch -------------------------------------------------------------------------- */

void token_ids_done(struct token_ids *ids)
{
    free(ids->ptr);
    *ids = (struct token_ids){0};
}

uint32_t *token_ids_reserve(struct token_ids *ids, size_t n)
{
    if (!ids->ptr || n > ids->cap - ids->len) {
        ids->cap = MAX(ids->cap * 2, ids->len + n);
        ids->cap = MAX(ids->cap, (size_t)64);
        ids->ptr = xreallocarray(ids->ptr, ids->cap, sizeof(*ids->ptr));
    }
    return ids->ptr + ids->len;
}

struct tokenizer_scratch *tokenizer_scratch_new(const struct tokenizer *t)
{
    struct tokenizer_scratch *s = xcalloc(1, sizeof(*s));

    s->owner = t;
    s->regex = regex_scratch_new();
    s->cache = xcalloc(CACHE_SLOTS, sizeof(*s->cache));
    return s;
}

struct tokenizer_scratch *tokenizer_scratch_free(struct tokenizer_scratch *s)
{
    if (!s)
        return NULL;
    (void)regex_scratch_free(s->regex);
    normalize_work_done(&s->normalize);
    split_work_done(&s->split);
    bpe_work_done(&s->bpe);
    free(s->cache);
    free(s);
    return NULL;
}

/* --- encoding --------------------------------------------------------------------------------- */

static void encode_word(const struct tokenizer *t, struct tokenizer_scratch *s, struct str word,
                        struct token_ids *out)
{
    struct cached_word *c;
    size_t before = out->len, n;

    if (word.len > CACHE_KEY) {
        bpe_encode(&t->bpe, &s->bpe, word, out);
        return;
    }
    c = &s->cache[vocab_hash(word) & (CACHE_SLOTS - 1)];
    if (c->len == word.len && memcmp(c->key, word.ptr, word.len) == 0) {
        memcpy(token_ids_reserve(out, CACHE_IDS), c->ids, sizeof(c->ids));
        out->len += c->n_ids;
        return;
    }
    bpe_encode(&t->bpe, &s->bpe, word, out);
    n = out->len - before;
    if (n > CACHE_IDS)
        return;
    c->len = (uint8_t)word.len;
    c->n_ids = (uint8_t)n;
    memcpy(c->key, word.ptr, word.len);
    memcpy(c->ids, out->ptr + before, n * sizeof(*c->ids));
}

/* Where the next "▁" stands that follows another character; word.len when none does. */
static size_t next_mark(struct str word, size_t from)
{
    const char mark[] = TOKENIZER_MARK;
    bool after_mark = true;

    while (from < word.len) {
        bool at_mark = word.len - from >= TOKENIZER_MARK_LEN &&
                       memcmp(word.ptr + from, mark, TOKENIZER_MARK_LEN) == 0;

        if (at_mark && !after_mark)
            break;
        after_mark = at_mark;
        from += at_mark ? TOKENIZER_MARK_LEN : 1;
    }
    return from;
}

static void encode_span(const struct tokenizer *t, struct tokenizer_scratch *s, struct str word,
                        struct token_ids *out)
{
    if (!t->cuts_at_mark) {
        encode_word(t, s, word, out);
        return;
    }
    for (size_t at = 0, end; at < word.len; at = end) {
        end = next_mark(word, at);
        encode_word(t, s, str_slice(word.ptr + at, end - at), out);
    }
}

/* Normalised text without added tokens in it. */
static int encode_plain(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                        bool at_start, struct token_ids *out)
{
    struct str words;
    int r = split_run(&t->split, &s->split, s->regex, text, at_start, &words);

    if (r < 0)
        return r;
    for (size_t i = 0; i < s->split.spans.len; i++) {
        struct split_span span = s->split.spans.ptr[i];

        encode_span(t, s, str_slice(words.ptr + span.start, span.end - span.start), out);
    }
    return 0;
}

static int encode_piece(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                        bool at_start, struct token_ids *out)
{
    struct added_search search = {0};
    struct added_piece piece;
    int r = normalize_run(&t->normalize, &s->normalize, s->regex, text,
                          (size_t)TOKENIZER_MAX_TEXT * 4, &search.text);

    while (r == 0 && added_next(&t->added_normalized, &search, s->regex, &piece)) {
        struct str part = {search.text.ptr + piece.start, piece.end - piece.start};

        if (piece.id != VOCAB_NONE)
            token_ids_push(out, piece.id);
        else
            r = encode_plain(t, s, part, at_start && piece.start == 0, out);
    }
    return r;
}

static int encode_text(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                       struct token_ids *out)
{
    struct added_search search = {.text = text};
    struct added_piece piece;
    int r = 0;

    while (r == 0 && added_next(&t->added_raw, &search, s->regex, &piece)) {
        if (piece.id != VOCAB_NONE)
            token_ids_push(out, piece.id);
        else
            r = encode_piece(t, s, str_slice(text.ptr + piece.start, piece.end - piece.start),
                             piece.start == 0, out);
    }
    return r;
}

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                     struct token_ids *out, struct err *e)
{
    size_t before = out->len;
    int r;

    assert(s->owner == t);
    if (text.len > TOKENIZER_MAX_TEXT)
        return err_set(e, -E2BIG, "text of %zu bytes, more than %d", text.len, TOKENIZER_MAX_TEXT);
    if (!str_is_utf8(text))
        return err_set(e, -EILSEQ, "text is not UTF-8");
    r = encode_text(t, s, text, out);
    if (text.len > KEEP_BELOW) {
        normalize_work_done(&s->normalize);
        split_work_done(&s->split);
        bpe_work_done(&s->bpe);
    }
    if (r == 0)
        return 0;
    out->len = before;
    return err_set(e, r, "text is too hard to split into words");
}

/* --- look-ups --------------------------------------------------------------------------------- */

size_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->n_ids;
}

uint32_t tokenizer_id_limit(const struct tokenizer *t)
{
    return t->limit;
}

struct str tokenizer_token_text(const struct tokenizer *t, uint32_t id)
{
    struct str text = vocab_text(&t->shown, id);

    return text.ptr ? text : vocab_text(&t->model, id);
}

bool tokenizer_find(const struct tokenizer *t, struct str token, uint32_t *ret_id)
{
    uint32_t id = vocab_find(&t->added, token);

    if (id == VOCAB_NONE)
        id = vocab_find(&t->model, token);
    if (id == VOCAB_NONE)
        return false;
    *ret_id = id;
    return true;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->limit && t->special[id];
}

bool tokenizer_is_continuation(const struct tokenizer *t, uint32_t id)
{
    return id < t->limit && t->decode.entries[id].byte >= 0x80 && t->decode.entries[id].byte < 0xc0;
}
