/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cards and the files they name: making a card of a directory, finding a card's files.
 */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "lib/net/file.h"
#include "router/discovery/card_inner.h"
#include "router/discovery/model_cache.h"
#include "router/discovery/records.h"

static const struct log_target LG = {"commutator::model_files"};

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
    f->size = text.len;
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

/* The reference's order: tokenizer.json, else tiktoken.model, else the only file *.tiktoken. A
 * tokenizer.model, Llama 3's own or SentencePiece's, comes last. */
static int tokenizer_add(struct model_card *c, const char *dir, struct err *e)
{
    static const char *const names[] = {"tokenizer.json", "tiktoken.model", NULL,
                                        "tokenizer.model"};
    AUTO(mem_free) char *pattern = xasprintf("%s/*.tiktoken", dir);
    glob_t found = {0};
    int r = 0;

    (void)glob(pattern, 0, NULL, &found);
    for (size_t i = 0; r == 0 && !c->tokenizer.path && i < ARRAY_LEN(names); i++) {
        if (names[i])
            r = file_add(&c->tokenizer, dir, names[i], NULL, e);
        else if (found.gl_pathc == 1)
            r = file_add(&c->tokenizer, dir, strrchr(found.gl_pathv[0], '/') + 1, NULL, e);
        else if (found.gl_pathc > 1)
            r = err_set(e, -EINVAL, "'%s' has several files *.tiktoken", dir);
    }
    globfree(&found);
    return r;
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
        r = tokenizer_add(c, dir, e);
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
    c->is_decode = spec->is_decode;
    c->is_of_1 = true; /* model_card_put() names the role */
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

/* Others are told where the files are served, not where they lie. */
static void serve_by_url(struct model_card *c, const char *url)
{
    for (size_t i = 0; i < CARD_FILES; i++) {
        /* The card is still ours alone. */
        struct card_file *f = (struct card_file *)(uintptr_t)model_card_file(c, i);
        char *path = f->path;

        if (!path)
            continue;
        f->path = xasprintf("%s%s", url, strrchr(path, '/'));
        free(path);
    }
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
    if (spec->url)
        serve_by_url(c, spec->url);
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
    hub_hold_free(f->hold);
    *f = (struct model_files){0};
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The search for one file. */
struct search {
    const struct model_card *c;
    const struct model_places *places;
    const struct card_file *file;
    struct model_files *all;
    const char *name; /* its last path segment */
    char *found;      /* the right one */
    char *similar;    /* the first of that name with another checksum */
    bool fetched;
};

/* True when the search is over. */
static bool consider(struct search *s, const char *path)
{
    if (!is_file(path))
        return false;
    if (!s->file->checksum || model_file_is(path, s->file->checksum)) {
        s->found = xstrdup(path);
        return true;
    }
    if (!s->similar)
        s->similar = xstrdup(path);
    return false;
}

/* Name of the repository, as the worker knows it. */
static const char *source_of(const struct model_card *c)
{
    return c->source_path ? c->source_path : c->display_name;
}

static bool search_folders(struct search *s)
{
    const char *root = s->places->model_root;
    AUTO(mem_free) char *in_root = root ? xasprintf("%s/%s", root, s->c->display_name) : NULL;
    AUTO(mem_free) char *by_slug = root ? xasprintf("%s/%s", root, s->c->slug) : NULL;
    const char *const dirs[] = {in_root, by_slug, s->c->source_path, s->c->display_name};

    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        AUTO(mem_free) char *path = dirs[i] ? xasprintf("%s/%s", dirs[i], s->name) : NULL;

        if (path && consider(s, path))
            return true;
    }
    return false;
}

static bool search_cache(struct search *s)
{
    const char *hub = s->places->hub_cache, *source = source_of(s->c);
    AUTO(mem_free) char *any = NULL;

    s->found = model_cache_find(hub, source, s->name, s->file->checksum);
    if (s->found)
        return true;
    any = model_cache_find(hub, source, s->name, NULL);
    return any && consider(s, any);
}

static bool is_web(const char *path)
{
    return strncmp(path, "http://", 7) == 0 || strncmp(path, "https://", 8) == 0;
}

/* 0 with s->found or s->similar set, or why it cannot be had. */
static int fetch(struct search *s, struct err *e)
{
    AUTO(mem_free) char *path = NULL;
    int r;

    if (is_web(s->file->path)) {
        uint64_t size = s->file->size ? s->file->size : UINT64_MAX;

        r = model_worker_get(s->places, s->file->path, s->file->checksum, size, &s->found, e);
        s->fetched = r == 0;
        return r;
    }
    r = model_hub_get(s->places, source_of(s->c), s->name, &s->all->hold, &path, e);
    s->fetched = r == 0;
    s->all->has_room = s->all->has_room || r == 0;
    if (r == 0)
        (void)consider(s, path);
    return r;
}

static int file_search(struct search *s, const struct model_bytes *given, size_t n_given,
                       struct err *e)
{
    struct err why;
    int r;

    for (size_t i = 0; i < n_given; i++) {
        if (strcmp(given[i].path, s->file->path) != 0)
            continue;
        s->fetched = true;
        r = model_bytes_keep(s->places, given[i].bytes, s->file->checksum, &s->found, e);
        return r < 0 ? err_wrap(e, r, "'%.200s'", s->file->path) : 0;
    }
    if (consider(s, s->file->path) || search_folders(s) || search_cache(s))
        return 0;
    r = fetch(s, &why);
    if (r == -ECANCELED || (r < 0 && !s->similar))
        return err_set(e, r,
                       "model '%.100s': '%.150s' does not exist here, nor does %.40s below "
                       "'%.100s'; %s",
                       s->c->display_name, s->file->path, s->name,
                       s->places->model_root ? s->places->model_root : s->c->display_name,
                       why.text);
    return 0;
}

static int file_resolve(struct search *s, const struct model_bytes *given, size_t n_given,
                        struct model_files *f, char **ret, struct err *e)
{
    const char *slash;
    int r;

    if (!s->file->path)
        return 0;
    slash = strrchr(s->file->path, '/');
    s->name = slash ? slash + 1 : s->file->path;
    r = file_search(s, given, n_given, e);
    f->n_fetched += s->fetched;
    if (r == 0 && !s->found) {
        log_warn(&LG, "model file differs from the worker's", LOG_STR("model", s->c->display_name),
                 LOG_STR("path", s->similar), LOG_STR("worker_has", s->file->checksum));
        f->n_differ++;
        s->found = TAKE(s->similar);
    }
    *ret = r == 0 ? TAKE(s->found) : NULL;
    free(s->found);
    free(s->similar);
    return r;
}

static void make_room(const struct model_places *places, struct model_files *f)
{
    struct hub_room room;

    model_hub_trim(places, &room);
    f->n_evicted = room.evicted;
    f->hub_bytes = room.bytes;
}

int model_files_resolve(const struct model_card *c, const struct model_places *places,
                        const struct model_bytes *given, size_t n_given, struct model_files *ret,
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

    int r = model_hub_hold(places, source_of(c), &f.hold, e);

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(all); i++) {
        struct search s = {.c = c, .places = places, .file = all[i].file, .all = &f};

        r = file_resolve(&s, given, n_given, &f, all[i].path, e);
    }
    if (r < 0)
        return r;
    if (f.has_room)
        make_room(places, &f);
    *ret = f;
    f = (struct model_files){0};
    return 0;
}
