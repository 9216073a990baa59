/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/models.h"

#include "lib/base/log.h"
#include "lib/net/side_pool.h"
#include "router/frontend/card_objects.h"

static const struct log_target LG = {"commutator::frontend::model"};

enum { LOADS_AT_ONCE = 4 };

struct models {
    struct loop *loop;
    struct serving *serving;
    const struct frontend_conf *conf;
    struct side_pool *side; /* loads */
    struct card_objects *objects;
    struct model_places places;
    char *hub_cache;
    struct strmap *coming; /* name -> struct model that follows the one in force */
};

struct models *models_new(struct loop *l, struct serving *serving, const struct frontend_conf *conf,
                          const char *(*env)(const char *name))
{
    const struct plane_client_conf plane = frontend_conf_plane(conf, "dynamo-frontend");
    struct models *ms = xcalloc(1, sizeof(*ms));

    ms->loop = l;
    ms->serving = serving;
    ms->conf = conf;
    ms->side = side_pool_new(l, LOADS_AT_ONCE);
    ms->objects = card_objects_new(l, &plane.nats);
    ms->hub_cache = model_hub_cache(env);
    ms->places = (struct model_places){.model_root = conf->model_root,
                                       .hub_cache = ms->hub_cache,
                                       .endpoint = conf->hf_endpoint,
                                       .token = conf->hf_token,
                                       .offline = conf->hf_offline,
                                       .max_bytes = conf->model_file_mb << 20,
                                       .kept_bytes = conf->model_cache_mb << 20,
                                       .stop = {side_pool_stopping, ms->side}};
    ms->coming = strmap_new();
    serving->models = strmap_new();
    serving->by_name = strmap_new();
    return ms;
}

static void drop(void *m)
{
    (void)model_drop(m);
}

struct models *models_free(struct models *ms)
{
    if (!ms)
        return NULL;
    ms->serving->models = strmap_free_with(ms->serving->models, drop);
    ms->serving->by_name = strmap_free(ms->serving->by_name);
    strmap_free_with(ms->coming, drop);
    card_objects_free(ms->objects); /* may still give work to the pool */
    side_pool_free(ms->side);
    free(ms->hub_cache);
    free(ms);
    return NULL;
}

/* New requests are its own, those under way stay with the old one. */
static void succeed(struct models *ms, struct model *m)
{
    struct model *old;

    (void)strmap_remove(ms->coming, str_from(m->pool->set));
    old = strmap_set(ms->serving->models, str_from(m->pool->set), m);
    serving_link_sets(ms->serving);
    m->busy_decode_blocks = old->busy_decode_blocks;
    m->busy_prefill_tokens = old->busy_prefill_tokens;
    log_info(&LG, "the changed model card is in force", LOG_STR("model", m->name),
             LOG_STR("mdc_sum", m->card->mdc_sum), LOG_STR("before", old->card->mdc_sum));
    model_drop(old);
}

static void on_ready(void *arg, struct model *m)
{
    struct models *ms = arg;

    serving_metrics_load(&ms->serving->metrics, m);
    if (m->state != MODEL_READY)
        return;
    if (strmap_get(ms->coming, str_from(m->pool->set)) == m)
        succeed(ms, m);
    serving_metrics_card(&ms->serving->metrics, m);
}

static struct model *load(struct models *ms, const struct served_model *found, struct pool *pool)
{
    const struct model_conf conf = {
        .loop = ms->loop,
        .side = ms->side,
        .places = &ms->places,
        .template_style = (enum template_style)ms->conf->template_style,
        .answer_style = (enum answer_style)ms->conf->answer_style,
        .reasoning_field = (enum reasoning_field)ms->conf->reasoning_field,
        .objects = ms->objects,
        .prompt_cache_bytes = ms->conf->tokenizer_cache ? ms->conf->tokenizer_cache_bytes : 0,
        .block_size = (uint32_t)ms->conf->kv_block_size,
        .route = &ms->serving->route,
        .ready = on_ready,
        .arg = ms};

    return model_new(found, &conf, pool);
}

struct model *models_add(struct models *ms, const struct served_model *found)
{
    struct model *m = load(ms, found, NULL);

    m->pool->min_workers = ms->conf->min_initial_workers;
    (void)strmap_set(ms->serving->models, str_from(m->pool->set), m);
    serving_link_sets(ms->serving);
    return m;
}

void models_change(struct models *ms, const struct served_model *found)
{
    struct str set = str_from(found->set ? found->set : found->name);
    const struct model *now = strmap_get(ms->serving->models, set);

    log_info(&LG, "model card changed, loading its files", LOG_STR("model", found->name),
             LOG_STR("mdc_sum", found->card->mdc_sum), LOG_STR("before", now->card->mdc_sum));
    model_drop(strmap_set(ms->coming, set, load(ms, found, now->pool)));
}

struct model *models_remove(struct models *ms, const char *set)
{
    struct model *m;

    model_drop(strmap_remove(ms->coming, str_from(set)));
    m = strmap_remove(ms->serving->models, str_from(set));
    serving_link_sets(ms->serving);
    return m;
}
