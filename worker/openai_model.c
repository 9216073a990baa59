/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/openai_model.h"

#include <errno.h>

#include "lib/base/json_tree.h"
#include "lib/net/file.h"
#include "router/discovery/model_cache.h"

static int read_json(const char *path, struct json **ret, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = file_read(path, TOKENIZER_MAX_FILE, &text, e);

    if (r == 0)
        r = json_parse(ret, buf_str(&text), e);
    return r < 0 ? err_wrap(e, r, "%s", path) : 0;
}

static int load_tokenizer(struct openai_model *m, const char *path, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r;

    if (!path)
        return err_set(e, -ENOENT, "the model has no tokenizer.json");
    r = file_read(path, TOKENIZER_MAX_FILE, &text, e);
    if (r == 0)
        r = tokenizer_load(&m->tokenizer, buf_str(&text), e);
    if (r < 0)
        return err_wrap(e, r, "tokenizer");
    m->scratch = tokenizer_scratch_new(m->tokenizer);
    return 0;
}

static int load_chat(struct openai_model *m, const struct model_files *f, struct err *e)
{
    AUTO(json_free) struct json *config = NULL;
    AUTO(buf_done) struct buf template = BUF_NULL;
    int r;

    if (!f->tokenizer_config)
        return 0;
    r = read_json(f->tokenizer_config, &config, e);
    if (r == 0 && f->chat_template)
        r = file_read(f->chat_template, TOKENIZER_MAX_FILE, &template, e);
    if (r == 0)
        r = chat_load(&m->chat, config, buf_str(&template), TEMPLATE_TRANSFORMERS, e);
    return r == -ENOENT ? 0 : r;
}

/* The first end of sequence that a file names. */
static void load_eos(struct openai_model *m, const char *path)
{
    AUTO(json_free) struct json *config = NULL;
    const struct json *ids;
    struct err e;
    int64_t id;

    if (m->has_eos || !path || read_json(path, &config, &e) < 0)
        return;
    ids = json_get(config, "eos_token_id");
    m->has_eos = json_i64(json_is_array(ids) ? json_at(ids, 0) : ids, &id);
    if (m->has_eos)
        m->eos = (uint32_t)id;
}

int openai_model_load(struct openai_model *ret, const struct model_card *card, struct err *e)
{
    AUTO(model_files_done) struct model_files files = {0};
    const struct model_places here = {.model_root = NULL};
    int r = model_files_resolve(card, &here, NULL, 0, &files, e);

    *ret = (struct openai_model){.has_eos = false};
    if (r == 0)
        r = load_tokenizer(ret, files.tokenizer, e);
    if (r == 0)
        r = load_chat(ret, &files, e);
    if (r < 0)
        return err_wrap(e, r, "OpenAI API of '%s'", card->display_name);
    load_eos(ret, files.generation_config);
    load_eos(ret, files.config);
    return 0;
}

void openai_model_done(struct openai_model *m)
{
    chat_free(m->chat);
    tokenizer_scratch_free(m->scratch);
    tokenizer_free(m->tokenizer);
    *m = (struct openai_model){.has_eos = false};
}
