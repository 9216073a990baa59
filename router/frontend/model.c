/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/model.h"

#include <errno.h>
#include <math.h>

#include "lib/base/json_tree.h"
#include "lib/base/log.h"
#include "lib/base/map64.h"
#include "lib/net/file.h"

static const struct log_target LG = {"commutator::frontend::model"};

enum { FILE_BYTES_MAX = 64 << 20, EOS_MAX = 64, SPARE_MAX = 8 };

/* --- loading, on a pool thread -----------------------------------------------------------------
 */

/* What loading reads and gives; the model itself is not touched meanwhile. */
struct load {
    struct model *m; /* holds a reference */
    struct model_card *card;
    char *model_root;
    struct tokenizer *tokenizer;
    struct chat *chat;
    uint32_t eos_ids[EOS_MAX];
    size_t n_eos_ids;
    int r;
    struct err e;
};

static int read_json(const char *path, struct json **ret, struct err *e)
{
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = file_read(path, FILE_BYTES_MAX, &text, e);

    if (r == 0)
        r = json_parse(ret, buf_str(&text), e);
    return r < 0 ? err_wrap(e, r, "%s", path) : 0;
}

/* A single id or an array of them. */
static void take_eos(struct load *l, const struct json *ids)
{
    int64_t id;

    if (json_i64(ids, &id)) {
        l->eos_ids[l->n_eos_ids++] = (uint32_t)id;
        return;
    }
    JSON_FOREACH (one, ids)
        if (l->n_eos_ids < EOS_MAX && json_i64(one, &id))
            l->eos_ids[l->n_eos_ids++] = (uint32_t)id;
}

/* The first of generation_config, config and its text_config that names any (wire.md §8.3). */
static int load_eos(struct load *l, const struct model_files *files)
{
    AUTO(json_free) struct json *generation = NULL, *config = NULL;
    int r;

    if (files->generation_config) {
        r = read_json(files->generation_config, &generation, &l->e);
        if (r < 0)
            return r;
        take_eos(l, json_get(generation, "eos_token_id"));
    }
    if (l->n_eos_ids || !files->config)
        return 0;
    r = read_json(files->config, &config, &l->e);
    if (r < 0)
        return r;
    take_eos(l, json_get(config, "eos_token_id"));
    if (!l->n_eos_ids)
        take_eos(l, json_path(config, "text_config", "eos_token_id", NULL));
    return 0;
}

static int load_chat(struct load *l, const struct model_files *files)
{
    AUTO(json_free) struct json *config = NULL;
    AUTO(buf_done) struct buf template = BUF_NULL;
    int r;

    if (!files->tokenizer_config)
        return 0;
    r = read_json(files->tokenizer_config, &config, &l->e);
    if (r == 0 && files->chat_template)
        r = file_read(files->chat_template, FILE_BYTES_MAX, &template, &l->e);
    if (r < 0)
        return r;
    r = chat_load(&l->chat, config, buf_str(&template), &l->e);
    return r == -ENOENT ? 0 : r; /* without a template the model serves completions */
}

static int load_files(struct load *l)
{
    AUTO(model_files_done) struct model_files files = {0};
    AUTO(buf_done) struct buf text = BUF_NULL;
    int r = model_files_resolve(l->card, l->model_root, &files, &l->e);

    if (r < 0)
        return r;
    if (!files.tokenizer)
        return err_set(&l->e, -ENOTSUP, "its card names no tokenizer.json");
    r = file_read(files.tokenizer, FILE_BYTES_MAX, &text, &l->e);
    if (r == 0)
        r = tokenizer_load(&l->tokenizer, buf_str(&text), &l->e);
    if (r < 0)
        return err_wrap(&l->e, r, "tokenizer");
    r = load_chat(l, &files);
    if (r < 0)
        return err_wrap(&l->e, r, "chat template");
    return load_eos(l, &files);
}

static void load_work(void *arg)
{
    struct load *l = arg;

    l->r = load_files(l);
}

static void load_done(void *arg)
{
    struct load *l = arg;
    struct model *m = l->m;

    if (l->r == 0) {
        m->tokenizer = TAKE(l->tokenizer);
        m->chat = TAKE(l->chat);
        m->n_eos_ids = l->n_eos_ids;
        m->eos_ids = xreallocarray(NULL, MAX(l->n_eos_ids, (size_t)1), sizeof(*m->eos_ids));
        memcpy(m->eos_ids, l->eos_ids, l->n_eos_ids * sizeof(*m->eos_ids));
        m->state = MODEL_READY;
        log_info(&LG, "model ready", LOG_STR("model", m->name), LOG_BOOL("chat", m->chat != NULL),
                 LOG_U64("block_size", scheduler_block_size(m->scheduler)),
                 LOG_U64("context_length", m->card->context_length));
    } else {
        m->why = l->e;
        m->state = MODEL_FAILED;
        log_error(&LG, "model cannot be served", LOG_STR("model", m->name),
                  LOG_STR("why", l->e.text));
    }
    m->conf.ready(m->conf.arg, m);
    tokenizer_free(l->tokenizer);
    chat_free(l->chat);
    model_card_unref(l->card);
    model_unref(m);
    free(l->model_root);
    free(l);
}

/* --- the model ---------------------------------------------------------------------------------
 */

static char *lower(const char *name)
{
    char *copy = xstrdup(name);

    for (char *c = copy; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
    return copy;
}

struct model *model_new(const struct served_model *found, const struct model_conf *conf)
{
    struct model *m = xcalloc(1, sizeof(*m));
    struct load *l = xcalloc(1, sizeof(*l));
    uint32_t block_size = conf->block_size ? conf->block_size : found->card->kv_cache_block_size;

    m->refs = 1;
    m->conf = *conf;
    m->name = xstrdup(found->name);
    m->label = lower(found->name);
    m->card = model_card_ref(found->card);
    m->ns = xstrdup(found->ns);
    m->component = xstrdup(found->component);
    m->endpoint = xstrdup(found->endpoint);
    m->busy_decode_blocks = m->busy_prefill_tokens = NAN;
    m->scheduler = scheduler_new(MAX(block_size, 1u), conf->route);
    m->addresses = xcalloc(1, sizeof(*m->addresses));
    m->inhibited = xcalloc(1, sizeof(*m->inhibited));
    model_configure(m);

    l->m = model_ref(m);
    l->card = model_card_ref(m->card);
    l->model_root = conf->model_root ? xstrdup(conf->model_root) : NULL;
    loop_work(conf->loop, load_work, load_done, l);
    return m;
}

struct model *model_ref(struct model *m)
{
    m->refs++;
    return m;
}

static void free_addresses(struct map64 *addresses)
{
    uint64_t id, text;
    size_t at = 0;

    while (map64_next(addresses, &at, &id, &text))
        free((char *)(uintptr_t)text);
    map64_done(addresses);
    free(addresses);
}

struct model *model_unref(struct model *m)
{
    if (!m || --m->refs > 0)
        return NULL;
    for (size_t i = 0; i < m->n_spare; i++)
        tokenizer_scratch_free(m->spare[i]);
    free(m->spare);
    free_addresses(m->addresses);
    map64_done(m->inhibited);
    free(m->inhibited);
    scheduler_free(m->scheduler);
    chat_free(m->chat);
    tokenizer_free(m->tokenizer);
    free(m->eos_ids);
    model_card_unref(m->card);
    free(m->name);
    free(m->label);
    free(m->ns);
    free(m->component);
    free(m->endpoint);
    free(m);
    return NULL;
}

void model_configure(struct model *m)
{
    struct route_conf c = *m->conf.route;

    if (!isnan(m->busy_decode_blocks))
        c.busy_decode_blocks = m->busy_decode_blocks;
    if (!isnan(m->busy_prefill_tokens))
        c.busy_prefill_tokens = m->busy_prefill_tokens;
    scheduler_configure(m->scheduler, &c);
}

void model_put_worker(struct model *m, const struct worker *w)
{
    const struct model_card *card = w->card ? w->card : m->card;
    uint64_t *at = map64_put(m->addresses, w->id, NULL);
    struct worker_info info = {.worker_id = w->id,
                               .dp_start = card->dp_start,
                               .dp_size = card->dp_size,
                               .total_kv_blocks = card->total_kv_blocks,
                               .max_num_seqs = card->max_num_seqs};

    free((char *)(uintptr_t)*at);
    *at = (uint64_t)(uintptr_t)xstrdup(w->address);
    (void)map64_remove(m->inhibited, w->id, NULL);
    if (!scheduler_put_worker(m->scheduler, &info))
        log_warn(&LG, "no room for another worker, ignoring", LOG_U64("worker_id", w->id));
}

void model_remove_worker(struct model *m, uint64_t worker_id)
{
    uint64_t text;

    if (map64_remove(m->addresses, worker_id, &text))
        free((char *)(uintptr_t)text);
    (void)map64_remove(m->inhibited, worker_id, NULL);
    scheduler_remove_worker(m->scheduler, worker_id);
}

struct str model_worker_address(const struct model *m, uint64_t worker_id)
{
    return str_from(map64_find_ptr(m->addresses, worker_id));
}

void model_inhibit(struct model *m, uint64_t worker_id)
{
    *map64_put(m->inhibited, worker_id, NULL) = loop_now_ms(m->conf.loop) + MODEL_INHIBIT_MS;
}

size_t model_inhibited(struct model *m, uint64_t *ret_ids, size_t cap)
{
    uint64_t now = loop_now_ms(m->conf.loop), id, until;
    size_t at = 0, n = 0;

    while (n < cap && map64_next(m->inhibited, &at, &id, &until))
        if (until > now)
            ret_ids[n++] = id;
    if (n == 0 && m->inhibited->len)
        map64_clear(m->inhibited);
    return n;
}

struct tokenizer_scratch *model_take_scratch(struct model *m)
{
    return m->n_spare ? m->spare[--m->n_spare] : tokenizer_scratch_new(m->tokenizer);
}

void model_give_scratch(struct model *m, struct tokenizer_scratch *take_scratch)
{
    if (m->n_spare == SPARE_MAX) {
        tokenizer_scratch_free(take_scratch);
        return;
    }
    if (!m->spare)
        m->spare = xcalloc(SPARE_MAX, sizeof(struct tokenizer_scratch *));
    m->spare[m->n_spare++] = take_scratch;
}
