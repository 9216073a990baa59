/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the store reports is kept as parsed entries; changes of one turn are answered by one rebuild
 * of the table (instances_build.c) at its end, and by the difference of old and new
 * (instances_diff.c). A table of 1,000 workers takes well under a millisecond.
 */
#include "router/discovery/instances.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/strmap.h"
#include "router/discovery/instances_inner.h"

static const struct log_target LG = {"dynamo_llm::discovery::watcher"};

struct instances {
    struct loop *loop;
    struct store *store;
    struct instances_conf conf;
    char *ns_filter;        /* NULL = all */
    struct strmap *entries; /* store key → struct entry */
    uint64_t next_seq;
    bool dirty, synced, up, freed;
    struct instances_stats stats;
    pthread_mutex_t lock; /* of `table`, which other threads take references from */
    struct model_table *table;
};

/* --- entries ---------------------------------------------------------------------------------- */

static void entry_clear(struct entry *en)
{
    free(en->ns);
    free(en->component);
    free(en->endpoint);
    free(en->topic);
    free(en->address);
    en->card = model_card_unref(en->card);
}

static void entry_free(void *value)
{
    struct entry *en = value;

    entry_clear(en);
    free(en);
}

static void rebuild(void *arg);

static void mark_dirty(struct instances *ix)
{
    if (ix->dirty)
        return;
    ix->dirty = true;
    loop_defer(ix->loop, rebuild, ix);
}

static void entry_fill(struct entry *en, const struct record *rec, struct model_card *take_card)
{
    entry_clear(en);
    en->good = true;
    en->bad_logged = false;
    en->kind = rec->kind;
    en->transport = rec->transport;
    en->id = rec->instance_id;
    en->ns = str_dup(rec->ns);
    en->component = str_dup(rec->component);
    en->endpoint = str_dup(rec->endpoint);
    en->topic = str_dup(rec->topic);
    en->address = str_dup(rec->address);
    en->card = take_card;
}

static struct entry *entry_need(struct instances *ix, struct str key)
{
    struct entry *en = strmap_get(ix->entries, key);

    if (en)
        return en;
    en = xcalloc(1, sizeof(*en));
    en->seq = ix->next_seq++;
    (void)strmap_set(ix->entries, key, en);
    return en;
}

/* 0, RECORD_UNKNOWN or what is wrong. */
static int entry_parse(struct instances *ix, struct entry *en, struct str json, struct err *e)
{
    AUTO(buf_done) struct buf scratch = BUF_NULL;
    AUTO(model_card_unref) struct model_card *card = NULL;
    struct record rec;
    int r;

    r = record_parse(json, &scratch, &rec, e);
    if (r == 0 && rec.kind == RECORD_MODEL)
        r = model_card_parse(&card, rec.card_json, e);
    if (r != 0)
        return r;
    entry_fill(en, &rec, TAKE(card));
    en->ignored = ix->ns_filter && strcmp(en->ns, ix->ns_filter) != 0;
    return 0;
}

static void on_put(void *arg, struct str key, struct str json)
{
    struct instances *ix = arg;
    struct entry *en = entry_need(ix, key);
    struct err e;
    int r = entry_parse(ix, en, json, &e);

    if (r == 0) {
        mark_dirty(ix);
    } else if (r == RECORD_UNKNOWN) {
        ix->stats.unknown_records++;
    } else {
        ix->stats.bad_records++;
        if (!en->bad_logged)
            log_warn(&LG, "bad discovery record", LOG_VIEW("key", key), LOG_STR("why", e.text),
                     LOG_BOOL("last_good_kept", en->good));
        en->bad_logged = true;
    }
}

static void on_gone(void *arg, struct str key)
{
    struct instances *ix = arg;
    struct entry *en = strmap_remove(ix->entries, key);

    if (!en)
        return;
    entry_free(en);
    mark_dirty(ix);
}

static void on_synced(void *arg)
{
    struct instances *ix = arg;

    ix->synced = true;
    mark_dirty(ix);
}

static void on_state(void *arg, bool up, const char *why)
{
    struct instances *ix = arg;

    if (ix->up != up)
        log_at_(up ? LOG_INFO : LOG_WARN, &LG,
                up ? "discovery is up" : "discovery is down, keeping what is known",
                LOG_STR("why", why ? why : ""));
    ix->up = up;
}

/* --- the table in force ----------------------------------------------------------------------- */

static struct model_table *table_swap(struct instances *ix, struct model_table *take_table)
{
    struct model_table *old;

    (void)pthread_mutex_lock(&ix->lock);
    old = ix->table;
    ix->table = take_table;
    (void)pthread_mutex_unlock(&ix->lock);
    return old;
}

static void refusals_log(struct instances *ix)
{
    struct str key;
    void *value;

    for (size_t at = 0; strmap_next(ix->entries, &at, &key, &value);) {
        struct entry *en = value;

        if (!en->refused || en->refused_logged)
            continue;
        en->refused_logged = true;
        ix->stats.refused_cards++;
        log_error(&LG, "model card differs from that of the served model, ignored",
                  LOG_STR("model", en->card->display_name), LOG_U64("instance_id", en->id),
                  LOG_STR("mdc_sum", en->card->mdc_sum));
    }
}

static void stats_count(struct instances *ix, const struct model_table *t)
{
    ix->stats.records = strmap_len(ix->entries);
    ix->stats.models = t->n_models;
    ix->stats.workers = 0;
    for (size_t i = 0; i < t->n_models; i++)
        ix->stats.workers += t->models[i].n_workers;
}

static void rebuild(void *arg)
{
    struct instances *ix = arg;
    AUTO(model_table_unref) struct model_table *old = NULL;
    AUTO(model_table_unref) struct model_table *now = NULL;

    if (ix->freed)
        return;
    ix->dirty = false;
    now = model_table_build(ix->entries, ix->table->version + 1);
    refusals_log(ix);
    stats_count(ix, now);
    old = table_swap(ix, model_table_ref(now));
    if (ix->conf.event)
        model_table_diff(old, now, ix->conf.event, ix->conf.arg);
    if (ix->conf.changed)
        ix->conf.changed(ix->conf.arg, now);
}

struct model_table *instances_table(const struct instances *ix)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&ix->lock;
    struct model_table *t;

    (void)pthread_mutex_lock(lock);
    t = model_table_ref(ix->table);
    (void)pthread_mutex_unlock(lock);
    return t;
}

/* --- life ------------------------------------------------------------------------------------- */

int instances_new(struct instances **ret, struct loop *l, struct store *store,
                  const struct instances_conf *conf, struct err *e)
{
    static const struct store_watcher watcher = {on_put, on_gone, on_synced, on_state};
    AUTO(instances_free) struct instances *ix = xcalloc(1, sizeof(*ix));
    int r;

    ix->loop = l;
    ix->store = store;
    ix->conf = *conf;
    ix->up = true;
    /* The global namespace as a filter means every namespace. */
    if (conf->ns_filter && *conf->ns_filter && strcmp(conf->ns_filter, "dynamo") != 0)
        ix->ns_filter = xstrdup(conf->ns_filter);
    ix->conf.ns_filter = NULL;
    ix->entries = strmap_new();
    ix->table = model_table_build(ix->entries, 0);
    (void)pthread_mutex_init(&ix->lock, NULL);
    r = store_watch(store, &watcher, ix, e);
    if (r < 0)
        return r;
    *ret = TAKE(ix);
    return 0;
}

static void instances_drop(void *arg)
{
    struct instances *ix = arg;

    (void)strmap_free_with(ix->entries, entry_free);
    (void)model_table_unref(ix->table);
    (void)pthread_mutex_destroy(&ix->lock);
    free(ix->ns_filter);
    free(ix);
}

struct instances *instances_free(struct instances *ix)
{
    if (!ix)
        return NULL;
    ix->freed = true;
    store_unwatch(ix->store);
    /* Behind a rebuild that may be due this turn. */
    loop_defer(ix->loop, instances_drop, ix);
    return NULL;
}

bool instances_synced(const struct instances *ix)
{
    return ix->synced;
}

bool instances_store_up(const struct instances *ix)
{
    return ix->up;
}

struct instances_stats instances_stats(const struct instances *ix)
{
    return ix->stats;
}
