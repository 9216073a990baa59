/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The "model" of a tokenizer.json: its fields first, as text, then what its type makes of them.
 */
#include <errno.h>
#include <math.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "router/token/tokenizer_model.h"

enum { MAX_MERGES = 1 << 22 };

/* --- fields ----------------------------------------------------------------------------------- */

struct model_fields {
    enum tokenizer_kind kind;
    struct str vocab, merges;
    char *unk, *prefix, *suffix; /* owned */
    uint64_t unk_id, max_chars;
    bool has_unk_id;
    bool byte_fallback, fuse_unk, ignore_merges;
};

static bool read_text(struct json_pull *p, struct buf *out, struct str *ret)
{
    buf_clear(out);
    return json_pull_string(p, out, ret);
}

static void read_owned(struct json_pull *p, struct buf *scratch, char **ret)
{
    struct str text;

    if (!json_pull_null(p) && read_text(p, scratch, &text)) {
        free(*ret);
        *ret = str_dup(text);
    }
}

/* Fields that must be absent, null, empty or zero: they would change how words are built. */
static int refuse_field(struct json_pull *p, struct str key, struct err *e)
{
    struct str value;

    if (!json_pull_skip(p, &value) || str_is(value, "null") || str_is(value, "\"\"") ||
        str_is(value, "0.0") || str_is(value, "0"))
        return 0;
    return err_set(e, -ENOTSUP, "%.*s is not supported", (int)MIN(key.len, (size_t)64), key.ptr);
}

static int read_kind(struct json_pull *p, struct model_fields *m, struct buf *scratch,
                     struct err *e)
{
    static const char *const names[] = {
        [TOKENIZER_BPE] = "BPE",
        [TOKENIZER_UNIGRAM] = "Unigram",
        [TOKENIZER_WORDPIECE] = "WordPiece",
        [TOKENIZER_WORDLEVEL] = "WordLevel",
    };
    struct str text;

    if (!read_text(p, scratch, &text))
        return 0; /* json_pull_end() has the error */
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_is(text, names[i])) {
            m->kind = (enum tokenizer_kind)i;
            return 0;
        }
    return err_set(e, -ENOTSUP, "type \"%.*s\" is not supported", (int)MIN(text.len, (size_t)32),
                   text.ptr);
}

static bool *switch_of(struct model_fields *m, struct str key)
{
    if (str_is(key, "byte_fallback"))
        return &m->byte_fallback;
    if (str_is(key, "fuse_unk"))
        return &m->fuse_unk;
    return str_is(key, "ignore_merges") ? &m->ignore_merges : NULL;
}

static int read_field(struct json_pull *p, struct str key, struct model_fields *m,
                      struct buf *scratch, struct err *e)
{
    bool *on = switch_of(m, key);

    if (on)
        (void)!json_pull_bool(p, on);
    else if (str_is(key, "type"))
        return read_kind(p, m, scratch, e);
    else if (str_is(key, "vocab"))
        (void)json_pull_skip(p, &m->vocab);
    else if (str_is(key, "merges"))
        (void)json_pull_skip(p, &m->merges);
    else if (str_is(key, "unk_token"))
        read_owned(p, scratch, &m->unk);
    else if (str_is(key, "continuing_subword_prefix"))
        read_owned(p, scratch, &m->prefix);
    else if (str_is(key, "end_of_word_suffix"))
        read_owned(p, scratch, &m->suffix);
    else if (str_is(key, "unk_id"))
        m->has_unk_id = !json_pull_null(p) && json_pull_u64(p, &m->unk_id);
    else if (str_is(key, "max_input_chars_per_word"))
        (void)!json_pull_u64(p, &m->max_chars);
    else
        return refuse_field(p, key, e);
    return 0;
}

static int read_model(struct str json, struct model_fields *m, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    struct str key;

    json_pull_init(&p, json);
    if (json_pull_object(&p))
        while (json_pull_key(&p, &key)) {
            int r = read_field(&p, key, m, &scratch, e);

            if (r < 0)
                return r;
        }
    return json_pull_end(&p, e);
}

/* --- vocabulary, merges ----------------------------------------------------------------------- */

static int read_vocab(struct tokenizer *t, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    struct str raw;

    json_pull_init(&p, json);
    if (!json_pull_object(&p))
        return err_set(e, -EINVAL, "vocab must be an object");
    while (json_pull_key(&p, &raw)) {
        uint64_t id;

        buf_clear(&scratch);
        if (!json_unescape(raw, &scratch) || !json_pull_u64(&p, &id))
            return err_set(e, -EINVAL, "vocab: malformed entry");
        if (id >= TOKENIZER_MAX_VOCAB || scratch.len > TOKENIZER_MAX_TOKEN)
            return err_set(e, -E2BIG, "vocab: id %llu or its text is too large",
                           (unsigned long long)id);
        if (!vocab_add(&t->model, (uint32_t)id, buf_str(&scratch)))
            return err_set(e, -EINVAL, "vocab: id %llu is given twice", (unsigned long long)id);
    }
    return json_pull_end(&p, e);
}

/* A byte-level model sees bytes: its tokens are kept as those. What is not spelt in the byte
 * alphabet can never come out of text. */
static void read_bytes(struct tokenizer *t)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;

    for (uint32_t id = 0; id < t->model.limit; id++) {
        struct str spelling = vocab_text(&t->model, id);

        buf_clear(&bytes);
        if (spelling.ptr && decode_letters(spelling, &bytes))
            (void)vocab_add(&t->bytes, id, buf_str(&bytes));
    }
}

/* "left right", or since version 0.20 of the library ["left", "right"]. */
static bool read_merge(struct json_pull *p, struct buf scratch[2], struct str *left,
                       struct str *right)
{
    struct str text;

    if (json_pull_peek(p) == JSON_KIND_STRING)
        return read_text(p, &scratch[0], &text) && str_cut(&text, ' ', left) &&
               !str_cut(&text, ' ', right);
    return json_pull_array(p) && json_pull_element(p) && read_text(p, &scratch[0], left) &&
           json_pull_element(p) && read_text(p, &scratch[1], right) && !json_pull_element(p);
}

static int add_merge(struct tokenizer *t, struct str left, struct str right, uint32_t rank,
                     struct buf *joined, struct err *e)
{
    uint32_t a = vocab_find(&t->model, left), b = vocab_find(&t->model, right), ab;
    size_t skip = t->bpe.prefix ? strlen(t->bpe.prefix) : 0;

    if (right.len < skip)
        return err_set(e, -EINVAL, "merges[%u]: shorter than the prefix", rank);
    buf_clear(joined);
    buf_put_str(joined, left);
    buf_put_str(joined, str_skip(right, skip));
    ab = vocab_find(&t->model, buf_str(joined));
    if (a == VOCAB_NONE || b == VOCAB_NONE || ab == VOCAB_NONE)
        return err_set(e, -EINVAL, "merges[%u]: not in the vocabulary", rank);
    cuts_merge(&t->cuts, left, right);
    bpe_add_merge(&t->bpe, a, b, rank, ab);
    return 0;
}

static int read_merges(struct tokenizer *t, struct str json, struct err *e)
{
    struct buf scratch[2] = {BUF_NULL, BUF_NULL};
    AUTO(buf_done) struct buf joined = BUF_NULL;
    struct json_pull p;
    uint32_t rank = 0;
    int r = 0;

    json_pull_init(&p, json);
    if (!json_pull_array(&p))
        return err_set(e, -EINVAL, "merges must be an array");
    while (r == 0 && json_pull_element(&p)) {
        struct str left, right;

        if (rank == MAX_MERGES)
            r = err_set(e, -E2BIG, "more than %d merges", MAX_MERGES);
        else if (!read_merge(&p, scratch, &left, &right))
            r = err_set(e, -EINVAL, "merges[%u]: not a pair", rank);
        else
            r = add_merge(t, left, right, rank++, &joined, e);
    }
    buf_done(&scratch[0]);
    buf_done(&scratch[1]);
    return r < 0 ? r : json_pull_end(&p, e);
}

/* --- the models ------------------------------------------------------------------------------- */

static int find_unk(const struct tokenizer *t, const struct model_fields *m, uint32_t *ret,
                    struct err *e)
{
    *ret = m->unk ? vocab_find(&t->model, str_from(m->unk)) : VOCAB_NONE;
    if (m->unk && *ret == VOCAB_NONE)
        return err_set(e, -EINVAL, "unk_token is not in the vocabulary");
    return 0;
}

/* Whether the token of unknown characters is part of a merge. */
static bool joins_unknown(const struct bpe *b)
{
    for (size_t i = 0; b->unk != VOCAB_NONE && b->merges && i <= b->mask; i++)
        if (b->merges[i].pair != UINT64_MAX &&
            ((uint32_t)b->merges[i].pair == b->unk || b->merges[i].pair >> 32 == b->unk))
            return true;
    return false;
}

static int take_affix(char **to, const char *text, const char *name, struct err *e)
{
    if (!text || !*text)
        return 0;
    if (strlen(text) > BPE_MAX_AFFIX)
        return err_set(e, -E2BIG, "%s has more than %d bytes", name, BPE_MAX_AFFIX);
    *to = xstrdup(text);
    return 0;
}

static int fill_bpe(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    struct bpe *b = &t->bpe;
    int r;

    r = take_affix(&b->prefix, m->prefix, "continuing_subword_prefix", e);
    if (r == 0)
        r = take_affix(&b->suffix, m->suffix, "end_of_word_suffix", e);
    if (r < 0)
        return r;
    b->spelt = &t->model;
    r = read_vocab(t, m->vocab, e);
    if (r == 0)
        r = find_unk(t, m, &b->unk, e);
    if (r < 0)
        return r;
    if (t->split.byte_level)
        read_bytes(t);
    b->words = t->split.byte_level ? &t->bytes : &t->model;
    b->byte_level = t->split.byte_level;
    b->byte_fallback = m->byte_fallback && !b->byte_level;
    b->fuse_unk = m->fuse_unk;
    b->ignore_merges = m->ignore_merges;
    if (b->byte_level && m->byte_fallback)
        return err_set(e, -ENOTSUP, "byte_fallback with a ByteLevel pre_tokenizer");
    bpe_prepare(b);
    cuts_init(&t->cuts, b);
    r = read_merges(t, m->merges, e);
    /* Words of the byte alphabet are short, and those that are tokens as a whole must stay so. */
    t->cuts.on &=
        !b->byte_level && !b->ignore_merges && !joins_unknown(b) && !b->prefix && !b->suffix;
    if (r == 0)
        bpe_mark_whole(b);
    return r;
}

/*
 * A JSON number as serde_json reads it by default, which is not always the nearest double: digits
 * that no longer fit 64 bits are dropped, then comes one division. Sums of scores that should be
 * equal are told apart by such last bits, so ids depend on them.
 */
static double parse_score(struct str text)
{
    bool negative = str_starts(text, STR("-")), fraction = false, full = false;
    uint64_t digits = 0;
    int64_t exponent = 0, written = 0;
    size_t i = negative;
    double f;

    for (; i < text.len && (text.ptr[i] | 0x20) != 'e'; i++) {
        unsigned digit = (unsigned)(text.ptr[i] - '0');

        if (text.ptr[i] == '.') {
            fraction = true;
            continue;
        }
        full |= digits > UINT64_MAX / 10 || digits * 10 > UINT64_MAX - digit;
        if (!full)
            digits = digits * 10 + digit;
        exponent += full ? !fraction : -(int64_t)fraction;
    }
    i += i + 1 < text.len && text.ptr[i + 1] == '+' ? 2 : 1;
    if (i < text.len && str_parse_i64(str_skip(text, i), &written))
        exponent += MAX(MIN(written, (int64_t)100000), (int64_t)-100000);
    f = (double)digits;
    for (; exponent < -308 && f > 0; exponent += 308)
        f /= 1e308;
    f = exponent >= 0 ? f * pow(10, (double)exponent) : f / pow(10, (double)-exponent);
    return negative ? -f : f;
}

static int add_piece(struct tokenizer *t, struct str text, double score, struct err *e)
{
    uint32_t id = t->unigram.limit;

    if (id == TOKENIZER_MAX_VOCAB || text.len > UNIGRAM_MAX_PIECE ||
        !unigram_add(&t->unigram, text, score))
        return err_set(e, -E2BIG, "vocab[%u]: too many pieces, or this one is too long", id);
    (void)vocab_add(&t->model, id, text);
    return 0;
}

/* [["piece", score], ...]: the place in the list is the id. */
static int read_pieces(struct tokenizer *t, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    struct json_pull p;
    int r = 0;

    json_pull_init(&p, json);
    if (!json_pull_array(&p))
        return err_set(e, -EINVAL, "vocab must be an array");
    while (r == 0 && json_pull_element(&p)) {
        struct str text, score;

        if (!json_pull_array(&p) || !json_pull_element(&p) || !read_text(&p, &scratch, &text) ||
            !json_pull_element(&p) || json_pull_peek(&p) != JSON_KIND_NUMBER ||
            !json_pull_skip(&p, &score) || json_pull_element(&p))
            return err_set(e, -EINVAL, "vocab[%u]: not a piece and its score", t->unigram.limit);
        r = add_piece(t, text, parse_score(score), e);
    }
    return r < 0 ? r : json_pull_end(&p, e);
}

static int fill_unigram(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    struct unigram *u = &t->unigram;
    int r;

    u->words = &t->model;
    u->byte_fallback = m->byte_fallback;
    r = read_pieces(t, m->vocab, e);
    if (r < 0)
        return r;
    /* Without one, the library fails on the first character that it does not know. */
    t->fails_on_unknown = !m->has_unk_id;
    if (m->has_unk_id && m->unk_id >= u->limit)
        return err_set(e, -EINVAL, "unk_id is not in the vocabulary");
    u->unk = m->has_unk_id ? (uint32_t)m->unk_id : VOCAB_NONE;
    unigram_prepare(u);
    return 0;
}

static int fill_wordpiece(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    struct wordpiece *w = &t->wordpiece;
    int r = read_vocab(t, m->vocab, e);

    if (r == 0)
        r = find_unk(t, m, &w->unk, e);
    if (r < 0)
        return r;
    if (!m->unk)
        return err_set(e, -EINVAL, "unk_token is missing");
    if (m->max_chars > WORDPIECE_MAX_CHARS)
        return err_set(e, -E2BIG, "max_input_chars_per_word is more than %d", WORDPIECE_MAX_CHARS);
    w->words = &t->model;
    w->max_chars = (size_t)m->max_chars;
    wordpiece_prepare(w, str_from(m->prefix));
    return 0;
}

/* What is not in the vocabulary is the unknown token; when that is not there, an error. */
static int fill_wordlevel(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    int r = read_vocab(t, m->vocab, e);

    t->unknown_word = m->unk ? vocab_find(&t->model, str_from(m->unk)) : VOCAB_NONE;
    t->fails_on_unknown = t->unknown_word == VOCAB_NONE;
    return r;
}

static int fill_model(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    t->kind = m->kind;
    if (t->kind == TOKENIZER_BPE)
        return fill_bpe(t, m, e);
    if (m->suffix && *m->suffix)
        return err_set(e, -ENOTSUP, "end_of_word_suffix in a model that is not BPE");
    if (t->split.byte_level)
        return err_set(e, -ENOTSUP, "a ByteLevel pre_tokenizer before a model that is not BPE");
    if (t->kind == TOKENIZER_WORDLEVEL)
        return fill_wordlevel(t, m, e);
    return t->kind == TOKENIZER_UNIGRAM ? fill_unigram(t, m, e) : fill_wordpiece(t, m, e);
}

int tokenizer_load_model(struct tokenizer *t, struct str json, struct err *e)
{
    struct model_fields m = {.max_chars = 100}; /* the library's default */
    int r = read_model(json, &m, e);

    if (r == 0)
        r = fill_model(t, &m, e);
    free(m.unk);
    free(m.prefix);
    free(m.suffix);
    return r < 0 ? err_wrap(e, r, "model") : 0;
}
