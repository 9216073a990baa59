/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tokenizer_model.h"

#include <errno.h>

#include "lib/base/err.h"
#include "lib/base/json_pull.h"
#include "lib/base/json_tree.h"
#include "router/token/regex.h"
#include "router/token/sentencepiece.h"
#include "router/token/tiktoken.h"

/* The parts of the file, as text: the model must be read before what refers to its ids. */
struct file_parts {
    struct str truncation, padding, added_tokens, normalizer, pre_tokenizer, post_processor,
        decoder, model;
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
        {"post_processor", &f->post_processor},
        {"decoder", &f->decoder},
        {"model", &f->model},
    };

    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (str_is(key, parts[i].key))
            return parts[i].part;
    return NULL;
}

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

            if (!part && !str_is(key, "version"))
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

enum { SHAPE_MAX = 1 << 24 }; /* ids to fill a text up to */

static bool is_left(const struct json *config)
{
    const char *direction = json_get_cstr(config, "direction");

    return direction && strcmp(direction, "Left") == 0;
}

/* The reference frontend lets the library do both, although no prompt is meant to be shaped so. */
static int load_truncation(void *to, const struct json *config, struct err *e)
{
    struct tokenizer_shape *shape = to;
    const char *strategy = json_get_cstr(config, "strategy");
    int64_t max = -1;

    if (!config || json_is_null(config))
        return 0;
    if (!json_get_i64(config, "max_length", &max) || max < 0)
        return err_set(e, -EINVAL, "max_length is missing");
    if (strategy && strcmp(strategy, "OnlySecond") == 0)
        return err_set(e, -ENOTSUP, "strategy OnlySecond takes no single text");
    shape->truncates = true;
    shape->cuts_left = is_left(config);
    shape->max = (size_t)max;
    return 0;
}

static int load_padding(void *to, const struct json *config, struct err *e)
{
    struct tokenizer_shape *shape = to;
    int64_t fixed = 0, multiple = 0, id = 0;

    if (!config || json_is_null(config))
        return 0;
    (void)json_get_i64(json_get(config, "strategy"), "Fixed", &fixed);
    (void)json_get_i64(config, "pad_to_multiple_of", &multiple);
    (void)json_get_i64(config, "pad_id", &id);
    if (fixed < 0 || fixed > SHAPE_MAX || multiple < 0 || multiple > SHAPE_MAX || id < 0 ||
        id > UINT32_MAX)
        return err_set(e, -E2BIG, "a length or the id is out of range");
    *shape = (struct tokenizer_shape){.truncates = shape->truncates,
                                      .cuts_left = shape->cuts_left,
                                      .max = shape->max,
                                      .pads = true,
                                      .pads_left = is_left(config),
                                      .pad_to = (size_t)fixed,
                                      .multiple = (size_t)multiple,
                                      .pad_id = (uint32_t)id};
    return 0;
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

void tokenizer_mark_special(struct tokenizer *t, uint32_t id)
{
    if (id >= t->limit) {
        uint32_t limit = MAX(id + 1, t->limit * 2);

        t->special = xreallocarray(t->special, limit, sizeof(*t->special));
        memset(t->special + t->limit, 0, (limit - t->limit) * sizeof(*t->special));
        t->limit = limit;
    }
    t->special[id] = true;
}

static int need_word(struct tokenizer *t, struct err *e)
{
    int r = t->word ? 0 : regex_compile(&t->word, STR("\\w"), REGEX_RUST, e);

    t->added_raw.word = t->added_normalized.word = t->word;
    return r;
}

/* Enters a token under its id, and among those that are looked for in @text. */
static int enter_added(struct tokenizer *t, const struct json *token, uint32_t id, struct str text,
                       struct err *e)
{
    struct added_token a = {id, flag(token, "single_word"), flag(token, "lstrip"),
                            flag(token, "rstrip"), false};
    struct str content = str_from(json_get_cstr(token, "content"));
    int r = 0;

    if (a.single_word)
        r = need_word(t, e);
    if (r < 0)
        return r;
    added_add(flag(token, "normalized") ? &t->added_normalized : &t->added_raw, text, a);
    (void)vocab_add(&t->added, id, content);
    (void)vocab_add(&t->shown, id, text);
    /* The library knows a special token by its plain text, and so not when it prints otherwise. */
    if (flag(token, "special") && str_eq(text, content))
        tokenizer_mark_special(t, id);
    return 0;
}

int tokenizer_add_special(struct tokenizer *t, uint32_t id, struct str text, struct err *e)
{
    AUTO(buf_done) struct buf letters = BUF_NULL;

    if (id >= TOKENIZER_MAX_VOCAB || text.len > TOKENIZER_MAX_TOKEN ||
        t->added_raw.n_tokens == TOKENIZER_MAX_ADDED)
        return err_set(e, -E2BIG, "id %u or its text is too large", id);
    if (!vocab_add(&t->added, id, text))
        return err_set(e, -EINVAL, "id %u is given twice", id);
    decode_put_letters(text, &letters);
    (void)vocab_add(&t->shown, id, buf_str(&letters));
    added_add(&t->added_raw, text, (struct added_token){.id = id});
    tokenizer_mark_special(t, id);
    return 0;
}

int tokenizer_add_listed(struct tokenizer *t, const struct json *listed, struct err *e)
{
    JSON_FOREACH (token, listed) {
        struct added_token a = {0, flag(token, "single_word"), flag(token, "lstrip"),
                                flag(token, "rstrip"), false};
        struct str content = str_from(json_get_cstr(token, "content"));
        uint64_t id;
        int r = 0;

        if (!str_parse_u64(str_from(json_key(token)), &id) || id >= TOKENIZER_MAX_VOCAB)
            return err_set(e, -EINVAL, "added_tokens_decoder: \"%.32s\" is no id", json_key(token));
        if (content.len == 0)
            continue;
        if (content.len > TOKENIZER_MAX_TOKEN || t->added_raw.n_tokens == TOKENIZER_MAX_ADDED)
            return err_set(e, -E2BIG, "added_tokens_decoder: too many or too long tokens");
        a.id = (uint32_t)id;
        if (a.single_word)
            r = need_word(t, e);
        if (r < 0)
            return r;
        if (!vocab_add(&t->added, a.id, content))
            return err_set(e, -EINVAL, "added_tokens_decoder: id %u is given twice", a.id);
        (void)vocab_add(&t->shown, a.id, content);
        added_add(&t->added_raw, content, a);
        if (flag(token, "special"))
            tokenizer_mark_special(t, a.id);
    }
    return 0;
}

static int add_token(struct tokenizer *t, const struct json *token, struct regex_scratch *scratch,
                     struct err *e)
{
    struct str content = str_from(json_get_cstr(token, "content")), text = content;
    struct normalize_work work = {0};
    uint32_t id;
    int r = 0;

    if (!content.ptr || content.len > TOKENIZER_MAX_TOKEN)
        return err_set(e, -EINVAL, "content is missing or too long");
    if (content.len == 0)
        return 0;
    id = place_added(t, content);
    if (id >= TOKENIZER_MAX_VOCAB)
        return err_set(e, -E2BIG, "more than %d ids", TOKENIZER_MAX_VOCAB);
    if (flag(token, "normalized"))
        r = normalize_run(&t->normalize, &work, scratch, content, true, TOKENIZER_MAX_TOKEN, &text);
    if (r < 0)
        r = err_set(e, r, "content is too long");
    else if (text.len == 0) /* the library finds it between any two characters */
        r = err_set(e, -ENOTSUP, "a token that the normalizer makes empty is not supported");
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

static int load_texts(struct tokenizer *t, struct err *e)
{
    uint32_t limit = MAX(t->model.limit, t->added.limit);

    added_begin_cuts(&t->added_raw);
    for (uint32_t id = 0; id < t->added.limit; id++)
        added_note_text(&t->added_raw, vocab_text(&t->added, id));

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
        if (decode_add(&t->decode, id, spelling) < 0)
            return err_set(e, -E2BIG, "decoder: text of the tokens is too long");
        t->n_ids++;
    }
    return 0;
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

static int load_post_processor(void *to, const struct json *config, struct err *e)
{
    (void)e;
    post_processor_load(to, config);
    return 0;
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

/* The library takes a text whose first characters are dropped for one that begins later. */
static int refuse_unclear_start(const struct tokenizer *t, struct err *e)
{
    for (size_t i = 0; t->normalize.drops && i < t->split.n_steps; i++)
        if (t->split.steps[i].kind == SPLIT_METASPACE &&
            t->split.steps[i].prepend == SPLIT_PREPEND_FIRST)
            return err_set(e, -ENOTSUP,
                           "pre_tokenizer: prepend_scheme \"first\" after a normalizer that drops "
                           "characters is not supported");
    return 0;
}

static int load_all(struct tokenizer *t, struct str json, struct err *e)
{
    struct file_parts f = {0};
    int r;

    if (json.len > TOKENIZER_MAX_FILE)
        return err_set(e, -E2BIG, "%zu bytes, more than %d", json.len, TOKENIZER_MAX_FILE);
    r = read_parts(json, &f, e);
    if (r == 0)
        r = load_part(load_truncation, &t->shape, f.truncation, "truncation", e);
    if (r == 0)
        r = load_part(load_padding, &t->shape, f.padding, "padding", e);
    if (r == 0)
        r = load_part(load_normalize_part, &t->normalize, f.normalizer, "normalizer", e);
    if (r == 0)
        r = load_part(load_split_part, &t->split, f.pre_tokenizer, "pre_tokenizer", e);
    if (r == 0)
        r = refuse_unclear_start(t, e);
    if (r == 0)
        r = load_part(load_decode_part, &t->decode, f.decoder, "decoder", e);
    if (r == 0)
        r = load_part(load_post_processor, &t->around, f.post_processor, "post_processor", e);
    if (r == 0)
        r = tokenizer_load_model(t, f.model, e);
    if (r == 0)
        r = load_part(load_added_part, t, f.added_tokens, "added_tokens", e);
    if (r == 0)
        r = load_texts(t, e);
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

static int fill_files(struct tokenizer *t, const struct tokenizer_files *f, bool is_pieces,
                      struct err *e)
{
    AUTO(json_free) struct json *config = NULL;
    AUTO(json_free) struct json *tokenizer_config = NULL;
    int r = 0;

    if (f->tokenizer.len > TOKENIZER_MAX_FILE)
        return err_set(e, -E2BIG, "%zu bytes, more than %d", f->tokenizer.len, TOKENIZER_MAX_FILE);
    if (f->config.len > 0)
        r = json_parse(&config, f->config, e);
    if (r == 0 && f->tokenizer_config.len > 0)
        r = json_parse(&tokenizer_config, f->tokenizer_config, e);
    if (r == 0)
        r = is_pieces ? sentencepiece_fill(t, f->tokenizer, tokenizer_config, e)
                      : tiktoken_fill(t, f->tokenizer, config, tokenizer_config, e);
    return r < 0 ? r : load_texts(t, e);
}

int tokenizer_load_files(struct tokenizer **ret, const struct tokenizer_files *f, struct err *e)
{
    AUTO(tokenizer_free) struct tokenizer *t = NULL;
    bool is_pieces = sentencepiece_is(f->tokenizer);
    int r;

    if (!is_pieces && !tiktoken_is(f->tokenizer))
        return tokenizer_load(ret, f->tokenizer, e);
    t = xcalloc(1, sizeof(*t));
    r = fill_files(t, f, is_pieces, e);
    if (r < 0)
        return err_wrap(e, r, is_pieces ? "SentencePiece model" : "tiktoken file");
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
    unigram_done(&t->unigram);
    wordpiece_done(&t->wordpiece);
    normalize_done(&t->normalize);
    split_done(&t->split);
    added_done(&t->added_raw);
    added_done(&t->added_normalized);
    (void)regex_free(t->word);
    decode_done(&t->decode);
    post_processor_done(&t->around);
    free(t->special);
    free(t);
    return NULL;
}
