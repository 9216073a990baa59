/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tokenizer.h"

#include <assert.h>
#include <errno.h>

#include "lib/base/err.h"
#include "router/token/regex.h"
#include "router/token/sentencepiece.h"
#include "router/token/text_pieces.h"
#include "router/token/tokenizer_model.h"
#include "router/token/utf8.h"
#include "router/token/word_cache.h"

enum { BATCH = 32 };           /* words looked up at a time */
enum { BYTES_PER_ID = 3 };     /* at least, of most texts: their ids need no second place */
enum { KEEP_BELOW = 1 << 20 }; /* bytes of text up to which working memory is kept for the next */

struct tokenizer_scratch {
    const struct tokenizer *owner;
    struct regex_scratch *regex;
    struct normalize_work normalize;
    struct split_work split;
    struct bpe_work bpe;
    struct unigram_work unigram;
    struct word_cache cache;
    bool met_unknown; /* in a model that fails on it */
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
    word_cache_init(&s->cache);
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
    unigram_work_done(&s->unigram);
    word_cache_done(&s->cache);
    free(s);
    return NULL;
}

/* --- encoding --------------------------------------------------------------------------------- */

/* The word, or what stands for unknown ones. */
static uint32_t find_word(const struct tokenizer *t, struct str word)
{
    uint32_t id = vocab_find(&t->model, word);

    return id != VOCAB_NONE ? id : t->unknown_word;
}

/* Whether each character of @word is a piece: the library asks for that. */
static bool knows_all(const struct tokenizer *t, struct str word)
{
    for (size_t i = 0, n; i < word.len; i += n) {
        n = utf8_len(word.ptr[i]);
        if (vocab_find(&t->model, str_slice(word.ptr + i, n)) == VOCAB_NONE)
            return false;
    }
    return true;
}

static bool is_known(const struct tokenizer *t, struct str word)
{
    return t->kind == TOKENIZER_WORDLEVEL ? vocab_find(&t->model, word) != VOCAB_NONE
                                          : knows_all(t, word);
}

static void encode_fresh(const struct tokenizer *t, struct tokenizer_scratch *s, struct str word,
                         struct token_ids *out)
{
    size_t before = out->len;

    if (t->kind == TOKENIZER_BPE)
        bpe_encode(&t->bpe, &s->bpe, word, out);
    else if (t->kind == TOKENIZER_UNIGRAM)
        unigram_encode(&t->unigram, &s->unigram, word, out);
    else if (t->kind == TOKENIZER_WORDPIECE)
        wordpiece_encode(&t->wordpiece, word, out);
    else if (t->kind == TOKENIZER_LISTED)
        listed_encode(&t->listed, word, out);
    else
        token_ids_push(out, find_word(t, word));
    if (t->inner)
        sentencepiece_spell(t, out, before);
}

/* A word that the cache of short ones does not know, and what is to be remembered of it. */
static void encode_rare(const struct tokenizer *t, struct tokenizer_scratch *s,
                        const struct word_key *key, struct str word, struct token_ids *out)
{
    size_t before = out->len, n;
    const uint32_t *seen = word_cache_find_long(&s->cache, word, &n);

    if (seen) {
        memcpy(token_ids_reserve(out, n), seen, n * sizeof(*seen));
        out->len += n;
        return;
    }
    if (t->fails_on_unknown && !is_known(t, word)) {
        s->met_unknown = true;
        return;
    }
    encode_fresh(t, s, word, out);
    word_cache_put(&s->cache, key, word, out->ptr + before, out->len - before);
}

/* Keys first, so that the memory of all of them is under way before the first is looked at. */
static void encode_batch(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                         const struct split_span *spans, size_t n, struct token_ids *out)
{
    struct word_key keys[BATCH];
    uint32_t *to;

    for (size_t i = 0; i < n; i++) {
        struct str word = {text.ptr + spans[i].start, spans[i].end - spans[i].start};

        word_key_set(&keys[i], word, text.len - spans[i].start);
        __builtin_prefetch(word_home(&s->cache, &keys[i]));
    }
    to = token_ids_reserve(out, n * WORD_SHORT_IDS);
    for (size_t i = 0; i < n; i++) {
        const struct word_short *seen = word_cache_find(&s->cache, &keys[i]);

        if (seen) {
            memcpy(to, seen->ids, sizeof(seen->ids));
            to += seen->n_ids;
        } else {
            struct str word = {text.ptr + spans[i].start, spans[i].end - spans[i].start};

            out->len = (size_t)(to - out->ptr);
            encode_rare(t, s, &keys[i], word, out);
            to = token_ids_reserve(out, (n - i) * WORD_SHORT_IDS);
        }
    }
    out->len = (size_t)(to - out->ptr);
}

/* Words of a model without a pre-tokenizer, cut where that changes nothing. */
static void encode_pieces(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                          struct split_span span, struct token_ids *out)
{
    struct split_span pieces[BATCH];
    struct str word = {text.ptr + span.start, span.end - span.start};
    size_t at = 0, n = 0;

    while (at < word.len) {
        size_t end = cuts_next(&t->cuts, word, at);

        pieces[n++] = (struct split_span){span.start + (uint32_t)at, span.start + (uint32_t)end};
        at = end;
        if (n == BATCH || at == word.len) {
            encode_batch(t, s, text, pieces, n, out);
            n = 0;
        }
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
    for (size_t i = 0; i < s->split.spans.len; i += t->cuts.on ? 1 : BATCH) {
        const struct split_span *spans = s->split.spans.ptr + i;

        if (t->cuts.on)
            encode_pieces(t, s, words, *spans, out);
        else
            encode_batch(t, s, words, spans, MIN(s->split.spans.len - i, (size_t)BATCH), out);
    }
    return 0;
}

static int encode_piece(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                        bool at_start, struct token_ids *out)
{
    struct added_search search = {0};
    struct added_piece piece;
    int r = normalize_run(&t->normalize, &s->normalize, s->regex, text, at_start,
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

int tokenizer_check(struct str text, struct err *e)
{
    if (text.len > TOKENIZER_MAX_TEXT)
        return err_set(e, -E2BIG, "text of %zu bytes, more than %d", text.len, TOKENIZER_MAX_TEXT);
    if (!str_is_utf8(text))
        return err_set(e, -EILSEQ, "text is not UTF-8");
    return 0;
}

bool tokenizer_next_cut(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                        size_t *at)
{
    struct added_search search = {.text = text, .done = *at, .at = *at};
    struct added_piece piece;

    while (t->added_raw.n_cuts > 0 && added_next(&t->added_raw, &search, s->regex, &piece))
        if (piece.cuts) {
            *at = piece.end;
            return true;
        }
    return false;
}

/* Gives back memory that a long text needed; @r is how it went, @before where its ids begin. */
static int end_encoding(struct tokenizer_scratch *s, struct str text, int r, size_t before,
                        struct token_ids *out, struct err *e)
{
    if (text.len > KEEP_BELOW) {
        normalize_work_done(&s->normalize);
        split_work_done(&s->split);
        bpe_work_done(&s->bpe);
        unigram_work_done(&s->unigram);
    }
    if (r == 0 && !s->met_unknown)
        return 0;
    out->len = before;
    if (r < 0)
        return err_set(e, r, "text is too hard to split into words");
    return err_set(e, -EINVAL, "text has something that the model has no token for");
}

int tokenizer_encode_part(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                          size_t from, size_t to, struct token_ids *out, struct err *e)
{
    struct added_search search = {.text = text, .done = from, .at = from};
    struct added_piece piece;
    size_t before = out->len;
    int r = 0;

    assert(s->owner == t);
    s->met_unknown = false;
    if (!out->ptr)
        (void)token_ids_reserve(out, (to - from) / BYTES_PER_ID);
    while (r == 0 && search.done < to && added_next(&t->added_raw, &search, s->regex, &piece)) {
        if (piece.id != VOCAB_NONE)
            token_ids_push(out, piece.id);
        else
            r = encode_piece(t, s, str_slice(text.ptr + piece.start, piece.end - piece.start),
                             piece.start == 0, out);
    }
    return end_encoding(s, text, r, before, out, e);
}

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                     struct token_ids *out, struct err *e)
{
    size_t before = out->len;
    int r = tokenizer_check(text, e);

    if (r == 0)
        r = tokenizer_encode_part(t, s, text, 0, text.len, out, e);
    if (r == 0)
        tokenizer_shape_ids(t, out, before);
    return r;
}

/* One piece, in which no added token is looked for. */
static int encode_literal(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                          bool at_start, struct token_ids *out)
{
    struct str normal;
    int r = normalize_run(&t->normalize, &s->normalize, s->regex, text, at_start,
                          (size_t)TOKENIZER_MAX_TEXT * 4, &normal);

    return r < 0 || normal.len == 0 ? r : encode_plain(t, s, normal, at_start, out);
}

int tokenizer_encode_pieces(const struct tokenizer *t, struct tokenizer_scratch *s, struct str text,
                            const struct text_pieces *pieces, struct token_ids *out, struct err *e)
{
    size_t before = out->len, from = 0;
    int r = tokenizer_check(text, e);

    if (r < 0)
        return r;
    assert(s->owner == t);
    s->met_unknown = false;
    for (size_t i = 0; i < pieces->len && from < text.len && r == 0; i++) {
        size_t end = MIN(pieces->ptr[i].end, text.len); /* a prompt may have been cut off */
        struct str piece = {text.ptr + from, end - from};
        uint32_t id = pieces->ptr[i].is_mark ? vocab_find(&t->added, piece) : VOCAB_NONE;

        if (id != VOCAB_NONE)
            token_ids_push(out, id);
        else
            r = encode_literal(t, s, piece, from == 0, out);
        from = end;
    }
    return end_encoding(s, text, r, before, out, e);
}

static void push_all(struct token_ids *out, const struct token_ids *ids)
{
    for (size_t i = 0; i < ids->len; i++)
        token_ids_push(out, ids->ptr[i]);
}

int tokenizer_encode_embedded(const struct tokenizer *t, struct tokenizer_scratch *s,
                              struct str text, bool special, struct token_ids *out, struct err *e)
{
    size_t before = out->len;
    int r = tokenizer_check(text, e);

    if (r == 0 && special && t->around.unknown)
        r = err_set(e, -ENOTSUP, "post_processor: %s", t->around.unknown);
    if (r < 0)
        return r;
    if (special)
        push_all(out, &t->around.before);
    r = tokenizer_encode_part(t, s, text, 0, text.len, out, e);
    if (r < 0)
        out->len = before;
    else if (special)
        push_all(out, &t->around.after);
    return r;
}

void tokenizer_leave_length(struct tokenizer *t)
{
    t->shape.truncates = t->shape.pads = false;
}

void tokenizer_shape_ids(const struct tokenizer *t, struct token_ids *ids, size_t before)
{
    const struct tokenizer_shape *shape = &t->shape;
    size_t n = ids->len - before, want;

    if (shape->truncates && n > shape->max) {
        if (shape->cuts_left)
            memmove(ids->ptr + before, ids->ptr + ids->len - shape->max,
                    shape->max * sizeof(*ids->ptr));
        n = shape->max;
        ids->len = before + n;
    }
    want = shape->pad_to ? shape->pad_to : n;
    if (shape->multiple && want % shape->multiple)
        want += shape->multiple - want % shape->multiple;
    if (!shape->pads || want <= n)
        return;
    (void)token_ids_reserve(ids, want - n);
    if (shape->pads_left)
        memmove(ids->ptr + before + want - n, ids->ptr + before, n * sizeof(*ids->ptr));
    for (size_t i = 0; i < want - n; i++)
        ids->ptr[before + i + (shape->pads_left ? 0 : n)] = shape->pad_id;
    ids->len = before + want;
}

/* @n ids in a place of @want of them. */
static void put_filled(const struct tokenizer_shape *shape, uint32_t *to, size_t want,
                       const uint32_t *ids, size_t n)
{
    size_t lead = shape->pads_left ? want - n : 0;

    for (size_t i = 0; i < want; i++)
        to[i] = i >= lead && i < lead + n ? ids[i - lead] : shape->pad_id;
}

int tokenizer_shape_together(const struct tokenizer *t, struct token_ids *ids, size_t *ends,
                             size_t n, size_t max, struct err *e)
{
    const struct tokenizer_shape *shape = &t->shape;
    struct token_ids filled = {0};
    size_t want = 0;

    if (!shape->pads || shape->pad_to) /* then each has its length already */
        return 0;
    for (size_t i = 0; i < n; i++)
        want = MAX(want, ends[i] - (i ? ends[i - 1] : 0));
    if (want && n > max / want)
        return err_set(e, -E2BIG, "%zu texts of %zu tokens are too many", n, want);
    (void)token_ids_reserve(&filled, n * want);
    for (size_t i = 0, begin = 0; i < n; i++) {
        put_filled(shape, filled.ptr + i * want, want, ids->ptr + begin, ends[i] - begin);
        begin = ends[i];
        ends[i] = (i + 1) * want;
    }
    filled.len = n * want;
    token_ids_done(ids);
    *ids = filled;
    return 0;
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
