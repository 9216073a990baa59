/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/model_text.h"

#include <errno.h>
#include <string.h>

#include "lib/base/json_tree.h"
#include "lib/net/file.h"
#include "router/discovery/hub_ledger.h"

static int read_json(const char *path, struct json **ret, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = file_read(path, TOKENIZER_MAX_FILE, &text, e);

    if (r == 0)
        r = json_parse(ret, buf_str(&text), e);
    return r < 0 ? err_wrap(e, r, "%s", path) : 0;
}

/* A file of JSON, read once for all who look into it. */
struct parsed {
    struct json *json; /* NULL where there is none, or it cannot be read */
    int code;          /* why not, 0 where there is none */
    struct err err;
};

static struct parsed parse(const char *path)
{
    struct parsed p = {.json = NULL};

    if (path)
        p.code = read_json(path, &p.json, &p.err);
    return p;
}

static void parsed_done(struct parsed *p)
{
    json_free(p->json);
}
DEFINE_CLEANUP_EMBEDDED(struct parsed, parsed_done)

static int parsed_check(const struct parsed *p, struct err *e)
{
    if (p->code < 0 && e)
        *e = p->err;
    return p->code;
}

/* A single id or an array of them. */
static void take_eos(struct model_text *t, const struct json *ids)
{
    int64_t id;

    if (json_i64(ids, &id)) {
        t->eos_ids[t->n_eos_ids++] = (uint32_t)id;
        return;
    }
    JSON_FOREACH (one, ids)
        if (t->n_eos_ids < MODEL_TEXT_EOS_MAX && json_i64(one, &id))
            t->eos_ids[t->n_eos_ids++] = (uint32_t)id;
}

/* The first of generation_config, config and its text_config that names any (wire.md §8.3). */
static int load_eos(struct model_text *t, const struct model_files *files,
                    const struct parsed *config, struct err *e)
{
    AUTO(json_free) struct json *generation = NULL;
    int r;

    if (files->generation_config) {
        r = read_json(files->generation_config, &generation, e);
        if (r < 0)
            return r;
        take_eos(t, json_get(generation, "eos_token_id"));
    }
    if (t->n_eos_ids)
        return 0;
    take_eos(t, json_get(config->json, "eos_token_id"));
    if (!t->n_eos_ids)
        take_eos(t, json_path(config->json, "text_config", "eos_token_id", NULL));
    return parsed_check(config, e);
}

/* Models have rows for more ids than their tokenizers give; a config that cannot be read says none. */
static void count_ids(struct model_text *t, const struct json *config)
{
    int64_t size;

    t->vocabulary = tokenizer_id_limit(t->tokenizer);
    if ((json_get_i64(json_get(config, "text_config"), "vocab_size", &size) ||
         json_get_i64(config, "vocab_size", &size)) &&
        size > t->vocabulary)
        t->vocabulary = (uint32_t)MIN(size, (int64_t)UINT32_MAX);
}

/* --- images ----------------------------------------------------------------------------------- */

static struct parsed parse_beside(const char *path, const char *name)
{
    const char *end = path ? strrchr(path, '/') : NULL;
    AUTO(mem_free) char *other = end ? xasprintf("%.*s/%s", (int)(end - path), path, name) : NULL;

    return parse(other);
}

/* The token that is all of @text. */
static bool find_token(const struct model_text *t, const char *text, uint32_t *ret)
{
    AUTO(token_ids_done) struct token_ids ids = {0};
    AUTO(tokenizer_scratch_free) struct tokenizer_scratch *s = tokenizer_scratch_new(t->tokenizer);
    struct err e;

    if (!text || tokenizer_encode(t->tokenizer, s, str_from(text), &ids, &e) < 0 || ids.len != 1)
        return false;
    *ret = ids.ptr[0];
    return true;
}

/* Where the config names no mark, or templates use another one, it is one of those that models have. */
static void find_marks(struct model_text *t)
{
    static const char *const usual[] = {"<|image_pad|>",   "<image>",   "[IMG]",
                                        "<IMG_CONTEXT>",   "<|image|>", "<|media_pad|>",
                                        "<start_of_image>"};
    struct image_marks *m = &t->images;

    if (m->tokens.has_placeholder)
        m->marks[m->n_marks++] = m->tokens.placeholder;
    for (size_t i = 0; i < ARRAY_LEN(usual) && m->n_marks < IMAGE_MARKS_MAX; i++)
        if (find_token(t, usual[i], &m->marks[m->n_marks]))
            m->n_marks++;
}

static const char *first_text(const struct json *tokenizer_config)
{
    const struct json *bos = json_get(tokenizer_config, "bos_token");
    const char *text = json_get_cstr(tokenizer_config, "bos_token");
    bool adds = false;

    (void)json_get_bool(tokenizer_config, "add_bos_token", &adds);
    if (!adds)
        return NULL;
    return text ? text : json_get_cstr(bos, "content");
}

/* What is missing or cannot be read says nothing. */
static void load_images(struct model_text *t, const struct model_files *files, const char *model,
                        const struct json *config, const struct json *tokenizer_config)
{
    AUTO(parsed_done)
    struct parsed processor = parse_beside(files->config, "preprocessor_config.json");

    image_tokens_read(&t->images.tokens, str_from(model), config, processor.json);
    find_marks(t);
    t->images.begins = find_token(t, first_text(tokenizer_config), &t->images.first);
}

/* --- chat ------------------------------------------------------------------------------------- */

/* A config that cannot be read says nothing. */
static struct chat *load_native(const struct json *config, const char *name,
                                enum chat_release release)
{
    struct chat_model m = {.name = str_from(name)};

    if (config)
        m.type = str_from(json_get_cstr(config, "model_type"));
    return chat_load_native(&m, release);
}

static int load_chat(struct model_text *t, const struct model_files *files,
                     const struct parsed *tokenizer_config, enum template_style style,
                     enum chat_release release, struct err *e)
{
    AUTO(buf_done) struct buf template = BUF_NULL;
    struct err why;
    int r;

    if (t->chat || !files->tokenizer_config)
        return 0;
    r = parsed_check(tokenizer_config, e);
    if (r == 0 && files->chat_template)
        r = file_read(files->chat_template, TOKENIZER_MAX_FILE, &template, e);
    if (r < 0)
        return err_wrap(e, r, "chat template");
    r = chat_load(&t->chat, tokenizer_config->json, buf_str(&template), style, release, &why);
    if (r < 0 && r != -ENOENT)
        (void)err_set(&t->lacks, r, "no chat completions: %s", why.text);
    return 0;
}

static int load_tokenizer(struct model_text *t, const struct model_files *files, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    AUTO(buf_done) struct buf config = BUF_NULL;
    AUTO(buf_done) struct buf tokenizer_config = BUF_NULL;
    struct tokenizer_files f;
    int r;

    if (!files->tokenizer)
        return err_set(e, -ENOTSUP, "its card names no tokenizer");
    r = file_read(files->tokenizer, TOKENIZER_MAX_FILE, &text, e);
    if (r == 0 && files->config)
        r = file_read(files->config, TOKENIZER_MAX_FILE, &config, e);
    if (r == 0 && files->tokenizer_config)
        r = file_read(files->tokenizer_config, TOKENIZER_MAX_FILE, &tokenizer_config, e);
    f = (struct tokenizer_files){buf_str(&text), buf_str(&config), buf_str(&tokenizer_config)};
    if (r == 0)
        r = tokenizer_load_files(&t->tokenizer, &f, e);
    return r < 0 ? err_wrap(e, r, "tokenizer") : 0;
}

int model_text_load(struct model_text *ret, const struct model_card *card,
                    const struct model_places *places, const struct model_bytes *given,
                    size_t n_given, enum template_style style, enum chat_release release,
                    struct err *e)
{
    AUTO(model_files_done) struct model_files files = {0};
    AUTO(model_text_done) struct model_text t = {.tokenizer = NULL};
    AUTO(parsed_done) struct parsed config = {.json = NULL}, tokenizer_config = {.json = NULL};
    int r = model_files_resolve(card, places, given, n_given, &files, e);

    if (r == 0)
        r = load_tokenizer(&t, &files, e);
    if (r < 0)
        return r;
    config = parse(files.config);
    tokenizer_config = parse(files.tokenizer_config);
    t.chat = load_native(config.json, card->display_name, release);
    r = load_chat(&t, &files, &tokenizer_config, style, release, e);
    if (r == 0)
        r = load_eos(&t, &files, &config, e);
    if (r < 0)
        return r;
    if (release == CHAT_OF_1)
        tokenizer_leave_length(t.tokenizer);
    count_ids(&t, config.json);
    load_images(&t, &files, card->source_path, config.json, tokenizer_config.json);
    t.n_fetched = files.n_fetched;
    t.n_differ = files.n_differ;
    t.hold = TAKE(files.hold);
    t.has_room = files.has_room;
    t.n_evicted = files.n_evicted;
    t.hub_bytes = files.hub_bytes;
    *ret = t;
    t = (struct model_text){.tokenizer = NULL};
    return 0;
}

void model_text_done(struct model_text *t)
{
    chat_free(t->chat);
    tokenizer_free(t->tokenizer);
    hub_hold_free(t->hold);
    *t = (struct model_text){.tokenizer = NULL};
}
