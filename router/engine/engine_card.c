/* SPDX-License-Identifier: Apache-2.0 */
#include "router/engine/engine_card.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/json_put.h"
#include "router/discovery/records.h"

enum { DIRS_MAX = 5 };

/* A card without files: requests are served, prompts cut elsewhere. */
static struct model_card *card_of_words(const struct engine_card_spec *s)
{
    AUTO(buf_done) struct buf out = BUF_NULL, slug = BUF_NULL;
    struct json_put j = json_put_on(&out);
    struct model_card *card;
    struct err e;

    slug_put(&slug, str_from(s->name));
    json_put_object(&j);
    json_put_key(&j, "display_name");
    json_put_cstr(&j, s->name);
    json_put_key(&j, "slug");
    json_put_str(&j, buf_str(&slug));
    json_put_key(&j, "context_length");
    json_put_u64(&j, s->context_length);
    json_put_key(&j, "kv_cache_block_size");
    json_put_u64(&j, s->block_size);
    json_put_key(&j, "migration_limit");
    json_put_u64(&j, 0);
    json_put_key(&j, "model_type");
    json_put_cstr(&j, "Chat | Completions");
    json_put_key(&j, "model_input");
    json_put_cstr(&j, "Text");
    json_put_key(&j, "runtime_config");
    json_put_object(&j);
    json_put_key(&j, "total_kv_blocks");
    json_put_u64(&j, s->total_blocks);
    json_put_key(&j, "data_parallel_size");
    json_put_u64(&j, s->dp_size);
    json_put_object_end(&j);
    json_put_object_end(&j);
    if (model_card_parse(&card, buf_str(&out), &e) < 0)
        abort(); /* our own text */
    return card;
}

static bool has_config(const char *dir)
{
    AUTO(mem_free) char *path = xasprintf("%s/config.json", dir);

    return access(path, R_OK) == 0;
}

static struct model_card *card_of_dir(const struct engine_card_spec *s, const char *dir,
                                      struct err *e)
{
    const struct model_card_spec spec = {.dir = dir,
                                         .name = s->name,
                                         .kv_cache_block_size = s->block_size,
                                         .context_length = s->context_length,
                                         .total_kv_blocks = s->total_blocks,
                                         .dp_size = s->dp_size};
    struct model_card *card;

    return model_card_build(&card, &spec, e) < 0 ? NULL : card;
}

static struct model_card *build(const struct engine_card_spec *s, struct err *ret_why)
{
    AUTO(mem_free)
    char *by_name = s->model_root ? xasprintf("%s/%s", s->model_root, s->name) : NULL;
    AUTO(mem_free)
    char *by_id = s->model_root ? xasprintf("%s/%s", s->model_root, s->engine_id) : NULL;
    AUTO(mem_free)
    char *by_root = s->model_root && s->root ? xasprintf("%s/%s", s->model_root, s->root) : NULL;
    const char *const dirs[DIRS_MAX] = {s->model_path, s->root, by_name, by_id, by_root};

    ret_why->text[0] = '\0';
    for (size_t i = 0; i < DIRS_MAX; i++) {
        struct model_card *card;

        if (!dirs[i] || !has_config(dirs[i]))
            continue;
        card = card_of_dir(s, dirs[i], ret_why);
        return card ? card : card_of_words(s);
    }
    if (s->model_path)
        (void)err_set(ret_why, -ENOENT, "model path %s holds no config.json", s->model_path);
    return card_of_words(s);
}

struct model_card *engine_card_build(const struct engine_card_spec *s, struct err *ret_why)
{
    struct model_card *card = build(s, ret_why);

    if (s->is_lora)
        card->lora_name = xstrdup(s->engine_id);
    return card;
}
