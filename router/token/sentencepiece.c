/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/sentencepiece.h"

#include <errno.h>
#include <float.h>
#include <math.h>

#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/proto.h"
#include "router/token/tokenizer_model.h"
#include "router/token/utf8.h"

/* --- the file --------------------------------------------------------------------------------- */

enum piece_type { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum model_type { UNIGRAM = 1, BPE, WORD, CHAR };

struct piece {
    struct str text;
    float score;
    uint64_t type;
};

struct model {
    struct piece *pieces; /* owned; the texts are the file's */
    uint32_t n;
    uint64_t type;
    bool byte_fallback, blank_behind;               /* trainer_spec */
    struct str unknown;                             /* what the unknown token prints as */
    bool adds_blank, squeezes_blanks, marks_blanks; /* normalizer_spec */
    struct str map, map_back;
};

bool sentencepiece_is(struct str file)
{
    bool is = str_starts(file, STR("\n")); /* member 1, bytes */

    while (file.len > 0 && strchr(" \t\r\n", file.ptr[0]))
        file = str_skip(file, 1);
    return is && !str_starts(file, STR("{"));
}

static bool read_piece(struct str message, struct piece *ret)
{
    struct piece piece = {.type = NORMAL};
    struct proto p = {.rest = message};
    struct proto_field f;

    while (proto_next(&p, &f))
        if (f.number == 1)
            (void)proto_bytes(&f, &piece.text);
        else if (f.number == 2)
            (void)proto_float(&f, &piece.score);
        else if (f.number == 3)
            (void)proto_u64(&f, &piece.type);
    *ret = piece;
    return !p.malformed;
}

static bool read_trainer(struct model *m, struct str message)
{
    struct proto p = {.rest = message};
    struct proto_field f;

    while (proto_next(&p, &f))
        if (f.number == 3)
            (void)proto_u64(&f, &m->type);
        else if (f.number == 24)
            (void)proto_bool(&f, &m->blank_behind);
        else if (f.number == 35)
            (void)proto_bool(&f, &m->byte_fallback);
        else if (f.number == 44)
            (void)proto_bytes(&f, &m->unknown);
    return !p.malformed;
}

static bool read_normalizer(struct model *m, struct str message)
{
    struct proto p = {.rest = message};
    struct proto_field f;

    while (proto_next(&p, &f))
        if (f.number == 2)
            (void)proto_bytes(&f, &m->map);
        else if (f.number == 3)
            (void)proto_bool(&f, &m->adds_blank);
        else if (f.number == 4)
            (void)proto_bool(&f, &m->squeezes_blanks);
        else if (f.number == 5)
            (void)proto_bool(&f, &m->marks_blanks);
    return !p.malformed;
}

static bool read_denormalizer(struct model *m, struct str message)
{
    struct proto p = {.rest = message};
    struct proto_field f;

    while (proto_next(&p, &f))
        if (f.number == 2)
            (void)proto_bytes(&f, &m->map_back);
    return !p.malformed;
}

static int add_piece(struct model *m, struct str message, struct err *e)
{
    if (m->n == TOKENIZER_MAX_VOCAB)
        return err_set(e, -E2BIG, "more than %d pieces", TOKENIZER_MAX_VOCAB);
    if ((m->n & (m->n - 1)) == 0) /* doubles at every power of two */
        m->pieces = xreallocarray(m->pieces, MAX((size_t)m->n * 2, (size_t)1), sizeof(*m->pieces));
    if (!read_piece(message, &m->pieces[m->n]))
        return err_set(e, -EINVAL, "pieces[%u] is malformed", m->n);
    m->n++;
    return 0;
}

static int read_model(struct model *m, struct str file, struct err *e)
{
    struct proto p = {.rest = file};
    struct proto_field f;
    int r = 0;

    *m = (struct model){.type = UNIGRAM,
                        .unknown = STR(" \xe2\x81\x87 "),
                        .adds_blank = true,
                        .squeezes_blanks = true,
                        .marks_blanks = true};
    while (r == 0 && proto_next(&p, &f)) {
        if (f.wire != PROTO_BYTES)
            continue;
        if (f.number == 1)
            r = add_piece(m, f.bytes, e);
        else if (f.number == 2 && !read_trainer(m, f.bytes))
            r = err_set(e, -EINVAL, "trainer_spec is malformed");
        else if (f.number == 3 && !read_normalizer(m, f.bytes))
            r = err_set(e, -EINVAL, "normalizer_spec is malformed");
        else if (f.number == 5 && !read_denormalizer(m, f.bytes))
            r = err_set(e, -EINVAL, "denormalizer_spec is malformed");
    }
    if (r == 0 && p.malformed)
        return err_set(e, -EINVAL, "malformed, or cut off, after %zu bytes", file.len - p.rest.len);
    return r;
}

/* --- what is right ---------------------------------------------------------------------------- */

static bool is_byte_piece(struct str text)
{
    static const char digits[] = "0123456789ABCDEF";

    return text.len == 6 && str_starts(text, STR("<0x")) && text.ptr[5] == '>' &&
           memchr(digits, text.ptr[3], 16) && memchr(digits, text.ptr[4], 16);
}

static int check_piece(const struct model *m, const struct piece *p, struct err *e)
{
    if (p->text.len == 0 || memchr(p->text.ptr, 0, p->text.len) || !str_is_utf8(p->text))
        return err_set(e, -EINVAL, "its text is empty or no text");
    if (p->text.len > UNIGRAM_MAX_PIECE)
        return err_set(e, -E2BIG, "its text is longer than %d bytes", UNIGRAM_MAX_PIECE);
    if (!isfinite(p->score))
        return err_set(e, -EINVAL, "its score is no number");
    if (p->type < NORMAL || p->type > BYTE)
        return err_set(e, -ENOTSUP, "type %llu is not supported", (unsigned long long)p->type);
    if (p->type == UNUSED && m->type == BPE)
        return err_set(e, -ENOTSUP, "type UNUSED in a BPE model is not supported");
    if (p->type == BYTE && (!m->byte_fallback || !is_byte_piece(p->text)))
        return err_set(e, -EINVAL, "type BYTE without byte_fallback, or it names no byte");
    return 0;
}

static int check_model(const struct model *m, struct err *e)
{
    if (m->type < UNIGRAM || m->type > CHAR)
        return err_set(e, -ENOTSUP, "model_type %llu is not supported",
                       (unsigned long long)m->type);
    if (m->map_back.len > 0)
        return err_set(e, -ENOTSUP, "denormalizer_spec is not supported");
    if (!str_is_utf8(m->unknown) || m->unknown.len > TOKENIZER_MAX_TOKEN)
        return err_set(e, -EINVAL, "unk_surface is no text, or too long");
    for (uint32_t id = 0; id < m->n; id++) {
        int r = check_piece(m, &m->pieces[id], e);

        if (r < 0)
            return err_wrap(e, r, "pieces[%u]", id);
    }
    return 0;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* Enters all pieces; those that text can become among the t->bytes too. */
static int add_pieces(struct tokenizer *t, const struct model *m, uint32_t *ret_unk, struct err *e)
{
    uint32_t unk = VOCAB_NONE, n_bytes = 0, n_normal = 0;

    for (uint32_t id = 0; id < m->n; id++) {
        const struct piece *p = &m->pieces[id];

        if (vocab_find(&t->model, p->text) != VOCAB_NONE)
            return err_set(e, -EINVAL, "pieces[%u]: its text is given twice", id);
        if (p->type == UNKNOWN && unk != VOCAB_NONE)
            return err_set(e, -EINVAL, "pieces[%u]: a second unknown token", id);
        (void)vocab_add(&t->model, id, p->text);
        if (p->type == NORMAL || p->type == USER_DEFINED || p->type == BYTE)
            (void)vocab_add(&t->bytes, id, p->text);
        unk = p->type == UNKNOWN ? id : unk;
        n_bytes += p->type == BYTE;
        n_normal += p->type == NORMAL;
    }
    if (m->byte_fallback ? n_bytes != 256 : unk == VOCAB_NONE)
        return err_set(e, -EINVAL,
                       m->byte_fallback ? "byte_fallback without a piece for each byte"
                                        : "there is no unknown token");
    if (n_normal == 0)
        return err_set(e, -EINVAL, "it has no pieces");
    *ret_unk = unk;
    return 0;
}

/* The library tells user-defined symbols by length alone, and always prefers them. */
static float score_of(const struct piece *p)
{
    return p->type == USER_DEFINED ? (float)(0.1 * (double)(p->text.len - 1)) : p->score;
}

static int fill_unigram(struct tokenizer *t, const struct model *m, uint32_t unk, struct err *e)
{
    struct unigram *u = &t->unigram;
    float lowest = FLT_MAX;

    t->kind = TOKENIZER_UNIGRAM;
    u->words = &t->bytes;
    u->byte_fallback = m->byte_fallback;
    u->native = true;
    u->unk = unk;
    for (uint32_t id = 0; id < m->n; id++) {
        const struct piece *p = &m->pieces[id];
        bool found = p->type == NORMAL || p->type == USER_DEFINED;

        if (!unigram_add(u, found ? p->text : STR(""), (double)score_of(p)))
            return err_set(e, -E2BIG, "pieces[%u]: the pieces are too long", id);
        if (p->type == NORMAL)
            lowest = MIN(lowest, p->score);
    }
    u->lowest = (double)lowest;
    unigram_prepare(u);
    return 0;
}

/* --- BPE -------------------------------------------------------------------------------------- */

/* Orders scores as the library compares them, the highest first: by their bits. */
static uint32_t rank_of(float score)
{
    uint32_t bits;

    memcpy(&bits, &score, sizeof(bits));
    return bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31);
}

/* What may merge: a piece, or a character that is none. */
static uint32_t find_symbol(const struct tokenizer *t, const struct model *m, struct str text)
{
    uint32_t id = vocab_find(&t->bytes, text);

    return id != VOCAB_NONE && (id >= m->n || m->pieces[id].type == NORMAL) ? id : VOCAB_NONE;
}

/* Characters that are no piece but part of one: they merge like others. */
static int add_inner(struct tokenizer *t, const struct model *m, struct err *e)
{
    uint32_t next = m->n;

    for (uint32_t id = 0; id < m->n; id++) {
        struct str text = m->pieces[id].text;

        for (size_t at = 0, n; m->pieces[id].type == NORMAL && at < text.len; at += n) {
            struct str character = str_slice(text.ptr + at, n = utf8_len(text.ptr[at]));

            if (vocab_find(&t->bytes, character) != VOCAB_NONE)
                continue;
            if (next == TOKENIZER_MAX_VOCAB)
                return err_set(e, -E2BIG, "more than %d pieces and characters",
                               TOKENIZER_MAX_VOCAB);
            (void)vocab_add(&t->bytes, next++, character);
        }
    }
    t->inner = next > m->n ? m->n : 0;
    return 0;
}

void sentencepiece_spell(const struct tokenizer *t, struct token_ids *ids, size_t from)
{
    AUTO(token_ids_done) struct token_ids spelt = {0};

    for (size_t i = from; i < ids->len; i++) {
        bool inner = ids->ptr[i] >= t->inner;
        struct str text = inner ? vocab_text(&t->bytes, ids->ptr[i]) : STR_NULL;
        uint32_t id = inner ? t->bpe.unk : ids->ptr[i];

        for (size_t k = 0; t->bpe.byte_fallback && k < text.len; k++)
            token_ids_push(&spelt, t->bpe.byte_ids[(uint8_t)text.ptr[k]]);
        if (inner && t->bpe.byte_fallback)
            continue;
        if (id != t->bpe.unk || spelt.len == 0 || spelt.ptr[spelt.len - 1] != id)
            token_ids_push(&spelt, id);
    }
    ids->len = from;
    for (size_t i = 0; i < spelt.len; i++)
        token_ids_push(ids, spelt.ptr[i]);
}

/* Any two that make up the piece merge into it. */
static void add_merges_of(struct tokenizer *t, const struct model *m, uint32_t id)
{
    struct str text = m->pieces[id].text;

    for (size_t cut = utf8_len(text.ptr[0]); cut < text.len; cut += utf8_len(text.ptr[cut])) {
        struct str left = str_slice(text.ptr, cut), right = str_skip(text, cut);
        uint32_t a = find_symbol(t, m, left), b = find_symbol(t, m, right);

        if (a == VOCAB_NONE || b == VOCAB_NONE)
            continue;
        cuts_merge(&t->cuts, left, right);
        bpe_add_merge(&t->bpe, a, b, rank_of(m->pieces[id].score), id);
    }
}

static int fill_bpe(struct tokenizer *t, const struct model *m, uint32_t unk, struct err *e)
{
    struct bpe *b = &t->bpe;
    size_t work = 0;
    int r = add_inner(t, m, e);

    if (r < 0)
        return r;
    t->kind = TOKENIZER_BPE;
    *b = (struct bpe){
        .words = &t->bytes, .byte_fallback = m->byte_fallback, .fuse_unk = true, .unk = unk};
    bpe_prepare(b);
    cuts_init(&t->cuts, b);
    for (uint32_t id = 0; id < m->n; id++) {
        work += m->pieces[id].text.len * m->pieces[id].text.len;
        if (work > SENTENCEPIECE_MAX_WORK)
            return err_set(e, -E2BIG, "pieces[%u]: the pieces are too long", id);
        if (m->pieces[id].type == NORMAL)
            add_merges_of(t, m, id);
        else if (m->pieces[id].type == USER_DEFINED)
            added_add(&t->added_normalized, m->pieces[id].text, (struct added_token){.id = id});
    }
    t->cuts.on &= !t->inner; /* of several unknown ones in a row only one token is left */
    bpe_mark_whole(b);
    return 0;
}

/* --- WORD, CHAR ------------------------------------------------------------------------------- */

/* User-defined symbols stay whole among characters, but make no words of their own. */
static void fill_listed(struct tokenizer *t, const struct model *m, uint32_t unk)
{
    t->kind = TOKENIZER_LISTED;
    t->listed = (struct listed){.words = &t->model,
                                .characters = m->type == CHAR,
                                .byte_fallback = m->byte_fallback,
                                .unk = unk};
    listed_prepare(&t->listed);
    for (uint32_t id = 0; m->type == CHAR && id < m->n; id++)
        if (m->pieces[id].type == USER_DEFINED)
            added_add(&t->added_normalized, m->pieces[id].text, (struct added_token){.id = id});
}

static int fill_model(struct tokenizer *t, const struct model *m, uint32_t unk, struct err *e)
{
    if (m->type == BPE)
        return fill_bpe(t, m, unk, e);
    if (m->type == UNIGRAM)
        return fill_unigram(t, m, unk, e);
    fill_listed(t, m, unk);
    return 0;
}

/* --- all together ----------------------------------------------------------------------------- */

static bool is_off(const struct json *config, const char *name)
{
    bool on = true;

    (void)json_get_bool(config, name, &on);
    return !on;
}

static int set_stages(struct tokenizer *t, const struct model *m, const struct json *config,
                      struct err *e)
{
    bool blank = m->adds_blank && !is_off(config, "add_prefix_space");
    struct normalize_pieces p = {
        .kept = xcalloc(1, sizeof(*p.kept)),
        .prefix = blank && !m->blank_behind,
        .suffix = blank && m->blank_behind,
        .first_only = is_off(config, "legacy"),
        .squeezes = m->squeezes_blanks,
        .mark = m->marks_blanks ? DECODE_MARK : " ",
    };

    for (uint32_t id = 0; id < m->n; id++)
        if (m->pieces[id].type == USER_DEFINED)
            added_add(p.kept, m->pieces[id].text, (struct added_token){.id = id});
    decode_load_pieces(&t->decode,
                       m->squeezes_blanks ? DECODE_DROP_ALL
                       : blank            ? DECODE_DROP_ONE
                                          : DECODE_DROP_NONE,
                       m->byte_fallback);
    return normalize_load_pieces(&t->normalize, &p, m->map, e);
}

static int add_special(struct tokenizer *t, const struct model *m, const struct json *config,
                       struct err *e)
{
    const struct json *listed = json_get(config, "added_tokens_decoder");
    int r = json_is_object(listed) ? tokenizer_add_listed(t, listed, e) : 0;

    for (uint32_t id = 0; r == 0 && id < m->n; id++) {
        const struct piece *p = &m->pieces[id];

        if (p->type == UNKNOWN)
            (void)vocab_add(&t->shown, id, m->unknown);
        if (p->type == CONTROL && !json_is_object(listed))
            added_add(&t->added_raw, p->text, (struct added_token){.id = id});
        if (p->type == CONTROL && !json_is_object(listed))
            (void)vocab_add(&t->added, id, p->text);
        if (p->type == CONTROL)
            tokenizer_mark_special(t, id);
    }
    return r;
}

int sentencepiece_fill(struct tokenizer *t, struct str file, const struct json *tokenizer_config,
                       struct err *e)
{
    struct model m;
    uint32_t unk = VOCAB_NONE;
    int r = read_model(&m, file, e);

    if (r == 0)
        r = check_model(&m, e);
    if (r == 0)
        r = set_stages(t, &m, tokenizer_config, e);
    if (r == 0)
        r = add_pieces(t, &m, &unk, e);
    if (r == 0)
        r = fill_model(t, &m, unk, e);
    if (r == 0)
        r = add_special(t, &m, tokenizer_config, e);
    free(m.pieces);
    return r;
}
