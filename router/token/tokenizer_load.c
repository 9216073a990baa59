/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tokenizer_model.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_tree.h"
#include "router/token/regex.h"

enum { MAX_MERGES = 1 << 22, MAX_TOKEN_BYTES = 64 << 10 };

/* The parts of the file, as text: the model must be read before what refers to its ids. */
struct file_parts {
    struct str truncation, padding, added_tokens, normalizer, pre_tokenizer, decoder, model;
};

/* --- the file --------------------------------------------------------------------------------- */

static struct str *part_of(struct file_parts *f, struct str key)
{
    const struct {
        const char *key;
        struct str *part;
    } parts[] = {
        {"truncation", &f->truncation},
        {"padding", &f->padding},
        {"added_tokens", &f->added_tokens},
        {"normalizer", &f->normalizer},
        {"pre_tokenizer", &f->pre_tokenizer},
        {"decoder", &f->decoder},
        {"model", &f->model},
    };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (str_is(key, parts[i].key))
            return parts[i].part;
    return NULL;
}

/* The post-processor only adds tokens that we leave out, so it is not looked at. */
static int read_parts(struct str json, struct file_parts *ret, struct err *e)
{
    struct file_parts f = {0};
    struct json_pull p;
    struct str key, skipped;
    int r;

    json_pull_init(&p, json);
    if (json_pull_object(&p)) {
        while (json_pull_key(&p, &key)) {
            struct str *part = part_of(&f, key);

            if (!part && !str_is(key, "version") && !str_is(key, "post_processor"))
                return err_set(e, -ENOTSUP, "field \"%.*s\" is not supported",
                               (int)MIN(key.len, (size_t)64), key.ptr);
            (void)json_pull_skip(&p, part ? part : &skipped);
        }
    }
    r = json_pull_end(&p, e);
    if (r < 0)
        return r;
    if (f.model.len == 0)
        return err_set(e, -EINVAL, "model is missing");
    *ret = f;
    return 0;
}

static int parse_tree(struct json **ret, struct str part, struct err *e)
{
    *ret = NULL;
    return part.len ? json_parse(ret, part, e) : 0;
}

/* Both would change the ids of a prompt. */
static int refuse_shaping(const struct file_parts *f, struct err *e)
{
    if (f->truncation.len && !str_is(f->truncation, "null"))
        return err_set(e, -ENOTSUP, "truncation is not supported");
    if (f->padding.len && !str_is(f->padding, "null"))
        return err_set(e, -ENOTSUP, "padding is not supported");
    return 0;
}

/* --- model ------------------------------------------------------------------------------------ */

struct model_fields {
    struct str vocab, merges;
    char *unk; /* owned */
    bool byte_fallback, fuse_unk, ignore_merges;
};

static bool read_text(struct json_pull *p, struct buf *out, struct str *ret)
{
    buf_clear(out);
    return json_pull_string(p, out, ret);
}

/* Fields that must be absent, null, empty or zero: they would change how words are built. */
static int refuse_field(struct json_pull *p, struct str key, struct err *e)
{
    struct str value;

    if (!json_pull_skip(p, &value) || str_is(value, "null") || str_is(value, "\"\"") ||
        str_is(value, "0.0") || str_is(value, "0"))
        return 0;
    return err_set(e, -ENOTSUP, "%.*s is not supported", STR_ARG(key));
}

static int read_model_field(struct json_pull *p, struct str key, struct model_fields *m,
                            struct buf *scratch, struct err *e)
{
    struct str text;

    if (str_is(key, "vocab")) {
        (void)json_pull_skip(p, &m->vocab);
    } else if (str_is(key, "merges")) {
        (void)json_pull_skip(p, &m->merges);
    } else if (str_is(key, "byte_fallback")) {
        (void)!json_pull_bool(p, &m->byte_fallback);
    } else if (str_is(key, "fuse_unk")) {
        (void)!json_pull_bool(p, &m->fuse_unk);
    } else if (str_is(key, "ignore_merges")) {
        (void)!json_pull_bool(p, &m->ignore_merges);
    } else if (str_is(key, "unk_token")) {
        if (!json_pull_null(p) && read_text(p, scratch, &text)) {
            free(m->unk);
            m->unk = str_dup(text);
        }
    } else if (str_is(key, "type")) {
        if (read_text(p, scratch, &text) && !str_is(text, "BPE"))
            return err_set(e, -ENOTSUP, "type \"%.*s\" is not supported",
                           (int)MIN(text.len, (size_t)32), text.ptr);
    } else if (str_is(key, "dropout") || str_is(key, "continuing_subword_prefix") ||
               str_is(key, "end_of_word_suffix")) {
        return refuse_field(p, key, e);
    } else {
        return err_set(e, -ENOTSUP, "%.*s is not supported", (int)MIN(key.len, (size_t)64),
                       key.ptr);
    }
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
            int r = read_model_field(&p, key, m, &scratch, e);

            if (r < 0)
                return r;
        }
    return json_pull_end(&p, e);
}

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
        if (id >= TOKENIZER_MAX_VOCAB || scratch.len > MAX_TOKEN_BYTES)
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

static bool breaks_mark(struct str joined)
{
    for (size_t i = 1; i + TOKENIZER_MARK_LEN <= joined.len; i++)
        if (memcmp(joined.ptr + i, TOKENIZER_MARK, TOKENIZER_MARK_LEN) == 0 &&
            (i < TOKENIZER_MARK_LEN ||
             memcmp(joined.ptr + i - TOKENIZER_MARK_LEN, TOKENIZER_MARK, TOKENIZER_MARK_LEN) != 0))
            return true;
    return false;
}

static int add_merge(struct tokenizer *t, struct str left, struct str right, uint32_t rank,
                     struct buf *joined, struct err *e)
{
    uint32_t a = vocab_find(&t->model, left), b = vocab_find(&t->model, right), ab;

    buf_clear(joined);
    buf_put_str(joined, left);
    buf_put_str(joined, right);
    ab = vocab_find(&t->model, buf_str(joined));
    if (a == VOCAB_NONE || b == VOCAB_NONE || ab == VOCAB_NONE)
        return err_set(e, -EINVAL, "merges[%u]: not in the vocabulary", rank);
    t->cuts_at_mark &= !breaks_mark(buf_str(joined));
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

static int fill_model(struct tokenizer *t, const struct model_fields *m, struct err *e)
{
    struct bpe *b = &t->bpe;
    int r = read_vocab(t, m->vocab, e);

    if (r < 0)
        return r;
    if (t->split.byte_level)
        read_bytes(t);
    b->words = t->split.byte_level ? &t->bytes : &t->model;
    b->byte_level = t->split.byte_level;
    b->byte_fallback = m->byte_fallback && !b->byte_level;
    b->fuse_unk = m->fuse_unk;
    b->ignore_merges = m->ignore_merges;
    b->unk = m->unk ? vocab_find(&t->model, str_from(m->unk)) : VOCAB_NONE;
    if (m->unk && b->unk == VOCAB_NONE)
        return err_set(e, -EINVAL, "unk_token is not in the vocabulary");
    if (b->byte_level && m->byte_fallback)
        return err_set(e, -ENOTSUP, "byte_fallback with a ByteLevel pre_tokenizer");
    bpe_prepare(b);
    t->cuts_at_mark = !b->byte_level && !b->ignore_merges &&
                      vocab_find(&t->model, STR(TOKENIZER_MARK)) != VOCAB_NONE;
    return read_merges(t, m->merges, e);
}

static int load_model(struct tokenizer *t, struct str json, struct err *e)
{
    struct model_fields m = {0};
    int r = read_model(json, &m, e);

    if (r == 0)
        r = fill_model(t, &m, e);
    free(m.unk);
    return r < 0 ? err_wrap(e, r, "model") : 0;
}

/* --- added tokens ----------------------------------------------------------------------------- */

/* Where the library puts a token: on its twin in the model, or behind everything. */
static uint32_t place_added(const struct tokenizer *t, struct str content)
{
    uint32_t id = vocab_find(&t->added, content);

    if (id == VOCAB_NONE)
        id = vocab_find(&t->model, content);
    return id != VOCAB_NONE ? id : MAX(t->added.limit, (uint32_t)t->model.len);
}

static bool flag(const struct json *token, const char *name)
{
    bool on = false;

    (void)json_get_bool(token, name, &on);
    return on;
}

static void mark_special(struct tokenizer *t, uint32_t id)
{
    if (id >= t->limit) {
        uint32_t limit = MAX(id + 1, t->limit * 2);

        t->special = xreallocarray(t->special, limit, sizeof(*t->special));
        memset(t->special + t->limit, 0, (limit - t->limit) * sizeof(*t->special));
        t->limit = limit;
    }
    t->special[id] = true;
}

/* Enters a token under its id, and among those that are looked for in @text. */
static int enter_added(struct tokenizer *t, const struct json *token, uint32_t id, struct str text,
                       struct err *e)
{
    struct added_token a = {id, flag(token, "single_word"), flag(token, "lstrip"),
                            flag(token, "rstrip")};
    struct str content = str_from(json_get_cstr(token, "content"));
    int r = 0;

    if (a.single_word && !t->word)
        r = regex_compile(&t->word, STR("\\w"), REGEX_RUST, e);
    if (r < 0)
        return r;
    t->added_raw.word = t->added_normalized.word = t->word;
    added_add(flag(token, "normalized") ? &t->added_normalized : &t->added_raw, text, a);
    (void)vocab_add(&t->added, id, content);
    (void)vocab_add(&t->shown, id, text);
    /* The library knows a special token by its plain text, and so not when it prints otherwise. */
    if (flag(token, "special") && str_eq(text, content))
        mark_special(t, id);
    return 0;
}

static int add_token(struct tokenizer *t, const struct json *token, struct regex_scratch *scratch,
                     struct err *e)
{
    struct str content = str_from(json_get_cstr(token, "content")), text = content;
    struct normalize_work work = {0};
    uint32_t id;
    int r = 0;

    if (!content.ptr || content.len > MAX_TOKEN_BYTES)
        return err_set(e, -EINVAL, "content is missing or too long");
    if (content.len == 0)
        return 0;
    id = place_added(t, content);
    if (id >= TOKENIZER_MAX_VOCAB)
        return err_set(e, -E2BIG, "more than %d ids", TOKENIZER_MAX_VOCAB);
    if (flag(token, "normalized"))
        r = normalize_run(&t->normalize, &work, scratch, content, MAX_TOKEN_BYTES, &text);
    if (r < 0)
        r = err_set(e, r, "content is too long");
    else
        r = enter_added(t, token, id, text, e);
    normalize_work_done(&work);
    return r;
}

static int load_added(struct tokenizer *t, const struct json *tokens, struct err *e)
{
    AUTO(regex_scratch_free) struct regex_scratch *scratch = regex_scratch_new();
    size_t i = 0;

    if (tokens && !json_is_array(tokens) && !json_is_null(tokens))
        return err_set(e, -EINVAL, "added_tokens must be an array");
    if (json_len(tokens) > TOKENIZER_MAX_ADDED)
        return err_set(e, -E2BIG, "more than %d added_tokens", TOKENIZER_MAX_ADDED);
    JSON_FOREACH (token, tokens) {
        int r = add_token(t, token, scratch, e);

        if (r < 0)
            return err_wrap(e, r, "added_tokens[%zu]", i);
        i++;
    }
    return 0;
}

/* --- all together ----------------------------------------------------------------------------- */

static void load_texts(struct tokenizer *t)
{
    uint32_t limit = MAX(t->model.limit, t->added.limit);

    if (limit > t->limit || !t->special)
        t->special = xreallocarray(t->special, MAX(limit, 1U), sizeof(*t->special));
    if (limit > t->limit)
        memset(t->special + t->limit, 0, (limit - t->limit) * sizeof(*t->special));
    t->limit = limit;
    decode_size(&t->decode, limit);
    for (uint32_t id = 0; id < limit; id++) {
        struct str spelling = tokenizer_token_text(t, id);

        if (!spelling.ptr)
            continue;
        decode_add(&t->decode, id, spelling);
        t->n_ids++;
    }
}

typedef int (*load_fn)(void *to, const struct json *config, struct err *e);

static int load_normalize_part(void *to, const struct json *config, struct err *e)
{
    return normalize_load(to, config, e);
}

static int load_split_part(void *to, const struct json *config, struct err *e)
{
    return split_load(to, config, e);
}

static int load_decode_part(void *to, const struct json *config, struct err *e)
{
    return decode_load(to, config, e);
}

static int load_added_part(void *to, const struct json *config, struct err *e)
{
    return load_added(to, config, e);
}

static int load_part(load_fn load, void *to, struct str part, const char *name, struct err *e)
{
    AUTO(json_free) struct json *config = NULL;
    int r = parse_tree(&config, part, e);

    if (r == 0)
        r = load(to, config, e);
    return r < 0 ? err_wrap(e, r, "%s", name) : 0;
}

static int load_all(struct tokenizer *t, struct str json, struct err *e)
{
    struct file_parts f = {0};
    int r;

    if (json.len > TOKENIZER_MAX_FILE)
        return err_set(e, -E2BIG, "%zu bytes, more than %d", json.len, TOKENIZER_MAX_FILE);
    r = read_parts(json, &f, e);
    if (r == 0)
        r = refuse_shaping(&f, e);
    if (r == 0)
        r = load_part(load_normalize_part, &t->normalize, f.normalizer, "normalizer", e);
    if (r == 0)
        r = load_part(load_split_part, &t->split, f.pre_tokenizer, "pre_tokenizer", e);
    if (r == 0)
        r = load_part(load_decode_part, &t->decode, f.decoder, "decoder", e);
    if (r == 0)
        r = load_model(t, f.model, e);
    if (r == 0)
        r = load_part(load_added_part, t, f.added_tokens, "added_tokens", e);
    if (r == 0)
        load_texts(t);
    return r;
}

int tokenizer_load(struct tokenizer **ret, struct str json, struct err *e)
{
    AUTO(tokenizer_free) struct tokenizer *t = xcalloc(1, sizeof(*t));
    int r = load_all(t, json, e);

    if (r < 0)
        return err_wrap(e, r, "tokenizer.json");
    *ret = TAKE(t);
    return 0;
}

struct tokenizer *tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return NULL;
    vocab_done(&t->model);
    vocab_done(&t->bytes);
    vocab_done(&t->added);
    vocab_done(&t->shown);
    bpe_done(&t->bpe);
    normalize_done(&t->normalize);
    split_done(&t->split);
    added_done(&t->added_raw);
    added_done(&t->added_normalized);
    (void)regex_free(t->word);
    decode_done(&t->decode);
    free(t->special);
    free(t);
    return NULL;
}
