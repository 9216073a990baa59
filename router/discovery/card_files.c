/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cards and the files they name: making a card of a directory, finding a card's files.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/net/file.h"
#include "router/discovery/card_inner.h"
#include "router/discovery/records.h"

enum { MODEL_FILE_BYTES_MAX = 512 << 20 };

/* --- making a card ---------------------------------------------------------------------------- */

/* Lists @name of @dir when it is there. @ret_text (may be NULL) is its content. */
static int file_add(struct card_file *f, const char *dir, const char *name, struct buf *ret_text,
                    struct err *e)
{
    AUTO(mem_free) char *path = xasprintf("%s/%s", dir, name);
    AUTO(buf_done) struct buf text = BUF_NULL;
    char hex[DIGEST_HEX_SIZE];
    int r;

    r = file_read(path, MODEL_FILE_BYTES_MAX, &text, e);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    digest_blake3_hex(buf_str(&text), hex);
    f->path = TAKE(path);
    f->checksum = xasprintf("blake3:%s", hex);
    if (ret_text)
        buf_put_str(ret_text, buf_str(&text));
    return 0;
}

static uint32_t number_of(struct str json, const char *key)
{
    AUTO(json_free) struct json *v = NULL;
    int64_t n = 0;

    if (!json.len || json_parse(&v, json, NULL) < 0)
        return 0;
    if (!json_get_i64(v, key, &n))
        (void)json_get_i64(json_get(v, "text_config"), key, &n);
    return n > 0 && n <= UINT32_MAX ? (uint32_t)n : 0;
}

static int files_add(struct model_card *c, const char *dir, struct err *e)
{
    AUTO(buf_done) struct buf config = BUF_NULL;
    AUTO(buf_done) struct buf tokenizer_config = BUF_NULL;
    int r;

    r = file_add(&c->model_info, dir, "config.json", &config, e);
    if (r == 0 && !c->model_info.path)
        r = err_set(e, -ENOENT, "'%s/config.json' does not exist", dir);
    if (r == 0)
        r = file_add(&c->tokenizer, dir, "tokenizer.json", NULL, e);
    if (r == 0)
        r = file_add(&c->prompt_formatter, dir, "tokenizer_config.json", &tokenizer_config, e);
    if (r == 0)
        r = file_add(&c->chat_template, dir, "chat_template.jinja", NULL, e);
    if (r == 0)
        r = file_add(&c->gen_config, dir, "generation_config.json", NULL, e);
    if (r < 0)
        return r;
    if (!c->context_length)
        c->context_length = number_of(buf_str(&config), "max_position_embeddings");
    if (!c->context_length)
        c->context_length = number_of(buf_str(&tokenizer_config), "model_max_length");
    return 0;
}

static void spec_copy(struct model_card *c, const struct model_card_spec *spec)
{
    AUTO(buf_done) struct buf slug = BUF_NULL;

    c->display_name = xstrdup(spec->name && *spec->name ? spec->name : spec->dir);
    slug_put(&slug, str_from(c->display_name));
    c->slug = buf_take_cstr(&slug);
    c->context_length = spec->context_length;
    c->kv_cache_block_size = spec->kv_cache_block_size;
    c->migration_limit = spec->migration_limit;
    c->flags = spec->flags ? spec->flags : MODEL_CHAT | MODEL_COMPLETIONS;
    c->is_prefill = (c->flags & MODEL_PREFILL) != 0;
    c->input = MODEL_INPUT_TOKENS;
    c->total_kv_blocks = spec->total_kv_blocks;
    c->max_num_seqs = spec->max_num_seqs;
    c->max_num_batched_tokens = spec->max_num_batched_tokens;
    c->dp_size = spec->dp_size ? spec->dp_size : 1;
    c->has_local_indexer = true;
    c->local_indexer = spec->local_indexer;
    c->tool_call_parser = spec->tool_call_parser ? xstrdup(spec->tool_call_parser) : NULL;
    c->reasoning_parser = spec->reasoning_parser ? xstrdup(spec->reasoning_parser) : NULL;
    c->bootstrap_host = spec->bootstrap_host ? xstrdup(spec->bootstrap_host) : NULL;
    c->bootstrap_port = spec->bootstrap_port;
}

int model_card_build(struct model_card **ret, const struct model_card_spec *spec, struct err *e)
{
    AUTO(model_card_unref) struct model_card *c = model_card_new();
    AUTO(mem_free) char *dir = realpath(spec->dir, NULL);
    int r;

    if (!dir)
        return err_errno(e, -errno, "model directory '%s'", spec->dir);
    spec_copy(c, spec);
    r = files_add(c, dir, e);
    if (r < 0)
        return err_wrap(e, r, "model directory '%s'", spec->dir);
    model_card_sum(c, STR_NULL, c->context_length);
    *ret = TAKE(c);
    return 0;
}

/* --- finding files ---------------------------------------------------------------------------- */

void model_files_done(struct model_files *f)
{
    free(f->config);
    free(f->tokenizer);
    free(f->tokenizer_config);
    free(f->chat_template);
    free(f->generation_config);
    *f = (struct model_files){0};
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The first of the places that a file of @c may be that has it; owned, or NULL. */
static char *file_find(const struct model_card *c, const char *root, const char *name)
{
    AUTO(mem_free) char *in_root = root ? xasprintf("%s/%s", root, c->display_name) : NULL;
    AUTO(mem_free) char *by_slug = root ? xasprintf("%s/%s", root, c->slug) : NULL;
    const char *const dirs[] = {in_root, by_slug, c->source_path, c->display_name};

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO(mem_free) char *path = dirs[i] ? xasprintf("%s/%s", dirs[i], name) : NULL;

        if (path && is_file(path))
            return TAKE(path);
    }
    return NULL;
}

static int file_resolve(const struct model_card *c, const char *root, const struct card_file *f,
                        char **ret, struct err *e)
{
    const char *name;

    if (!f->path)
        return 0;
    if (is_file(f->path)) {
        *ret = xstrdup(f->path);
        return 0;
    }
    name = strrchr(f->path, '/');
    name = name ? name + 1 : f->path;
    *ret = *name ? file_find(c, root, name) : NULL;
    if (*ret)
        return 0;
    if (strncmp(f->path, "http://", 7) == 0 || strncmp(f->path, "https://", 8) == 0)
        return err_set(e, -ENOTSUP, "model '%.100s': '%.200s' would have to be fetched",
                       c->display_name, f->path);
    return err_set(e, -ENOENT,
                   "model '%.100s': '%.150s' does not exist here, nor does %.40s below '%.100s'",
                   c->display_name, f->path, name, root ? root : c->display_name);
}

int model_files_resolve(const struct model_card *c, const char *model_root, struct model_files *ret,
                        struct err *e)
{
    AUTO(model_files_done) struct model_files f = {0};
    const struct {
        const struct card_file *file;
        char **path;
    } all[] = {
        {&c->model_info, &f.config},
        {&c->tokenizer, &f.tokenizer},
        {&c->prompt_formatter, &f.tokenizer_config},
        {&c->chat_template, &f.chat_template},
        {&c->gen_config, &f.generation_config},
    };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        int r = file_resolve(c, model_root, all[i].file, all[i].path, e);

        if (r < 0)
            return r;
    }
    *ret = f;
    f = (struct model_files){0};
    return 0;
}
